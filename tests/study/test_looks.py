"""What is decided when: by which rule, from which runs, after how many looks; made-up records."""

import dataclasses
import json

import pytest

from ablate.study.collect import collect, look_of
from ablate.study.design import from_dict
from ablate.study.guard import compose_arms
from ablate.study.states import State, StudyFolder

LOSS = "val/token_mask/loss"
STUDY = {
    "question": "Does a rate of 30% matter?",
    "baseline": "base",
    "arms": {"base": [], "better": ["masking.mask_rate=0.3"], "same": ["masking.mask_rate=0.2"]},
    "moves": ["masking.mask_rate"],
    "seeds": 4,
    "primary": LOSS,
    "higher_is_better": False,
    "margin": 0.05,
    "gates": [
        {"score": "val/token_mask/accuracy", "above": 0.5, "why": "learned", "arms": ["base"]},
    ],
    "common": ["evaluation=none", "tracking=none"],
}  # fmt: skip
SHIFT = {"base": 0.0, "better": -0.3, "same": 0.0}
NOISE = [0.0, 0.02, -0.02, 0.01, -0.01, 0.015]


@pytest.fixture
def studied(tmp_path):
    """`studied(seeds, **changes)`: the study, its folder with these seeds complete, the result."""

    def build(ran, arms=None, **changes):
        study = from_dict({**STUDY, **changes}, name="mine")
        folder = StudyFolder(tmp_path, study)
        composed = compose_arms(study)
        folder.take_lock(study, composed, "2026-01-01")
        for arm in arms or study.arms:
            for seed in ran:
                add(folder, arm, seed, 2.0 + SHIFT[arm] + NOISE[seed] * (1 + (arm == "same")))
        result = collect(study, composed, folder)
        return study, folder, dataclasses.replace(result, changes=folder.changes(study, composed))

    def add(folder, arm, seed, loss, run=None, accuracy=0.6):
        run = run or f"{arm}-s{seed}"
        place = tmp_path / "single" / run
        place.mkdir(parents=True, exist_ok=True)
        scores = {LOSS: loss, "val/token_mask/accuracy": accuracy}
        record = {"status": "complete", "scores": scores}
        (place / "record.json").write_text(json.dumps(record))
        folder.note(arm, seed, State("complete", run, "x"))

    build.add = add
    return build


def verdicts(result):
    return {name: decision.verdict for name, decision in result.decisions.items()}


def test_no_verdict_is_drawn_before_all_runs_have_ended(studied):
    _, folder, result = studied(range(3))
    assert verdicts(result) == {"better": "undecided", "same": "undecided"}
    assert result.decisions["better"].difference == pytest.approx(0.3)
    assert "3 runs have not ended" in result.decisions["better"].note
    assert result.looks == len(folder.looks) == 0
    assert [(arm, seed) for arm, seed, _ in result.failures] == [
        ("base", 3), ("better", 3), ("same", 3),
    ]  # fmt: skip
    _, _, result = studied(range(4))
    assert verdicts(result) == {"better": "better", "same": "equivalent"}
    assert result.looks == 1


def test_a_failed_run_has_ended_too(studied):
    _, folder, _ = studied(range(3))
    for arm in STUDY["arms"]:
        folder.note(arm, 3, State("failed", None, "x", "OSError: no space left"))
    _, _, result = studied(range(3))
    assert verdicts(result)["better"] == "better"
    assert len(result.failures) == 3


def test_the_same_runs_are_the_same_look(studied):
    _, folder, result = studied(range(4))
    folder.add_look(look_of(result))
    _, _, again = studied(range(4))
    assert again.looks == 1
    assert again.decisions == result.decisions


def test_more_seeds_are_asked_of_the_arms_that_got_them_alone(studied):
    study, folder, result = studied(range(4))
    folder.add_look(look_of(result))
    for arm in ("base", "same"):
        studied.add(folder, arm, 4, 2.0)
    look = look_of(collect(study, compose_arms(study), folder, {
        "base": range(5), "same": range(5), "better": range(4),
    }))  # fmt: skip
    folder.add_look(look)
    _, _, result = studied(range(4))
    assert result.failures == []
    assert {name: sorted(arm.records) for name, arm in result.arms.items()} == {
        "base": [0, 1, 2, 3, 4], "better": [0, 1, 2, 3], "same": [0, 1, 2, 3, 4],
    }  # fmt: skip
    assert result.looks == 2
    assert result.decisions["better"].look == 1  # decided by the first, and kept


