"""Scored points -> the best, what each parameter accounts for, and differences paired by seed.

Everything here describes: a sweep looks at many points and shows the luckiest, so nothing gets a
verdict. For one, the values that matter become the arms of a study.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ablate.study.stats import Paired, paired
from ablate.sweep.collect import Found, SweepResult

SEED = "seed"
_MOST_LEVELS = 0.5  # of the points: a parameter with more values than that has no level means


@dataclass(frozen=True)
class Group:
    """Points that differ in nothing but the seed; `scores` by seed (one seed 0 where none)."""

    point: Mapping[str, Any]
    scores: Mapping[int, float]

    @property
    def mean(self) -> float:
        return float(np.mean(list(self.scores.values())))

    @property
    def deviation(self) -> float | None:
        values = list(self.scores.values())
        return float(np.std(values, ddof=1)) if len(values) > 1 else None

    @property
    def words(self) -> str:
        return " ".join(f"{name}={shown(value)}" for name, value in self.point.items()) or "all"


def shown(value: Any) -> str:
    """A value as a reader sees it."""
    if isinstance(value, float):
        return f"{value:.4g}"
    return json.dumps(value) if isinstance(value, (bool, list)) or value is None else str(value)


def groups(result: SweepResult) -> list[Group]:
    """In the order of the points."""
    names = [name for name in result.swept if name != SEED]
    found: dict[str, tuple[dict[str, Any], dict[int, float]]] = {}
    for one in result.complete:
        point = {name: one.point[name] for name in names}
        key = json.dumps(point, sort_keys=True)
        seed = one.point.get(SEED, 0)
        found.setdefault(key, (point, {}))[1][seed] = float(one.score or 0.0)
    return [Group(point, scores) for point, scores in found.values()]


def ranked(result: SweepResult) -> list[Group]:
    """The best mean first."""
    sign = -1 if result.maximize else 1
    return sorted(groups(result), key=lambda group: sign * group.mean)


def paired_differences(result: SweepResult) -> list[tuple[Group, Paired]]:
    """Each group against the first, over the seeds that both have; empty without a seed axis."""
    found = groups(result)
    if SEED not in result.swept or len(found) < 2:
        return []
    first, rows = found[0], []
    for group in found[1:]:
        seeds = sorted(set(first.scores) & set(group.scores))
        if seeds:
            differences = np.array([group.scores[s] - first.scores[s] for s in seeds])
            rows.append((group, paired(differences)))
    return rows


@dataclass(frozen=True)
class Importance:
    """`share` in [0, 1]; `method` says of what."""

    name: str
    share: float
    method: str


def importance(result: SweepResult) -> list[Importance]:
    """What each parameter accounts for alone, the most first.

    Eta squared (the share of the scores' variance that lies between the means of its values) where
    values come back; the square of Spearman's rank correlation where a number does not.
    """
    points = result.complete
    scores = np.array([one.score for one in points], dtype=np.float64)
    if len(points) < 4 or scores.std() == 0:
        return []
    found = []
    for name in result.swept:
        values = [one.point[name] for one in points]
        levels = {json.dumps(value) for value in values}
        if len(levels) <= max(_MOST_LEVELS * len(points), 1):
            found.append(Importance(name, _eta_squared(values, scores), "eta squared"))
        elif all(_is_number(value) for value in values):
            found.append(Importance(name, _rank_share(values, scores), "Spearman squared"))
    return sorted(found, key=lambda one: -one.share)


def _eta_squared(values: Sequence[Any], scores: np.ndarray) -> float:
    keys = np.array([json.dumps(value) for value in values])
    means = np.empty_like(scores)
    for key in set(keys):
        means[keys == key] = scores[keys == key].mean()
    return float(means.var() / scores.var())


def _rank_share(values: Sequence[float], scores: np.ndarray) -> float:
    from scipy import stats

    return float(stats.spearmanr(values, scores).statistic ** 2)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def is_numeric(result: SweepResult, name: str) -> bool:
    """Whether all points have numbers there."""
    return all(_is_number(one.point.get(name)) for one in result.found)


def best_point(result: SweepResult) -> Found:
    """The single best point; for its run."""
    sign = -1 if result.maximize else 1
    return min(result.complete, key=lambda one: sign * float(one.score or 0.0))
