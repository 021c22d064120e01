"""Reports of sweeps from records: ours, and those that a W&B agent's runs leave."""

import csv
import json
import shutil
from types import SimpleNamespace

import pytest

from ablate.sweep.__main__ import main
from ablate.sweep.report import report_sweep

GRID = {
    "masking.mask_rate": {"values": [0.15, 0.3, 0.4]},
    "nsp": {"values": [False, True]},
    "seed": {"values": [0, 1]},
}


def options(**more):
    common = {"runs_dir": None, "reports_dir": None, "metric": None, "overrides": []}
    return SimpleNamespace(**{**common, **more})


def test_the_report_of_a_grid(written, pretend, tmp_path):
    main([str(written(GRID)), "tracking=none"])
    folder = report_sweep("tiny", options())
    assert folder.name == "sweep-tiny"
    text = (folder / "README.md").read_text()
    assert "the best mean is 0.1550, at masking.mask_rate=0.15 nsp=false" in text
    assert "masking.mask_rate=0.3 nsp=true | +0.1500 | [+0.1500, +0.1500] | 2 |" in text
    assert "no verdict" in text
    assert "eta squared" in text
    assert "python -m ablate masking.mask_rate=0.15 nsp=false seed=0" in text
    for link in ("report.html", "results.csv"):
        assert (folder / link).is_file()
        assert f"({link})" in text
    assert "verdicts.json" not in text
    names = {file.stem for file in (folder / "figures").glob("*.svg")}
    assert names == {"curve-masking.mask_rate", "parallel", "importance"}
    rows = list(csv.DictReader((folder / "results.csv").open()))
    assert len(rows) == 12
    assert float(rows[-1]["val/token_mask/loss"]) == pytest.approx(0.41)
    assert rows[-1]["nsp"] == "true"


