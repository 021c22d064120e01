"""Parts of a study's file -> expectations, gates, seeds and tuning, checked one by one."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ablate.study.designs import key_of, strings

_LOWER = ("loss", "perplexity", "bits_per_byte", "error")


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


def seeds_of(given: Any) -> tuple[int, ...]:
    """A number of seeds from 0 on, or a list of them.

    Raises:
        ValueError: neither, or a seed twice.
    """
    whole = isinstance(given, int) and not isinstance(given, bool)
    seeds = tuple(range(given)) if whole else tuple(given) if isinstance(given, list) else ()
    right = all(isinstance(s, int) and not isinstance(s, bool) and s >= 0 for s in seeds)
    if not seeds or len(set(seeds)) < len(seeds) or not right:
        raise ValueError(
            f"seeds: {given} must be a number of seeds, or a list of different ones, 0 or more each"
        )
    return seeds


def lower_is_better(score: str) -> bool:
    """By the last word of its name, where nobody declared it."""
    return score.rsplit("/", 1)[-1].endswith(_LOWER)


def gate_of(given: Any, of_study: Mapping[str, Any]) -> Gate:
    """One gate; `of_study` are the arms that there are.

    Raises:
        ValueError: a key too many or too few, no limit, or an arm that is none.
    """
    if not isinstance(given, dict) or set(given) - {"score", "above", "why", "arms"}:
        raise ValueError(f"gates: {given} must have score, above, why, and possibly arms")
    above = given.get("above")
    if not isinstance(above, (int, float, str)) or not given.get("score") or not given.get("why"):
        raise ValueError(f"gates: {given} needs score, above (a number or a score's name) and why")
    if isinstance(above, bool) or (isinstance(above, float) and not math.isfinite(above)):
        raise ValueError(f"gates: above {above} must be a finite number, or a score's name")
    arms = strings(given.get("arms") or [], "gates.arms")
    unknown = sorted(set(arms) - set(of_study))
    if unknown:
        raise ValueError(
            f"gates: {unknown} are no arms; allowed: {', '.join(of_study)}, or leave arms out"
        )
    return Gate(str(given["score"]), above, str(given["why"]), arms)


def expectation_of(arm: Any, given: Any, arms: Mapping[str, Any]) -> Expectation:
    if arm not in arms:
        raise ValueError(f"expected names {arm}, which is no arm; allowed: {', '.join(arms)}")
    if (
        not isinstance(given, dict)
        or given.get("sign") not in ("+", "-", "0")
        or not given.get("source")
    ):
        raise ValueError(f"expected.{arm}: {given} needs sign ('+', '-' or '0', quoted) and source")
    return Expectation(given["sign"], str(given["source"]), str(given.get("note", "")))


def tune_of(
    given: Mapping[str, Any], arms: Mapping[str, Sequence[str]], seeds: Sequence[int]
) -> Tune:
    """How arms are tuned before they are compared.

    Raises:
        ValueError: no grid, a setting that an arm sets itself, or a seed that the study reports.
    """
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
    own = seeds_of(rule["seeds"])
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
