"""Numbers and verdicts -> the words and digits of a report, the same in every file of it.

Digits follow the margin or, where none was declared, the spread: two significant ones, so that a
table neither hides a difference nor shows noise.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ablate.study.collect import StudyResult
from ablate.study.verdict import Decision

DESCRIPTIVE = "descriptive"  # runs without a declared rule: no verdict is drawn
WORDS = {
    "better": "better",
    "worse": "worse",
    "equivalent": "equivalent",
    "undecided": "undecided",
    "not_trained_enough": "not trained enough",
    DESCRIPTIVE: "no verdict",
}
MEANINGS = {
    "better": "the arm is above the baseline: Holm-adjusted paired t test below this look's alpha",
    "worse": "the arm is below the baseline, by the same test",
    "equivalent": "the difference was shown to lie inside the margin, either way (two one-sided t "
    "tests, Holm-adjusted); with many seeds this can hold for a difference that is not zero",
    "undecided": "neither was shown. It is no finding of 'no effect'",
    "not_trained_enough": "a gate failed, so the runs cannot speak about the question. It is no "
    "finding of 'no effect' either",
    DESCRIPTIVE: "no decision rule was declared before the runs, so none is applied",
}
NONE = "–"


@dataclass(frozen=True)
class Digits:
    """Numbers in units of one metric."""

    decimals: int

    def plain(self, value: float | None) -> str:
        return NONE if value is None else f"{value:.{self.decimals}f}"

    def signed(self, value: float | None) -> str:
        if value is None:
            return NONE
        shown = f"{value:+.{self.decimals}f}"
        return shown.replace("-", "−")

    def interval(self, low: float | None, high: float | None) -> str:
        if low is None or high is None:
            return NONE
        return f"{self.signed(low)} to {self.signed(high)}"


def digits(scales: Iterable[float | None]) -> Digits:
    """Two significant digits of the smallest of these scales, at least two decimals, at most 6."""
    there = [abs(scale) for scale in scales if scale]
    if not there:
        return Digits(4)
    return Digits(min(max(1 - math.floor(math.log10(min(there))), 2), 6))


def digits_of(result: StudyResult) -> Digits:
    """For the primary metric of a study."""
    margin = result.study.margin
    if margin > 0:
        return digits([margin / 3])  # of a margin of .005 the fourth decimal, of .1 the third
    return digits(d.deviation for d in result.decisions.values())


def probability(value: float | None) -> str:
    """A p value to three decimals."""
    if value is None:
        return NONE
    return "<0.001" if value < 0.001 else f"{value:.3f}"


def more_seeds(decision: Decision) -> str:
    """Further pairs that would decide if difference and spread stay what they are."""
    if decision.verdict != "undecided":
        return NONE
    if decision.more_seeds is not None:
        return str(decision.more_seeds)
    return "no number" if decision.n < 2 or not decision.deviation else ">10,000"


def setting(value: Any) -> str:
    """A setting's value, cut where it is long."""
    if isinstance(value, bool) or value is None:
        text = str(value).lower() if value is not None else "null"
    elif isinstance(value, float):
        text = f"{value:.6g}"
    elif isinstance(value, int):
        text = f"{value:,}"
    else:
        text = str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def listed(names: Sequence[str], *, most: int = 8) -> str:
    """`a, b and c`; of a long list its beginning and how many more."""
    if len(names) > most:
        return f"{', '.join(names[:most])} and {len(names) - most} more"
    return " and ".join(part for part in (", ".join(names[:-1]), *names[-1:]) if part)


def counted(number: int, singular: str, plural: str = "") -> str:
    """`1 pair`, `3 pairs`."""
    return f"{number:,} {singular if number == 1 else plural or singular + 's'}"


def title_of(result: StudyResult, rule: str | None = None) -> str:
    """Name of a study, with its scale and the rule that was not the declared one."""
    study = result.study
    scale = f", scale {study.scale}" if study.scale else ""
    return study.name + scale + (f", averages by {rule}" if rule else "")


def is_descriptive(result: StudyResult) -> bool:
    """Whether nobody declared a rule: plain runs."""
    return result.study.margin <= 0


def is_exploratory(result: StudyResult) -> bool:
    """A rule that was changed after the lock, or never declared, decides nothing for good."""
    return bool(result.changes) or is_descriptive(result)


def difference_words(result: StudyResult) -> str:
    """Which way differences are taken."""
    if result.study.higher_is_better:
        return "Differences are arm minus baseline; higher is better."
    return (
        "Lower is better on this metric, so differences are baseline minus arm: positive = the arm "
        "is better."
    )


def ordered(result: StudyResult) -> list[str]:
    """Arms that are compared, in the study's order."""
    return [name for name in result.arms if name != result.study.baseline]


def mean_at(result: StudyResult, arm: str, seeds: Sequence[int]) -> float | None:
    """Mean of an arm's primary metric over these seeds; None where one is missing."""
    scores = result.arms[arm].scores.get(result.study.primary, {}) if arm in result.arms else {}
    found = [scores[seed] for seed in seeds if seed in scores]
    return sum(found) / len(found) if found and len(found) == len(seeds) else None
