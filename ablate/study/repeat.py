"""A study whose answers are known, repeated with other seeds: how often are its verdicts right?

Repetition r of a study with seeds s is the study with seeds s + r x (largest seed + 1): no run is
shared, and the first repetition is the study itself. Each has a folder of its own, so the command
that was stopped goes on where it was. A right verdict is the expected sign; an arm that makes no
difference is right as long as it is not called better or worse; an arm that makes one is missed
where it is left undecided or not trained enough, and wrong where it is called the other way or
equivalent. Counts come with Clopper and Pearson's exact interval. Arms of one repetition share its
baseline, so their sum is no sum of independent draws.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from scipy import stats

from ablate.study.collect import StudyResult
from ablate.study.design import Study

OUTCOMES = ("right", "missed", "wrong")
_SIGNS = {"better": "+", "worse": "-", "equivalent": "0"}


@dataclass(frozen=True)
class Tally:
    """Verdicts of one arm over repetitions."""

    expected: str
    verdicts: Sequence[str]

    def count(self, outcome: str) -> int:
        return sum(judged(self.expected, verdict) == outcome for verdict in self.verdicts)


def judged(expected: str, verdict: str) -> str:
    """One of `OUTCOMES`."""
    sign = _SIGNS.get(verdict)
    if expected == "0":
        return "wrong" if sign in ("+", "-") else "right"
    if sign is None:
        return "missed"
    return "right" if sign == expected else "wrong"


def exact_interval(count: int, n: int, level: float = 0.95) -> tuple[float, float]:
    """Clopper and Pearson's interval of a share."""
    found = stats.binomtest(count, n).proportion_ci(confidence_level=level, method="exact")
    return float(found.low), float(found.high)


def repetition(study: Study, number: int) -> Study:
    """Repetition `number` = 0, 1, ... of a study; number 0 is the study itself.

    Raises:
        ValueError: an arm's answer is not known, so nothing could be right or wrong.
    """
    unknown = [arm for arm in study.treatments if arm not in study.expected]
    if unknown:
        raise ValueError(
            f"study {study.name}: repetitions count right verdicts, and {', '.join(unknown)} "
            f"expects none; write under `expected:` a sign ('+', '-' or '0') with its source"
        )
    if number == 0:
        return study
    if study.tune is not None:
        raise ValueError(
            f"study {study.name}: repetitions of a study that tunes its arms are not built; take "
            "tune: out of a copy of its file"
        )
    shift = number * (max(study.seeds) + 1)
    seeds = tuple(seed + shift for seed in study.seeds)
    return replace(study, name=f"{study.name}-repetition{number}", seeds=seeds)


def repeat(
    study: Study,
    times: int,
    run: Callable[[Study], StudyResult],
    say: Callable[[str], None] = print,
) -> list[StudyResult]:
    """Run every repetition with `run`, which skips what is complete."""
    studies = [repetition(study, number) for number in range(times)]
    found = []
    for number, again in enumerate(studies, 1):
        say(f"repetition {number} of {times}")
        found.append(run(again))
    return found


def tallies(results: Sequence[StudyResult]) -> dict[str, Tally]:
    """Verdicts by arm, in the order of the repetitions."""
    study = results[0].study
    return {
        arm: Tally(study.expected[arm].sign, [r.decisions[arm].verdict for r in results])
        for arm in study.treatments
    }


def summary(found: Mapping[str, Tally]) -> dict[str, Any]:
    """Counts and exact intervals, of each arm and of all."""
    rows: dict[str, Any] = {}
    for arm, tally in found.items():
        rows[arm] = {"expected": tally.expected, "verdicts": list(tally.verdicts)}
        rows[arm] |= _shares({o: tally.count(o) for o in OUTCOMES}, len(tally.verdicts))
    counts = {o: sum(tally.count(o) for tally in found.values()) for o in OUTCOMES}
    total = sum(len(tally.verdicts) for tally in found.values())
    return {"arms": rows, "all": _shares(counts, total)}


def _shares(counts: Mapping[str, int], n: int) -> dict[str, Any]:
    shares = {o: {"count": c, "interval": list(exact_interval(c, n))} for o, c in counts.items()}
    return {"n": n, **shares}
