"""Figures: no text on another or outside, none too small, for few arms and for many."""

import itertools
import re

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from ablate.report import drawing, forest, learning, panels

MANY = {f"arm_{i:02d}_with_quite_a_long_name": (i - 15) / 300 for i in range(30)}
FEW = {"all_mask": 0.05, "mask_95": -0.06, "null_draws": 0.0}


def drawn(result, runs_dir):
    curves = learning.learning_curves(result, runs_dir)
    found = {
        "forest": forest.forest(result),
        "ranks": forest.ranks(result),
        "scores": panels.heat_map(result),
        "curves": panels.curves(result, curves, learning.METRIC, "tokens"),
        "cost": panels.cost(result)[0],
    }
    return {name: figure for name, figure in found.items() if figure is not None}


@pytest.mark.parametrize(("effects", "count"), [(FEW, 4), (MANY, 5)])
@pytest.mark.parametrize("more", [0, 40])
def test_no_text_overlaps_is_cut_or_small(make, effects, count, more):
    result = make(effects, curves=True, more_scores=more)
    figures = drawn(result, make.runs_dir)
    assert len(figures) == count
    for name, figure in figures.items():
        canvas = FigureCanvasAgg(figure)
        canvas.draw()
        unseen = ticks_out_of_view(figure)
        texts = [t for t in figure.findobj(match=_is_text) if t.get_text().strip()]
        texts = [t for t in texts if t not in unseen]
        boxes = [(t.get_text(), t.get_window_extent(canvas.get_renderer())) for t in texts]
        boxes = [(text, box) for text, box in boxes if box.width > 0]
        for (a, first), (b, second) in itertools.combinations(boxes, 2):
            wide = min(first.x1, second.x1) - max(first.x0, second.x0)
            high = min(first.y1, second.y1) - max(first.y0, second.y0)
            assert min(wide, high) <= 1, f"{name}: {a!r} on {b!r}"
        for text, box in boxes:
            assert box.x0 >= -1, f"{name}: {text}"
            assert box.y0 >= -1, f"{name}: {text}"
            assert box.x1 <= figure.bbox.width + 1, f"{name}: {text}"
            assert box.y1 <= figure.bbox.height + 1, f"{name}: {text}"
        sizes = [float(s) for s in re.findall(r"font(?:-size)?: ([\d.]+)px", drawing.svg(figure))]
        assert sizes
        assert min(sizes) >= 9


def ticks_out_of_view(figure):
    """Labels that matplotlib keeps and does not draw."""
    found = []
    for axis in (axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)):
        shown = axis._update_ticks()
        ticks = [*axis.majorTicks, *axis.minorTicks]
        found += [label for t in ticks if t not in shown for label in (t.label1, t.label2)]
    return found


def _is_text(artist):
    from matplotlib.text import Text

    return isinstance(artist, Text) and artist.get_visible()


def test_names_stay_different_when_they_are_cut():
    names = [f"a_name_that_is_much_too_long_{i}_and_ends_alike" for i in range(30)]
    short = drawing.shortened(names)
    assert len(set(short)) == 30
    assert max(map(len, short)) <= 22


def test_a_curve_is_the_mean_over_seeds_with_their_band(make):
    result = make({"all_mask": 0.05}, curves=True)
    curve = learning.learning_curves(result, make.runs_dir)["all_mask"]
    assert curve.n == 5
    assert curve.spent[0] == 40_000
    assert curve.spent[-1] == 800_000
    assert (curve.low <= curve.mean).all()
    assert (curve.mean <= curve.high).all()


def test_an_interval_far_wider_than_the_others_does_not_hide_them(make):
    import dataclasses

    result = make(MANY)
    name = next(iter(result.decisions))
    wide = dataclasses.replace(result.decisions[name], low=-50.0, high=50.0)
    result = dataclasses.replace(result, decisions={**result.decisions, name: wide})
    low, high = forest.forest(result).axes[0].get_xlim()
    assert -0.3 < low < high < 0.3


def test_critical_distance_is_the_published_one():
    """Demsar 2006, table 5: q of 4 classifiers is 2.569; his example has 14 data sets, 1.25."""
    assert forest.critical_distance(4, 14) == pytest.approx(1.25, abs=0.005)
