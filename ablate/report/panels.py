"""Scores and metrics -> heat map of differences, learning curves, score against cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import EngFormatter, MaxNLocator

from ablate.report import wording
from ablate.report.conduct import at
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
)  # fmt: skip
from ablate.report.learning import Curve
from ablate.study.collect import StudyResult
from ablate.study.parts import lower_is_better

MOST_COLORED = len(COLORS)  # arms beside the baseline; the others are grey
MOST_SCORES = 60
_COUNTING = ("trigram_accuracy", "unigram_accuracy")
_CELL = 0.3  # inches, without a number in it
_CELL_OF_NUMBER = 0.85
_CLIP = 3.0  # deviations


def shared_scores(result: StudyResult) -> list[str]:
    """Scores that the baseline and another arm have, in the baseline's order."""
    base = result.arms.get(result.study.baseline)
    if base is None:
        return []
    others = [result.arms[n] for n in wording.ordered(result)]
    return [
        name
        for name, mine in base.scores.items()
        if not name.endswith(_COUNTING)
        and any(set(mine) & set(arm.scores.get(name, {})) for arm in others)
    ]


def heat_map(result: StudyResult) -> Figure | None:
    """Differences by score, better to one side, in deviations of the score's paired differences."""
    scores = shared_scores(result)[:MOST_SCORES]
    names = wording.ordered(result)
    if len(scores) < 2 or not names:
        return None
    means, colors = _effects(result, names, scores)
    is_tall = len(scores) > len(names)  # the longer side runs down the page
    rows, columns = (scores, names) if is_tall else (names, scores)
    means, colors = (means.T, colors.T) if is_tall else (means, colors)
    row_labels = _labels(rows, is_tall)
    column_labels = _labels(columns, not is_tall)
    left = width_of(row_labels) + 0.15
    has_numbers = left + len(columns) * _CELL_OF_NUMBER + 0.2 <= WIDTH
    cell = _CELL_OF_NUMBER if has_numbers else _CELL
    width = max(WIDTH, left + len(columns) * cell + 0.2)
    figure, axes = canvas(
        ROW * len(rows), left=left, right=width - left - len(columns) * cell, width=width,
        bottom=0.95, top=width_of(column_labels) + 0.2,
    )  # fmt: skip
    map_ = matplotlib.colormaps["PuOr_r"].reversed().with_extremes(bad=EDGE)
    shades = axes.pcolormesh(
        np.ma.masked_invalid(colors), cmap=map_, vmin=-_CLIP, vmax=_CLIP, edgecolors="none",
        linewidth=0, rasterized=colors.size > 1500,
    )  # fmt: skip
    axes.set_ylim(len(rows), 0)
    axes.set_yticks(np.arange(len(rows)) + 0.5, row_labels)
    axes.set_xticks(np.arange(len(columns)) + 0.5, column_labels, rotation=90)
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    if has_numbers:
        for (row, column), value in np.ndenumerate(means):
            if np.isfinite(value):
                red, green, blue, _ = shades.to_rgba(colors[row, column])
                dark = 0.299 * red + 0.587 * green + 0.114 * blue < 0.55
                axes.text(
                    column + 0.5, row + 0.5, f"{value:+.3g}".replace("-", "−")[:7], ha="center",
                    va="center", fontsize=9.5, color="#ffffff" if dark else "#111111",
                )  # fmt: skip
    height = figure.get_figheight()
    bar = figure.add_axes((0.2 / width, 0.55 / height, 2.2 / width, 0.14 / height))
    scale = figure.colorbar(shades, cax=bar, orientation="horizontal", ticks=(-3, 0, 3))
    scale.outline.set_visible(False)  # type: ignore[operator]
    bar.set_xticks([-_CLIP, 0, _CLIP], ["−3", "0", "+3 sd"], fontsize=10, color=INK)
    bar.tick_params(length=0)
    figure.text(0.2 / width, 0.1 / height, "worse", fontsize=10, color=INK)
    figure.text(2.4 / width, 0.1 / height, "better", fontsize=10, color=INK, ha="right")
    return figure


def _labels(names: Sequence[str], are_scores: bool) -> list[str]:
    short = [n.split("/", 1)[-1].replace("/", " ") if are_scores else n for n in names]
    return shortened(short if len(set(short)) == len(short) else names)


def _effects(
    result: StudyResult, names: Sequence[str], scores: Sequence[str]
) -> tuple[np.ndarray, np.ndarray]:
    """Mean differences arm minus baseline (arms, scores), and in deviations with better above 0."""
    means = np.full((len(names), len(scores)), np.nan)
    colors = np.full_like(means, np.nan)
    base = result.arms[result.study.baseline].scores
    for column, score in enumerate(scores):
        theirs, spreads = base[score], []
        for row, name in enumerate(names):
            mine = result.arms[name].scores.get(score, {})
            found = np.array([mine[s] - theirs[s] for s in sorted(set(mine) & set(theirs))])
            if len(found):
                means[row, column] = found.mean()
            if len(found) > 1:
                spreads.append(found.var(ddof=1))
        spread = float(np.median(spreads)) ** 0.5 if spreads else 0.0
        there = np.abs(means[:, column][np.isfinite(means[:, column])])
        unit = spread or float(there.max(initial=0.0)) / _CLIP or 1.0
        is_lower = lower_is_better(score)
        if score == result.study.primary:
            is_lower = not result.study.higher_is_better
        sign = -1.0 if is_lower else 1.0
        colors[:, column] = np.clip(sign * means[:, column] / unit, -_CLIP, _CLIP)
    return means, colors


