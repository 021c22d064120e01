"""A study's file -> `Study`: question, baseline, arms that are lists of overrides, decision rule.

Nothing of an arm is said but its overrides, and what it may differ in from the baseline: the guard
(`study.guard`) refuses any other difference. Designs generate arms from factors: `leave_one_out`
takes one factor after another from the arm that has them all, `add_one` adds each to the baseline,
`cumulative` walks from the baseline adding one a step, `factorial` crosses their levels.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import yaml

DESIGNS = ("arms", "leave_one_out", "add_one", "cumulative", "factorial")
NULL_PREFIX = "null_"  # arms that must not be called
_NAME = "a name of letters, digits, '_', '-' and '.'"


@dataclass(frozen=True)
class Expectation:
    """What was published of an arm beside the baseline: `+` better, `-` worse, `0` no difference;
    with its source."""

    sign: str
    source: str
    note: str = ""


@dataclass(frozen=True)
class Gate:
    """An arm passes where `score` is above `above`: a number, or the name of another score.

    `arms` empty: every arm. `why` stands in the report.
    """

    score: str
    above: float | str
    why: str
    arms: tuple[str, ...] = ()


@dataclass(frozen=True)
class Study:
    """One study at one scale. `arms` holds the baseline too, under its name.

    `moves[arm]` are dotted settings (a trailing `*` stands for all below) that the arm may set
    otherwise than the baseline.
    """

    name: str
    question: str
    baseline: str
    arms: Mapping[str, tuple[str, ...]]
    moves: Mapping[str, tuple[str, ...]]
    seeds: tuple[int, ...]
    primary: str
    margin: float
    common: tuple[str, ...] = ()
    higher_is_better: bool = True
    secondary: tuple[str, ...] = ()
    gates: tuple[Gate, ...] = ()
    held_fixed: tuple[str, ...] = ()
    expected: Mapping[str, Expectation] = field(default_factory=dict)
    source: str = ""
    cost: str = ""
    scale: str = ""
    design: str = "arms"
    levels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # arm -> factor -> level

    def overrides(self, arm: str, extra: Sequence[str] = ()) -> list[str]:
        """Of one arm: the study's common ones, those of the command line, then the arm's."""
        return merged([*self.common, *extra], self.arms[arm])

    @property
    def treatments(self) -> list[str]:
        """Arms that are compared with the baseline."""
        return [name for name in self.arms if name != self.baseline]


def merged(first: Sequence[str], then: Sequence[str]) -> list[str]:
    """Overrides in order, a later one in place of an earlier one of the same name."""
    found: dict[str, str] = {}
    for override in [*first, *then]:
        found.pop(_key(override), None)
        found[_key(override)] = override
    return list(found.values())


def _key(override: str) -> str:
    return override.partition("=")[0].lstrip("+~")


def load(file: Path, *, scale: str | None = None) -> Study:
    """Read a study's file at one of its scales (the first one if None).

    Raises:
        ValueError: naming the file, the key, what was given and what is allowed.
    """
    try:
        given = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ValueError(f"{file} is not readable YAML: {error}") from None
    if not isinstance(given, dict):
        raise ValueError(f"{file} must hold keys and values; conf/study has examples")
    try:
        return from_dict(given, name=file.stem, scale=scale)
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from None


def from_dict(values: Mapping[str, Any], *, name: str, scale: str | None = None) -> Study:
    """A study from the mapping of its file.

    Raises:
        ValueError: an unknown or missing key, or values that make no study.
    """
    given = dict(values)
    scales = given.pop("scales", None) or {}
    if scale is not None and scale not in scales:
        raise ValueError(f"scale={scale} is not possible; allowed: {', '.join(scales) or '(none)'}")
    chosen = scale or next(iter(scales), "")
    for key, value in (scales.get(chosen) or {}).items():
        given[key] = [*given.get("common", []), *value] if key == "common" else value
    allowed = {f.name for f in fields(Study)} - {"name", "levels", "scale"} | {"factors"}
    unknown = sorted(set(given) - allowed)
    needed = ("question", "baseline", "seeds", "primary", "margin")
    missing = [key for key in needed if given.get(key) is None]
    if unknown or missing:
        raise ValueError(
            (f"unknown keys {unknown}; " if unknown else "")
            + (f"missing keys {missing}; " if missing else "")
            + f"allowed are {sorted(allowed | {'scales'})}"
        )
    arms, levels = _arms(given)
    baseline = str(given["baseline"])
    if baseline not in arms:
        raise ValueError(f"baseline: {baseline} is no arm; the arms are {', '.join(arms)}")
    if not float(given["margin"]) > 0:
        raise ValueError(f"margin: {given['margin']} must be greater than 0, in units of primary")
    return Study(
        name=name,
        question=str(given["question"]).strip(),
        baseline=baseline,
        arms=arms,
        moves=_moves(given.get("moves") or {}, arms, baseline),
        seeds=_seeds(given["seeds"]),
        primary=str(given["primary"]),
        margin=float(given["margin"]),
        common=_strings(given.get("common") or [], "common"),
        higher_is_better=bool(given.get("higher_is_better", True)),
        secondary=_strings(given.get("secondary") or [], "secondary"),
        gates=tuple(_gate(g) for g in given.get("gates") or []),
        held_fixed=_strings(given.get("held_fixed") or [], "held_fixed"),
        expected={
            str(k): _expectation(k, v, arms) for k, v in (given.get("expected") or {}).items()
        },
        source=str(given.get("source", "")).strip(),
        cost=str(given.get("cost", "")).strip(),
        scale=chosen,
        design=str(given.get("design", "arms")),
        levels=levels,
    )


def _arms(
    given: Mapping[str, Any],
) -> tuple[dict[str, tuple[str, ...]], dict[str, dict[str, str]]]:
    """Arms as written, or made from factors; and, of a factorial, each arm's levels."""
    design = given.get("design", "arms")
    if design not in DESIGNS:
        raise ValueError(f"design: {design} is unknown; allowed: {', '.join(DESIGNS)}")
    arms = {
        _arm_name(n): _strings(o or [], f"arms.{n}") for n, o in (given.get("arms") or {}).items()
    }
    factors = given.get("factors") or {}
    if (design == "arms") == bool(factors):
        raise ValueError(f"design: {design} {'takes no' if factors else 'needs'} factors")
    if design == "factorial":
        return _crossed(factors, arms)
    base = next(iter(arms), None)
    if factors and base is None:
        raise ValueError("arms: give the one that the factors are added to, as `plain: []`")
    steps = {_arm_name(n): _strings(o, f"factors.{n}") for n, o in factors.items()}
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
            overrides = merged(overrides, _strings(factors[factor][level] or [], where))
        found[name] = tuple(overrides)
        levels[name] = dict(zip(factors, map(str, combination), strict=True))
    return found, levels


