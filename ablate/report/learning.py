"""metrics.jsonl of an arm's runs -> one curve: mean, lowest and highest seed against the clock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ablate.report.conduct import at
from ablate.study.collect import ArmResult, StudyResult
from ablate.tracking.record import MetricsFile

METRIC = "val/token_mask/loss"


@dataclass(frozen=True)
class Curve:
    """Over `n` seeds, at the points of the first seed that all have reached; (points,) each."""

    spent: np.ndarray
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray
    n: int


def clock_of(result: StudyResult) -> str:
    """`steps` or `flops` where the study's budget counts these, else tokens."""
    named = [o.partition("=")[2] for o in result.study.common if o.startswith("budget.clock=")]
    return named[-1] if named and named[-1] in ("steps", "flops") else "tokens"


def learning_curves(
    result: StudyResult, runs_dir: Path, *, metric: str = METRIC, clock: str = "tokens"
) -> dict[str, Curve]:
    """Of each arm that measured the metric while it trained."""
    found = {}
    for name, arm in result.arms.items():
        curve = _curve(arm, runs_dir, metric, clock)
        if curve is not None:
            found[name] = curve
    return found


def _curve(arm: ArmResult, runs_dir: Path, metric: str, clock: str) -> Curve | None:
    by_seed = []
    for seed, record in sorted(arm.records.items()):
        run = arm.states[seed].run
        if run is None:
            continue
        points = _points(runs_dir / "single" / run / "metrics.jsonl", metric, clock, record)
        if points:
            by_seed.append(np.array(sorted(points.items())).T)
    if not by_seed:
        return None
    end = min(spent[-1] for spent, _ in by_seed)
    begin = max(spent[0] for spent, _ in by_seed)
    first = by_seed[0][0]
    grid = np.unique(np.clip(first, begin, max(begin, end)))
    values = np.array([np.interp(grid, spent, value) for spent, value in by_seed])
    return Curve(grid, values.mean(axis=0), values.min(axis=0), values.max(axis=0), len(values))


def _points(
    path: Path, metric: str, clock: str, record: Mapping[str, object]
) -> dict[float, float]:
    """Spent -> value; of a step that was logged twice the last value."""
    tokens, flops = at(record, ("clocks", "tokens")), at(record, ("clocks", "flops"))
    found = {}
    for row in MetricsFile(path).rows():
        if metric not in row or not np.isfinite(row[metric]):
            continue
        spent = row.get("step" if clock == "steps" else "tokens")
        if spent is None:
            continue
        if clock == "flops" and tokens and flops:
            spent = spent * flops / tokens
        found[float(spent)] = float(row[metric])
    return found
