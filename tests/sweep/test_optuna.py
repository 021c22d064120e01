"""Bayesian search and early ending, by optuna; and what is said where it is not installed."""

import builtins

import pytest

from ablate.study.states import State
from ablate.sweep import bayes, stopping
from ablate.sweep.__main__ import main
from ablate.sweep.folder import PointState, SweepFolder
from ablate.sweep.parameters import Parameter

RATE = {"masking.mask_rate": {"min": 0.1, "max": 0.9}}
HYPERBAND = {"type": "hyperband", "min_iter": 1, "eta": 3}


@pytest.fixture
def no_optuna(monkeypatch):
    real = builtins.__import__

    def refuse(name, *rest, **more):
        if name == "optuna":
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", refuse)


def test_without_optuna_one_message_says_what_to_install(written, pretend, no_optuna, capsys):
    path = written(RATE, "bayes")
    assert main([str(path), "tracking=none", "--count", "3"]) == 2
    assert "pip install 'ablate[sweep]'" in capsys.readouterr().err
    path = written(RATE, "random", early_terminate=HYPERBAND)
    assert main([str(path), "tracking=none", "--count", "3"]) == 2
    assert "early_terminate needs optuna" in capsys.readouterr().err


def test_bayes_finds_the_low_end_and_says_whose_search_it_is(written, pretend, tmp_path, capsys):
    pytest.importorskip("optuna")
    path = str(written(RATE, "bayes"))
    assert main([path, "tracking=none", "--count", "25"]) == 0
    said = capsys.readouterr().out
    assert "W&B's own bayes is not run here; optuna's TPESampler is" in said
    scores = [one.score for one in SweepFolder(tmp_path / "runs", "tiny").states().values()]
    assert sum(scores[15:]) / 10 < sum(scores[:10]) / 10 - 0.1  # after 10 random ones


def test_bayes_continues_as_if_it_had_not_been_stopped(written, pretend, tmp_path):
    pytest.importorskip("optuna")
    path = str(written(RATE, "bayes"))
    main([path, "tracking=none", "--count", "6"])
    main([path, "tracking=none", "--count", "13"])
    main([path, "tracking=none", "--count", "13", "--name", "whole"])
    parts, whole = (
        [one.point for one in SweepFolder(tmp_path / "runs", name).states().values()]
        for name in ("tiny", "whole")
    )
    assert parts == whole


@pytest.mark.parametrize(
    "given",
    [
        ("uniform", {"min": 0.1, "max": 0.9}, 0.37),
        ("log_uniform_values", {"min": 1e-4, "max": 0.1}, 0.0123),
        ("int_uniform", {"min": 2, "max": 9}, 5),
        ("q_uniform", {"min": 0.0, "max": 1.0, "q": 0.1}, 0.3),
        ("normal", {"mu": 1.0, "sigma": 2.0}, 0.5),
        ("categorical", {"values": ["a", "b"], "probabilities": [0.2, 0.8]}, "b"),
    ],
)
def test_the_place_of_a_value_gives_the_value(given):
    kind, keys, value = given
    parameter = Parameter("x", kind, keys)
    found = parameter.at(bayes.place_of(parameter, value))
    assert found == value or found == pytest.approx(value, rel=1e-6)


def test_a_failed_and_an_ended_point_do_not_stop_the_search():
    pytest.importorskip("optuna")
    parameters = [Parameter("x", "uniform", {"min": 0.0, "max": 1.0})]
    known = [
        PointState(0, {"x": 0.2}, State("failed")),
        PointState(1, {"x": 0.4}, State("stopped"), values=(3.0, 2.5)),
        PointState(2, {"x": 0.6}, State("complete", "run"), score=1.0),
        PointState(3, {"x": 0.7}, State("running")),
    ]
    (point,) = bayes.next_points(
        parameters, known, numbers=[4], seed=0, sampler="tpe", maximize=False
    )
    assert 0 <= point["x"] <= 1


def test_the_rule_stops_a_point_far_behind_and_no_leading_one():
    pytest.importorskip("optuna")
    rule = stopping.Rule(1, 9, 3, maximize=False)
    points = {k: [1.0 - 0.1 * step for step in range(9)] for k in range(12)}
    stopped = [stopping.says_stop(rule, {**points, k: [9.0]}, k) for k in range(12, 24)]
    assert any(stopped)
    assert not all(stopped)  # the last bracket lets its points go on
    assert not any(stopping.says_stop(rule, {**points, k: [0.1]}, k) for k in range(12, 24))


def test_w_and_bs_numbers_become_optunas():
    assert stopping.rule_of(HYPERBAND, values=27, maximize=False).max_resource == 27
    given = {"type": "hyperband", "max_iter": 27, "s": 2, "eta": 3}
    assert stopping.rule_of(given, values=27, maximize=False).min_resource == 3
    with pytest.raises(ValueError, match="trainer.num_validations"):
        stopping.rule_of({"min_iter": 4}, values=4, maximize=False)
