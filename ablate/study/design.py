"""A study's file -> `Study`: question, baseline, arms that are lists of overrides, decision rule.

Nothing of an arm is said but its overrides, and what it may differ in from the baseline: the guard
(`study.guard`) refuses any other difference. Arms may be made from factors (`study.designs`), and
each may be given the best of a grid of settings first (`study.tuning`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import yaml

from ablate.study.designs import arms_of, key_of, strings
from ablate.study.designs import merged as merged

NULL_PREFIX = "null_"  # arms that must not be called


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
class Tune:
    """Every arm is run at every point of `grid` on `seeds`, which no table ever shows; it keeps the
    point whose mean `metric` is best. Values are texts, as overrides have them."""

    grid: Mapping[str, tuple[str, ...]]  # setting -> values
    seeds: tuple[int, ...]
    metric: str
    higher_is_better: bool

    @property
    def points(self) -> list[tuple[str, ...]]:
        """Overrides of every point, the last setting moving fastest."""
        axes = [[f"{key}={value}" for value in values] for key, values in self.grid.items()]
        return list(itertools.product(*axes))


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
    tune: Tune | None = None

    def overrides(self, arm: str, extra: Sequence[str] = ()) -> list[str]:
        """Of one arm: the study's common ones, those of the command line, then the arm's."""
        return merged([*self.common, *extra], self.arms[arm])

    @property
    def treatments(self) -> list[str]:
        """Arms that are compared with the baseline."""
        return [name for name in self.arms if name != self.baseline]


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
    arms, levels = arms_of(given)
    baseline = str(given["baseline"])
    if baseline not in arms:
        raise ValueError(f"baseline: {baseline} is no arm; the arms are {', '.join(arms)}")
    if not float(given["margin"]) > 0:
        raise ValueError(f"margin: {given['margin']} must be greater than 0, in units of primary")
    seeds = _seeds(given["seeds"])
    return Study(
        name=name,
        question=str(given["question"]).strip(),
        baseline=baseline,
        arms=arms,
        moves=_moves(given.get("moves") or {}, arms, baseline),
        seeds=seeds,
        primary=str(given["primary"]),
        margin=float(given["margin"]),
        common=strings(given.get("common") or [], "common"),
        higher_is_better=bool(given.get("higher_is_better", True)),
        secondary=strings(given.get("secondary") or [], "secondary"),
        gates=tuple(_gate(g) for g in given.get("gates") or []),
        held_fixed=strings(given.get("held_fixed") or [], "held_fixed"),
        expected={
            str(k): _expectation(k, v, arms) for k, v in (given.get("expected") or {}).items()
        },
        source=str(given.get("source", "")).strip(),
        cost=str(given.get("cost", "")).strip(),
        scale=chosen,
        design=str(given.get("design", "arms")),
        levels=levels,
        tune=None if given.get("tune") is None else _tune(given, arms, seeds),
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
    return {
        name: strings(given[name], f"moves.{name}") if name in given else default
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
    arms = strings(given.get("arms") or [], "gates.arms")
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


def _tune(
    given: Mapping[str, Any], arms: Mapping[str, Sequence[str]], seeds: Sequence[int]
) -> Tune:
    rule = given["tune"]
    keys = ("grid", "seeds", "metric", "higher_is_better")
    if not isinstance(rule, dict) or set(rule) - set(keys) or not {"grid", "seeds"} <= set(rule):
        raise ValueError(
            f"tune: {rule} must have grid and seeds, and may have metric and higher_is_better; for "
            "example tune: {grid: {optimizer.learning_rate: [0.001, 0.003]}, seeds: [1000, 1001]}"
        )
    grid = rule["grid"]
    if not isinstance(grid, dict) or not grid:
        raise ValueError(f"tune.grid: {grid} must name settings, each with its values")
    for arm, overrides in arms.items():
        both = sorted({key_of(override) for override in overrides} & set(grid))
        if both:
            raise ValueError(
                f"tune.grid: the arm {arm} itself sets {', '.join(both)}, which tuning would undo; "
                "take it out of the arm, or out of the grid"
            )
    if not isinstance(rule["seeds"], list):
        raise ValueError(f"tune.seeds: {rule['seeds']} must be a list, for example [1000, 1001]")
    own = _seeds(rule["seeds"])
    shared = sorted(set(own) & set(seeds))
    if shared:
        raise ValueError(
            f"tune.seeds: {shared} are seeds of the study too; a choice made on a seed must not be "
            "judged on it. Type others, for example [1000, 1001]"
        )
    metric = str(rule.get("metric") or given["primary"])
    higher = rule.get("higher_is_better")
    if higher is None and metric == given["primary"]:
        higher = given.get("higher_is_better", True)
    if not isinstance(higher, bool):
        raise ValueError(
            f"tune.higher_is_better: say true or false, as tune.metric {metric} is not the primary "
            f"metric ({given['primary']})"
        )
    return Tune({str(k): _values(k, v) for k, v in grid.items()}, own, metric, higher)


def _values(key: Any, given: Any) -> tuple[str, ...]:
    """Values of a grid as overrides write them."""
    allowed = isinstance(given, list) and all(isinstance(v, (bool, int, float, str)) for v in given)
    if not allowed or any(isinstance(v, float) and not math.isfinite(v) for v in given):
        raise ValueError(
            f"tune.grid.{key}: {given} must be a list of numbers, words, true or false; for "
            "example [0.001, 0.003]"
        )
    found = tuple(str(v).lower() if isinstance(v, bool) else str(v) for v in given)
    if len(set(found)) < max(len(found), 2):
        raise ValueError(f"tune.grid.{key}: {given} must hold two or more different values")
    return found
