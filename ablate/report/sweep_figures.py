"""Points of a sweep -> curve over one number, parallel coordinates, importance.

Takes plain values, so that `report` need not know sweeps; colours and sizes are those of all
figures. Grey to dark is worse to better, and the best point has a colour of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ablate.report.drawing import (
    COLORS,
    DASHES,
    EDGE,
    FAINT,
    INK,
    MARKS,
    ROW,
    WIDTH,
    canvas,
    legend,
    shortened,
    width_of,
)

MOST_LINES = len(COLORS)
_HEIGHT = 2.6  # inches


def is_wide(values: Sequence[float]) -> bool:
    """Whether an axis of these numbers is logarithmic: all positive, over a factor of 20."""
    return min(values) > 0 and max(values) / min(values) >= 20


def curve(
    name: str, metric: str, lines: Mapping[str, Sequence[tuple[float, float]]], *, joined: bool
) -> Figure:
    """(value, score) of every point, a mark each; `joined` draws the mean over equal values."""
    labels = shortened(list(lines))
    several = len(lines) > 1
    below = 0.85 + ROW * len(lines) * several
    figure, axes = canvas(_HEIGHT, left=0.8, bottom=below)
    handles = []
    for index, found in enumerate(lines.values()):
        x, y = np.array(sorted(found)).T
        color, mark = COLORS[index % MOST_LINES], MARKS[index % MOST_LINES]
        dash: Any = DASHES[index % MOST_LINES]
        axes.plot(x, y, mark, color=color, markersize=4, markerfacecolor="none", zorder=3)
        if joined:
            places = np.unique(x)
            means = [float(y[x == place].mean()) for place in places]
            lows = [float(y[x == place].min()) for place in places]
            highs = [float(y[x == place].max()) for place in places]
            axes.plot(places, means, color=color, linestyle=dash, linewidth=1.5, zorder=4)
            axes.fill_between(places, lows, highs, color=color, alpha=0.15, linewidth=0)
        handles.append(Line2D([], [], color=color, marker=mark, linestyle=dash if joined else ""))
    if is_wide([x for found in lines.values() for x, _ in found]):
        axes.set_xscale("log")
    axes.set_xlabel(name)
    axes.set_ylabel(metric if len(metric) <= 30 else metric.rsplit("/", 1)[-1])
    axes.yaxis.grid(True, color=EDGE, linewidth=0.6)
    if several:
        legend(axes, handles, labels, below=0.7)
    return figure


def parallel(
    names: Sequence[str],
    points: Sequence[Sequence[Any]],
    scores: Sequence[float],
    metric: str,
    *,
    maximize: bool,
) -> Figure:
    """A line a point over one axis a parameter and, last, the score; drawn from worst to best."""
    columns = [_axis([point[i] for point in points]) for i in range(len(names))]
    columns.append(_axis(list(scores)))
    labels = shortened([*names, metric], 24)
    ticks = max((width_of(texts) for _, _, texts in columns), default=0.3)
    width = max(WIDTH, 1.0 + (0.45 + ticks) * len(columns))
    figure, axes = canvas(
        _HEIGHT, left=0.5, bottom=0.3 + ROW * len(labels), right=0.15 + ticks, width=width
    )
    order = np.argsort(scores) if maximize else np.argsort(scores)[::-1]
    shades = np.linspace(0.15, 0.75, len(order))
    for rank, index in enumerate(order):
        heights = [column[0][index] for column in columns]
        best = rank == len(order) - 1
        axes.plot(
            range(len(columns)),
            heights,
            color=COLORS[1] if best else INK,
            alpha=1.0 if best else float(shades[rank]),
            linewidth=2.2 if best else 1.0,
            zorder=4 if best else 2,
        )
    for place, (_, marks, texts) in enumerate(columns):
        axes.axvline(place, color=FAINT, linewidth=0.8, zorder=1)
        for mark, text in zip(marks, texts, strict=True):
            axes.text(place + 0.04, mark, text, va="center", color=INK, zorder=5)
    axes.set_xticks(range(len(columns)), [str(n + 1) for n in range(len(columns))])
    axes.set_yticks([])
    axes.set_ylim(-0.06, 1.06)
    axes.set_xlim(-0.1, len(columns) - 1 + 0.05)
    for side in ("left", "bottom"):
        axes.spines[side].set_visible(False)
    handles = [Line2D([], [], linestyle="") for _ in labels]
    legend(axes, handles, [f"{n}  {label}" for n, label in enumerate(labels, 1)], below=0.3)
    return figure


def _axis(values: Sequence[Any]) -> tuple[list[float], list[float], list[str]]:
    """(height of each value in [0, 1], heights of the marks, their texts)."""
    numeric = all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in values)
    levels = sorted(set(values)) if numeric else list(dict.fromkeys(map(str, values)))
    if not numeric or len(levels) <= 4:
        given = list(values) if numeric else list(map(str, values))
        step = 1 / max(len(levels) - 1, 1)
        places = {level: n * step if len(levels) > 1 else 0.5 for n, level in enumerate(levels)}
        texts = [f"{v:.4g}" for v in levels] if numeric else shortened(list(map(str, levels)), 14)
        return [places[v] for v in given], list(places.values()), texts
    numbers = np.array(values, dtype=np.float64)
    scaled = np.log(numbers) if is_wide(list(numbers)) else numbers
    span = scaled.max() - scaled.min()
    heights = (scaled - scaled.min()) / span
    return heights.tolist(), [0.0, 1.0], [f"{numbers.min():.3g}", f"{numbers.max():.3g}"]


def bars(names: Sequence[str], shares: Sequence[float]) -> Figure:
    """Share of each parameter, the largest on top."""
    labels = shortened(names, 30)
    figure, axes = canvas(ROW * 1.4 * len(names), left=0.2 + width_of(labels), bottom=0.55)
    rows = range(len(names))
    axes.barh(rows, shares, color=COLORS[0], height=0.6)
    for row, share in zip(rows, shares, strict=True):
        axes.text(share + 0.02, row, f"{share:.2f}", va="center", color=INK)
    axes.set_yticks(rows, labels)
    axes.invert_yaxis()
    axes.set_xlim(0, 1.12)
    axes.set_xticks([0, 0.5, 1])
    axes.set_xlabel("share of the variance")
    return figure
