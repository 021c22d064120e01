"""A study's result and its written report -> one summary run beside its runs on W&B.

The run's id comes from the study's name and its lock, so that the same study updates one run and a
study that was locked anew gets another. Nothing is shown where tracking is off, and a W&B that
fails costs one warning: the report is local and whole.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ablate.config.schema import TrackingSettings
from ablate.report import wording
from ablate.report.build import folder_name
from ablate.report.page import alone
from ablate.study.collect import StudyResult
from ablate.tracking.loggers import Shown, guarded, resolve_mode, summary_run

COLUMNS = (
    "arm", "verdict", "n", "arm_mean", "baseline_mean", "difference", "low", "high", "p_adjusted",
    "p_equivalence_adjusted", "more_seeds",
)  # fmt: skip


def show(
    result: StudyResult,
    report: Path,
    *,
    tracking: TrackingSettings,
    lock: Mapping[str, Any] | None,
    folder: Path,
) -> bool:
    """Show a study's result on W&B; whether a run was asked for.

    Args:
        report: the folder of the written report.
        tracking: of the study's runs.
        folder: where W&B keeps its own files: the study's.
    """
    mode = resolve_mode(tracking.mode)
    if tracking.kind == "none" or mode == "disabled":
        return False
    with guarded(f"the report is whole in {report}"):
        summary_run(
            shown(result, report),
            mode=mode,
            project=tracking.project,
            entity=tracking.entity,
            run_id=run_id(result, lock),
            name=run_name(result),
            group=group_of(result, tracking),
            tags=list(tracking.tags),
            folder=folder,
        )
    return True


def run_name(result: StudyResult) -> str:
    """`<study>[-<scale>]-summary`."""
    return f"{folder_name(result)}-summary"


def group_of(result: StudyResult, tracking: TrackingSettings) -> str:
    """The group of the study's runs."""
    return tracking.group or result.study.name


def run_id(result: StudyResult, lock: Mapping[str, Any] | None) -> str:
    """The same for the same study under the same lock."""
    text = json.dumps([folder_name(result), lock], sort_keys=True, default=str)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def shown(result: StudyResult, report: Path) -> Shown:
    """What the run holds; figures and page are the report's own files."""
    study = result.study
    config = {
        "study": study.name,
        "scale": study.scale,
        "question": study.question,
        "baseline": study.baseline,
        "arms": {arm: list(overrides) for arm, overrides in study.arms.items()},
        "primary": study.primary,
        "higher_is_better": study.higher_is_better,
        "margin": study.margin,
        "seeds": list(study.seeds),
        "locked": result.locked,
        "looks": result.looks,
        "exploratory": wording.is_exploratory(result),
    }
    rows = [_row(result, arm) for arm in wording.ordered(result)]
    values: dict[str, Any] = {"runs_lacking": len(result.failures)}
    for row in rows:
        of_arm = dict(zip(COLUMNS[1:], row[1:], strict=True))
        values |= {f"{row[0]}/{name}": v for name, v in of_arm.items() if v is not None}
    drawings = sorted((report / "figures").glob("*.svg"))
    pages = {
        f"figures/{file.stem}": alone(file.read_text(encoding="utf-8"), file.stem, file.stem)
        for file in drawings
    }
    pages["report"] = (report / "report.html").read_text(encoding="utf-8")
    return Shown(config, values, {"arms": (COLUMNS, rows)}, pages)


def _row(result: StudyResult, arm: str) -> list[Any]:
    """The values of `COLUMNS`."""
    here = result.decisions.get(arm)
    if here is None:
        return [arm, "undecided", 0, *(None for _ in COLUMNS[3:])]
    means = [wording.mean_at(result, name, here.seeds) for name in (arm, result.study.baseline)]
    return [
        arm, here.verdict, here.n, *means, here.difference, here.low, here.high, here.p_adjusted,
        here.p_equivalence_adjusted, here.more_seeds,
    ]  # fmt: skip
