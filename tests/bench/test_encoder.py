"""The encoder measured against transformers: what is printed, and that the sides are the same."""

import dataclasses
import json
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

from ablate.bench import encoder, encoder_lengths, encoder_rows, encoder_sides, turns
from ablate.interop import bert, modernbert


@pytest.fixture
def no_processes(monkeypatch):
    """Workers that run in the test's own process."""

    class Worker:
        def __init__(self, side, threads):
            self.made, self.turns = encoder_sides.build(side), []

        def about(self):
            return self.made.about

        def turn(self):
            self.turns.append(turns.Turn(**turns.one_turn(self.made.step, 1)))

        def end(self):
            return 100.0

        def kill(self):
            pass

    monkeypatch.setattr(encoder, "Worker", Worker)
    monkeypatch.setattr(encoder_lengths, "Worker", Worker)
    monkeypatch.setattr(encoder_sides, "CEILING_SIZE", 64)


def test_a_row_in_worker_processes(bench):
    code, out, _ = bench(
        "encoder", "--json", "--only", "A_like_fp32", "--repeats", "1", "--scale", "tiny",
        "--threads", "1",
    )  # fmt: skip
    found = json.loads(out)
    (row,) = found["rows"]
    assert code == 0
    assert row["name"] == "A_like_fp32"
    assert row["ratio"] == pytest.approx(row["ours"] / row["theirs"])
    assert row["memory_ratio"] == row["ours_peak_mb"] / row["theirs_peak_mb"]
    assert row["ours_peak_mb"] > 100
    assert row["difference"] < 1e-4
    assert row["ours_parameters"] == row["theirs_parameters"]
    assert (row["bar"], row["memory_bar"]) == (2.2, 0.65)
    assert isinstance(row["pass"], bool)
    assert (found["torch_threads"], found["repeats"], found["warm_up_excluded"]) == (1, 1, True)


def test_every_row_runs_and_its_sides_agree(no_processes):
    found = encoder.measure((), repeats=1, threads=1, scale="tiny")
    assert [row["name"] for row in found["rows"]] == list(encoder_rows.NAMES)
    for row in found["rows"]:
        compared = "like" in row["name"] or row["name"] == "forward_8192_modernbert"
        assert (row["difference"] is not None) == compared, row["name"]
        assert row["ceiling_share"] > 0
    assert len(encoder.table(found)) == 3 + len(found["rows"]) + len(encoder.NOTES)


def test_sides_that_disagree_are_refused(no_processes, monkeypatch):
    row = encoder_rows.row("M1_like_fp32", scale="tiny")
    other = dataclasses.replace(row.theirs, shape=dataclasses.replace(row.theirs.shape, heads=4))
    with pytest.raises(ValueError, match="the two sides differ by"):
        encoder.measure_row(dataclasses.replace(row, theirs=other), repeats=1, threads=1)


def test_a_forward_row_whose_window_differs_is_refused(no_processes, monkeypatch):
    row = encoder_rows.row("forward_8192_modernbert", scale="tiny")
    theirs = encoder_sides.their_config

    def wider(side):
        config = theirs(side)
        config.sliding_window = 100
        return config

    monkeypatch.setattr(encoder_sides, "their_config", wider)
    with pytest.raises(ValueError, match="the two sides differ by"):
        encoder.measure_row(row, repeats=1, threads=1)


@pytest.mark.parametrize("name", ["A_like_fp32", "C_like_fp32", "M1_like_fp32"])
def test_configs_are_those_of_the_class(name):
    side = encoder_rows.row(name).theirs
    names = bert if side.model == "bert" else modernbert
    theirs = names.config_from_hf(encoder_sides.their_config(side))
    assert theirs == encoder_rows.our_config(side.shape)


def test_default_is_out_of_the_box():
    row = encoder_rows.row("A_default")
    assert (row.theirs.precision, row.theirs.keep_memory, row.theirs.as_it_comes) == (
        "fp32", False, True,
    )  # fmt: skip
    config = encoder_sides.their_config(row.theirs)
    assert (config.hidden_dropout_prob, config.attention_probs_dropout_prob) == (0.1, 0.1)
    assert row.ours.keep_memory
    assert encoder_rows.our_config(row.ours.shape).hidden_dropout == 0.0


@pytest.mark.parametrize(("flags", "precision", "bar"), [({"amx_bf16"}, "bf16", 4.0),
                                                       ({"avx2"}, "fp32", None)])  # fmt: skip
def test_bars_of_default_hold_where_the_cpu_has_bf16(monkeypatch, flags, precision, bar):
    monkeypatch.setattr("ablate.pretraining.machine.cpu_flags", lambda: frozenset(flags))
    row = encoder_rows.row("C_default")
    assert (row.ours.precision, row.bar) == (precision, bar)
    assert (row.ceiling_bar is None, row.memory_bar is None) == (bar is None, bar is None)


