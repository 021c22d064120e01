"""The W&B mirror, offline, read back from the files it leaves."""

import json
import runpy
from pathlib import Path

import pytest

from ablate.tracking.loggers import Mirror, Shown, guarded, resolve_mode, summary_run

run_of = runpy.run_path(str(Path(__file__).parents[1] / "wandb_file.py"))["run_of"]


@pytest.fixture
def offline(tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")

    def start(name, run_id, **more):
        settings = {
            "mode": "offline", "project": "ablate", "entity": None, "run_id": run_id, "name": name,
            "group": None, "tags": ["t"], "folder": tmp_path / name, "config": {"seed": 1},
            "axes": {"seed": 1, "arm": name},
        }  # fmt: skip
        return Mirror(**{**settings, **more})

    return start


def test_two_runs_in_one_process_stay_two(offline, tmp_path):
    first = offline("first", "aaa")
    first.log({"tokens": 10.0, "train/loss": 3.0}, 1)
    # the first job failed and never finished its run
    second = offline("second", "bbb")
    second.log({"tokens": 20.0, "train/loss": 2.0}, 2)
    second.summary({"score": 0.5})
    second.finish(0)
    ids = [
        next(r.run.run_id for r in run_of(tmp_path / name) if r.HasField("run"))
        for name in ("first", "second")
    ]
    assert ids == ["aaa", "bbb"]
    rows = [r for r in run_of(tmp_path / "second") if r.HasField("history")]
    assert len(rows) == 1


def test_history_config_and_exit_code_are_in_the_file(offline, tmp_path):
    mirror = offline("run", "ccc")
    mirror.log({"tokens": 10.0, "train/loss": 3.0}, 5)
    mirror.log({"tokens": 6.0, "val/loss": 2.0}, 3)  # an earlier step is a field, and is kept
    mirror.finish(143)
    found = run_of(tmp_path / "run")
    items = [
        {item.nested_key[0] if item.nested_key else item.key: item.value_json
         for item in r.history.item}
        for r in found if r.HasField("history")
    ]  # fmt: skip
    assert items[0]["train/loss"] == "3"
    assert items[1]["val/loss"] == "2"
    assert (items[0]["step"], items[1]["step"]) == ("5", "3")
    assert [r.exit.exit_code for r in found if r.HasField("exit")] == [143]
    keys = {update.key for r in found if r.HasField("run") for update in r.run.config.update}
    assert {"cfg", "seed", "arm"} <= keys


def test_a_failing_mirror_warns_once_and_never_raises(offline, capsys):
    mirror = offline("run", "ddd")

    class Broken:
        def log(self, *_):
            raise ConnectionError("no route")

        def finish(self, **_):
            raise ConnectionError("no route")

    real, mirror._run = mirror._run, Broken()
    mirror.log({"a": 1.0}, 1)
    mirror.log({"a": 1.0}, 2)
    mirror.finish(0)
    real.finish()
    assert capsys.readouterr().err.count("W&B mirror stopped") == 1


def test_auto_is_offline_without_a_key_and_online_with_one(monkeypatch, tmp_path):
    monkeypatch.delenv("WANDB_MODE", raising=False)
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("NETRC", raising=False)
    assert resolve_mode("auto") == "offline"
    monkeypatch.setenv("WANDB_API_KEY", "k" * 40)
    assert resolve_mode("auto") == "online"
    monkeypatch.setenv("WANDB_MODE", "offline")
    assert resolve_mode("auto") == "offline"
    assert resolve_mode("disabled") == "disabled"
    with pytest.raises(ValueError, match="tracking.mode"):
        resolve_mode("on")


def test_the_agents_run_id_and_project_win_inside_a_sweep(offline, monkeypatch):
    monkeypatch.setenv("WANDB_RUN_ID", "fromagent")
    monkeypatch.setenv("WANDB_SWEEP_ID", "sweep")
    assert offline("run", "ours").run_id == "fromagent"


def test_a_run_id_that_no_agent_has_set_is_not_ours(offline, monkeypatch, tmp_path):
    """Under it two runs of one process would be one: the curve of one, the config of the other."""
    monkeypatch.setenv("WANDB_RUN_ID", "mine")
    for name in ("one", "two"):
        mirror = offline(name, f"id-{name}")
        mirror.log({"tokens": 1.0}, 1)
        mirror.finish(0)
    ids = [next(r.run.run_id for r in run_of(tmp_path / name) if r.HasField("run"))
           for name in ("one", "two")]  # fmt: skip
    assert ids == ["id-one", "id-two"]


def summary(folder, value, **more):
    shown = Shown(
        config={"question": "Does it help?", "seeds": [0, 1], "primary": "glue/mean8"},
        values={"all_mask/difference": value, "all_mask/verdict": "better"},
        tables={"arms": (("arm", "difference"), [["all_mask", value], ["null", None]])},
        pages={"figures/forest": "<svg></svg>", "report": "<p>all</p>"},
    )
    summary_run(
        shown,
        **{
            "mode": "offline", "project": "ablate", "entity": None, "run_id": "abc", "tags": [],
            "name": "made-summary", "group": "made", "folder": folder, **more,
        },
    )  # fmt: skip


def test_a_summary_run_holds_config_values_table_and_pages(offline, tmp_path):
    summary(tmp_path / "s", 0.05)
    found = run_of(tmp_path / "s")
    run = next(r.run for r in found if r.HasField("run"))
    assert (run.run_id, run.display_name, run.run_group, run.job_type, run.project) == (
        "abc", "made-summary", "made", "study", "ablate",
    )  # fmt: skip
    config = {u.key for r in found if r.HasField("config") for u in r.config.update}
    config |= {u.key for r in found if r.HasField("run") for u in r.run.config.update}
    assert {"question", "seeds", "primary"} <= config
    values = {u.key or "/".join(u.nested_key): u.value_json
              for r in found if r.HasField("summary") for u in r.summary.update}  # fmt: skip
    assert float(values["all_mask/difference"]) == 0.05
    assert values["all_mask/verdict"] == '"better"'
    assert [r.exit.exit_code for r in found if r.HasField("exit")] == [0]
    media = next((tmp_path / "s").glob("wandb/offline-run-*/files/media"))
    table = json.loads(next(media.glob("table/arms_*.json")).read_text())
    assert table["columns"] == ["arm", "difference"]
    assert table["data"] == [["all_mask", 0.05], ["null", None]]
    pages = {p.relative_to(media / "html").parts[0]: p.read_text()
             for p in media.rglob("*.html")}  # fmt: skip
    assert "<p>all</p>" in pages.values()
    assert not any("stylesheet" in page for page in pages.values())


def test_a_summary_again_is_the_same_run_and_swallows_no_other(offline, tmp_path):
    arm = offline("arm", "aaa")  # never finished
    summary(tmp_path / "one", 0.05)
    summary(tmp_path / "two", 0.06)
    ids = [
        next(r.run.run_id for r in run_of(tmp_path / name) if r.HasField("run"))
        for name in ("arm", "one", "two")
    ]
    assert ids == ["aaa", "abc", "abc"]
    assert arm.run_id == "aaa"


def test_a_failing_summary_is_closed_with_its_exit_code_and_warned_of_once(
    offline, tmp_path, capsys, monkeypatch
):
    import wandb

    monkeypatch.setattr(wandb, "Table", lambda **_: (_ for _ in ()).throw(OSError("disk full")))
    with guarded("the report is whole"):
        summary(tmp_path / "s", 0.05)
    error = capsys.readouterr().err
    assert error == "warning: the W&B mirror stopped (OSError: disk full); the report is whole\n"
    assert [r.exit.exit_code for r in run_of(tmp_path / "s") if r.HasField("exit")] == [1]
    assert wandb.run is None
