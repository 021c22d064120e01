"""The order of decision, what is kept between looks, and what a verdict rests on."""

import numpy as np
import pytest

from ablate.study.verdict import ArmScores, decide

BASELINE = ArmScores({seed: 0.5 + 0.01 * seed for seed in range(6)})


def shifted(by, spread=0.01, seeds=range(6), **options):
    noise = np.random.default_rng(0).normal(0, spread, 6)
    return ArmScores({s: BASELINE.by_seed[s] + by + noise[s] for s in seeds}, **options)


def one(arm, **options):
    return decide({"arm": arm}, BASELINE, margin=0.05, **options)["arm"]


@pytest.mark.parametrize(
    ("by", "spread", "verdict"),
    [
        (0.3, 0.01, "better"),
        (-0.3, 0.01, "worse"),
        (0.0, 0.005, "equivalent"),
        (0.02, 0.005, "equivalent"),  # shown to differ, and by too little to matter
        (0.1, 0.4, "undecided"),
    ],
)
def test_each_verdict(by, spread, verdict):
    found = one(shifted(by, spread))
    assert found.verdict == verdict
    assert found.n == 6
    assert found.low < found.difference < found.high
    assert (found.more_seeds is not None) == (verdict == "undecided")


def test_a_failed_gate_is_never_no_effect():
    for arm in (shifted(0.0, 0.001, failed_gates=["below the trigram"]), shifted(0.3)):
        baseline = BASELINE
        if not arm.failed_gates:
            baseline = ArmScores(BASELINE.by_seed, ["the baseline is below the trigram"])
        found = decide({"arm": arm}, baseline, margin=0.05)["arm"]
        assert found.verdict == "not_trained_enough"
        assert "below the trigram" in found.failed_gates[0]
        assert found.difference is not None


def test_pairs_are_by_seed_and_missing_partners_are_said():
    arm = ArmScores({5: 0.85, 3: 0.83, 4: 0.84, 9: 0.1})
    found = one(arm)
    assert (found.n, found.seeds, found.missing_seeds) == (3, (3, 4, 5), (0, 1, 2, 9))
    assert found.difference == pytest.approx(0.3)


@pytest.mark.parametrize("seeds", [[], [0], [0, 1]])
def test_two_pairs_decide_nothing(seeds):
    found = one(shifted(0.3, 0.0001, seeds))
    assert found.verdict == "undecided"
    assert (found.n, found.more_seeds) == (len(seeds), 3 - len(seeds))
    assert "no verdict is drawn" in found.note


def test_equal_differences_by_luck_are_held_by_the_floor():
    grain = ArmScores({s: BASELINE.by_seed[s] + 0.01 for s in range(3)})
    arms = {"lucky": grain, "b": shifted(0.0, 0.1), "c": shifted(0.1, 0.1)}
    found = decide(arms, BASELINE, margin=0.001)["lucky"]
    assert found.floored
    assert found.verdict == "undecided"
    alone = decide({"lucky": grain}, BASELINE, margin=0.001)["lucky"]
    assert alone.verdict in ("undecided", "better")
    assert alone.floored  # by what the scores would spread if they were not paired


def test_holm_goes_over_all_arms():
    alone = one(shifted(0.08, 0.05))
    among = decide(
        {"arm": shifted(0.08, 0.05), **{f"null{i}": shifted(0.0, 0.2) for i in range(8)}},
        BASELINE, margin=0.05, floor=0.0,
    )["arm"]  # fmt: skip
    assert among.p == pytest.approx(alone.p)
    assert among.p_adjusted == pytest.approx(9 * alone.p)


def test_what_a_look_decided_stays_and_later_looks_ask_for_more():
    first = decide({"a": shifted(0.3), "b": shifted(0.1, 0.4)}, BASELINE, margin=0.05)
    assert [d.verdict for d in first.values()] == ["better", "undecided"]
    second = decide(
        {"a": shifted(0.0, 0.4), "b": shifted(0.1, 0.4)}, BASELINE, margin=0.05, look=2,
        decided=first,
    )  # fmt: skip
    assert second["a"] == first["a"]
    assert (second["b"].look, second["b"].alpha) == (2, 0.0125)


def test_the_number_of_further_seeds_would_decide():
    found = one(shifted(0.1, 0.25))
    assert found.verdict == "undecided"
    assert 1 <= found.more_seeds < 100
    assert found.detectable > abs(found.difference) * 0.8
