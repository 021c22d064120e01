"""What a sweep file may say, the line of what it may not; FAULTS B27 and B28."""

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import given, settings
from hypothesis import strategies as st

from ablate.config.compose import compose_settings
from ablate.sweep import points
from ablate.sweep.files import load
from ablate.sweep.points import grid, words_of


def test_b27_values_come_back_with_their_types():
    point = {
        "optimizer.learning_rate": 0.0005, "encoder": "modernbert", "optimizer.betas": [0.9, 0.95],
        "nsp": False, "note": "a,b",
    }  # fmt: skip
    words = words_of(point)
    assert not any(word.startswith("-") for word in words)
    found = OverridesParser.create().parse_overrides(words)
    assert {one.key_or_group: one.value() for one in found} == point
    assert not any(one.is_sweep_override() for one in found)


def test_b27_a_list_of_lists_is_two_trials(written):
    path = written({"optimizer.betas": {"values": [[0.9, 0.95], [0.9, 0.98]]}})
    found = [compose_settings(words_of(point)).optimizer.betas for point in grid(load(path))]
    assert found == [[0.9, 0.95], [0.9, 0.98]]


@settings(max_examples=300)
@given(st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=12))
def test_b27_any_text_comes_back(text):
    if "${" in text:
        return  # an interpolation, in any quotes
    (found,) = OverridesParser.create().parse_overrides([f"arm={points.written(text)}"])
    assert found.value() == text
    assert isinstance(found.value(), str)


@pytest.mark.parametrize("spelling", ["off", "no", "false", "False"])
def test_b30_a_flag_that_is_off_is_false(tmp_path, spelling):
    path = tmp_path / "flag.yaml"
    path.write_text(f"method: grid\nparameters:\n  nsp: {{values: [{spelling}]}}\n")
    (point,) = grid(load(path))
    assert compose_settings(words_of(point)).nsp is False


def test_b28_a_nested_value_sets_its_leaf_alone(written):
    nested = {"optimizer": {"parameters": {"learning_rate": {"values": [0.0005]}}}}
    sweep = load(written(nested))
    (point,) = grid(sweep)
    found, plain = compose_settings(words_of(point)), compose_settings([])
    assert found.optimizer.learning_rate == 0.0005
    plain.optimizer.learning_rate = 0.0005
    assert found == plain
    assert "nested parameters" in sweep.notes[0]


FILE = """\
method: grid
metric: {name: val/token_mask/loss}
parameters:
  seed:
    values: [0, 1]
command: [python, -m, ablate, '${args_no_hyphens}']
"""


@pytest.mark.parametrize(
    ("was", "now", "line", "said"),
    [
        ("method: grid", "metod: grid", 1, "no key metod; did you mean method"),
        ("method: grid", "method: custom", 1, "allowed: grid, random, bayes"),
        ("    values: [0, 1]", "    valus: [0, 1]", 5, "no key valus; did you mean values"),
        ("    values: [0, 1]", "    values: []", 5, "at least one value"),
        ("    values: [0, 1]", "    values: [{a: 1}]", 4, "a value is a number"),
        ("    values: [0, 1]", "    values: [0]\n    q: 2", 6, "no key q"),
        ("    values: [0, 1]", "    min: 2\n    max: 1", 6, "must be greater than min=2"),
        ("    values: [0, 1]", "    min: 1e-4\n    max: 1.0", 5, "as a text, type 0.0001"),
        ("    values: [0, 1]", "    distribution: logn", 5, "distribution=logn is not possible"),
        ("    values: [0, 1]", "    min: 1", 4, "needs value, values, min and max"),
        ("    values: [0, 1]", "    values: [0, 1]\n    probabilities: [1]", 6, "add up to 1"),
        ("    values: [0, 1]", "    values: [0, 1]\n    values: [2]", 6, "twice"),
        ("{name: val/token_mask/loss}", "{goal: up}", 2, "metric.name is missing"),
        ("ablate, ", "others, ", 6, "does not run ablate"),
        ("method: grid", "method: grid\nearly_terminate: {type: hyperband}", 2, "min_iter"),
        ("  seed:", "  --seed:", 4, "no name of a setting"),
    ],
)
def test_an_error_names_the_line(tmp_path, was, now, line, said):
    path = tmp_path / "tiny.yaml"
    assert was in FILE
    path.write_text(FILE.replace(was, now))
    with pytest.raises(ValueError, match="line") as error:
        load(path)
    assert f"line {line}:" in str(error.value)
    assert said in str(error.value)


def test_overrides_in_the_command_are_part_of_every_point(written):
    command = ["python", "-m", "ablate", "budget=smoke", "${args_no_hyphens}"]
    sweep = load(written({"seed": {"values": [0]}}, command=command))
    assert sweep.fixed == ("budget=smoke",)


def test_a_command_that_the_agent_could_not_run_is_said(written):
    sweep = load(written({"seed": {"values": [0]}}, command=["python", "-m", "ablate", "${args}"]))
    assert "args_no_hyphens" in sweep.notes[0]
