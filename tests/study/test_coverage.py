"""Simulated error rates of intervals, tests and verdicts, judged by exact binomial bounds."""

import gc

import numpy as np
import pytest
from scipy.stats import binom

from ablate.study import stats
from ablate.study.verdict import ArmScores, decide

SIMULATIONS = 2000
BY_CHANCE = 1e-6  # how often a right program may fail here


@pytest.fixture(autouse=True)
def no_collection(monkeypatch):
    """statsmodels collects garbage at every correction, 50 ms each."""
    monkeypatch.setattr(gc, "collect", lambda *args: 0)


def bounds(rate, n=SIMULATIONS):
    return binom.ppf(BY_CHANCE, n, rate) / n, binom.isf(BY_CHANCE, n, rate) / n


@pytest.mark.parametrize("n", [3, 5, 10])
def test_the_t_interval_covers_as_often_as_it_says(n):
    draws = np.random.default_rng(n).normal(0.3, 2.0, (SIMULATIONS, n))
    found = [stats.paired(row) for row in draws]
    covered = np.mean([f.low <= 0.3 <= f.high for f in found])
    low, high = bounds(0.95)
    assert low <= covered <= high


@pytest.mark.parametrize("n", [3, 5, 10])
def test_with_the_floor_it_covers_at_least_as_often(n):
    draws = np.random.default_rng(n).normal(0.3, 2.0, (SIMULATIONS, 5, n))
    covered = []
    for study in draws:
        floor = stats.deviation_floor(dict(enumerate(study)))
        found = stats.paired(study[0], floor=floor)
        covered.append(found.low <= 0.3 <= found.high)
    assert np.mean(covered) >= bounds(0.95)[0]


@pytest.mark.parametrize(("n", "about"), [(3, 0.75), (5, 0.84), (10, 0.90)])
def test_the_percentile_bootstrap_of_few_seeds_does_not(n, about):
    generator = np.random.default_rng(n)
    covered = []
    for row in generator.normal(0.3, 2.0, (1000, n)):
        means = row[generator.integers(n, size=(500, n))].mean(axis=1)
        low, high = np.quantile(means, [0.025, 0.975])
        covered.append(low <= 0.3 <= high)
    assert np.mean(covered) == pytest.approx(about, abs=0.05)


def verdicts(draws, margin, **options):
    """Verdicts of studies (simulations, arms, seeds) of differences from a baseline of 0."""
    baseline = ArmScores(dict.fromkeys(range(draws.shape[2]), 0.0))
    found = []
    for study in draws:
        arms = {str(i): ArmScores(dict(enumerate(row))) for i, row in enumerate(study)}
        found.append(
            [
                d.verdict
                for d in decide(arms, baseline, margin=margin, forecast=False, **options).values()
            ]
        )
    return np.array(found)


@pytest.mark.parametrize("n", [3, 5])
def test_five_null_arms_are_called_in_at_most_one_study_in_twenty(n):
    draws = np.random.default_rng(n).normal(0.0, 1.0, (SIMULATIONS, 5, n))
    found = verdicts(draws, margin=1e-6)
    called = np.isin(found, ["better", "worse"]).any(axis=1).mean()
    assert called <= bounds(0.025)[1]  # look 1 spends half of .05


def test_null_arms_that_share_their_baseline_are_no_worse():
    generator = np.random.default_rng(1)
    draws = generator.normal(0, 1, (SIMULATIONS, 5, 4)) - generator.normal(
        0, 1, (SIMULATIONS, 1, 4)
    )
    called = np.isin(verdicts(draws, margin=1e-6), ["better", "worse"]).any(axis=1).mean()
    assert called <= bounds(0.025)[1]


def test_growing_a_study_four_times_spends_no_more_than_the_whole():
    generator = np.random.default_rng(2)
    called = []
    for _ in range(700):
        draws = generator.normal(0, 1, (5, 12))
        decided = {}
        for look, seeds in enumerate((3, 6, 9, 12), 1):
            baseline = ArmScores(dict.fromkeys(range(seeds), 0.0))
            arms = {str(i): ArmScores(dict(enumerate(row[:seeds]))) for i, row in enumerate(draws)}
            decided = decide(
                arms, baseline, margin=1e-6, look=look, decided=decided, forecast=False
            )
        called.append(any(d.verdict in ("better", "worse") for d in decided.values()))
    assert np.mean(called) <= bounds(0.05, 700)[1]


def test_arms_at_the_margin_are_called_equivalent_at_most_as_often_as_promised():
    draws = np.random.default_rng(3).normal(1.0, 1.0, (SIMULATIONS, 1, 5))
    assert (verdicts(draws, margin=1.0) == "equivalent").mean() <= bounds(0.025)[1]


def test_a_large_effect_is_found_and_a_tight_null_is_equivalent():
    generator = np.random.default_rng(4)
    lost = generator.normal(-5.0, 1.0, (300, 1, 5))
    null = generator.normal(0.0, 0.1, (300, 1, 5))
    assert (verdicts(lost, margin=0.5) == "worse").mean() > 0.95
    assert (verdicts(null, margin=0.5) == "equivalent").mean() > 0.95


def test_pooling_fine_tuning_seeds_would_call_what_nesting_does_not():
    """3 pretraining seeds x 5 fits: as 15 independent runs, nulls are called far too often."""
    generator = np.random.default_rng(5)
    between = generator.normal(0, 1, (1000, 3, 1))
    scores = between + generator.normal(0, 0.3, (1000, 3, 5))
    pooled = np.mean([stats.paired(study.ravel()).p < 0.05 for study in scores])
    nested = np.mean([stats.paired(stats.mean_over_seeds(study)).p < 0.05 for study in scores])
    assert pooled > 0.3
    assert nested <= bounds(0.05, 1000)[1]
