"""One parameter of a sweep file -> its values: W&B's kinds and distributions, by quantile.

A parameter is its quantile function: a number in [0, 1] -> a value, as in W&B's own `sweeps`
package (tests/sweep/test_parameters.py holds values of it). So a random draw and a suggestion of a
Bayesian sampler differ only in where that number comes from. Rounding is W&B's, round(x / q) * q,
in whole numbers where q is one; the noise of binary fractions (0.30000000000000004) is cut.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

BOUNDS, NORMAL, BETA = ("min", "max"), ("mu", "sigma"), ("a", "b")
# distribution -> keys that it must have, keys that it may have
KINDS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "constant": (("value",), ()),
    "categorical": (("values",), ("probabilities",)),
    "categorical_w_probabilities": (("values", "probabilities"), ()),
    "int_uniform": (BOUNDS, ()),
    "uniform": (BOUNDS, ()),
    "q_uniform": (BOUNDS, ("q",)),
    "log_uniform": (BOUNDS, ()),
    "log_uniform_values": (BOUNDS, ()),
    "inv_log_uniform": (BOUNDS, ()),
    "inv_log_uniform_values": (BOUNDS, ()),
    "q_log_uniform": (BOUNDS, ("q",)),
    "q_log_uniform_values": (BOUNDS, ("q",)),
    "normal": ((), NORMAL),
    "q_normal": ((), (*NORMAL, "q")),
    "log_normal": ((), NORMAL),
    "q_log_normal": ((), (*NORMAL, "q")),
    "beta": ((), BETA),
    "q_beta": ((), (*BETA, "q")),
}
KEYS = ("distribution", "value", "values", "probabilities", *BOUNDS, *NORMAL, *BETA, "q")
_DEFAULTS = {"mu": 0.0, "sigma": 1.0, "a": 1.0, "b": 1.0, "q": 1.0}
_DIGITS = 12


@dataclass(frozen=True)
class Parameter:
    """`name` is that of a setting or a group; `kind` one of `KINDS`."""

    name: str
    kind: str
    given: Mapping[str, Any]

    @property
    def is_choice(self) -> bool:
        """Whether it takes a few listed values, in no order."""
        return self.kind in ("constant", "categorical", "categorical_w_probabilities")

    def listed(self) -> list[Any] | None:
        """All values for a grid; None where there is no list of them.

        Of q_uniform min, min + q, ... below max, as W&B has it.
        """
        given = self.given
        if self.kind == "constant":
            return [given["value"]]
        if self.kind == "categorical" and "probabilities" not in given:
            return list(given["values"])
        if self.kind == "int_uniform":
            return list(range(given["min"], given["max"] + 1))
        if self.kind == "q_uniform":
            step = given.get("q", _DEFAULTS["q"])
            number = math.ceil((given["max"] - given["min"]) / step - 1e-9)
            return [_clean(given["min"] + i * step) for i in range(number)]
        return None

    def at(self, share: float) -> Any:
        """The value below which `share` of the distribution lies."""
        given = self.given
        if self.kind == "constant":
            return given["value"]
        if "values" in given:
            return _chosen(given["values"], given.get("probabilities"), share)
        if self.kind == "int_uniform":
            return given["min"] + _place(share, given["max"] - given["min"] + 1)
        value = self._quantile(share)
        if not self.kind.startswith("q_"):
            return value
        step = given.get("q", _DEFAULTS["q"])
        rounded = round(value / step) * step
        return rounded if isinstance(step, int) else _clean(rounded)

    def _quantile(self, share: float) -> float:
        from scipy import stats

        given = self.given
        kind = self.kind.removeprefix("q_")
        if kind in ("normal", "log_normal"):
            mu, sigma = (given.get(name, _DEFAULTS[name]) for name in NORMAL)
            value = float(stats.norm.ppf(share, loc=mu, scale=sigma))
            return math.exp(value) if kind == "log_normal" else value
        if kind == "beta":
            a, b = (given.get(name, _DEFAULTS[name]) for name in BETA)
            return float(stats.beta.ppf(share, a=a, b=b))
        low, high = given["min"], given["max"]
        if kind == "uniform":
            return float(low + share * (high - low))
        if kind.endswith("_values"):
            low, high = math.log(low), math.log(high)
        if kind == "inv_log_uniform":  # log(1 / x) is uniform between the bounds
            return math.exp(-(low + (1 - share) * (high - low)))
        if kind == "inv_log_uniform_values":  # the same from log(1 / max) to log(1 / min)
            return math.exp(-(-high + (1 - share) * (high - low)))
        return math.exp(low + share * (high - low))


def kind_of(keys: Mapping[str, Any]) -> str | None:
    """The distribution that W&B takes where none is named; None where there is none."""
    if "value" in keys:
        return "constant"
    if "values" in keys:
        return "categorical"
    if all(name in keys for name in BOUNDS):
        whole = all(type(keys[name]) is int for name in BOUNDS)
        return "int_uniform" if whole else "uniform"
    return None


def problem(kind: str, given: Mapping[str, Any]) -> tuple[str, str] | None:
    """(key, what is wrong with it) of the first bad value; None where all are good."""
    for name in ("min", "max", "mu", "sigma", "a", "b", "q"):
        value = given.get(name)
        if name in given and (isinstance(value, bool) or not isinstance(value, (int, float))):
            return name, f"{value!r} is no number" + _exponent(value)
    if kind == "int_uniform" and any(type(given[name]) is not int for name in BOUNDS):
        return "min", "int_uniform wants whole numbers"
    if "min" in given and given["min"] >= given["max"]:
        return "max", f"max={given['max']} must be greater than min={given['min']}"
    if kind.endswith("uniform_values") and given["min"] <= 0:
        return "min", f"min={given['min']} must be greater than 0 for {kind}"
    for name, lowest in (("q", "greater than"), ("a", "greater than"), ("b", "greater than")):
        if name in given and given[name] <= 0:
            return name, f"{name}={given[name]} must be {lowest} 0"
    if given.get("sigma", 0) < 0:
        return "sigma", f"sigma={given['sigma']} must not be less than 0"
    return _listed_problem(given)


def _listed_problem(given: Mapping[str, Any]) -> tuple[str, str] | None:
    if "values" not in given:
        return None
    values, chances = given["values"], given.get("probabilities")
    if not isinstance(values, list) or not values:
        return "values", "a list with at least one value is wanted"
    if chances is None:
        return None
    numbers = isinstance(chances, list) and all(
        isinstance(c, (int, float)) and not isinstance(c, bool) and c >= 0 for c in chances
    )
    if not numbers or len(chances) != len(values) or abs(sum(chances) - 1) > 1e-6:
        return "probabilities", f"{len(values)} numbers are wanted that add up to 1"
    return None


def _exponent(value: Any) -> str:
    """YAML 1.1 reads 1e-4 as a text."""
    try:
        return f"; YAML reads it as a text, type {float(value)!r}" if "e" in value.lower() else ""
    except (AttributeError, ValueError):
        return ""


def _chosen(values: Sequence[Any], chances: Sequence[float] | None, share: float) -> Any:
    if chances is None:
        return values[_place(share, len(values))]
    total = 0.0
    for value, chance in zip(values, chances, strict=True):
        total += chance
        if share < total:
            return value
    return [v for v, c in zip(values, chances, strict=True) if c > 0][-1]


def _place(share: float, number: int) -> int:
    """Which of so many equally likely values."""
    return min(max(math.ceil(share * number) - 1, 0), number - 1)


def _clean(value: float) -> float:
    return value if isinstance(value, int) else float(f"{value:.{_DIGITS}g}")