@pytest.mark.parametrize(
    ("changes", "verdict", "difference"),
    [
        ({"higher_is_better": True}, "worse", -0.3),
        ({"margin": 5.0}, "equivalent", 0.3),
        ({"primary": "val/token_mask/accuracy", "higher_is_better": True}, "undecided", 0.0),
    ],
)
def test_another_rule_is_decided_anew_and_said(studied, changes, verdict, difference):
    _, folder, result = studied(range(4))
    folder.add_look(look_of(result))
    _, _, result = studied(range(4), **changes)
    decision = result.decisions["better"]
    if changes.get("primary"):  # all equal: within the margin, or nothing to say
        assert decision.verdict in ("equivalent", "undecided")
    else:
        assert decision.verdict == verdict
    assert decision.difference == pytest.approx(difference)
    assert result.looks == 2
    assert [line.partition(":")[0] for line in result.changes] == [
        f"rule.{name}" for name in sorted(changes) if STUDY[name] != changes[name]
    ]


def test_other_runs_at_the_same_seeds_are_decided_anew(studied):
    _, folder, result = studied(range(4))
    folder.add_look(look_of(result))
    for seed in range(4):
        studied.add(folder, "better", seed, 2.5 + NOISE[seed], run=f"other-s{seed}")
    study = from_dict(STUDY, name="mine")
    result = collect(study, compose_arms(study), folder)
    assert result.decisions["better"].verdict == "worse"
    assert result.decisions["better"].difference == pytest.approx(-0.5)


def test_a_decided_arm_whose_gate_fails_later_is_not_trained_enough(studied):
    study, folder, result = studied(range(4))
    folder.add_look(look_of(result))
    for seed in range(4):
        studied.add(folder, "base", seed, 2.0 + NOISE[seed], accuracy=0.5)  # not above .5
    for arm in ("base", "better"):
        studied.add(folder, arm, 4, 2.0, accuracy=0.5)
    seeds = {"base": range(5), "better": range(5), "same": range(4)}
    result = collect(study, compose_arms(study), folder, seeds)
    assert verdicts(result)["better"] == "not_trained_enough"


@pytest.mark.parametrize("seeds", [3, [0, 1, 2, 9]])
def test_other_seeds_in_the_file_are_a_change(studied, seeds):
    studied(range(4))
    _, _, result = studied(range(3), seeds=seeds)
    assert [line.partition(":")[0] for line in result.changes] == ["rule.seeds"]


def test_a_turned_expectation_is_a_change_and_its_wording_is_none(studied):
    said = {"better": {"sign": "+", "source": "a paper"}}
    studied(range(4), expected=said)
    again = {"better": {"sign": "+", "source": "a paper, table 8", "note": "half a point"}}
    assert studied(range(4), expected=again)[2].changes == []
    turned = studied(range(4), expected={"better": {"sign": "-", "source": "a paper"}})[2]
    assert [line.partition(":")[0] for line in turned.changes] == ["rule.expected"]


@pytest.mark.parametrize("name", ["lock.json", "looks.json", "states.json"])
@pytest.mark.parametrize("content", [b'{"rule"', b"\xff\xfe", b"17", b'[{"a": 1}]', b'{"a": 1}'])
def test_a_damaged_file_is_said_and_never_begun_anew(studied, name, content):
    _, folder, result = studied(range(4))
    folder.add_look(look_of(result))
    (folder.path / name).write_bytes(content)
    with pytest.raises(ValueError, match=f"{name} is damaged"):
        studied(range(4))
    assert (folder.path / name).read_bytes() == content


def test_a_score_that_is_not_finite_is_a_missing_pair(studied, tmp_path):
    _, folder, _ = studied(range(4))
    file = tmp_path / "single" / "better-s1" / "record.json"
    file.write_text(file.read_text().replace('"val/token_mask/loss": 1.72', f'"{LOSS}": NaN'))
    study = from_dict(STUDY, name="mine")
    result = collect(study, compose_arms(study), folder)
    assert result.decisions["better"].missing_seeds == (1,)
    assert result.decisions["better"].n == 3
