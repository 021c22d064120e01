"""A study on W&B: its summary run (offline), and the report that --publish makes (not sent)."""

import json
import subprocess
import sys
import types

import pytest

from ablate.config.schema import TrackingSettings
from ablate.report import publish, wandb_summary
from ablate.report.__main__ import main
from ablate.report.build import write

LOCK = {"locked": "2026-11-30", "rule": {"margin": 0.01}}
STUDY = """\
question: Does all-mask help?
baseline: standard
arms: {standard: [], all_mask: [masking=all_mask]}
moves: [masking.*]
seeds: 3
primary: glue/mean8
margin: 0.01
"""


@pytest.fixture
def written(three, make, tmp_path):
    return three, write(three, tmp_path / "reports", make.runs_dir)


def show(written, folder, **tracking):
    result, report = written
    settings = TrackingSettings(**tracking)
    return wandb_summary.show(result, report, tracking=settings, lock=LOCK, folder=folder)


def test_offline_the_table_the_figures_and_the_page_are_kept(written, tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    assert show(written, tmp_path / "w")
    media = next((tmp_path / "w").glob("wandb/offline-run-*/files/media"))
    table = json.loads(next(media.glob("table/arms_*.json")).read_text())
    rows = [dict(zip(table["columns"], row, strict=True)) for row in table["data"]]
    for row, (name, here) in zip(rows, written[0].decisions.items(), strict=True):
        assert (row["arm"], row["verdict"], row["n"]) == (name, here.verdict, here.n)
        assert row["difference"] == pytest.approx(here.difference)
        assert (row["low"], row["high"]) == pytest.approx((here.low, here.high))
        assert row["arm_mean"] - row["baseline_mean"] == pytest.approx(here.difference)
    pages = [path.read_text() for path in media.rglob("*.html")]
    assert (written[1] / "report.html").read_text() in pages
    assert sum("<svg" in page for page in pages) == 5
    assert not any("http" in page.split("<script>")[0] for page in pages)


@pytest.mark.parametrize("tracking", [{"kind": "none"}, {"mode": "disabled"}, {"mode": "auto"}])
def test_where_tracking_is_off_nothing_is_written(written, tmp_path, monkeypatch, tracking):
    monkeypatch.setenv("WANDB_MODE", "disabled")
    monkeypatch.setattr(wandb_summary, "summary_run", None)
    assert not show(written, tmp_path / "w", **tracking)
    assert not (tmp_path / "w").exists()


def test_a_failure_is_one_warning(written, tmp_path, monkeypatch, capsys):
    def broken(*_, **__):
        raise ConnectionError("no route")

    monkeypatch.setattr(wandb_summary, "summary_run", broken)
    assert show(written, tmp_path / "w", mode="offline")
    error = capsys.readouterr().err
    assert error.count("\n") == error.count("the W&B mirror stopped") == 1
    assert f"the report is whole in {written[1]}" in error


def test_the_id_is_the_studys_and_its_locks(make):
    result, scaled = make({"a": 0.0}), make({"a": 0.0}, scale="paper")
    here = wandb_summary.run_id(result, LOCK)
    assert here == wandb_summary.run_id(make({"a": 0.1}), dict(reversed(LOCK.items())))
    other = {**LOCK, "rule": {"margin": 0.02}}
    ids = [here, wandb_summary.run_id(result, other), wandb_summary.run_id(scaled, LOCK)]
    assert len(set(ids)) == 3
    assert wandb_summary.run_name(scaled) == "made-paper-summary"


def test_values_are_flat_and_without_gaps(written):
    found = wandb_summary.shown(*written)
    assert found.values["all_mask/verdict"] == "better"
    assert found.values["all_mask/difference"] == written[0].decisions["all_mask"].difference
    assert None not in found.values.values()
    assert {"question", "primary", "margin", "seeds"} <= set(found.config)


class Anything:
    """A block of a stand-in: keeps what it was given."""

    def __init__(self, *args, **given):
        self.args, self.given = args, given


class Report(Anything):
    url = "https://example.org/report"
    saved = 0

    def save(self):
        type(self).saved += 1


@pytest.fixture
def stand_in(monkeypatch):
    """`wandb_workspaces.reports.v2` without W&B: every class keeps its arguments."""
    names = ("MarkdownBlock", "H2", "PanelGrid", "Runset", "LinePlot", "BarPlot", "MediaBrowser",
             "Layout", "Config")  # fmt: skip
    classes = {name: type(name, (Anything,), {}) for name in names}
    module = types.SimpleNamespace(**classes, Report=type("Report", (Report,), {}))
    for name in ("wandb_workspaces", "wandb_workspaces.reports", "wandb_workspaces.reports.v2"):
        monkeypatch.setitem(sys.modules, name, module)
    return module


def test_the_report_has_the_text_the_runs_and_the_figures(stand_in, written):
    settings = TrackingSettings(project="p", entity="e", group="g")
    assert publish.publish(*written, tracking=settings) == Report.url
    assert stand_in.Report.saved == 1
    report = publish.built(stand_in, *written, tracking=settings, rule=None)
    assert (report.given["project"], report.given["entity"]) == ("p", "e")
    assert report.given["title"] == "made"
    before, _, runs, _, figures, after = report.given["blocks"]
    assert "all_mask is better" in before.given["text"]
    assert "## Caveats" in after.given["text"]
    for text in (before.given["text"], after.given["text"]):
        assert "figures/" not in text
        assert "report.html" not in text
    filters = runs.given["runsets"][0].given["filters"]
    assert all(f"'{arm}{seed}'" in filters for arm in written[0].arms for seed in range(5))
    filters = figures.given["runsets"][0].given["filters"]
    assert filters == "Metric('Group') == 'g' and Metric('JobType') == 'study'"
    keys = [key for panel in figures.given["panels"] for key in panel.given["media_keys"]]
    assert keys == sorted(k for k in wandb_summary.shown(*written).pages if k != "report")


def test_the_packages_own_classes_take_the_report(written):
    """Nothing is sent: a report and its panels are built, and turned into what would be sent."""
    wr = pytest.importorskip("wandb_workspaces.reports.v2", reason="pip install 'ablate[publish]'")
    settings = TrackingSettings(project="p", entity="e")
    report = publish.built(wr, *written, tracking=settings, rule=None)
    sent = report._to_model().spec.model_dump_json(by_alias=True, exclude_none=True)
    assert "all_mask is better" in sent
    assert '"op":"IN","value":["all_mask0"' in sent
    assert '"mediaKeys":["figures/forest"]' in sent


def test_what_wandb_refuses_is_one_message(stand_in, written, monkeypatch):
    def refuse(self):
        raise Exception("not logged in to W&B")

    monkeypatch.setattr(stand_in.Report, "save", refuse)
    with pytest.raises(ValueError, match=r"has not taken the report .*not logged in.* it is whole"):
        publish.publish(*written, tracking=TrackingSettings(entity="e"))
    with pytest.raises(ValueError, match="type tracking=wandb"):
        publish.publish(*written, tracking=TrackingSettings(kind="none"))


def test_the_command_publishes_or_says_what_to_install(stand_in, tmp_path, capsys, monkeypatch):
    (tmp_path / "half.yaml").write_text(STUDY)
    words = [str(tmp_path / "half.yaml"), "--runs-dir", str(tmp_path / "runs"), "--publish",
             "--reports-dir", str(tmp_path / "r")]  # fmt: skip
    assert main(words) == 0
    assert f"published: {Report.url}" in capsys.readouterr().out
    assert main([str(tmp_path), "--publish"]) == 2
    assert "--publish belongs to a study" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "wandb_workspaces.reports.v2", None)
    assert main([*words[:-1], str(tmp_path / "s")]) == 2
    error = capsys.readouterr().err
    assert "pip install 'ablate[publish]'" in error
    assert error.count("\n") == 1
    assert not (tmp_path / "s").exists()


