"""The guard: only what was declared moves, no arm is another, and no arm judges itself."""

import pytest

from ablate.config.compose import compose_settings
from ablate.study import guard
from ablate.study.design import from_dict

PAIRS = "synthetic/minimal_pairs/accuracy"


def study_of(arms, *, moves=("masking.*",), primary=PAIRS, common=(), **more):
    return from_dict(
        {
            "question": "Does it help?",
            "baseline": "plain",
            "arms": {"plain": [], **arms},
            "moves": moves if isinstance(moves, dict) else list(moves),
            "seeds": 3,
            "primary": primary,
            "higher_is_better": not primary.endswith("loss"),
            "margin": 0.01,
            "common": list(common),
            **more,
        },
        name="mine",
    )


def refusal(study, extra=()):
    with pytest.raises(ValueError, match="study mine") as found:
        guard.compose_arms(study, extra)
    return str(found.value)


def test_a_second_factor_that_was_not_declared_is_refused():
    arms = {"two": ["masking.mask_rate=0.3", "optimizer.weight_decay=0.1"]}
    assert refusal(study_of(arms, moves=["masking.mask_rate"])) == (
        "study mine: arm two also moves optimizer.weight_decay from 0.01 to 0.1 against the "
        "baseline plain, and declares masking.mask_rate. Hold it fixed (common: [...]), or "
        "declare it: moves: {two: [optimizer.weight_decay]}"
    )
    moves = {"two": ["masking.mask_rate", "optimizer.weight_decay"]}
    assert set(guard.compose_arms(study_of(arms, moves=moves))["two"].moved) == set(moves["two"])


def test_what_follows_from_a_setting_is_a_move_too():
    said = refusal(study_of({"post": ["encoder.norm_position=post"]}, moves=["encoder.*"]))
    assert "also moves optimizer.learning_rate from 0.005 to 0.00296875" in said


def test_another_arms_declaration_is_no_excuse():
    arms = {"rate": ["masking.mask_rate=0.3"], "decay": ["optimizer.weight_decay=0.1"]}
    moves = {"rate": ["masking.mask_rate"], "decay": ["masking.mask_rate"]}
    said = refusal(study_of(arms, moves=moves))
    assert "arm decay also moves optimizer.weight_decay" in said


def test_an_arm_that_is_the_baseline_is_refused():
    assert refusal(study_of({"same": ["masking=bert_80_10_10"]})) == (
        "study mine: arm same sets nothing otherwise than the baseline plain; take it out. (A null "
        "arm draws other streams: [replicate.data=1, replicate.masks=1])"
    )


def test_where_a_run_is_kept_and_watched_moves_nothing():
    said = refusal(study_of({"same": ["tracking=none", "trainer.progress_bar=false"]}))
    assert "sets nothing otherwise" in said


def test_two_arms_with_one_fingerprint_are_refused():
    arms = {"all": ["masking=all_mask"], "by_hand": ["masking.mask_replace_prob=1.0",
            "masking.random_replace_prob=0.0"]}  # fmt: skip
    assert refusal(study_of(arms)) == (
        "study mine: the arms all and by_hand are one and the same run; take one out"
    )


def test_the_order_of_tasks_makes_no_other_run():
    arms = {"one": ["evaluation.tasks=[sentiment,qa]"], "two": ["evaluation.tasks=[qa,sentiment]"]}
    assert "one and two are one and the same run" in refusal(
        study_of(arms, moves=["evaluation.tasks"])
    )


def test_a_null_arm_changes_nothing_but_draws_or_means():
    arms = {"null_rate": ["masking.mask_rate=0.4"]}
    assert "null_rate moves masking.mask_rate, and the name of an arm" in refusal(study_of(arms))
    for override in ("replicate.data=1", "attention_backend=eager"):
        study = study_of({"null_one": [override]}, moves=["replicate.*", "attention_backend"])
        assert guard.compose_arms(study)


def test_an_arm_that_does_not_compose_is_named():
    assert "study mine, arm odd: masking=half is not possible" in refusal(
        study_of({"odd": ["masking=half"]})
    )


@pytest.mark.parametrize("primary", ["val/token_mask/loss", "val/whole_word_mask/accuracy"])
@pytest.mark.parametrize(
    ("overrides", "key"),
    [
        (["masking.selection=whole_word"], "masking.selection"),
        (["masking=all_mask"], "masking.mask_replace_prob, masking.random_replace_prob"),
        (["masking.mask_replace_prob=0.9"], "masking.mask_replace_prob"),
        (["objective=clm", "encoder.causal=true"], "encoder.causal, objective.name"),
    ],
)
def test_validation_loss_is_no_judge_of_what_is_trained_on(primary, overrides, key):
    moves = ["masking.*", "objective.*", "encoder.causal", "evaluation.*"]
    said = refusal(study_of({"arm": overrides}, moves=moves, primary=primary))
    assert said == (
        f"study mine: arm arm moves {key}, and primary: {primary} is measured on masks of one kind "
        "(15% of the tokens, all of them [MASK]), so it is better for whoever trains on such "
        "masks: decided by definition. Type primary: a downstream score or minimal pairs, for "
        f"example {PAIRS}; val/ scores may stand in secondary"
    )
    assert guard.compose_arms(study_of({"arm": overrides}, moves=moves))


def test_settings_of_the_units_count_as_well():
    arms = {"long": ["masking.span_max_words=5"]}
    common = ["masking.selection=span"]
    said = refusal(study_of(arms, common=common, primary="val/token_mask/loss"))
    assert "moves masking.span_max_words, and primary: val/token_mask/loss" in said


@pytest.mark.parametrize(
    ("overrides", "moves"),
    [
        (["masking.mask_rate=0.4"], "masking.mask_rate"),
        (["corpus.word_order=shuffled"], "corpus.word_order"),
        (["encoder.attention_bias=true"], "encoder.attention_bias"),
        (["replicate.masks=1"], "replicate.masks"),
    ],
)
def test_other_factors_may_be_judged_by_validation_loss(overrides, moves):
    study = study_of({"arm": overrides}, moves=[moves], primary="val/token_mask/loss")
    assert set(guard.compose_arms(study)["arm"].moved) == {moves}


def test_a_tuned_setting_is_an_allowed_move_and_nothing_beside_it():
    tune = {"grid": {"optimizer.learning_rate": [0.001, 0.002]}, "seeds": [1000]}
    arms = {"post": ["encoder.norm_position=post"]}
    moves = ["encoder.norm_position"]
    assert "also moves optimizer.learning_rate" in refusal(study_of(arms, moves=moves))
    assert guard.compose_arms(study_of(arms, moves=moves, tune=tune))
    arms = {"post": ["encoder.norm_position=post", "optimizer.weight_decay=0.1"]}
    said = refusal(study_of(arms, moves=moves, tune=tune))
    assert "also moves optimizer.weight_decay" in said


def test_consequences_are_read_from_records():
    base = {"derived": {"parameters": 10}, "data": {"corpus_fingerprint": "a", "tokenizer": "t"}}
    arm = {"derived": {"parameters": 12}, "data": {"corpus_fingerprint": "b", "tokenizer": "t"}}
    assert guard.consequences(base, arm) == {"parameters": (10, 12), "corpus": ("a", "b")}


def test_flat_names_every_setting_that_says_what_a_run_is():
    found = guard.flat(compose_settings(["seed=3"]))
    assert found["seed"] == 3
    assert found["masking.mask_rate"] == 0.15
    assert not [key for key in found if key.startswith(("paths.", "tracking."))]
