"""Scores of all arms on the declared metric -> one verdict an arm, with what it rests on.

The order of decision is fixed before anything is run: an arm that fails a gate was not trained
enough to say anything; one whose difference lies within the margin is equivalent; one whose
difference is shown is better or worse; all others are undecided, with the number of further seeds
that would decide. Holm's correction goes over all arms, for both kinds of test. Each look at a
study that grew spends half of what the look before it did, and what a look has decided stays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ablate.study import stats

VERDICTS = ("better", "worse", "equivalent", "undecided", "not_trained_enough")
DECIDED = VERDICTS[:3]
MIN_PAIRS = 3


@dataclass(frozen=True)
class ArmScores:
    """One arm: seed -> score, higher is better; and the gates that it failed, in words.

    Fine-tuning seeds are averaged already. A seed that failed is not here.
    """

    by_seed: Mapping[int, float]
    failed_gates: Sequence[str] = ()


@dataclass(frozen=True)
class Decision:
    """A verdict. Differences are arm minus baseline, in units of the metric, `n` pairs of seeds."""

    verdict: str
    n: int
    seeds: tuple[int, ...]
    missing_seeds: tuple[int, ...]  # that only one of the two has
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    p: float | None = None
    p_adjusted: float | None = None
    p_equivalence: float | None = None
    p_equivalence_adjusted: float | None = None
    deviation: float | None = None
    floored: bool = False  # the deviation is the floor, not the arm's own
    alpha: float = 0.05
    look: int = 1
    more_seeds: int | None = None
    detectable: float | None = None
    failed_gates: tuple[str, ...] = ()
    note: str = ""


def decide(
    arms: Mapping[str, ArmScores],
    baseline: ArmScores,
    *,
    margin: float,
    look: int = 1,
    decided: Mapping[str, Decision] | None = None,
    floor: float | None = None,
    forecast: bool = True,
) -> dict[str, Decision]:
    """A decision for every arm, in their order.

    Args:
        margin: differences below it do not matter; declared with the study.
        look: 1 for the first time that verdicts are drawn.
        decided: decisions of earlier looks, which are kept.
        floor: of the deviation; from the arms themselves if None.
        forecast: work out what could be shown, and with how many seeds (milliseconds an arm).
    """
    alpha = stats.alpha_of_look(look)
    kept = {name: d for name, d in (decided or {}).items() if d.verdict in DECIDED}
    pairs = {name: _pairs(arm, baseline) for name, arm in arms.items()}
    differences = {name: found for name, (found, _, _) in pairs.items()}
    if floor is None:
        floor = floor_of(arms, baseline)
    measured = {
        name: stats.paired(found, floor=floor) for name, found in differences.items() if len(found)
    }
    equivalence = {
        name: stats.equivalence_p(differences[name], margin, floor=floor) for name in measured
    }
    adjusted = stats.holm({name: found.p for name, found in measured.items()})
    equivalence_adjusted = stats.holm(equivalence)
    decisions = {}
    for name, arm in arms.items():
        found, seeds, missing = pairs[name]
        failed = (*baseline.failed_gates, *arm.failed_gates)
        here = Decision(
            "undecided", len(found), seeds, missing, alpha=alpha, look=look, failed_gates=failed
        )
        if name in measured:
            result = measured[name]
            here = replace(
                here,
                difference=result.mean, low=result.low, high=result.high, p=result.p,
                p_adjusted=adjusted[name], p_equivalence=equivalence[name],
                p_equivalence_adjusted=equivalence_adjusted[name], deviation=result.deviation,
                floored=result.own_deviation is not None and result.own_deviation < floor,
            )  # fmt: skip
        here = kept[name] if name in kept and not failed else _verdict(here)
        if forecast and name not in kept:
            open_arms = max(1, len(arms) - len(kept))
            here = _forecast(here, margin, stats.alpha_of_look(look + 1) / open_arms)
        decisions[name] = here
    return decisions


def floor_of(arms: Mapping[str, ArmScores], baseline: ArmScores) -> float:
    """Below which no arm's deviation is taken."""
    pairs = {name: _pairs(arm, baseline) for name, arm in arms.items()}
    apart = []
    for name, (_, seeds, _) in pairs.items():
        if len(seeds) > 1:
            sides = [[side.by_seed[s] for s in seeds] for side in (arms[name], baseline)]
            found = stats.pairing(*map(np.array, sides))
            apart += [found.unpaired] if found is not None else []
    return stats.deviation_floor(
        {name: found for name, (found, _, _) in pairs.items()}, apart=apart
    )


def _pairs(
    arm: ArmScores, baseline: ArmScores
) -> tuple[np.ndarray, tuple[int, ...], tuple[int, ...]]:
    """Differences of the seeds that both have, these seeds, and those that one lacks."""
    both = sorted(set(arm.by_seed) & set(baseline.by_seed))
    missing = sorted(set(arm.by_seed) ^ set(baseline.by_seed))
    found = np.array([arm.by_seed[seed] - baseline.by_seed[seed] for seed in both])
    return found, tuple(both), tuple(missing)


def _verdict(here: Decision) -> Decision:
    if here.failed_gates:
        return replace(here, verdict="not_trained_enough")
    if here.n < MIN_PAIRS:
        note = f"{here.n} pairs of seeds: no verdict is drawn from fewer than {MIN_PAIRS}"
        return replace(here, note=note, more_seeds=MIN_PAIRS - here.n)
    if _below(here.p_equivalence_adjusted, here.alpha):
        return replace(here, verdict="equivalent")
    if _below(here.p_adjusted, here.alpha):
        assert here.difference is not None
        return replace(here, verdict="better" if here.difference > 0 else "worse")
    return here


def _below(p: float | None, alpha: float) -> bool:
    return p is not None and p < alpha


def _forecast(here: Decision, margin: float, alpha: float) -> Decision:
    """`alpha` is what a single arm may count on at the next look: Holm's first step."""
    if not here.deviation:
        return here
    detectable = stats.detectable_effect(here.deviation, here.n, alpha=here.alpha)
    here = replace(here, detectable=detectable)
    if here.verdict != "undecided" or here.n < MIN_PAIRS:
        return here
    return replace(here, more_seeds=_more_seeds(here, margin, alpha))


def _more_seeds(here: Decision, margin: float, alpha: float) -> int | None:
    """Further seeds that would decide if difference and deviation stay what they are."""
    if here.difference is None or not here.deviation:
        return None
    wanted = [
        stats.seeds_for_difference(here.difference, here.deviation, alpha=alpha),
        stats.seeds_for_equivalence(here.difference, here.deviation, margin, alpha=alpha),
    ]
    enough = [count for count in wanted if count is not None]
    return max(1, min(enough) - here.n) if enough else None