def test_plain_runs_are_reported_without_torch(make, tmp_path):
    """Nor are the settings of a run checked again, which for some encoders loads transformers."""
    import dataclasses

    import yaml

    from ablate.config.schema import Settings

    settings = dataclasses.asdict(Settings())
    settings["encoder"]["kind"] = "hf"
    result = make({"all_mask": 0.05})
    for arm in result.arms.values():
        settings["masking"]["mask_rate"] = 0.15 if arm.name == "standard" else 0.4
        for seed, record in arm.records.items():
            folder = tmp_path / "runs" / "single" / arm.states[seed].run
            folder.mkdir(parents=True)
            (folder / "record.json").write_text(json.dumps(record))
            (folder / "config.yaml").write_text(yaml.safe_dump(settings))
    words = [str(tmp_path / "runs" / "single" / "*"), "--baseline", "standard"]
    words += ["--reports-dir", str(tmp_path / "r")]
    code = (
        "import sys\nfrom ablate.report.__main__ import main\n"
        f"assert main({words!r}) == 0\n"
        "assert not {'torch', 'transformers', 'wandb', 'pytorch_lightning'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
    readme = (tmp_path / "r" / "plain_runs" / "README.md").read_text()
    assert "masking.mask_rate: 0.15 → 0.4" in readme
