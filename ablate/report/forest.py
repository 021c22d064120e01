"""Decisions -> the forest plot of paired differences, and ranks of many arms over seeds."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from ablate.report import wording
from ablate.report.drawing import (
    BAND,
    COLORS,
    EDGE,
    FAINT,
    INK,
    PAPER,
    ROW,
    canvas,
    legend,
    shortened,
    width_of,
)  # fmt: skip
from ablate.study.collect import StudyResult

# verdict -> mark, colour, filled
_MARKS = {
    "better": ("^", COLORS[2], True),
    "worse": ("v", COLORS[1], True),
    "equivalent": ("s", COLORS[0], True),
    "undecided": ("o", FAINT, False),
    "not_trained_enough": ("x", FAINT, True),
    wording.DESCRIPTIVE: ("o", COLORS[0], True),
}
SORTED_ABOVE = 12  # arms; fewer keep the study's order
MIN_RANKED = 6
_MOST_WITH_DISTANCE = 100  # arms; beyond, the critical distance says nothing


def forest(result: StudyResult) -> Figure | None:
    """Differences with their intervals and the margin's band; None where there is no pair."""
    names = [n for n in wording.ordered(result) if (d := result.decisions.get(n)) and d.n]
    if not names:
        return None
    decisions = result.decisions
    if len(names) > SORTED_ABOVE:
        names.sort(key=lambda n: -(decisions[n].difference or 0.0))
    counts = {decisions[n].n for n in names}
    labels = shortened(names)
    if len(counts) > 1:
        labels = [f"{s} ({decisions[n].n})" for s, n in zip(labels, names, strict=True)]
    verdicts = [v for v in _MARKS if any(decisions[n].verdict == v for n in names)]
    entries = len(verdicts) + (result.study.margin > 0)
    figure, axes = canvas(
        ROW * (len(names) + 0.4), left=width_of(labels) + 0.15, bottom=0.7 + 0.21 * entries
    )
    low, high = _limits(result, names)
    axes.set_xlim(low, high)
    axes.set_ylim(len(names) - 0.3, -0.7)
    if result.study.margin > 0:
        axes.axvspan(-result.study.margin, result.study.margin, color=BAND, lw=0, zorder=0)
    axes.axvline(0.0, color=FAINT, lw=1, zorder=1)
    for row, name in enumerate(names):
        here = decisions[name]
        mark, color, filled = _MARKS[here.verdict]
        if here.low is not None and here.high is not None:
            ends = (max(here.low, low), min(here.high, high))
            axes.plot(ends, (row, row), color=color, lw=2, solid_capstyle="butt", zorder=2)
            for end, cut, arrow in ((low, here.low < low, "<"), (high, here.high > high, ">")):
                if cut:
                    axes.plot([end], [row], arrow, color=color, ms=5, clip_on=False, zorder=3)
        face = color if filled else PAPER
        at = ([here.difference or 0.0], [row])
        axes.plot(*at, mark, color=color, mfc=face, mew=1.8, ms=6.5, zorder=4)
    axes.set_yticks(range(len(names)), labels)
    axes.tick_params(axis="y", length=0)
    axes.xaxis.set_major_locator(MaxNLocator(4))
    axes.set_xlabel(_axis(result), loc="right")
    handles: list[Any] = [_handle(v) for v in verdicts]
    words = [wording.WORDS[v] for v in verdicts]
    if result.study.margin > 0:
        handles.append(Patch(color=BAND, lw=0))
        words.append(f"within the margin ±{result.study.margin:g}")
    legend(axes, handles, words, below=0.62)
    return figure


def _axis(result: StudyResult) -> str:
    return f"difference, {shortened([result.study.primary], 28)[0]} → better"


def _handle(verdict: str) -> Line2D:
    mark, color, filled = _MARKS[verdict]
    face = color if filled else PAPER
    return Line2D([], [], color=color, marker=mark, mfc=face, mew=1.8, ms=6.5, lw=2)


def _limits(result: StudyResult, names: list[str]) -> tuple[float, float]:
    """All means and the margin, and every interval but those far wider than the others."""
    found = [result.decisions[n] for n in names]
    halves = [d.high - d.low for d in found if d.high is not None and d.low is not None]
    widest = 3 * float(np.median(halves)) if halves else 0.0
    ends = [float(d.difference or 0.0) for d in found] + [0.0]
    ends += [-result.study.margin, result.study.margin] if result.study.margin > 0 else []
    for here in found:
        if here.low is not None and here.high is not None and here.high - here.low <= widest:
            ends += [here.low, here.high]
    span = max(ends) - min(ends) or 1.0
    return min(ends) - 0.06 * span, max(ends) + 0.06 * span


def ranks(result: StudyResult) -> Figure | None:
    """Mean rank over the seeds that all arms have, each seed's as a dot; None for few arms."""
    metric = {n: a.scores.get(result.study.primary, {}) for n, a in result.arms.items()}
    metric = {n: scores for n, scores in metric.items() if scores}
    seeds = sorted(set.intersection(*map(set, metric.values()))) if metric else []
    if len(metric) < MIN_RANKED or not seeds:
        return None
    from scipy.stats import rankdata

    sign = -1.0 if result.study.higher_is_better else 1.0
    names = list(metric)
    by_seed = np.array(
        [rankdata([sign * metric[n][seed] for n in names]) for seed in seeds]
    )  # (seeds, arms)
    mean = by_seed.mean(axis=0)
    order = np.argsort(mean, kind="stable")
    labels = shortened([names[i] for i in order])
    distance = critical_distance(len(names), len(seeds))
    figure, axes = canvas(
        ROW * (len(names) + 0.4), left=width_of(labels) + 0.15, bottom=1.05, top=0.1
    )
    for row, arm in enumerate(order):
        is_base = names[arm] == result.study.baseline
        color = INK if is_base else COLORS[0]
        axes.plot(by_seed[:, arm], [row] * len(seeds), "|", color=FAINT, ms=7, mew=1.2, zorder=2)
        axes.plot([mean[arm]], [row], "D" if is_base else "o", color=color, ms=6, zorder=3)
        axes.axhline(row, color=EDGE, lw=0.6, zorder=0)
    if distance is not None:
        axes.axvspan(mean[order[0]], mean[order[0]] + distance, color=BAND, lw=0, zorder=0)
    axes.set_xlim(0.2, len(names) + 0.8)
    axes.set_ylim(len(names) - 0.3, -0.7)
    axes.set_yticks(range(len(names)), labels)
    axes.tick_params(axis="y", length=0)
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes.set_xlabel("rank over arms, 1 = best", loc="right")
    handles: list[Any] = [
        Line2D([], [], color=COLORS[0], marker="o", ls="", ms=6),
        Line2D([], [], color=FAINT, marker="|", ls="", ms=7),
    ]
    legend(axes, handles, ["mean over seeds (◆ baseline)", "a seed"], below=0.58)
    return figure


def critical_distance(arms: int, seeds: int) -> float | None:
    """Nemenyi's distance of mean ranks at 5% (Demsar 2006); None where it says nothing."""
    from scipy.stats import studentized_range

    if seeds < 3 or not 2 <= arms <= _MOST_WITH_DISTANCE:
        return None
    quantile = float(studentized_range.ppf(0.95, arms, np.inf)) / 2**0.5
    return float(quantile * (arms * (arms + 1) / (6 * seeds)) ** 0.5)
