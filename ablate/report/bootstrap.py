"""Intervals over seeds and examples -> a table beside the one that decides, or why there is none.

The numbers are those of `study.examples`.
"""

from __future__ import annotations

from collections.abc import Mapping

from ablate.report import wording
from ablate.report.content import Block, Bullets, Cell, Paragraph, Table
from ablate.study.collect import StudyResult
from ablate.study.examples import Interval

HEADING = "Bootstrap over seeds and examples (description)"
COLUMNS = ("arm", "n pairs", "examples", "difference", "95% bootstrap interval", "95% t interval")


def bootstrap(result: StudyResult, found: Mapping[str, Interval | str] | None) -> list[Block]:
    """Of what `study.examples.intervals` gives; None where nobody knows the folder of the runs."""
    if not result.decisions:
        return []
    if found is None:
        return [Paragraph("None: the folder of the runs was not given.")]
    digits, rows = wording.digits_of(result), []
    lacking: dict[str, list[str]] = {}
    for name, here in found.items():
        if isinstance(here, str):
            lacking.setdefault(here, []).append(name)
            continue
        decision = result.decisions[name]
        rows.append(
            [
                Cell(name),
                Cell(str(here.n), here.n),
                Cell(f"{here.examples:,}", here.examples),
                Cell(digits.signed(here.difference), here.difference),
                Cell(digits.interval(here.low, here.high), here.low),
                Cell(digits.interval(decision.low, decision.high), decision.low),
            ]
        )
    if not rows and len(lacking) == 1:
        return [Paragraph(f"None: {next(iter(lacking))}.")]
    lines = [f"{wording.listed(names)}: {reason}" for reason, names in lacking.items()]
    blocks: list[Block] = [Table(COLUMNS, rows, frozenset({"arm"}), _caption(result))]
    return [*(blocks if rows else []), *([Bullets(lines)] if lines else [])]


def _caption(result: StudyResult) -> str:
    return (
        f"{result.study.primary}, arm against {result.study.baseline}, from the stored "
        "predictions. Percentiles of 1,000 resamples of pretraining seeds and of examples, the "
        "same examples for all runs of a resample; fine-tuning seeds are averaged inside each run. "
        "The t interval, over seeds alone, decides: of 3, 5, 10 seeds that differ much this one "
        "covers about .84, .88, .94 where .95 is claimed (simulated). Of one seed only the "
        "examples are resampled."
    )
