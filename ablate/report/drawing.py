"""Canvas of all figures: sizes in inches, so that a page scaled to a phone stays legible.

Every body is `WIDTH` wide unless its columns need more; labels stand in a margin of their own width
and rows have a fixed height, so that no number of arms makes texts overlap. Texts are texts in the
SVG, not paths. Colours are Okabe and Ito's, told apart by the colour-blind; marks differ too.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

INK, FAINT, EDGE, PAPER, BAND = "#1b1f24", "#5b6470", "#d8dde3", "#fefefe", "#e9edf2"
COLORS = (
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c6d31"
)  # fmt: skip
DASHES = ("-", "--", "-.", ":", (0, (6, 1.5)), (0, (3, 1, 1, 1, 1, 1)), (0, (1, 1.5)))
MARKS = ("o", "s", "^", "D", "v", "P", "X")
WIDTH = 4.8  # inches
PHONE_POINTS = 72 * WIDTH
ROW = 0.24  # inches a row of 10-point text
POINTS = 10  # of all texts
_SIGN = 0.087  # inches a sign of DejaVu Sans at 10 points, on the wide side
_RC: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "ablate",
    "font.family": ["DejaVu Sans"],
    "font.size": POINTS,
    "axes.labelsize": POINTS,
    "xtick.labelsize": POINTS,
    "ytick.labelsize": POINTS,
    "legend.fontsize": POINTS,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": FAINT,
    "axes.facecolor": "none",
    "figure.facecolor": PAPER,
    "savefig.facecolor": PAPER,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.unicode_minus": True,
    "legend.frameon": False,
    "path.simplify": False,
}


def width_of(labels: Sequence[str]) -> float:
    """Inches that the longest label takes."""
    return _SIGN * max((len(label) for label in labels), default=0)


def shortened(names: Sequence[str], most: int = 22) -> list[str]:
    """Names of at most this many signs, cut in the middle, and still different ones."""
    found: list[str] = []
    for name in names:
        short = name
        if len(name) > most:
            tail = most // 2
            short = f"{name[: most - tail - 1]}…{name[-tail:]}"
        if short in found:
            number = f"~{len(found) + 1}"
            short = short[: most - len(number)] + number
        found.append(short)
    return [name.replace("$", r"\$") for name in found]  # else matplotlib reads it as math


def canvas(
    body: float, *, left: float, bottom: float, top: float = 0.1, right: float = 0.15,
    width: float = WIDTH,
) -> tuple[Figure, Axes]:  # fmt: skip
    """A figure whose axes are `body` inches high, with these margins in inches."""
    height = body + bottom + top
    with matplotlib.rc_context(_RC):
        figure = Figure(figsize=(width, height))
        axes = figure.add_axes(
            (left / width, bottom / height, (width - left - right) / width, body / height)
        )
    return figure, axes


def legend(axes: Axes, handles: Sequence[Any], labels: Sequence[str], *, below: float) -> None:
    """Entries in one column, `below` inches under the axes."""
    with matplotlib.rc_context(_RC):
        height = axes.get_position().height * axes.figure.get_figheight()  # type: ignore[union-attr]
        axes.legend(
            handles, labels, loc="upper left", bbox_to_anchor=(0.0, -below / height),
            borderaxespad=0.0, borderpad=0.0, labelspacing=0.45, handlelength=2.4,
        )  # fmt: skip


def svg(figure: Figure) -> str:
    """The file's text: the same bytes for the same drawing."""
    with matplotlib.rc_context(_RC):
        text = io.BytesIO()
        nothing = {"Date": None, "Creator": None, "Format": None, "Type": None}
        figure.savefig(text, format="svg", metadata=nothing)
    return text.getvalue().decode("utf-8")
