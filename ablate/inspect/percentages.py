"""Shares and intervals -> text, the same in the terminal and on the page."""

from __future__ import annotations

from typing import NamedTuple

from ablate.inspect.histograms import Bar
from ablate.inspect.lines import Line


class Cells(NamedTuple):
    """One line of the table as text; empty where there is no value."""

    nominal: str
    counted: str
    share: str
    interval: str
    inside: str


def percent(share: float | None, digits: int = 2) -> str:
    return "" if share is None else f"{100 * share:.{digits}f}%"


def span(interval: tuple[float, float] | None, digits: int = 2) -> str:
    """Both ends of an interval."""
    if interval is None:
        return ""
    return f"{percent(interval[0], digits)} to {percent(interval[1], digits)}"


def cells_of(line: Line) -> Cells:
    """Two decimals of a percent, four where all there is to see is below one percent."""
    largest = max(line.share or 0.0, line.nominal or 0.0)
    digits = 4 if 0.0 < largest < 0.01 else 2
    return Cells(
        percent(line.nominal, digits),
        f"{line.count:,} / {line.total:,}",
        percent(line.share, digits),
        span(line.interval, digits),
        {None: "", True: "yes", False: "NO"}[line.inside],
    )


def bar_words(bar: Bar) -> str:
    """What stands behind a bar: its interval if it has one, and its count."""
    counted = f"{bar.count:,} of {bar.total:,}"
    return f"{span(bar.interval)}, {counted}" if bar.interval is not None else counted
