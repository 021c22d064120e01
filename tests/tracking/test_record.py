import json
import sys
from types import SimpleNamespace

import pytest

from ablate.tracking.provenance import provenance
from ablate.tracking.record import MetricsFile, RunFolder, write_atomically


def test_a_torn_last_line_is_left_out(tmp_path):
    file = MetricsFile(tmp_path / "metrics.jsonl")
    file.append(5, {"train/loss": 3.0})
    file.append(10, {"train/loss": 2.0})
    with open(file.path, "a") as raw:
        raw.write('{"step": 15, "train/lo')
    assert [row["step"] for row in file.rows()] == [5, 10]


def test_resuming_keeps_the_lines_up_to_the_checkpoint(tmp_path):
    file = MetricsFile(tmp_path / "metrics.jsonl")
    for step in (5, 10, 15):
        file.append(step, {"train/loss": 1.0 / step})
    before = file.path.read_bytes().split(b"\n")[:2]
    file.keep(lambda row: row["step"] <= 12)
    assert file.path.read_bytes().split(b"\n")[:2] == before
    assert [row["step"] for row in file.rows()] == [5, 10]


def test_values_logged_out_of_order_are_all_there(tmp_path):
    file = MetricsFile(tmp_path / "metrics.jsonl")
    file.append(5, {"train/loss": 3.0})
    file.append(3, {"val/accuracy": 0.9})
    file.append(3, {"late": 1.0})
    rows = file.rows()
    assert rows[0] == {"step": 5, "train/loss": 3.0}
    assert rows[1] == {"step": 3, "val/accuracy": 0.9}
    assert rows[2] == {"step": 3, "late": 1.0}


def test_record_is_merged_and_whole(tmp_path):
    folder = RunFolder(tmp_path / "run")
    assert folder.status is None
    folder.update(status="running", seed=1)
    folder.update(status="complete", scores={"a": 0.5})
    assert RunFolder(tmp_path / "run").record == {
        "status": "complete", "seed": 1, "scores": {"a": 0.5},
    }  # fmt: skip
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["record.json"]


def test_a_record_never_holds_nan(tmp_path):
    with pytest.raises(ValueError, match="JSON"):
        RunFolder(tmp_path).update(scores={"a": float("nan")})


def test_writing_fails_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "record.json"
    write_atomically(path, json.dumps({"old": 1}))
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        write_atomically(path, json.dumps({"new": 1}))
    assert json.loads(path.read_text()) == {"old": 1}


def test_provenance_names_the_gpu_where_there_is_one(monkeypatch):
    cuda = SimpleNamespace(is_available=lambda: True, get_device_name=lambda: "H100")
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    assert provenance()["gpu"] == "H100"
    monkeypatch.setitem(sys.modules, "torch", None)
    assert "gpu" not in provenance()
