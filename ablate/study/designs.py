"""Arms of a study's file -> overrides by name: as written, or made from factors by a design.

`leave_one_out` takes one factor after another from the arm that has them all, `add_one` adds each
to the baseline, `cumulative` walks from the baseline adding one a step, `factorial` crosses levels.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

DESIGNS = ("arms", "leave_one_out", "add_one", "cumulative", "factorial")
_NAME = "a name of letters, digits, '_', '-' and '.'"


def arms_of(
    given: Mapping[str, Any],
) -> tuple[dict[str, tuple[str, ...]], dict[str, dict[str, str]]]:
    """Arms as written, or made from factors; and, of a factorial, each arm's levels."""
    design = given.get("design", "arms")
    if design not in DESIGNS:
        raise ValueError(f"design: {design} is unknown; allowed: {', '.join(DESIGNS)}")
    written, factors = given.get("arms") or {}, given.get("factors") or {}
    for key, value in (("arms", written), ("factors", factors)):
        if not isinstance(value, dict):
            raise ValueError(f"{key}: {value} must be names, each with a list of overrides")
    arms = {_arm_name(n): strings(o or [], f"arms.{n}") for n, o in written.items()}
    if (design == "arms") == bool(factors):
        raise ValueError(f"design: {design} {'takes no' if factors else 'needs'} factors")
    if design == "factorial":
        return _crossed(factors, arms)
    base = next(iter(arms), None)
    if factors and base is None:
        raise ValueError("arms: give the one that the factors are added to, as `plain: []`")
    steps = {_arm_name(n): strings(o, f"factors.{n}") for n, o in factors.items()}
    if design == "add_one":
        arms |= {name: _all(arms[base], steps, [name]) for name in steps}  # type: ignore[index]
    elif design == "leave_one_out":
        whole = _all(arms.pop(base), steps, list(steps))  # type: ignore[arg-type]
        arms["all"] = whole
        for name in steps:
            kept = [other for other in steps if other != name]
            arms[f"without_{name}"] = _all((), steps, kept)
        arms = {n: tuple(merged(given["arms"][base] or [], o)) for n, o in arms.items()}
    elif design == "cumulative":
        done: list[str] = []
        for name in steps:
            done.append(name)
            arms[f"{len(done)}_{name}"] = _all(arms[base], steps, done)  # type: ignore[index]
    return arms, {}


def _all(
    base: Sequence[str], steps: Mapping[str, Sequence[str]], names: Sequence[str]
) -> tuple[str, ...]:
    found = list(base)
    for name in names:
        found = merged(found, steps[name])
    return tuple(found)


def _crossed(
    factors: Mapping[str, Any], arms: Mapping[str, tuple[str, ...]]
) -> tuple[dict[str, tuple[str, ...]], dict[str, dict[str, str]]]:
    if arms:
        raise ValueError("arms: a factorial's arms are its factors' levels; leave arms out")
    for factor, options in factors.items():
        if not isinstance(options, dict) or len(options) < 2:
            raise ValueError(f"factors.{factor}: give two or more levels, each with its overrides")
    found: dict[str, tuple[str, ...]] = {}
    levels: dict[str, dict[str, str]] = {}
    for combination in itertools.product(*(list(options) for options in factors.values())):
        name = _arm_name("-".join(map(str, combination)))
        overrides: list[str] = []
        for factor, level in zip(factors, combination, strict=True):
            where = f"factors.{factor}.{level}"
            overrides = merged(overrides, strings(factors[factor][level] or [], where))
        found[name] = tuple(overrides)
        levels[name] = dict(zip(factors, map(str, combination), strict=True))
    return found, levels


def merged(first: Sequence[str], then: Sequence[str]) -> list[str]:
    """Overrides in order, a later one in place of an earlier one of the same name."""
    found: dict[str, str] = {}
    for override in [*first, *then]:
        found.pop(key_of(override), None)
        found[key_of(override)] = override
    return list(found.values())


def key_of(override: str) -> str:
    """The setting or group that an override names."""
    return override.partition("=")[0].lstrip("+~")


def _arm_name(name: Any) -> str:
    text = str(name)
    if not text or not all(c.isalnum() or c in "._-" for c in text) or not text[0].isalnum():
        raise ValueError(f"the arm {name!r} becomes a folder's name: give {_NAME}")
    return text


def strings(given: Any, key: str) -> tuple[str, ...]:
    """A list of texts.

    Raises:
        ValueError: naming the key.
    """
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise ValueError(f"{key}: {given!r} must be a list, for example {key}: [masking=all_mask]")
    if not all(isinstance(item, str) for item in given):
        raise ValueError(f"{key}: {list(given)} must hold texts; quote what YAML reads otherwise")
    return tuple(given)