def told_apart(result: StudyResult, there: Sequence[str]) -> tuple[list[str], list[str]]:
    """Arms that get a colour (those with the largest differences, in order), and the grey ones."""
    others = [n for n in there if n != result.study.baseline]
    size = {
        n: abs(d.difference) if (d := result.decisions.get(n)) and d.difference else 0.0
        for n in others
    }
    chosen = set(sorted(others, key=lambda n: -size[n])[:MOST_COLORED])
    return [n for n in others if n in chosen], [n for n in others if n not in chosen]


def curves(
    result: StudyResult, found: Mapping[str, Curve], metric: str, clock: str
) -> Figure | None:
    """Mean over seeds against the clock, with the band from the lowest to the highest seed."""
    if not found:
        return None
    colored, grey = told_apart(result, list(found))
    has_base = result.study.baseline in found
    entries = len(colored) + has_base + bool(grey)
    figure, axes = canvas(2.7, left=0.75, bottom=0.7 + 0.21 * entries, top=0.3)
    for name in grey:
        axes.plot(found[name].spent, found[name].mean, color=EDGE, lw=1, zorder=1)
    handles: list[Any] = []
    names = [*colored, *([result.study.baseline] if has_base else [])]
    for number, name in enumerate(names):
        is_base = name == result.study.baseline
        color, dash = (INK, "-") if is_base else (COLORS[number], DASHES[number])
        curve = found[name]
        axes.fill_between(curve.spent, curve.low, curve.high, color=color, alpha=0.15, lw=0)
        alone = {"marker": "o", "ms": 5} if len(curve.spent) == 1 else {}
        (line,) = axes.plot(
            curve.spent,
            curve.mean,
            color=color,
            ls=dash,
            lw=2,
            zorder=3,
            **alone,  # type: ignore[arg-type]
        )
        handles.append(line)
    labels = shortened(
        [*colored, *([f"{result.study.baseline} (baseline)"] if has_base else [])], 40
    )
    if grey:
        handles.append(Line2D([], [], color=EDGE, lw=1))
        labels.append(wording.counted(len(grey), "other arm"))
    _numbers(axes, clock, metric)
    legend(axes, handles, labels, below=0.62)
    return figure


def _numbers(axes: Any, x: str, y: str) -> None:
    axes.xaxis.set_major_locator(MaxNLocator(4))
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.yaxis.set_major_locator(MaxNLocator(5))
    axes.set_xlabel(x, loc="right")
    axes.set_title(shortened([y], 46)[0], loc="left", fontsize=10, color=INK, pad=4)


COSTS = (
    ("pretraining FLOPs", ("clocks", "flops")),
    ("parameters", ("derived", "parameters")),
)


def cost(result: StudyResult) -> tuple[Figure, str] | None:
    """Mean score against what an arm cost, and the cost's name; None where all cost the same."""
    scores = {n: a.scores.get(result.study.primary, {}) for n, a in result.arms.items()}
    for label, path in COSTS:
        spent = {
            n: float(np.mean(values))
            for n, arm in result.arms.items()
            if scores[n]
            and (values := [v for r in arm.records.values() if (v := at(r, path)) is not None])
        }
        if len(spent) > 1 and max(spent.values()) > 1.02 * min(spent.values()):
            return _cost(result, scores, spent, label), label
    return None


def _cost(
    result: StudyResult,
    scores: Mapping[str, Mapping[int, float]],
    spent: Mapping[str, float],
    label: str,
) -> Figure:
    colored, grey = told_apart(result, list(spent))
    has_base = result.study.baseline in spent
    entries = len(colored) + has_base + bool(grey)
    figure, axes = canvas(2.7, left=0.75, bottom=0.7 + 0.21 * entries, top=0.3)
    handles: list[Any] = []
    base = [result.study.baseline] if has_base else []
    for number, name in enumerate([*colored, *base, *grey]):
        if name in base:
            color, mark = INK, "*"
        elif name in grey:
            color, mark = FAINT, "."
        else:
            color, mark = COLORS[number], MARKS[number]
        values = list(scores[name].values())
        axes.plot([spent[name]] * 2, [min(values), max(values)], color=color, lw=1, alpha=0.6)
        size = 11 if mark == "*" else 7
        (dot,) = axes.plot([spent[name]], [np.mean(values)], mark, color=color, ms=size, mew=0)
        if name not in grey or name == grey[0]:
            handles.append(dot)
    labels = shortened([*colored, *(f"{name} (baseline)" for name in base)], 40)
    labels += [wording.counted(len(grey), "other arm")] if grey else []
    _numbers(axes, label, result.study.primary)
    if max(spent.values()) > 20 * min(spent.values()):
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        axes.xaxis.set_minor_formatter(matplotlib.ticker.NullFormatter())
    else:
        axes.margins(x=0.08)
    legend(axes, handles, labels, below=0.62)
    return figure
