"""One arm that fails, or whose process is killed, stops no other: real runs, real processes."""

import json
import os
import signal
import sys
from collections import Counter
from pathlib import Path

import pytest

JOBLIB = ("compute=joblib", "compute.jobs=2")
# composes, and cannot run: the file is gone by then
GONE = {
    "arms": {"plain": [], "gone": ["corpus=files", "corpus.path=gone.txt"]},
    "moves": ["corpus.*", "tokenizer.*"],
}


def states(found):
    kept = json.loads((found.folder / "runs/studies/tiny/states.json").read_text())
    return {
        (arm, int(seed)): state["status"]
        for arm, seeds in kept.items()
        for seed, state in seeds.items()
    }


@pytest.mark.parametrize("words", [(), pytest.param(JOBLIB, marks=pytest.mark.slow)])
def test_a_failing_arm_is_tried_once_more_and_reported(shell, words):
    common = [word for word in shell.common() if not word.startswith("corpus.num_documents")]
    found = shell(common=common, **GONE)
    assert found.finish("corpus.max_documents=null", *words) == 1, found.said
    assert states(found) == {
        ("plain", 0): "complete", ("plain", 1): "complete",
        ("gone", 0): "failed", ("gone", 1): "failed",
    }  # fmt: skip
    said = found.said
    assert said.count("gone.txt") >= 4  # two seeds, each tried twice
    assert "2 runs failed; each is tried once more" in said
    assert "study tiny: 2 of 4 runs complete" in said
    assert "gone: 0 of 2 complete; seed 0 failed (CorpusError: corpus.path=gone.txt" in said
    assert "Traceback" not in said
    assert (found.folder / "reports/tiny/verdicts.json").is_file()


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.slow
def test_a_killed_worker_costs_its_own_run_alone(shell):
    """As the system does it where memory runs out: the run is tried again, from its checkpoint."""
    found = shell()
    process = found.start(*JOBLIB)
    found.wait_for(found.steps // 2, process)
    victim = training(found, process)
    os.kill(victim, signal.SIGKILL)
    assert process.wait(timeout=900) == 0, found.said
    said = found.said
    assert said.count("failed (its process was killed, most likely because memory ran out)") == 1
    assert "1 runs failed; each is tried once more" in said
    assert Counter(states(found).values()) == {"complete": 4}
    for name, record in found.records().items():
        file = found.folder / "runs/pretrained" / name / "metrics.jsonl"
        rows = [json.loads(line) for line in file.read_text().splitlines()]
        assert [r["step"] for r in rows if "train/loss" in r] == list(range(1, found.steps + 1))
        assert record["status"] == "complete"


def training(found, process):
    """A worker that holds the lock of a run."""
    locks = {os.stat(path).st_ino for path in found.folder.glob("runs/single/*/.lock")}
    for line in Path("/proc/locks").read_text().splitlines():
        words = line.split()  # "1: FLOCK ADVISORY WRITE pid device:inode ..."
        held = words[1] == "FLOCK" and int(words[5].split(":")[2]) in locks
        if held and int(words[4]) in found.workers(process):
            return int(words[4])
    raise AssertionError("no worker holds a run")