def test_the_same_records_give_the_same_bytes(written, pretend, tmp_path):
    main([str(written(GRID)), "tracking=none"])
    folder = report_sweep("tiny", options())
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert report_sweep("tiny", options()) == folder
    assert before == {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_eta_squared_of_what_matters_and_of_what_does_not(written, pretend, tmp_path):
    main([str(written(GRID)), "tracking=none"])
    text = (report_sweep("tiny", options()) / "README.md").read_text()
    shares = dict(
        line.strip("| ").split(" | ")[:2] for line in text.split("\n") if "| eta squared |" in line
    )
    assert float(shares["masking.mask_rate"]) > 0.99
    assert float(shares["nsp"]) == 0.0


def test_a_missing_and_a_failed_point_are_shown_as_such(written, pretend, tmp_path):
    pretend.fails = {"masking.mask_rate=0.3"}
    main([str(written(GRID)), "tracking=none"])
    text = (report_sweep("tiny", options()) / "README.md").read_text()
    assert "points: 8 complete, 4 failed" in text
    assert text.count("ValueError: asked for") == 4


def test_an_agents_grid_is_found_by_the_settings_of_its_runs(written, pretend, tmp_path):
    path = written(GRID)
    main([str(path), "tracking=none"])
    ours = report_sweep("tiny", options())
    numbers = (ours / "results.csv").read_text()
    shutil.rmtree(tmp_path / "runs" / "sweeps")  # an agent leaves runs and no states
    theirs = report_sweep(str(path), options(overrides=["tracking=none"]))
    assert (theirs / "results.csv").read_text() == numbers
    said = (theirs / "README.md").read_text()
    assert "12 runs were found by their settings: 12 of no W&amp;B sweep." in said


def test_an_agents_random_points_are_runs_that_differ_in_the_swept_settings(
    written, pretend, tmp_path
):
    path = written({"masking.mask_rate": {"min": 0.1, "max": 0.5}}, "random")
    main([str(path), "tracking=none", "--count", "3"])
    main([str(written({"masking.mask_rate": {"values": [0.6]}}, name="other")), "tracking=none"])
    main([str(path), "tracking=none", "nsp=true", "--count", "1", "--name", "third"])
    shutil.rmtree(tmp_path / "runs" / "sweeps")
    folder = report_sweep(str(path), options())
    assert len(list(csv.DictReader((folder / "results.csv").open()))) == 3
    said = (folder / "README.md").read_text()
    assert "in the swept ones alone: 3 of no W&amp;B sweep" in said


def test_another_metric_and_one_that_no_run_has(written, pretend, tmp_path):
    main([str(written(GRID)), "tracking=none"])
    for file in (tmp_path / "runs" / "single").glob("*/record.json"):
        record = json.loads(file.read_text())
        record["scores"]["glue/mean8"] = 1 - record["scores"]["val/token_mask/loss"]
        file.write_text(json.dumps(record))
    text = (report_sweep("tiny", options(metric="glue/mean8")) / "README.md").read_text()
    assert "higher is better" in text
    assert "mean is 0.8450, at masking.mask_rate=0.15" in text
    with pytest.raises(ValueError, match="there are: glue/mean8, val/token_mask/loss"):
        report_sweep("tiny", options(metric="glue/cola"))


def test_a_sweep_that_has_no_run_says_what_to_type(written, pretend):
    with pytest.raises(ValueError, match="python -m ablate.sweep"):
        report_sweep(str(written(GRID)), options())


def ran_by(tmp_path, sweeps):
    """Say in records, in the order of their folders, which W&B sweeps asked for the runs."""
    files = sorted((tmp_path / "runs" / "single").glob("*/record.json"))
    for file, names in zip(files, sweeps, strict=True):
        record = json.loads(file.read_text())
        record["wandb"] = [{"id": f"r-{name}", "sweep": name, "mode": "online"} for name in names]
        file.write_text(json.dumps(record))


def test_runs_of_agents_are_found_and_it_is_said_whose_they_are(written, pretend, tmp_path):
    """Of one sweep; of two, where one run serves both; and one that nobody's sweep asked for."""
    path = written({"masking.mask_rate": {"values": [0.15, 0.3, 0.4]}})
    main([str(path), "tracking=none"])
    shutil.rmtree(tmp_path / "runs" / "sweeps")
    ran_by(tmp_path, [["abc"]] * 3)
    text = (report_sweep(str(path), options()) / "README.md").read_text()
    assert "3 runs were found by their settings: 3 of the W&amp;B sweep abc. A finished" in text
    ran_by(tmp_path, [["abc", "def"], ["def", "def"], []])
    text = (report_sweep(str(path), options()) / "README.md").read_text()
    assert "1 of the W&amp;B sweep abc, 2 of the W&amp;B sweep def, 1 of no W&amp;B sweep." in text
    assert "points: 3 complete" in text


def test_a_point_that_failed_under_an_agent_is_no_missing_one(written, pretend, tmp_path):
    path = written({"masking.mask_rate": {"values": [0.15, 0.3]}})
    main([str(path), "tracking=none"])
    shutil.rmtree(tmp_path / "runs" / "sweeps")
    ran_by(tmp_path, [["abc"]] * 2)
    file = sorted((tmp_path / "runs" / "single").glob("*/record.json"))[-1]
    file.write_text(json.dumps({**json.loads(file.read_text()), "status": "failed", "scores": {}}))
    text = (report_sweep(str(path), options()) / "README.md").read_text()
    assert "points: 1 complete, 1 failed" in text


def test_of_random_points_those_that_agents_ran_are_taken(written, pretend, tmp_path):
    path = written({"masking.mask_rate": {"min": 0.1, "max": 0.5}}, "random")
    main([str(path), "tracking=none", "--count", "3"])
    shutil.rmtree(tmp_path / "runs" / "sweeps")
    ran_by(tmp_path, [["abc"], [], ["abc"]])  # the second is an arm of somebody's study
    folder = report_sweep(str(path), options())
    assert len(list(csv.DictReader((folder / "results.csv").open()))) == 2
    assert (
        "in the swept ones alone: 2 of the W&amp;B sweep abc" in (folder / "README.md").read_text()
    )
