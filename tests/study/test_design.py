"""A study's file: what makes no study is refused in words that name the key."""

import pytest

from ablate.study.design import from_dict, load

STUDY = {
    "question": "q", "baseline": "base", "arms": {"base": [], "arm": ["masking.mask_rate=0.3"]},
    "moves": ["masking.*"], "seeds": 3, "primary": "a/accuracy", "margin": 0.01,
    "scales": {"small": {}},
}  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"seeds": 5.5}, "seeds: 5.5 must be a number of seeds"),
        ({"seeds": True}, "seeds: True must be"),
        ({"seeds": {1: 2}}, "seeds: {1: 2} must be"),
        ({"seeds": [0, 0]}, "a list of different ones"),
        ({"seeds": [-1, 0]}, "0 or more each"),
        ({"margin": "abc"}, "margin: abc must be a number greater than 0"),
        ({"margin": [1]}, "margin: "),
        ({"margin": float("inf")}, "margin: inf"),
        ({"margin": True}, "margin: True"),
        ({"margin": 0}, "margin: 0"),
        ({"primary": ["a"]}, "primary: "),
        ({"primary": "val/token_mask/loss"}, "is better when it is lower; say false"),
        ({"higher_is_better": "no"}, "higher_is_better: 'no' must be true or false"),
        ({"scales": ["a"]}, "scales: "),
        ({"scales": {"a": 5}}, "scales: "),
        ({"scales": {"a": {"common": "size=toy"}}}, "scales.common"),
        ({"arms": ["a"]}, "arms: "),
        ({"arms": {"base": [], "arm": ["seed=7"]}}, "arms.arm: seed=7 has no place"),
        ({"arms": {"base": [], "arm": ["+force=true"]}}, "arms.arm: +force=true has no place"),
        ({"arms": {"base": [], "arm": ["paths.runs_dir=x"]}}, "paths.runs_dir=x has no place"),
        ({"common": ["seed=3"]}, "common: seed=3 has no place"),
        ({"moves": ["*"]}, "moves: \\* lets the arm arm move anything"),
        ({"moves": {"arm": ["m*.mask_rate"]}}, "move anything"),
        ({"expected": ["x"]}, "expected: "),
        ({"gates": [{"score": "s", "above": 0, "why": "w", "arms": ["nope"]}]}, "are no arms"),
        ({"gates": [{"score": "s", "above": float("nan"), "why": "w"}]}, "finite number"),
        ({"gates": [{"score": "s", "above": True, "why": "w"}]}, "finite number"),
        ({"file": "x"}, "unknown keys"),
    ],
)
def test_what_makes_no_study_is_refused_by_key(changes, said):
    with pytest.raises(ValueError, match=said.replace("+", r"\+")):
        from_dict({**STUDY, **changes}, name="mine")


def test_lower_is_better_is_taken_as_it_is_said():
    lower = {"primary": "val/token_mask/loss", "higher_is_better": False}
    assert from_dict({**STUDY, **lower}, name="mine").higher_is_better is False
    assert from_dict(STUDY, name="mine").higher_is_better is True


def test_a_file_of_ones_own_is_known_by_its_path(tmp_path):
    import yaml

    file = tmp_path / "mine.yaml"
    file.write_text(yaml.safe_dump(STUDY))
    assert load(file, keep_file=True).file == str(file)
    assert load(file).file == ""
