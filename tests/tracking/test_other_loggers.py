"""Trackers that write into the run's folder: CSV files and TensorBoard's event files."""

import csv
import importlib.util
import sys
import types

import pytest

from ablate.tracking import other_loggers
from ablate.tracking.other_loggers import CsvTracker, TensorBoardTracker, check_installed

ROWS = [
    {"step": 1, "tokens": 10.0, "train/loss": 3.0},
    {"step": 1, "tokens": 10.0, "val/loss": 2.5},
    {"step": 2, "tokens": 20.0, "train/loss": 2.0},
]


def read(path):
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.reader(file))


def test_csv_has_a_row_a_step_and_a_column_a_metric(tmp_path):
    tracker = CsvTracker(tmp_path)
    tracker.replay(ROWS[:2])
    tracker.log({"tokens": 20.0, "train/loss": 2.0}, 2)
    tracker.summary({"glue/mean8": 0.5, "status": "complete"})
    tracker.tables({"scores": (("score", "value"), [["a, b", "0.5"]])})
    tracker.finish(0)
    assert read(tmp_path / "metrics.csv") == [
        ["step", "tokens", "train/loss", "val/loss"],
        ["1", "10.0", "3.0", ""],
        ["1", "10.0", "", "2.5"],
        ["2", "20.0", "2.0", ""],
    ]
    assert read(tmp_path / "final.csv")[1:] == [["glue/mean8", "0.5"], ["status", "complete"]]
    assert read(tmp_path / "scores.csv") == [["score", "value"], ["a, b", "0.5"]]


def test_csv_of_a_continued_run_has_each_row_once(tmp_path):
    CsvTracker(tmp_path).replay(ROWS)  # this process is killed
    again = CsvTracker(tmp_path)
    again.replay(ROWS)
    assert len(read(tmp_path / "metrics.csv")) == 1 + len(ROWS)


def test_a_tracker_without_its_disk_warns_once(tmp_path, capsys):
    tracker = CsvTracker(tmp_path / "missing")
    tracker.replay(ROWS)
    tracker.finish(0)
    said = capsys.readouterr().err
    assert said.count("warning: the CSV tracker stopped") == 1
    assert "its record is local" in said


def test_tensorboard_without_its_package_is_one_message(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"pip install 'ablate\[tensorboard\]'"):
        check_installed("tensorboard")
    check_installed("csv")


def test_tensorboard_gets_finite_values_over_tokens(tmp_path, monkeypatch):
    """With a writer in place of TensorBoard's, which is an extra."""
    written = []

    class Writer:
        def __init__(self, log_dir):
            self.log_dir = log_dir

        def add_scalar(self, name, value, at):
            written.append((name, value, at))

        def add_text(self, name, text, at):
            written.append((name, text, at))

        def flush(self):
            pass

        def close(self):
            written.append("closed")

    module = types.ModuleType("torch.utils.tensorboard")
    module.SummaryWriter = Writer
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)
    monkeypatch.setattr(other_loggers, "check_installed", lambda kind: None)
    tracker = TensorBoardTracker(tmp_path)
    tracker.replay([*ROWS, {"step": 3, "tokens": 30.0, "train/loss": float("nan")}])
    tracker.summary({"glue/mean8": 0.5, "status": "complete"})
    tracker.tables({"scores": (("score", "value"), [["a", 1]])})
    tracker.finish(0)
    assert ("train/loss", 2.0, 20) in written
    assert ("val/loss", 2.5, 10) in written
    assert not any(entry[0] == "train/loss" and entry[2] == 30 for entry in written)
    assert ("final/glue/mean8", 0.5, 30) in written
    assert ("scores", "| score | value |\n| --- | --- |\n| a | 1 |", 30) in written
    assert written[-1] == "closed"


def test_tensorboard_files_are_read_back(tmp_path):
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    for _ in range(2):  # the second process writes anew
        tracker = TensorBoardTracker(tmp_path)
        tracker.replay(ROWS)
        tracker.finish(0)
    found = reader.EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert [(e.step, e.value) for e in found.Scalars("train/loss")] == [(10, 3.0), (20, 2.0)]
