"""A study's file -> `Study`: question, baseline, arms that are lists of overrides, decision rule.

Nothing of an arm is said but its overrides, and what it may differ in from the baseline: the guard
(`study.guard`) refuses any other difference. Arms may be made from factors (`study.designs`), and
each may be given the best of a grid of settings first (`study.tuning`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import yaml

from ablate.study.designs import arms_of, key_of, strings
from ablate.study.designs import merged as merged
from ablate.study.parts import (
    Expectation,
    Gate,
    Tune,
    expectation_of,
    gate_of,
    lower_is_better,
    seeds_of,
    tune_of,
)

NULL_PREFIX = "null_"  # arms that must not be called


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
    file: str = ""  # where it was read, if that is not conf/study
    cost: str = ""
    scale: str = ""
    design: str = "arms"
    levels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # arm -> factor -> level
    tune: Tune | None = None

    def overrides(self, arm: str, extra: Sequence[str] = ()) -> list[str]:
        """Of one arm: the study's common ones, those of the command line, then the arm's."""
        return merged([*self.common, *extra], self.arms[arm])

    @property
    def treatments(self) -> list[str]:
        """Arms that are compared with the baseline."""
        return [name for name in self.arms if name != self.baseline]


def load(file: Path, *, scale: str | None = None, keep_file: bool = False) -> Study:
    """Read a study's file at one of its scales (the first one if None).

    Args:
        keep_file: the study is known by its file, not by its name.

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
        found = from_dict(given, name=file.stem, scale=scale)
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from None
    return replace(found, file=str(file)) if keep_file else found


def from_dict(values: Mapping[str, Any], *, name: str, scale: str | None = None) -> Study:
    """A study from the mapping of its file.

    Raises:
        ValueError: an unknown or missing key, or values that make no study.
    """
    given = dict(values)
    scales = given.pop("scales", None) or {}
    if not isinstance(scales, dict) or not all(isinstance(s or {}, dict) for s in scales.values()):
        raise ValueError(f"scales: {scales} must be names, each with keys of a study under it")
    if scale is not None and scale not in scales:
        raise ValueError(f"scale={scale} is not possible; allowed: {', '.join(scales) or '(none)'}")
    chosen = scale or next(iter(scales), "")
    for key, value in (scales.get(chosen) or {}).items():
        if key == "common":
            value = [*strings(given.get(key) or [], key), *strings(value or [], f"scales.{key}")]
        given[key] = value
    allowed = {f.name for f in fields(Study)} - {"name", "levels", "scale", "file"} | {"factors"}
    unknown = sorted(set(given) - allowed)
    needed = ("question", "baseline", "seeds", "primary", "margin")
    missing = [key for key in needed if given.get(key) is None]
    if unknown or missing:
        raise ValueError(
            (f"unknown keys {unknown}; " if unknown else "")
            + (f"missing keys {missing}; " if missing else "")
            + f"allowed are {sorted(allowed | {'scales'})}"
        )
    arms, levels = arms_of(given)
    baseline = str(given["baseline"])
    if baseline not in arms:
        raise ValueError(f"baseline: {baseline} is no arm; the arms are {', '.join(arms)}")
    margin, seeds = _margin(given["margin"]), seeds_of(given["seeds"])
    common = strings(given.get("common") or [], "common")
    for where, overrides in {"common": common, **{f"arms.{a}": o for a, o in arms.items()}}.items():
        _refuse_reserved(where, overrides)
    expected = given.get("expected") or {}
    if not isinstance(expected, dict):
        raise ValueError(f"expected: {expected} must be arms, each with sign and source under it")
    return Study(
        name=name,
        question=str(given["question"]).strip(),
        baseline=baseline,
        arms=arms,
        moves=_moves(given.get("moves") or {}, arms, baseline),
        seeds=seeds,
        primary=str(given["primary"]),
        margin=margin,
        common=common,
        higher_is_better=_direction(given),
        secondary=strings(given.get("secondary") or [], "secondary"),
        gates=tuple(gate_of(g, arms) for g in given.get("gates") or []),
        held_fixed=strings(given.get("held_fixed") or [], "held_fixed"),
        expected={str(k): expectation_of(k, v, arms) for k, v in expected.items()},
        source=str(given.get("source", "")).strip(),
        cost=str(given.get("cost", "")).strip(),
        scale=chosen,
        design=str(given.get("design", "arms")),
        levels=levels,
        tune=None if given.get("tune") is None else tune_of(given, arms, seeds),
    )


def _moves(given: Any, arms: Mapping[str, Any], baseline: str) -> dict[str, tuple[str, ...]]:
    """`moves: [keys]` for all arms, or `{arm: [keys], default: [keys]}`."""
    if not isinstance(given, dict):
        given = {"default": given}
    unknown = sorted(set(given) - set(arms) - {"default"})
    if unknown:
        raise ValueError(
            f"moves names {unknown}, which are no arms; allowed: default, {', '.join(arms)}"
        )
    default = strings(given.get("default") or [], "moves.default")
    found = {
        name: strings(given[name], f"moves.{name}") if name in given else default
        for name in arms
        if name != baseline
    }
    for name, patterns in found.items():
        for pattern in patterns:
            if set(pattern.partition(".")[0]) & set("*?["):
                raise ValueError(
                    f"moves: {pattern} lets the arm {name} move anything; name the group, for "
                    "example masking.*"
                )
    return found


def _margin(given: Any) -> float:
    number = isinstance(given, (int, float)) and not isinstance(given, bool)
    if not number or not 0 < given < math.inf:
        raise ValueError(
            f"margin: {given} must be a number greater than 0, in units of the primary metric"
        )
    return float(given)


def _direction(given: Mapping[str, Any]) -> bool:
    """Whether higher is better on the primary metric; said where a name says otherwise."""
    primary, higher = given["primary"], given.get("higher_is_better")
    if not isinstance(primary, str):
        raise ValueError(f"primary: {primary} must be the name of one score")
    if higher is None and lower_is_better(primary):
        raise ValueError(f"higher_is_better: {primary} is better when it is lower; say false")
    if higher is not None and not isinstance(higher, bool):
        raise ValueError(f"higher_is_better: {higher!r} must be true or false")
    return higher is None or higher


def _refuse_reserved(where: str, overrides: Sequence[str]) -> None:
    """A study decides itself which seed a run has, how it is called and where it lies."""
    for override in overrides:
        key = key_of(override)
        if key in ("seed", "arm", "force", "study") or key.startswith("paths."):
            raise ValueError(
                f"{where}: {override} has no place in a study, which decides {key} itself; take it "
                "out (seeds stand under seeds:, folders on the command line)"
            )
