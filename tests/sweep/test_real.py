"""Real runs: two shells on one sweep train each point once; a bad point is ended early."""

import json
import subprocess
import sys

import pytest

from ablate.study.compute import Job
from ablate.sweep import stopping
from ablate.sweep.folder import SweepFolder
from ablate.sweep.jobs import PointJob, run_point

COMMON = [
    "budget.clock=steps", "budget.amount=12", "evaluation=none", "tracking=none",
    "corpus.num_documents=300", "corpus.validation_fraction=0.1", "trainer.threads=1",
    "trainer.progress_bar=false", "trainer.validation_rows=16", "trainer.num_validations=2",
    "evaluation.ngram_baseline=false", "optimizer.learning_rate=0.005", "trainer.log_every=1",
]  # fmt: skip


@pytest.mark.slow
def test_two_shells_train_each_point_once(written, tmp_path):
    path = written({"masking.mask_rate": {"values": [0.15, 0.4]}, "seed": {"values": [0]}})
    command = [sys.executable, "-m", "ablate.sweep", path.name, *COMMON]
    shells = [
        subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    assert [shell.wait(timeout=600) for shell in shells] == [0, 0]
    assert all("2 complete" in shell.stdout.read() for shell in shells)
    trained = sorted(tmp_path.glob("runs/pretrained/*/metrics.jsonl"))
    assert len(trained) == 2
    for file in trained:  # a step trained twice would be logged twice
        steps = [json.loads(line)["step"] for line in file.read_text().splitlines()
                 if "train/loss" in line]  # fmt: skip
        assert steps == list(range(1, 13))
    states = SweepFolder(tmp_path / "runs", "tiny").states()
    assert [one.state.status for one in states.values()] == ["complete", "complete"]


@pytest.mark.slow
def test_a_bad_point_is_ended_early_and_keeps_its_checkpoint(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(stopping, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(stopping, "says_stop", lambda rule, points, number: True)
    rule = stopping.Rule(1, 8, 2, maximize=False)
    stop = stopping.Stop(rule, "val/token_mask/loss", 0, tmp_path / "runs/sweeps/tiny")
    words = [w for w in COMMON if not w.startswith(("budget.amount", "trainer.num_valid"))]
    words += ["budget.amount=400", "trainer.num_validations=8", "arm=bad"]
    state = run_point(PointJob(0, {}, Job("bad", 0, words), stop))
    assert state.status == "stopped"
    assert "ended early at value 1 of 8: val/token_mask/loss" in state.error
    (record,) = tmp_path.glob("runs/single/bad-*/record.json")
    assert json.loads(record.read_text())["status"] == "interrupted"
    assert list(tmp_path.glob("runs/pretrained/*/checkpoints/*.ckpt"))
