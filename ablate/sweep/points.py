"""Parameters -> points: of a grid in the file's order, at random one by one; a point -> overrides.

A grid is the cartesian product in the order of the file's parameters, the last one fastest. Random
point k is a function of (seed, k) alone, and each of its values of the parameter's name too, so
that asking for more points continues, and another parameter in the file changes no other one.
"""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ablate.rng import generator
from ablate.sweep.files import Sweep
from ablate.sweep.parameters import Parameter

Point = dict[str, Any]
_BARE = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*")
_READ_AS_OTHER = ("null", "true", "false", "inf", "nan", "yes", "no", "on", "off")


def grid(sweep: Sweep) -> list[Point]:
    """All points.

    Raises:
        ValueError: a parameter with no list of values.
    """
    names = [parameter.name for parameter in sweep.parameters]
    lists = []
    for parameter in sweep.parameters:
        values = parameter.listed()
        if values is None:
            chances = " with probabilities" if "probabilities" in parameter.given else ""
            raise ValueError(
                f"{sweep.path}: {parameter.name} is {parameter.kind}{chances}, of which no grid "
                "can be made; give values: [...], or type method: random"
            )
        lists.append(values)
    return [dict(zip(names, values, strict=True)) for values in itertools.product(*lists)]


def random_point(parameters: Sequence[Parameter], seed: int, number: int) -> Point:
    """Point `number` (from 0) under `seed`."""
    return {
        parameter.name: parameter.at(generator(seed, "sweep", number, parameter.name).random())
        for parameter in parameters
    }


def corners(parameters: Sequence[Parameter]) -> tuple[Point, Point]:
    """The points at the low and at the high ends, as far as ends exist."""
    return (
        {parameter.name: parameter.at(0.001) for parameter in parameters},
        {parameter.name: parameter.at(0.999) for parameter in parameters},
    )


def key_of(point: Mapping[str, Any]) -> str:
    """A name of the point's values, the same for any order of them."""
    return json.dumps(point, sort_keys=True)


def words_of(point: Mapping[str, Any]) -> list[str]:
    """Overrides that set the point: each sets its own setting and no other."""
    return [f"{name}={written(value)}" for name, value in point.items()]


def written(value: Any) -> str:
    """A value in the grammar of overrides, so that it is read back as the same value and type.

    Raises:
        ValueError: what the grammar has no form for.
    """
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{value} is no value of a sweep")
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, (list, tuple)):
        return f"[{','.join(written(item) for item in value)}]"
    if not isinstance(value, str):
        raise ValueError(f"{value!r}: a sweep's value is a number, a text, true, false or a list")
    if _BARE.fullmatch(value) and value.lower() not in _READ_AS_OTHER:
        return value
    # backslashes are plain signs but before a quote or at the end
    inside = re.sub(r'(\\*)("|$)', lambda m: m[1] * 2 + ('\\"' if m[2] else ""), value)
    return f'"{inside}"'
