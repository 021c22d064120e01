"""A study's written report -> a report on W&B, through the optional package wandb-workspaces.

The text is README.md as it is, with live panels of the study's runs in place of the figures. Every
time makes a new report: what was published before is not touched.
"""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

from ablate.config.schema import TrackingSettings
from ablate.report.learning import METRIC
from ablate.report.wandb_summary import group_of
from ablate.report.wording import title_of
from ablate.study.collect import StudyResult

_MODULE = "wandb_workspaces.reports.v2"
_LONGEST_TITLE = 128  # signs, W&B's own limit
_IMAGE = re.compile(r"^!\[[^]]*\]\(figures/[^)]*\)\n\n", flags=re.MULTILINE)
_FILES = re.compile(r"^Also here: \[report\.html\].*$", flags=re.MULTILINE)


def blocks_of_wandb() -> Any:
    """The package's module.

    Raises:
        ValueError: it is not installed.
    """
    try:
        return importlib.import_module(_MODULE)
    except ImportError:
        raise ValueError(
            "--publish needs the package wandb-workspaces; type pip install 'ablate[publish]'"
        ) from None


def publish(
    result: StudyResult, folder: Path, *, tracking: TrackingSettings, rule: str | None = None
) -> str:
    """Make a report on W&B and return its address.

    Raises:
        ValueError: the extra is not installed, tracking is off, or W&B refuses; the local report
            is whole.
    """
    wr = blocks_of_wandb()
    if tracking.kind == "none":
        raise ValueError(
            "--publish shows runs of W&B, and tracking=none keeps none; type tracking=wandb"
        )
    try:
        report = built(wr, result, folder, tracking=tracking, rule=rule)
        report.save()
        return str(report.url)
    except Exception as error:  # the package raises bare ones, such as for a missing log-in
        raise ValueError(
            f"W&B has not taken the report ({type(error).__name__}: {' '.join(str(error).split())})"
            f"; it is whole in {folder}. Type wandb login, or set WANDB_API_KEY, and try again"
        ) from None


def built(
    wr: Any, result: StudyResult, folder: Path, *, tracking: TrackingSettings, rule: str | None
) -> Any:
    """The report, not saved. Without `entity` the package asks W&B for the default one."""
    study = result.study
    where = {"project": tracking.project}
    where |= {"entity": tracking.entity} if tracking.entity else {}
    title = title_of(result, rule)
    question = " ".join(study.question.split())
    before, after = _text(folder)
    blocks = [wr.MarkdownBlock(text=before), wr.H2(text="Runs on W&B"), _runs(wr, result)]
    names = sorted(file.stem for file in (folder / "figures").glob("*.svg"))
    blocks += [wr.H2(text="Figures"), _figures(wr, names, group_of(result, tracking))]
    blocks += [wr.MarkdownBlock(text=after)] if after else []
    return wr.Report(
        **where, title=title[:_LONGEST_TITLE], description=question, blocks=blocks, width="fluid"
    )


def _text(folder: Path) -> tuple[str, str]:
    """README.md without its title and images: what stands before the figures, and after."""
    text = (folder / "README.md").read_text(encoding="utf-8")
    text = _FILES.sub("", re.sub(r"\A# .*\n+", "", text))
    before, found, rest = text.partition("\n## Figures\n")
    if not found:
        return before.strip(), ""
    captions, head, after = rest.partition("\n## ")
    return before.strip(), (_IMAGE.sub("", captions).strip() + "\n\n" + (head + after).strip())


def _runs(wr: Any, result: StudyResult) -> Any:
    """Learning curves and scores by arm. Runs are found by fingerprint and not by group: a run
    that another study began has that one's group, and serves this study too."""
    prints = [str(r["fingerprint"]) for arm in result.arms.values() for r in arm.records.values()]
    wanted = f"Config('fingerprint') in {sorted(prints)!r}"
    arm = {"groupby": wr.Config("arm"), "groupby_aggfunc": "mean", "groupby_rangefunc": "minmax"}
    panels = [
        wr.LinePlot(
            title=METRIC, x="tokens", y=[METRIC], layout=wr.Layout(x=0, y=0, w=12, h=9), **arm
        ),
        wr.BarPlot(
            title=result.study.primary, metrics=[result.study.primary],
            layout=wr.Layout(x=12, y=0, w=12, h=9), **arm,
        ),
    ]  # fmt: skip
    return wr.PanelGrid(runsets=[wr.Runset(name="runs", filters=wanted)], panels=panels)


def _figures(wr: Any, names: list[str], group: str) -> Any:
    """The figures of the study's summary run."""
    wanted = f"Metric('Group') == {group!r} and Metric('JobType') == 'study'"
    panels = [
        wr.MediaBrowser(
            title=name, media_keys=[f"figures/{name}"],
            layout=wr.Layout(x=12 * (number % 2), y=12 * (number // 2), w=12, h=12),
        )
        for number, name in enumerate(names)
    ]  # fmt: skip
    return wr.PanelGrid(runsets=[wr.Runset(name="summary", filters=wanted)], panels=panels)
