"""`python -m ablate trainer.devices=2` as a user types it: one record, one process afterwards."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
import torch
from safetensors.torch import load_file

TINY = [
    "corpus.num_documents=200", "corpus.validation_fraction=0.1", "budget.clock=steps",
    "budget.amount=6", "trainer.log_every=2", "trainer.validation_rows=16",
    "trainer.num_validations=2", "trainer.progress_bar=false", "trainer.accelerator=cpu",
    "trainer.precision=fp32", "evaluation=none", "tracking=none",
]  # fmt: skip


@pytest.fixture
def ablate(tmp_path):
    """Start the command line in a folder of its own."""
    started = []

    def start(*words):
        flags = [word for word in words if word.startswith("-")]
        words = [word for word in words if word not in flags]
        started.append(
            subprocess.Popen(
                [sys.executable, "-m", "ablate", *flags, *TINY, *words], cwd=tmp_path, text=True,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            )
        )  # fmt: skip
        return started[-1]

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
            process.wait()


def finish(process):
    said = process.communicate(timeout=240)[0]
    return process.returncode, said


def records(folder, kind="single"):
    found = sorted(folder.glob(f"runs/{kind}/*/record.json"))
    return [json.loads(path.read_text()) for path in found]


def test_two_devices_make_the_record_of_one(ablate, tmp_path):
    for words in (["arm=one"], ["arm=two", "trainer.devices=2"]):
        code, said = finish(ablate(*words))
        assert code == 0, said
        assert "rank" not in said.lower()
    one, two = records(tmp_path)
    assert one["pretraining"] != two["pretraining"]
    assert two["machine"] == one["machine"] | {"world_size": 2, "strategy": "ddp_fork"}
    assert two["scores"] == pytest.approx(one["scores"], rel=1e-4)
    assert two["clocks"] == one["clocks"]
    assert two["derived"]["achieved"] == one["derived"]["achieved"]
    files = [
        sorted(tmp_path.glob(f"runs/single/{arm}-*/metrics.jsonl"))[0] for arm in ("one", "two")
    ]
    steps = [[json.loads(line)["step"] for line in file.open()] for file in files]
    assert steps[0] == steps[1]


def test_sigterm_stops_all_ranks_and_the_same_command_continues(ablate, tmp_path):
    words = ["trainer.devices=2", "budget.amount=60", "trainer.log_every=1"]
    process = ablate(*words)
    lines = ()
    while len(lines) < 5 and process.poll() is None:
        time.sleep(0.02)
        lines = [
            line
            for path in tmp_path.glob("runs/pretrained/*/metrics.jsonl")
            for line in path.open()
        ]
    children = _children(process.pid)
    process.send_signal(signal.SIGTERM)
    code, said = finish(process)
    assert code == 143, said
    assert "the same command continues" in said
    assert not any(_alive(child) for child in children)
    assert [r["status"] for r in records(tmp_path) + records(tmp_path, "pretrained")] == [
        "interrupted", "interrupted",
    ]  # fmt: skip
    code, said = finish(ablate(*words))
    assert code == 0, said
    (record,) = records(tmp_path)
    assert record["status"] == "complete"
    assert record["timings"]["pretraining"]["resumed_from_step"] >= 5


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the kernel's signal is Linux's")
def test_kill_9_of_the_parent_takes_the_ranks_along(ablate, tmp_path):
    process = ablate("trainer.devices=2", "budget.amount=3000")
    while not list(tmp_path.glob("runs/pretrained/*/metrics.jsonl")) and process.poll() is None:
        time.sleep(0.02)
    children = _children(process.pid)
    assert len(children) >= 2
    process.kill()
    process.wait()
    end = time.monotonic() + 30
    while any(_alive(child) for child in children) and time.monotonic() < end:
        time.sleep(0.05)
    assert not any(_alive(child) for child in children)


@pytest.mark.slow
def test_multirun_takes_ddp_fork_and_refuses_ddp(ablate, tmp_path):
    code, said = finish(ablate("-m", "trainer.devices=2", "trainer.strategy=ddp", "seed=0,1"))
    assert code == 2
    assert "type trainer.strategy=ddp_fork" in said
    code, said = finish(ablate("-m", "trainer.devices=2", "seed=0,1"))
    assert code == 0, said
    assert [record["status"] for record in records(tmp_path)] == ["complete", "complete"]


@pytest.mark.slow
def test_ddp_starts_the_command_again_and_ends_it_after_the_fit(ablate, tmp_path):
    code, said = finish(ablate("arm=again", "trainer.devices=2", "trainer.strategy=ddp"))
    assert code == 0, said
    code, said = finish(ablate("arm=fork", "trainer.devices=2", "force=true"))
    assert code == 0, said
    (record,) = records(tmp_path)  # the same fingerprint: how ranks start is no part of it
    assert record["attempt"] == 1
    assert record["status"] == "complete"


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(["nsp=true", "trainer.micro_batch_size=4", "encoder.dropout=0.1"], id="plain"),
        pytest.param(  # where an epoch ends, one rank has a row and one has none
            ["corpus.num_documents=202", "budget.amount=52"], marks=pytest.mark.slow, id="epochs"
        ),
    ],
)
def test_spread_weights_train_as_those_of_ddp(ablate, tmp_path, words):
    """fsdp: the same losses and weights to rounding; 17 validation rows are more on one rank."""
    words = [*words, "trainer.devices=2", "trainer.validation_rows=17"]
    for arm, strategy in (("ddp", "ddp_fork"), ("fsdp", "fsdp")):
        code, said = finish(ablate(f"arm={arm}", f"trainer.strategy={strategy}", *words))
        assert code == 0, said
        assert "Traceback" not in said
    ddp, fsdp = (
        json.loads(next(tmp_path.glob(f"runs/single/{arm}-*/record.json")).read_text())
        for arm in ("ddp", "fsdp")
    )
    assert ddp["pretraining"] != fsdp["pretraining"]
    assert fsdp["machine"]["strategy"] == "fsdp"
    assert fsdp["scores"] == pytest.approx(ddp["scores"], rel=1e-4)
    weights = [
        load_file(tmp_path / "runs/pretrained" / record["pretraining"] / "model.safetensors")
        for record in (ddp, fsdp)
    ]
    assert weights[0].keys() == weights[1].keys()
    for name, value in weights[0].items():
        assert torch.allclose(value, weights[1][name], atol=1e-5), name


@pytest.mark.slow
def test_a_stopped_run_of_spread_weights_continues(ablate, tmp_path):
    words = ["trainer.devices=2", "trainer.strategy=fsdp", "trainer.checkpoint_every=2"]
    code, said = finish(ablate("arm=whole", *words, "paths.runs_dir=other"))
    assert code == 0, said
    process = ablate("arm=stopped", *words)
    while not list(tmp_path.glob("runs/pretrained/*/checkpoints/*.ckpt")):
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    code, said = finish(ablate("arm=stopped", *words))
    assert code == 0, said
    (stopped,) = records(tmp_path)
    whole = json.loads(next(tmp_path.glob("other/single/*/record.json")).read_text())
    assert stopped["scores"] == pytest.approx(whole["scores"], rel=1e-6)


def _children(pid):
    path = f"/proc/{pid}/task/{pid}/children"
    if not os.path.exists(path):
        return []
    with open(path) as file:
        return [int(word) for word in file.read().split()]


def _alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
