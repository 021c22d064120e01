"""A sweep file -> `Sweep`: W&B's schema, with the line of whatever it does not allow.

The same file serves `wandb sweep` and `python -m ablate.sweep`. Keys that only W&B's server needs
are allowed and left to it; nothing else is: a misspelt key would be ignored there without a word.
Nested `parameters` become dotted names, so that a point sets its leaf and leaves the neighbours.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from ablate.sweep.parameters import KEYS, KINDS, Parameter, kind_of, problem

METHODS = ("grid", "random", "bayes")
_TOP = (
    "program", "command", "method", "metric", "parameters", "early_terminate", "run_cap", "name",
    "description", "project", "entity", "apiVersion", "kind", "controller", "settings", "job",
    "image_uri", "prior_runs",
)  # fmt: skip
_METRIC = ("name", "goal", "target", "impute")
_STOP = ("type", "min_iter", "max_iter", "s", "eta", "strict")
_GOALS = ("minimize", "maximize")
_READABLE = ("${args_no_hyphens}", "${args_append_hydra}", "${args_override_hydra}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")


@dataclass(frozen=True)
class Sweep:
    """What a file says. `name` is the file's; `fixed` are the overrides in its command."""

    name: str
    path: Path
    method: str
    parameters: tuple[Parameter, ...]
    metric: str | None = None
    maximize: bool = False
    target: float | None = None
    run_cap: int | None = None
    early_terminate: Mapping[str, Any] | None = None
    fixed: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()  # on what `wandb agent` would make of it


