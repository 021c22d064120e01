"""Distributions against W&B's package `sweeps` 0.2.0; grids; random points."""

import numpy as np
import pytest

from ablate.sweep.files import load
from ablate.sweep.parameters import Parameter, kind_of
from ablate.sweep.points import grid, random_point

SHARES = (0.1, 0.5, 0.83)
THEIRS = [  # printed by HyperParameter("x", given).ppf of sweeps 0.2.0
    ({"min": 2, "max": 7}, [2, 4, 6]),
    ({"min": 0.5, "max": 2.0}, [0.65, 1.25, 1.745]),
    ({"distribution": "q_uniform", "min": 0.0, "max": 1.0, "q": 0.1}, [0.1, 0.5, 0.8]),
    ({"distribution": "q_uniform", "min": 8, "max": 64, "q": 8}, [16, 32, 56]),
    (
        {"distribution": "log_uniform", "min": -7, "max": -2},
        [0.00150343919298, 0.0111089965382, 0.0578443208748],
    ),
    (
        {"distribution": "log_uniform_values", "min": 0.0001, "max": 0.1},
        [0.000199526231497, 0.00316227766017, 0.0309029543251],
    ),
    (
        {"distribution": "inv_log_uniform", "min": 1, "max": 4},
        [0.0247235264703, 0.0820849986239, 0.220909977959],
    ),
    (
        {"distribution": "inv_log_uniform_values", "min": 0.01, "max": 1.0},
        [0.0158489319246, 0.1, 0.457088189615],
    ),
    ({"distribution": "q_log_uniform", "min": 0, "max": 5, "q": 2}, [2, 12, 64]),
    ({"distribution": "q_log_uniform_values", "min": 1, "max": 100, "q": 0.5}, [1.5, 10.0, 45.5]),
    ({"distribution": "normal", "mu": 1.0, "sigma": 2.0}, [-1.56310313109, 1.0, 2.90833050629]),
    ({"distribution": "q_normal", "q": 0.25}, [-1.25, 0.0, 1.0]),
    (
        {"distribution": "log_normal", "mu": -1.0, "sigma": 0.5},
        [0.193829614273, 0.367879441171, 0.592788637066],
    ),
    ({"distribution": "q_log_normal", "q": 1}, [0, 1, 3]),
    ({"distribution": "beta", "a": 2, "b": 5}, [0.0925952589131, 0.264449983296, 0.444859730471]),
    ({"distribution": "q_beta", "q": 0.05}, [0.1, 0.5, 0.85]),
    ({"values": ["a", "b", "c"]}, ["a", "b", "c"]),
    ({"values": [1, 2], "probabilities": [0.25, 0.75]}, [1, 2, 2]),
]


def parameter(given):
    given = dict(given)
    return Parameter("x", given.pop("distribution", None) or kind_of(given), given)


@pytest.mark.parametrize(("given", "theirs"), THEIRS, ids=lambda v: str(v)[:40])
def test_ours_equals_theirs(given, theirs):
    ours = [parameter(given).at(share) for share in SHARES]
    assert [type(value) for value in ours] == [type(value) for value in theirs]
    assert ours == (
        pytest.approx(theirs, rel=1e-9, abs=1e-12) if type(ours[0]) is float else theirs
    )


def test_rounding_leaves_no_noise_of_binary_fractions():
    found = parameter({"distribution": "q_uniform", "min": 0.0, "max": 1.0, "q": 0.1})
    assert found.at(0.31) == 0.3
    assert found.listed() == [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]


def test_log_uniform_values_are_uniform_in_the_logarithm():
    found = parameter({"distribution": "log_uniform_values", "min": 1e-4, "max": 1e-1})
    draws = [random_point([found], 0, k)["x"] for k in range(600)]
    share = np.mean(np.array(draws) < 1e-3)
    assert 0.27 < share < 0.40  # a third; binomial, 600 draws, 99.9%


def test_grid_is_in_the_files_order_with_the_last_fastest(written):
    path = written({"seed": {"values": [2, 0]}, "nsp": {"values": [True, False]}})
    assert [tuple(point.values()) for point in grid(load(path))] == [
        (2, True), (2, False), (0, True), (0, False)
    ]  # fmt: skip


def test_a_random_point_is_a_function_of_seed_and_number(written):
    two = load(written({"a": {"min": 0.0, "max": 1.0}, "b": {"min": 1, "max": 9}}, "random"))
    one = load(written({"b": {"min": 1, "max": 9}}, "random"))
    again = [random_point(two.parameters, 0, k) for k in range(20)]
    assert again[:10] == [random_point(two.parameters, 0, k) for k in range(10)]
    assert again[3] != random_point(two.parameters, 1, 3)
    assert again[3]["b"] == random_point(one.parameters, 0, 3)["b"]  # other parameters move none


def test_grid_of_a_distribution_is_refused(written):
    path = written({"optimizer.learning_rate": {"min": 0.1, "max": 0.2}})
    with pytest.raises(ValueError, match="no grid can be made"):
        grid(load(path))
