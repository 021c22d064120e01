"""Scores of a full factorial by arm and seed -> main effects and interactions with intervals.

Definitions. Main effect of A at a level: the mean over all combinations of the other factors'
levels of (this level minus A's first level). Interaction of A and B: the difference of differences
(A at its level minus A at its first, where B is at its level) minus (the same, where B is at its
first), averaged over the remaining factors; higher ones go on so. A factor of L levels has L - 1
rows. With two levels a row is the coefficient of effect coding times 2 for a main effect, times 4
for an interaction of two (tests/study/test_effects.py: statsmodels' formula says the same).

The model is linear, with seeds as blocks and a mean for every arm. It is balanced, so an effect is
the mean over seeds of one contrast a seed, and there are two errors to judge it by. The pooled
residual has (arms - 1)(seeds - 1) degrees of freedom, but it holds only where no factor acts
otherwise on one seed than on another; where one does, the intervals of that factor's effect are too
narrow (the same tests show it). The contrast's own spread over seeds has seeds - 1 and holds either
way, also where arms differ in spread. The second is taken: the pretraining seed is the unit, and a
design of two arms gets the paired t interval that decides of them everywhere else. The pooled one
serves as a floor: a spread is taken for no less than a share of it.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ablate.study import stats


@dataclass(frozen=True)
class Effect:
    """Of one factor, or of several together: `levels[i]` of `factors[i]` against `first[i]`.

    `found` is in units of the scores; `floored`: the spread is the floor, not the effect's own.
    """

    factors: tuple[str, ...]
    levels: tuple[str, ...]
    first: tuple[str, ...]
    found: stats.Paired
    p_adjusted: float | None = None
    floored: bool = False


@dataclass(frozen=True)
class Effects:
    """All effects of a design, or none and `note`, which says why.

    `left_out` has seeds that not every arm has, with the arms that lack them; `residual` is the
    standard deviation of what seeds and arms leave, None for a single seed.
    """

    effects: Sequence[Effect] = ()
    seeds: tuple[int, ...] = ()
    left_out: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    residual: float | None = None
    note: str = ""


def effects(
    levels: Mapping[str, Mapping[str, str]],
    scores: Mapping[str, Mapping[int, float]],
    *,
    floor_share: float = stats.FLOOR_SHARE,
) -> Effects:
    """Every main effect and interaction, main effects first; p is Holm-adjusted over all of them.

    Args:
        levels: arm -> factor -> level, every combination once.
        scores: arm -> seed -> score. Seeds that an arm lacks are left out of all.
        floor_share: of the pooled residual, below which no effect's spread is taken.
    """
    factors = _factors(levels)
    cells = {tuple(of_arm[f] for f in factors): arm for arm, of_arm in levels.items()}
    wanted = list(itertools.product(*factors.values()))
    if not factors or len(cells) < len(levels) or set(wanted) != set(cells):
        return Effects(note="the arms are not every combination of the factors' levels once")
    arms = [cells[cell] for cell in wanted]
    every = sorted({seed for arm in arms for seed in scores.get(arm, {})})
    left_out = {
        seed: lacking
        for seed in every
        if (lacking := tuple(arm for arm in arms if seed not in scores.get(arm, {})))
    }
    seeds = tuple(seed for seed in every if seed not in left_out)
    if not seeds:
        return Effects(left_out=left_out, note="no seed is complete in every arm")
    values = np.array([[scores[arm][seed] for arm in arms] for seed in seeds])
    if not np.isfinite(values).all():
        return Effects((), seeds, left_out, note="a score is not finite")
    residual = _residual(values)
    found = []
    for order in range(1, len(factors) + 1):
        for chosen in itertools.combinations(factors, order):
            for at, contrast in _contrasts(factors, chosen):
                floor = floor_share * (residual or 0.0) * float(np.linalg.norm(contrast))
                paired = stats.paired(values @ contrast, floor=floor)
                first = tuple(factors[factor][0] for factor in chosen)
                floored = paired.own_deviation is not None and paired.own_deviation < floor
                found.append(Effect(chosen, at, first, paired, None, floored))
    adjusted = stats.holm({str(i): effect.found.p for i, effect in enumerate(found)})
    return Effects(
        [
            Effect(e.factors, e.levels, e.first, e.found, p, e.floored)
            for e, p in zip(found, adjusted.values(), strict=True)
        ],
        seeds,
        left_out,
        residual,
    )


def _factors(levels: Mapping[str, Mapping[str, str]]) -> dict[str, list[str]]:
    """Factor -> its levels in order of appearance; empty where arms have other factors."""
    found: dict[str, list[str]] = {}
    for of_arm in levels.values():
        for factor, level in of_arm.items():
            there = found.setdefault(factor, [])
            if level not in there:
                there.append(level)
    complete = all(set(of_arm) == set(found) for of_arm in levels.values())
    return found if complete else {}


def _contrasts(
    factors: Mapping[str, Sequence[str]], chosen: Sequence[str]
) -> list[tuple[tuple[str, ...], np.ndarray]]:
    """(levels, weights of all arms (arms,)) of each row of an effect, arms in product order."""
    sides = [
        np.eye(len(names))[1:] - np.eye(len(names))[0]  # (levels - 1, levels): this minus first
        if factor in chosen
        else np.full((1, len(names)), 1 / len(names))
        for factor, names in factors.items()
    ]
    rows = functools.reduce(np.kron, sides)
    at = itertools.product(*(factors[factor][1:] for factor in chosen))
    return list(zip(at, rows, strict=True))


def _residual(values: np.ndarray) -> float | None:
    """Standard deviation left by the linear model score ~ arm + seed, of scores (seeds, arms)."""
    from statsmodels.regression.linear_model import OLS

    seeds, arms = values.shape
    if seeds < 2:
        return None
    by_arm = np.tile(np.eye(arms), (seeds, 1))
    by_seed = np.repeat(np.vstack([np.eye(seeds - 1), -np.ones(seeds - 1)]), arms, axis=0)
    fit = OLS(values.ravel(), np.hstack([by_arm, by_seed])).fit(method="qr")
    return float(max(fit.scale, 0.0) ** 0.5)
