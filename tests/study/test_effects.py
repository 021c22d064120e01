"""Effects of factors by hand, against statsmodels' formulas, and in simulations of known truths."""

import gc
import itertools

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom
from statsmodels.formula.api import ols

from ablate.study import stats
from ablate.study.effects import effects
from ablate.study.verdict import ArmScores, decide

SIMULATIONS = 1000
BY_CHANCE = 1e-6  # how often a right program may fail here


@pytest.fixture(autouse=True)
def no_collection(monkeypatch):
    """statsmodels collects garbage at every correction, 50 ms each."""
    monkeypatch.setattr(gc, "collect", lambda *args: 0)


def design(**factors):
    """`design(A="xy", B="uv")`: arms `x-u`, `x-v`, ..."""
    return {
        "-".join(cell): dict(zip(factors, cell, strict=True))
        for cell in itertools.product(*factors.values())
    }


def scores_of(levels, values):
    """`values` (seeds, arms)."""
    return {arm: dict(enumerate(values[:, i].tolist())) for i, arm in enumerate(levels)}


def named(found):
    return {tuple(zip(e.factors, e.levels, strict=True)): e for e in found.effects}


TWO = design(A="xy", B="uv")
DRAWN = np.random.default_rng(0).normal([0, 1, 2, 5], size=(6, 4))


def test_two_by_two_by_hand():
    found = effects(TWO, scores_of(TWO, DRAWN), floor_share=0.0)
    xu, xv, yu, yv = DRAWN.T
    by_hand = {
        (("A", "y"),): (yu + yv) / 2 - (xu + xv) / 2,
        (("B", "v"),): (xv + yv) / 2 - (xu + yu) / 2,
        (("A", "y"), ("B", "v")): (yv - xv) - (yu - xu),
    }
    assert list(named(found)) == list(by_hand)
    for name, effect in named(found).items():
        wanted = stats.paired(by_hand[name])
        assert effect.found.mean == pytest.approx(wanted.mean, abs=1e-12)
        assert (effect.found.low, effect.found.high) == pytest.approx((wanted.low, wanted.high))
        assert effect.found.p == pytest.approx(wanted.p)
        assert effect.first == tuple({"A": "x", "B": "u"}[factor] for factor in effect.factors)
    raw = {str(i): e.found.p for i, e in enumerate(found.effects)}
    assert [e.p_adjusted for e in found.effects] == list(stats.holm(raw).values())


def test_effects_are_the_coefficients_of_effect_coding_with_seeds_as_blocks():
    levels = design(A="xy", B="uv", D="st")
    values = np.random.default_rng(1).normal(size=(5, 8))
    rows = [
        {"score": values[seed, i], "seed": seed}
        | {f: (1 if level in "yvt" else -1) for f, level in cell.items()}
        for seed in range(5)
        for i, cell in enumerate(levels.values())
    ]
    fit = ols("score ~ A * B * D + C(seed)", pd.DataFrame(rows)).fit()
    found = effects(levels, scores_of(levels, values))
    assert len(found.effects) == 7
    for effect in found.effects:
        coefficient = fit.params[":".join(effect.factors)]
        assert effect.found.mean == pytest.approx(coefficient * 2 ** len(effect.factors))
    assert found.residual == pytest.approx(fit.scale**0.5)


def test_of_three_levels_each_has_a_row_against_the_first_as_the_fitted_means_say():
    levels = design(A="xyz", B="uv")
    values = np.random.default_rng(2).normal(size=(4, 6))
    rows = [
        {"score": values[seed, i], "seed": seed, **cell}
        for seed in range(4)
        for i, cell in enumerate(levels.values())
    ]
    data = pd.DataFrame(rows)
    fit = ols("score ~ C(A, Sum) * C(B, Sum) + C(seed, Sum)", data).fit()
    mean = fit.predict(data).groupby([data["A"], data["B"]]).mean()
    found = {
        name: e.found.mean for name, e in named(effects(levels, scores_of(levels, values))).items()
    }
    assert found == pytest.approx(
        {
            (("A", "y"),): mean["y"].mean() - mean["x"].mean(),
            (("A", "z"),): mean["z"].mean() - mean["x"].mean(),
            (("B", "v"),): mean[:, "v"].mean() - mean[:, "u"].mean(),
            **{
                (("A", a), ("B", "v")): mean[a]["v"]
                - mean[a]["u"]
                - mean["x"]["v"]
                + mean["x"]["u"]
                for a in "yz"
            },
        }
    )


def test_two_arms_get_the_interval_that_decides_of_them_elsewhere():
    levels = design(A="xy")
    scores = scores_of(levels, DRAWN[:, :2])
    (effect,) = effects(levels, scores).effects
    wanted = decide({"y": ArmScores(scores["y"])}, ArmScores(scores["x"]), margin=0.1)["y"]
    assert effect.found.mean == pytest.approx(wanted.difference)
    assert (effect.found.low, effect.found.high) == pytest.approx((wanted.low, wanted.high))
    assert effect.p_adjusted == pytest.approx(wanted.p)


