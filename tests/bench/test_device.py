"""The script for CUDA machines, tried on the CPU; what needs the device is not run here."""

import json

import pytest
import torch

from ablate.bench import device, encoder_rows
from ablate.bench.encoder_sides import our_model

pytestmark = pytest.mark.filterwarnings(
    "ignore:Dynamo detected a call to a `functools.lru_cache`",
    "ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning",
)
SHAPE = encoder_rows.Shape("modernbert", length=200, **{**encoder_rows.TINY, "heads": 1})


def test_every_part_runs_at_toy_sizes(bench):
    code, out, _ = bench("device", "--device", "cpu", "--tiny", "--json")
    found = json.loads(out)
    assert code == 0
    assert found["parity"]["backend"] == "sdpa"
    assert 1e-4 < found["parity"]["hidden"] < found["parity"]["allowed"]
    rows = {row["name"]: row for row in found["rows"]}
    for name in ("ours", "ours compiled", "transformers sdpa"):
        assert rows[name]["tokens_per_second"] > 0
        assert rows[name]["last_loss"] < rows[name]["first_loss"]
    assert rows["ours"]["parameters"] == rows["transformers sdpa"]["parameters"]
    assert "flash_attn" in rows["transformers flash"]["left_out"]
    assert rows["ours compiled"]["last_loss"] == pytest.approx(rows["ours"]["last_loss"], abs=1e-2)
    assert len(device.table(found)) == 4 + len(rows)


def test_without_cuda_one_message_and_code_2(bench, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    code, out, err = bench("device")
    assert (code, out) == (2, "")
    assert "torch sees no CUDA device" in err
    assert err.count("\n") == 1


def test_parts_after_the_limit_are_left_out(monkeypatch):
    monkeypatch.setattr(device, "LIMIT", -1.0)
    found = device.measure(device="cpu", family="bert", tiny=True)
    assert {row["left_out"] for row in found["rows"]} == {"-1 s are over"}


def test_a_backend_that_disagrees_with_eager_is_refused(monkeypatch):
    def off_by_a_window(shape, precision, where):
        model = our_model(shape, precision, where)
        plan = model.encoder.backend.plan
        wrong = type(model.encoder.backend)("wrong", "matmul", "")
        object.__setattr__(
            wrong, "plan", lambda reach, dtype: plan(type(reach)(reach.cu_seqlens, 200), dtype)
        )
        model.encoder.backend = wrong
        return model

    monkeypatch.setattr(device, "our_model", off_by_a_window)
    with pytest.raises(RuntimeError, match="differs from eager"):
        device.parity(SHAPE, "cpu")


def test_share_of_the_data_sheet():
    assert device._mfu(98.9e12, "NVIDIA H200") == pytest.approx(0.1)
    assert device._mfu(31.2e12, "NVIDIA A100-SXM4-80GB") == pytest.approx(0.1)
    assert device._mfu(1e12, "cpu") is None