def _moves(given: Any, arms: Mapping[str, Any], baseline: str) -> dict[str, tuple[str, ...]]:
    """`moves: [keys]` for all arms, or `{arm: [keys], default: [keys]}`."""
    if not isinstance(given, dict):
        given = {"default": given}
    unknown = sorted(set(given) - set(arms) - {"default"})
    if unknown:
        raise ValueError(
            f"moves names {unknown}, which are no arms; allowed: default, {', '.join(arms)}"
        )
    default = _strings(given.get("default") or [], "moves.default")
    return {
        name: _strings(given[name], f"moves.{name}") if name in given else default
        for name in arms
        if name != baseline
    }


def _seeds(given: Any) -> tuple[int, ...]:
    seeds = tuple(range(given)) if isinstance(given, int) else tuple(given)
    if not seeds or len(set(seeds)) < len(seeds) or not all(isinstance(s, int) for s in seeds):
        raise ValueError(f"seeds: {given} must be a number of seeds, or a list of different ones")
    return seeds


def _gate(given: Any) -> Gate:
    if not isinstance(given, dict) or set(given) - {"score", "above", "why", "arms"}:
        raise ValueError(f"gates: {given} must have score, above, why, and possibly arms")
    above = given.get("above")
    if not isinstance(above, (int, float, str)) or not given.get("score") or not given.get("why"):
        raise ValueError(f"gates: {given} needs score, above (a number or a score's name) and why")
    arms = _strings(given.get("arms") or [], "gates.arms")
    return Gate(str(given["score"]), above, str(given["why"]), arms)


def _expectation(arm: Any, given: Any, arms: Mapping[str, Any]) -> Expectation:
    if arm not in arms:
        raise ValueError(f"expected names {arm}, which is no arm; allowed: {', '.join(arms)}")
    if (
        not isinstance(given, dict)
        or given.get("sign") not in ("+", "-", "0")
        or not given.get("source")
    ):
        raise ValueError(f"expected.{arm}: {given} needs sign ('+', '-' or '0', quoted) and source")
    return Expectation(given["sign"], str(given["source"]), str(given.get("note", "")))


def _arm_name(name: Any) -> str:
    text = str(name)
    if not text or not all(c.isalnum() or c in "._-" for c in text) or not text[0].isalnum():
        raise ValueError(f"the arm {name!r} becomes a folder's name: give {_NAME}")
    return text


def _strings(given: Any, key: str) -> tuple[str, ...]:
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise ValueError(f"{key}: {given!r} must be a list, for example {key}: [masking=all_mask]")
    if not all(isinstance(item, str) for item in given):
        raise ValueError(f"{key}: {list(given)} must hold texts; quote what YAML reads otherwise")
    return tuple(given)