TRUTHS = {  # means of xu, xv, yu, yv; sd of the arms; sd over seeds of A's effect
    "nothing": ([0, 0, 0, 0], 1.0, 0.0),
    "one main effect": ([0, 0, 3, 3], 1.0, 0.0),
    "both and an interaction": ([0, 1, 2, 7], 1.0, 0.0),
    "arms of unequal spread": ([0, 1, 2, 3], [0.2, 0.2, 0.2, 3.0], 0.0),
    "a factor that acts otherwise on each seed": ([0, 0, 1, 1], 0.3, 2.0),
}


def simulated(means, spread, by_seed, seeds=5, n=SIMULATIONS):
    """(simulations, seeds, arms), with seeds that differ by themselves."""
    draw = np.random.default_rng(7)
    values = np.array(means) + np.array(spread) * draw.normal(size=(n, seeds, 4))
    values += 10 * draw.normal(size=(n, seeds, 1))
    return values + by_seed * draw.normal(size=(n, seeds, 1)) * np.array([0, 0, 1, 1])


@pytest.mark.parametrize("truth", TRUTHS)
def test_estimates_are_unbiased_and_intervals_cover_as_often_as_they_say(truth):
    xu, xv, yu, yv = means = TRUTHS[truth][0]
    true = {
        (("A", "y"),): (yu + yv - xu - xv) / 2,
        (("B", "v"),): (xv + yv - xu - yu) / 2,
        (("A", "y"), ("B", "v")): yv - xv - yu + xu,
    }
    found = {name: [] for name in true}
    for values in simulated(means, *TRUTHS[truth][1:]):
        for name, effect in named(effects(TWO, scores_of(TWO, values), floor_share=0.0)).items():
            found[name].append(effect.found)
    low, high = (
        f(q, SIMULATIONS, 0.95) / SIMULATIONS
        for f, q in ((binom.ppf, BY_CHANCE), (binom.isf, BY_CHANCE))
    )
    for name, value in true.items():
        estimates = np.array([f.mean for f in found[name]])
        assert abs(estimates.mean() - value) < 5 * estimates.std() / SIMULATIONS**0.5
        covered = np.mean([f.low <= value <= f.high for f in found[name]])
        assert low <= covered <= high, name


def test_with_the_floor_intervals_cover_at_least_as_often():
    covered = []
    for values in simulated([0, 0, 0, 0], 1.0, 0.0):
        covered += [
            e.found.low <= 0 <= e.found.high
            for e in effects(TWO, scores_of(TWO, values)).effects[:1]
        ]
    assert binom.ppf(BY_CHANCE, SIMULATIONS, 0.95) / SIMULATIONS <= np.mean(covered)


def test_the_pooled_residual_would_not_where_a_factor_acts_otherwise_on_each_seed():
    means, *rest = TRUTHS["a factor that acts otherwise on each seed"]
    covered = []
    for values in simulated(means, *rest, n=200):
        rows = [
            {"score": values[s, i], "seed": s, "a": a, "b": b}
            for s in range(5)
            for i, (a, b) in enumerate(itertools.product([-0.5, 0.5], repeat=2))
        ]
        low, high = ols("score ~ a * b + C(seed)", pd.DataFrame(rows)).fit().conf_int().loc["a"]
        covered.append(low <= 1 <= high)
    assert np.mean(covered) < 0.9


def test_seeds_that_an_arm_lacks_are_left_out_and_named():
    scores = scores_of(TWO, DRAWN)
    del scores["x-v"][1], scores["y-u"][1], scores["y-v"][4]
    found = effects(TWO, scores)
    assert found.seeds == (0, 2, 3, 5)
    assert found.left_out == {1: ("x-v", "y-u"), 4: ("y-v",)}
    kept = effects(TWO, scores_of(TWO, DRAWN[[0, 2, 3, 5]]))
    assert [e.found for e in found.effects] == [e.found for e in kept.effects]


def test_what_cannot_be_estimated_is_said_and_raises_nothing():
    scores = scores_of(TWO, DRAWN)
    assert "no seed is complete" in effects(TWO, {**scores, "y-v": {}}).note
    without = {arm: of_arm for arm, of_arm in scores.items() if arm != "y-v"}
    assert "no seed is complete" in effects(TWO, without).note
    assert (
        "not every combination"
        in effects({k: v for k, v in TWO.items() if k != "y-v"}, scores).note
    )
    assert "not every combination" in effects({}, scores).note
    assert "not finite" in effects(TWO, {**scores, "y-v": dict.fromkeys(range(6), np.inf)}).note
    one = effects(TWO, {arm: {0: of_arm[0]} for arm, of_arm in scores.items()})
    assert [e.found.low for e in one.effects] == [None] * 3
    assert one.residual is None
    assert one.effects[0].found.mean == pytest.approx((DRAWN[0, 2:].sum() - DRAWN[0, :2].sum()) / 2)


def test_an_effect_that_agrees_by_luck_gets_the_floor_of_the_pooled_residual():
    values = np.random.default_rng(3).normal(size=(5, 4))
    values -= np.outer(values @ [-0.5, -0.5, 0.5, 0.5] - 1, [-0.5, -0.5, 0.5, 0.5])
    main = effects(TWO, scores_of(TWO, values)).effects[0]
    assert main.floored
    assert main.found.own_deviation == pytest.approx(0, abs=1e-12)
    assert main.found.deviation == pytest.approx(
        0.5 * effects(TWO, scores_of(TWO, values)).residual
    )
