"""Intervals and tests against scipy, by hand and by simulation; FAULTS B37, B38."""

import numpy as np
import pytest
from scipy import stats as scipy_stats

from ablate.study import stats


def normal(*shape, seed=0, scale=1.0, mean=0.0):
    return np.random.default_rng(seed).normal(mean, scale, shape)


@pytest.mark.parametrize("n", [2, 3, 5, 10, 30])
def test_paired_is_scipys_test_and_interval(n):
    arm, baseline = normal(n, seed=n, mean=0.4), normal(n, seed=n + 100)
    found = stats.paired(arm - baseline)
    theirs = scipy_stats.ttest_rel(arm, baseline)
    interval = theirs.confidence_interval(0.95)
    assert found.p == pytest.approx(theirs.pvalue, rel=1e-9)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high), rel=1e-9)
    assert found.n == n


def test_b38_a_small_steady_difference_is_seen_in_pairs_and_not_apart():
    arm, baseline = np.array([81, 83, 85, 87.5]), np.array([80.0, 82, 84, 86])
    found = stats.paired(arm - baseline)
    assert found.mean == 1.125
    assert found.p == pytest.approx(0.0029, abs=5e-5)
    assert scipy_stats.ttest_ind(arm, baseline).pvalue == pytest.approx(0.575, abs=5e-4)


def test_b37_one_seed_has_no_spread_and_never_zero():
    alone = stats.paired(np.array([80.0]))
    assert (alone.mean, alone.n) == (80.0, 1)
    assert (alone.deviation, alone.low, alone.high, alone.p) == (None, None, None, None)
    three = stats.paired(np.array([80.0, 82.0, 84.0]))
    assert three.deviation == pytest.approx(2.0)
    assert three.high - three.mean == pytest.approx(4.968, abs=5e-4)


def test_differences_without_spread_prove_nothing_by_themselves():
    same = stats.paired(np.array([0.5, 0.5, 0.5]))
    assert same.p is None
    assert stats.equivalence_p(np.zeros(3), 0.1) is None
    floored = stats.paired(np.array([0.5, 0.5, 0.5]), floor=1.0)
    assert floored.p == pytest.approx(scipy_stats.t.sf(0.5 * 3**0.5, 2) * 2)
    assert floored.own_deviation == 0


@pytest.mark.parametrize("mean", [-0.15, 0.0, 0.05, 0.2])
def test_equivalence_is_two_one_sided_tests_of_statsmodels(mean):
    from statsmodels.stats.weightstats import DescrStatsW

    differences = normal(8, seed=3, scale=0.1, mean=mean)
    theirs = DescrStatsW(differences).ttost_mean(-0.2, 0.2)[0]
    assert stats.equivalence_p(differences, 0.2) == pytest.approx(theirs, rel=1e-6)


def test_holm_by_hand_and_undefined_values_count():
    adjusted = stats.holm({"a": 0.01, "b": 0.02, "c": 0.03, "d": 0.04})
    assert list(adjusted.values()) == pytest.approx([0.04, 0.06, 0.06, 0.06])
    assert stats.holm({"a": 0.01, "b": None}) == {"a": pytest.approx(0.02), "b": None}
    assert stats.holm({}) == {}


def test_all_looks_together_spend_less_than_one_test():
    spent = [stats.alpha_of_look(look) for look in range(1, 30)]
    assert spent[:3] == [0.025, 0.0125, 0.00625]
    assert sum(spent) < 0.05
    with pytest.raises(ValueError, match="number 1"):
        stats.alpha_of_look(0)


def test_floor_is_half_the_median_spread_and_an_outlier_does_not_move_it():
    arms = {"a": normal(5, seed=1), "b": normal(5, seed=2), "c": normal(5, seed=3)}
    spreads = sorted(np.std(d, ddof=1) for d in arms.values())
    assert stats.deviation_floor(arms) == pytest.approx(0.5 * spreads[1])
    broken = {**arms, "c": arms["c"] * 1000}
    assert stats.deviation_floor(broken) <= max(0.5 * s for s in spreads)
    assert stats.deviation_floor({"a": arms["a"]}) == 0.0


def test_detectable_effect_and_seeds_are_each_others_inverse():
    effect = stats.detectable_effect(1.0, 10)
    assert stats.seeds_for_difference(effect * 1.001, 1.0) == 10
    assert stats.seeds_for_difference(effect * 0.999, 1.0) == 11
    assert stats.detectable_effect(1.0, 1) is None
    assert stats.seeds_for_difference(0.0, 1.0) is None
    assert stats.seeds_for_difference(1e-9, 1.0) is None


def test_seeds_for_the_published_table_of_sample_sizes():
    for deviation, effect, about in (
        (0.5, 0.5, 10),
        (1.0, 1.0, 10),
        (1.0, 0.5, 34),
        (0.3, 0.3, 10),
    ):
        found = stats.seeds_for_difference(effect, deviation)
        assert found == pytest.approx(about, abs=1), (deviation, effect)


def test_seeds_for_equivalence_reach_the_power_they_promise():
    n = stats.seeds_for_equivalence(0.2, 1.0, 1.0, alpha=0.05, power=0.8)
    draws = normal(3000, n, seed=5, mean=0.2)
    hits = np.mean([stats.equivalence_p(row, 1.0) < 0.05 for row in draws])
    assert 0.77 < hits < 0.9
    assert stats.seeds_for_equivalence(1.0, 1.0, 1.0) is None


def test_pairing_says_what_it_bought():
    common, noise = normal(200, seed=1), normal(2, 200, seed=2, scale=0.5)
    found = stats.pairing(common + noise[0], common + noise[1])
    assert found.paired == pytest.approx(0.5 * 2**0.5, rel=0.15)
    assert found.unpaired == pytest.approx((2 * 1.25) ** 0.5, rel=0.15)
    assert found.gain == pytest.approx(5.0, rel=0.35)
    assert found.correlation == pytest.approx(0.8, abs=0.08)
    assert stats.pairing(np.array([1.0]), np.array([2.0])) is None
    with pytest.raises(ValueError, match="pairs need both"):
        stats.pairing(np.zeros(3), np.zeros(2))


def test_bootstrap_has_the_spread_of_seeds_and_of_examples():
    generator = np.random.default_rng(0)
    by_seed = normal(40, seed=1, scale=0.2)
    per_example = by_seed[:, None] + normal(400, seed=2)[None, :]
    low, high = stats.bootstrap_interval(per_example, rng=generator)
    expected = (0.2**2 / 40 + 1 / 400) ** 0.5
    assert (high - low) / (2 * 1.96) == pytest.approx(expected, rel=0.15)
    assert low < per_example.mean() < high


def test_bootstrap_of_few_seeds_is_widened_to_their_unbiased_spread():
    per_example = np.repeat(np.array([[-1.0], [0.0], [1.0]]), 50, axis=1)
    low, high = stats.bootstrap_interval(
        per_example, rng=np.random.default_rng(0), num_resamples=4000
    )
    # all three draws are the same seed in 1 of 27 resamples: the outermost 3.7% on each side
    assert (low, high) == pytest.approx((-(1.5**0.5), 1.5**0.5))


@pytest.mark.parametrize("values", [[], [[1.0]], [float("nan"), 1.0]])
def test_what_is_no_list_of_numbers_is_refused(values):
    with pytest.raises(ValueError, match="finite numbers"):
        stats.paired(np.array(values))