class _Reader:
    """Plain values of a YAML file, and the line of each of its keys."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines: dict[tuple[str, ...], int] = {}
        try:
            text = path.read_text(encoding="utf-8")
            loader = yaml.SafeLoader(text)
            node = loader.get_single_node()
            self.content = None if node is None else self._value(loader, node, ())
        except OSError as error:
            raise ValueError(f"{path} cannot be read ({error.strerror})") from None
        except yaml.YAMLError as error:
            raise ValueError(f"{path} is no YAML: {' '.join(str(error).split())}") from None

    def _value(self, loader: Any, node: Any, at: tuple[str, ...]) -> Any:
        if not isinstance(node, yaml.MappingNode):
            return loader.construct_object(node, deep=True)
        found: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = str(loader.construct_object(key_node))
            self.lines[(*at, key)] = key_node.start_mark.line + 1
            if key in found:
                raise self.error((*at, key), f"{key} stands there twice")
            found[key] = self._value(loader, value_node, (*at, key))
        return found

    def error(self, at: Sequence[str], what: str) -> ValueError:
        line = next((self.lines[tuple(at[:n])] for n in range(len(at), 0, -1)
                     if tuple(at[:n]) in self.lines), 1)  # fmt: skip
        return ValueError(f"{self.path}, line {line}: {what}")

    def mapping(self, value: Any, at: Sequence[str], allowed: Sequence[str]) -> dict[str, Any]:
        """A mapping that has no other keys."""
        if not isinstance(value, dict):
            what = at[-1] if at else "a sweep file"
            raise self.error(at, f"{what} wants keys: {', '.join(allowed)}")
        for key in value:
            if key not in allowed:
                near = difflib.get_close_matches(key, allowed, n=1, cutoff=0.6)
                hint = f"did you mean {near[0]}? " if near else ""
                raise self.error(
                    (*at, key), f"there is no key {key}; {hint}allowed: {', '.join(allowed)}"
                )
        return value


def load(path: Path) -> Sweep:
    """Read and check a sweep file.

    Raises:
        ValueError: it is not there, no YAML, or not W&B's schema; the line is in the message.
    """
    reader = _Reader(path)
    top = reader.mapping(reader.content, (), _TOP)
    method = top.get("method")
    if method not in METHODS:
        raise reader.error(
            ("method",), f"method={method} cannot be run here; allowed: {', '.join(METHODS)}"
        )
    metric = reader.mapping(top.get("metric", {}), ("metric",), _METRIC)
    if "metric" in top and not isinstance(metric.get("name"), str):
        raise reader.error(("metric",), "metric.name is missing: the name of a score")
    goal = metric.get("goal", "minimize")
    if goal not in _GOALS:
        raise reader.error(("metric", "goal"), f"goal={goal}; allowed: {', '.join(_GOALS)}")
    if method == "bayes" and not metric:
        raise reader.error(("method",), "method=bayes needs metric: {name: ..., goal: ...}")
    cap = top.get("run_cap")
    if cap is not None and (type(cap) is not int or cap < 1):
        raise reader.error(("run_cap",), f"run_cap={cap} must be a whole number of at least 1")
    found = _parameters(reader, top.get("parameters"), ("parameters",), "")
    fixed, notes = _command(reader, top)
    if any("parameters" in value for value in top["parameters"].values()):
        notes.append(
            "nested parameters reach `wandb agent` as a mapping, which the command cannot read; "
            "write dotted names, such as optimizer.learning_rate"
        )
    return Sweep(
        path.stem,
        path,
        method,
        tuple(found),
        metric.get("name"),
        goal == "maximize",
        metric.get("target"),
        cap,
        _early_terminate(reader, top, metric),
        tuple(fixed),
        tuple(notes),
    )


def _parameters(reader: _Reader, value: Any, at: tuple[str, ...], prefix: str) -> list[Parameter]:
    if not isinstance(value, dict) or not value:
        raise reader.error(at, "parameters wants a name and a value at least")
    found: list[Parameter] = []
    for name, given in value.items():
        here = (*at, name)
        if not _NAME.fullmatch(name):
            raise reader.error(here, f"{name} is no name of a setting")
        if isinstance(given, dict) and "parameters" in given:
            reader.mapping(given, here, ("parameters",))
            found += _parameters(
                reader, given["parameters"], (*here, "parameters"), f"{prefix}{name}."
            )
        else:
            found.append(_parameter(reader, given, here, prefix + name))
    seen: set[str] = set()
    for parameter in found:
        if parameter.name in seen:
            raise reader.error(at, f"{parameter.name} stands there twice, nested and dotted")
        seen.add(parameter.name)
    return found


def _parameter(reader: _Reader, given: Any, at: tuple[str, ...], name: str) -> Parameter:
    given = dict(reader.mapping(given, at, (*KEYS, "parameters")))
    kind = str(given.pop("distribution", None) or kind_of(given) or "")
    if kind not in KINDS:
        raise reader.error(
            (*at, "distribution"),
            f"{name}: distribution={kind} is not possible; allowed: {', '.join(KINDS)}"
            if kind
            else f"{name} needs value, values, min and max, or a distribution",
        )
    needs, may = KINDS[kind]
    for key in needs:
        if key not in given:
            raise reader.error(at, f"{name}: {kind} needs {' and '.join(needs)}")
    reader.mapping(given, at, (*needs, *may))
    bad = problem(kind, given)
    if bad is not None:
        raise reader.error((*at, bad[0]), f"{name}: {bad[1]}")
    for value in given.get("values", [given.get("value")]):
        if isinstance(value, dict):
            raise reader.error(at, f"{name}: a value is a number, a text, true, false or a list")
    return Parameter(name, kind, given)


def _early_terminate(
    reader: _Reader, top: Mapping[str, Any], metric: Mapping[str, Any]
) -> dict[str, Any] | None:
    if "early_terminate" not in top:
        return None
    at = ("early_terminate",)
    found = reader.mapping(top["early_terminate"], at, _STOP)
    if found.get("type") != "hyperband":
        raise reader.error((*at, "type"), f"type={found.get('type')}; allowed: hyperband")
    if not metric:
        raise reader.error(at, "early_terminate needs metric: {name: ..., goal: ...}")
    if "min_iter" not in found and not {"max_iter", "s"} <= set(found):
        raise reader.error(at, "hyperband needs min_iter, or max_iter and s")
    for key, low in (("min_iter", 1), ("max_iter", 1), ("s", 1), ("eta", 2)):
        if key in found and (type(found[key]) is not int or found[key] < low):
            raise reader.error((*at, key), f"{key}={found[key]}: at least {low}, a whole number")
    return dict(found)


def _command(reader: _Reader, top: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """(overrides that the command adds to every point, notes on what W&B's agent would do)."""
    words = [str(word) for word in top.get("command", [])]
    fixed = [word for word in words if "=" in word and not word.startswith(("$", "-"))]
    if words and "ablate" not in " ".join(words) and "${program}" not in words:
        raise reader.error(("command",), "the command does not run ablate: python -m ablate ...")
    if any(word in words for word in _READABLE):
        return fixed, []
    return fixed, [
        "`wandb agent` would pass --key=value, which ablate cannot read; end the file's command "
        "with ${args_no_hyphens}, as in sweeps/mask_rate.yaml"
    ]
