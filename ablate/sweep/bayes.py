"""Finished points -> the next point, by a sampler of optuna: W&B's own search is its server's.

Every parameter is searched in its quantile, a number in [0, 1]: the declared distribution is the
prior, whatever its kind, and a listed choice is one without order. The sampler is made anew for
each point, seeded by (seed, point), so that a stopped sweep continues as if it had not been.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ablate.rng import torch_seed
from ablate.sweep.folder import PointState
from ablate.sweep.optional import optuna
from ablate.sweep.parameters import Parameter
from ablate.sweep.points import Point

SAMPLERS = {"tpe": "TPESampler", "gp": "GPSampler"}
_ENDS = (0.001, 0.999)  # of distributions that have no ends


def words(sampler: str) -> str:
    """What is run in place of what the file asks for."""
    return f"W&B's own bayes is not run here; optuna's {SAMPLERS[sampler]} is"


def next_points(
    parameters: Sequence[Parameter],
    known: Sequence[PointState],
    *,
    numbers: Sequence[int],
    seed: int,
    sampler: str,
    maximize: bool,
) -> list[Point]:
    """Points of these numbers, given what is known of those before; asked for one after another.

    A failed point is known as failed, an early ended one by the values it had; one without a score
    is taken for running.
    """
    package = optuna("method: bayes")
    study = package.create_study(
        direction="maximize" if maximize else "minimize", pruner=package.pruners.NopPruner()
    )
    space = {p.name: _distribution(package, p) for p in parameters if p.kind != "constant"}
    for one in known:
        study.add_trial(_trial(package, one, parameters, space))
    found = []
    for number in numbers:
        study.sampler = _sampler(package, sampler, torch_seed(seed, "sweep", number) % 2**31)
        trial = study.ask(space)
        found.append(
            {p.name: p.at(0.0) if p.kind == "constant" else _value(p, trial.params[p.name])
             for p in parameters}
        )  # fmt: skip
    return found


def _sampler(package: Any, name: str, seed: int) -> Any:
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", package.exceptions.ExperimentalWarning)
        if name == "tpe":
            return package.samplers.TPESampler(seed=seed, constant_liar=True)
        return package.samplers.GPSampler(seed=seed)


def _distribution(package: Any, parameter: Parameter) -> Any:
    if parameter.is_choice and "probabilities" not in parameter.given:
        indices = list(range(len(parameter.given["values"])))
        return package.distributions.CategoricalDistribution(indices)
    has_ends = "min" in parameter.given or parameter.is_choice
    return package.distributions.FloatDistribution(*((0.0, 1.0) if has_ends else _ENDS))


def _value(parameter: Parameter, place: Any) -> Any:
    if isinstance(place, int):
        return parameter.given["values"][place]
    return parameter.at(place)


def _trial(
    package: Any, one: PointState, parameters: Sequence[Parameter], space: Mapping[str, Any]
) -> Any:
    states = package.trial.TrialState
    by_status = {"failed": states.FAIL, "stopped": states.PRUNED}
    state = by_status.get(one.state.status, states.RUNNING)
    if one.state.status == "complete":
        state = states.COMPLETE if one.score is not None else states.FAIL
    return package.trial.create_trial(
        state=state,
        value=one.score if state == states.COMPLETE else None,
        params={p.name: place_of(p, one.point[p.name]) for p in parameters if p.name in space},
        distributions=dict(space),
        intermediate_values=dict(enumerate(one.values, 1)) if state == states.PRUNED else {},
    )


def place_of(parameter: Parameter, value: Any) -> Any:
    """The quantile or the index of a value that the parameter gave: by bisection, to 2^-40.

    Of a rounded parameter it is the middle of the quantiles that give this value.
    """
    if parameter.is_choice and "probabilities" not in parameter.given:
        return parameter.given["values"].index(value)
    if parameter.is_choice:
        values, chances = parameter.given["values"], parameter.given["probabilities"]
        at = values.index(value)
        return min(sum(chances[:at]) + chances[at] / 2, 1.0)
    ends = (0.0, 1.0) if "min" in parameter.given else _ENDS
    low = _first(parameter, value, ends, lambda found: found >= value)
    high = _first(parameter, value, ends, lambda found: found > value)
    return (low + high) / 2


def _first(parameter: Parameter, value: Any, ends: tuple[float, float], holds: Any) -> float:
    """The least quantile whose value `holds`; the upper end where none does."""
    low, high = ends
    if holds(parameter.at(low)):
        return low
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if holds(parameter.at(middle)) else (middle, high)
    return high