def test_both_sides_get_the_same_ids_and_labels():
    shape = encoder_rows.row("B_like_fp32", scale="tiny").ours.shape
    ours, theirs = encoder_sides.our_batch(shape, 1), encoder_sides.their_batch(shape, 1)
    assert torch.equal(ours.input_ids, theirs["input_ids"].flatten())
    labels = theirs["labels"].flatten()
    assert torch.equal(ours.predict_positions, (labels != -100).nonzero().flatten())
    assert torch.equal(ours.labels, labels[ours.predict_positions])
    assert ours.num_predictions == shape.predicted
    assert (ours.input_ids[ours.predict_positions] == encoder_sides.MASK_TOKEN_ID).all()


def test_shape_of_deberta_has_as_many_weights_as_ours(no_processes):
    row = encoder_rows.forward_row("deberta", 4096)
    ours, theirs = row.ours.shape, row.theirs.shape
    assert 3 * ours.intermediate == 2 * theirs.intermediate
    assert (ours.width, ours.layers, ours.length) == (theirs.width, theirs.layers, 4096)


def test_flops_of_a_layer_by_hand():
    shape = encoder_rows.Shape("bert", 1, 4, 1, 10, rows=2, length=20, intermediate=8)
    layer = 4 * 4 * 4 + 2 * 4 * 8 + 2 * 4 * 20  # projections, MLP, scores and values of 20 keys
    head = 0.15 * (4 * 4 + 4 * 10)
    assert encoder.training_flops(shape) == pytest.approx(3 * 2 * (layer + head))


def test_disturbed_turns_do_not_count_unless_all_are():
    quiet, disturbed = turns.Turn([1.0, 2.0, 3.0], 0.1), turns.Turn([9.0], 1.0)
    assert turns.median_seconds([quiet, disturbed]) == (2.0, 1)
    assert turns.median_seconds([disturbed]) == (9.0, 0)


def test_an_error_in_a_worker_is_told():
    side = encoder_rows.row("A_like_fp32", scale="tiny").ours
    bad = dataclasses.replace(side, shape=dataclasses.replace(side.shape, heads=3))
    worker = turns.Worker(bad, 1)
    with pytest.raises(RuntimeError, match=r"worker of ours failed:\n(.|\n)*num_attention_heads=3"):
        worker.about()
    worker.kill()


def test_a_killed_worker_is_an_error_and_not_a_wait():
    worker = turns.Worker(encoder_rows.row("A_like_fp32", scale="tiny").ours, 1)
    worker.kill()
    with pytest.raises(ValueError, match="the worker of ours was killed"):
        worker.about()


def test_lengths_are_measured_and_drawn(no_processes, bench, tmp_path):
    path = tmp_path / "lengths.svg"
    code, out, _ = bench("encoder", "--figure", str(path), "--repeats", "1", "--scale", "tiny",
                         "--threads", "1")  # fmt: skip
    assert code == 0
    assert "DeBERTa" in out
    assert str(path) in out
    assert path.read_text().startswith("<?xml")
    assert "<svg" in path.read_text()


def test_deberta_is_left_out_where_it_does_not_fit(monkeypatch):
    before = {"deberta": 1.0, "deberta_peak_mb": 1000.0}
    monkeypatch.setattr(encoder_lengths, "os", SimpleNamespace(sysconf=lambda name: 10**5))
    assert encoder_lengths._too_large(before) is None  # 10 GB free
    assert "needs about 40,000 MB" in encoder_lengths._too_large(before | {"deberta_peak_mb": 1e4})
    said = encoder_lengths._too_large({"deberta": None, "left_out": "too large"})
    assert said == "too large"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["encoder", "--only", "D"], "--only D: allowed are A_default"),
        (["encoder", "--repeats", "0"], "--repeats 0 must be at least 1"),
        (["encoder", "--threads", "0"], "--threads 0 must be at least 1"),
        (["encoder", "--scale", "big"], "--scale big: allowed are full, tiny"),
        (["encoder", "--figure", "a.png"], "--figure a.png must be an .svg file"),
        (["device", "--device", "tpu"], "--device tpu: allowed are cuda, cpu"),
        (["device", "--family", "gpt"], "--family gpt: allowed are bert, modernbert"),
        (["device", "--device", "cpu"], "type --device cpu --tiny"),
    ],
)
def test_bad_input_is_one_message_and_code_2(bench, arguments, said):
    code, out, err = bench(*arguments)
    assert (code, out) == (2, "")
    assert said in err
    assert err.count("\n") == 1


def test_transformers_missing_is_said(bench, monkeypatch):
    monkeypatch.setattr(encoder.importlib.util, "find_spec", lambda name: None)
    code, out, err = bench("encoder", "--only", "A_default")
    assert (code, out) == (2, "")
    assert "type python -m pip install transformers" in err


def test_parent_and_worker_start_without_torch():
    """The parent needs none, and a worker sets its memory allocator before torch is imported."""
    code = "import sys, ablate.bench.encoder, ablate.bench.turns\nassert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
