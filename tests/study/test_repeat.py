"""Verdicts of repetitions are counted by what was planted."""

import dataclasses

import pytest
from scipy.stats import beta

from ablate.study.design import from_dict
from ablate.study.repeat import OUTCOMES, Tally, exact_interval, judged, repeat, repetition, summary

STUDY = {
    "question": "q", "baseline": "base", "seeds": [0, 1, 4], "primary": "m", "margin": 0.1,
    "arms": {"base": [], "loser": ["a=1"], "null_same": ["b=1"]},
    "expected": {
        "loser": {"sign": "-", "source": "planted"},
        "null_same": {"sign": "0", "source": "planted"},
    },
}  # fmt: skip


@pytest.mark.parametrize(
    ("expected", "right", "wrong"),
    [
        ("-", {"worse"}, {"better", "equivalent"}),
        ("+", {"better"}, {"worse", "equivalent"}),
        ("0", {"equivalent", "undecided", "not_trained_enough"}, {"better", "worse"}),
    ],
)
def test_right_missed_and_wrong(expected, right, wrong):
    verdicts = ("better", "worse", "equivalent", "undecided", "not_trained_enough")
    found = {verdict: judged(expected, verdict) for verdict in verdicts}
    assert {v for v, o in found.items() if o == "right"} == right
    assert {v for v, o in found.items() if o == "wrong"} == wrong


def test_repetitions_share_no_seed_and_the_first_is_the_study():
    study = from_dict(STUDY, name="mine")
    seen = [repetition(study, number) for number in range(4)]
    assert seen[0] == study
    seeds = [seed for again in seen for seed in again.seeds]
    assert len(set(seeds)) == len(seeds) == 12
    assert len({again.name for again in seen}) == 4
    assert dataclasses.replace(seen[2], name=study.name, seeds=study.seeds) == study


def test_a_study_without_known_answers_is_refused():
    study = from_dict({**STUDY, "expected": {}}, name="mine")
    with pytest.raises(ValueError, match=r"loser, null_same expects none; write under `expected:`"):
        repetition(study, 0)


def test_repeat_runs_each_in_turn():
    study, ran = from_dict(STUDY, name="mine"), []
    repeat(study, 3, lambda again: ran.append(again.seeds), say=lambda text: None)
    assert ran == [(0, 1, 4), (5, 6, 9), (10, 11, 14)]


def test_counts_and_exact_intervals_by_hand():
    found = summary({
        "loser": Tally("-", ["worse", "worse", "undecided"]),
        "null_same": Tally("0", ["undecided", "better", "equivalent"]),
    })  # fmt: skip
    counts = {
        name: [cell[o]["count"] for o in OUTCOMES]
        for name, cell in {**found["arms"], "all": found["all"]}.items()
    }
    assert counts == {"loser": [2, 1, 0], "null_same": [2, 0, 1], "all": [4, 1, 1]}
    low, high = exact_interval(4, 6)
    assert (low, high) == pytest.approx((beta.ppf(0.025, 4, 3), beta.ppf(0.975, 5, 2)))
    assert found["all"]["right"]["interval"] == [low, high]
    assert exact_interval(6, 6)[1] == 1
