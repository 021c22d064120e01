"""Early ending: when the rule is asked, and that a kill changes nothing that it says."""

import json
import os
import random
import signal

import pytest

from ablate.sweep import stopping
from ablate.sweep.__main__ import main
from ablate.sweep.stopping import Rule, Stop, Watch, all_values, values_file
from ablate.tracking.lightning import RecordLogger, listening
from ablate.tracking.record import MetricsFile

METRIC = "val/token_mask/loss"
RULE = Rule(1, 9, 3, maximize=False)


class Sweep:
    """Points whose values are known beforehand; `watch` is what a process has of one."""

    def __init__(self, folder):
        self.folder = folder

    def values(self, number):
        """Worse and worse levels, in no order; each falls a little as it trains."""
        level = random.Random(number).random()
        return [round(level + 0.5 / step, 6) for step in range(1, 10)]

    def file(self, number):
        return MetricsFile(self.folder / f"run-{number}" / "metrics.jsonl")

    def watch(self, number, rule=RULE):
        return Watch(Stop(rule, METRIC, number, self.folder), self.file(number))

    def log(self, number, first=0, last=9, watch=None):
        """Values from `first` on as a run logs them; the number of the one that ended it."""
        watch = watch or self.watch(number)
        for step, value in enumerate(self.values(number)[first:last], first + 1):
            self.file(number).append(step, {"tokens": 1.0})
            self.file(number).append(step, {METRIC: value})
            if watch.look():
                return step
        return None


def test_points_one_after_another_are_ended_alike_every_time(tmp_path):
    pytest.importorskip("optuna")
    found = [[Sweep(tmp_path / name).log(k) for k in range(16)] for name in ("one", "two")]
    assert found[0] == found[1]
    assert None in found[0]  # some went to their end
    assert {1, 3} <= set(found[0])  # others were ended, not all at the first look


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_a_kill_changes_no_decision(tmp_path, lost):
    """Points that come after the kill see what they would have seen, and so does the point itself;
    `lost` lines came after the checkpoint and are logged again."""
    pytest.importorskip("optuna")
    whole = Sweep(tmp_path / "whole")
    wanted = [whole.log(k) for k in range(16)]
    killed, found = Sweep(tmp_path / "killed"), []
    for k in range(16):
        ended = killed.log(k, last=4)
        if ended is None:
            killed.file(k).keep(lambda row: row["step"] <= 4 - lost)
            watch = killed.watch(k)  # a new process
            assert not watch.look()
            assert all_values(killed.folder)[k] == killed.values(k)[:4]
            ended = killed.log(k, first=4 - lost, watch=watch)
        found.append(ended)
    assert found == wanted


def test_what_was_decided_stands_when_a_point_is_continued(tmp_path, monkeypatch):
    """Other points have logged more by then, so that the rule would say otherwise."""
    said = []
    monkeypatch.setattr(stopping, "says_stop", lambda *asked: said.append(asked) or False)
    sweep = Sweep(tmp_path)
    assert sweep.log(0, last=3) is None
    assert len(said) == 3
    monkeypatch.setattr(stopping, "says_stop", lambda *asked: True)
    watch = sweep.watch(0)
    assert not watch.look()
    sweep.file(0).append(4, {METRIC: 0.5})
    assert watch.look()
    assert "ended early at value 4 of 9" in watch.fired
    again = sweep.watch(0)  # killed before the sweep had noted that it is ended
    monkeypatch.setattr(stopping, "says_stop", lambda *asked: False)
    assert again.look()
    assert again.fired == watch.fired


def test_a_point_with_all_its_values_is_not_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(stopping, "says_stop", lambda rule, points, at: len(points[0]) == 9)
    assert Sweep(tmp_path).log(0) is None


def test_a_damaged_file_of_values_is_refused(tmp_path):
    file = values_file(tmp_path, 3)
    file.parent.mkdir()
    file.write_text('{"seen": 1, "val')
    with pytest.raises(ValueError, match="3.json is damaged"):
        all_values(tmp_path)


def test_a_line_is_heard_as_it_is_logged_and_only_by_this_process(tmp_path, monkeypatch):
    heard = []
    logger = RecordLogger(MetricsFile(tmp_path / "metrics.jsonl"))
    with listening(lambda: heard.append(len(logger.file.rows()))):
        logger.log_metrics({"a": 1.0}, 1)
        logger.log_metrics({"a": 2.0}, 2)
        with monkeypatch.context() as patched:
            patched.setattr(os, "getpid", lambda: -1)
            logger.log_metrics({"a": 3.0}, 3)
    logger.log_metrics({"a": 4.0}, 4)
    assert heard == [1, 2]


def test_values_are_not_added_to_a_grid_that_ends_points_early(written, pretend, capsys):
    pytest.importorskip("optuna")
    more = {"early_terminate": {"type": "hyperband", "min_iter": 1}}
    words = ["tracking=none", "trainer.num_validations=9"]
    assert main([str(written({"seed": {"values": [0]}}, **more)), *words]) == 0
    assert main([str(written({"seed": {"values": [0, 1]}}, **more)), *words]) == 2
    assert "--name tiny-2" in capsys.readouterr().err


@pytest.mark.slow
def test_a_real_run_is_ended_at_the_step_of_its_value(tmp_path, monkeypatch):
    """Its checkpoint is that of the validation, however long the rule takes."""
    from ablate.study.compute import Job
    from ablate.sweep.jobs import PointJob, run_point

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(stopping, "says_stop", lambda rule, points, number: len(points[0]) == 3)
    words = [
        "budget.clock=steps", "budget.amount=40", "evaluation=none", "tracking=none", "arm=bad",
        "corpus.num_documents=60", "corpus.validation_fraction=0.1", "trainer.threads=1",
        "trainer.progress_bar=false", "trainer.validation_rows=4", "trainer.num_validations=8",
        "evaluation.ngram_baseline=false", "trainer.log_every=1", "trainer.global_batch_size=8",
    ]  # fmt: skip
    job = PointJob(0, {}, Job("bad", 0, words), Stop(RULE, METRIC, 0, tmp_path / "sweep"))
    before = signal.getsignal(signal.SIGTERM)
    for _ in range(2):  # and once more where the sweep had not noted it
        state = run_point(job)
        assert state.status == "stopped"
        assert "ended early at value 3 of 9" in state.error
        kept = json.loads(values_file(tmp_path / "sweep", 0).read_text())
        assert (kept["seen"], kept["stopped"]) == (3, True)
    (newest,) = tmp_path.glob("runs/pretrained/*/checkpoints/step-*15.ckpt")
    assert newest.is_file()
    assert signal.getsignal(signal.SIGTERM) is before
