"""A sweep's points -> their scores, from the records: of `ablate.sweep`, or of a W&B agent's runs.

A point that no state of ours knows, since an agent or a person ran it, is found by its settings:
the run of `runs/single` whose `config.yaml` says what the point says. A finished run serves every
sweep that asks for its settings, and its record names the W&B sweeps that did; the report says
which. Of a random or Bayesian sweep by an agent the points are not in the file; runs that differ
from its common settings in nothing but the swept ones, inside their bounds, are taken for them:
those that some agent ran, where there are any, and the report says so.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ablate.config.compose import compose_settings
from ablate.config.encoder_source import named_settings, with_source
from ablate.config.rules import resolve
from ablate.study.design import merged
from ablate.study.guard import flat, flat_of
from ablate.study.parts import lower_is_better
from ablate.study.states import STATES, State
from ablate.sweep import points
from ablate.sweep.files import Sweep
from ablate.sweep.folder import PointState, SweepFolder, score_of
from ablate.sweep.points import Point, key_of, words_of
from ablate.tracking.record import read_record

_CHOSEN_BY_MACHINE = ("trainer.threads", "trainer.precision", "trainer.accelerator")


@dataclass(frozen=True)
class Found:
    """One point with what its run says."""

    number: int
    point: Point
    state: State
    score: float | None
    scores: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class SweepResult:
    """`by_settings` counts the points whose runs were found by their settings, `agents` how many of
    these each W&B sweep asked for, by its id; "" is none."""

    name: str
    sweep: Sweep
    found: list[Found]
    overrides: Sequence[str]
    metric: str
    maximize: bool
    by_settings: int = 0
    guessed: bool = False  # points themselves were taken from runs
    agents: Mapping[str, int] = field(default_factory=dict)

    @property
    def complete(self) -> list[Found]:
        """Points with a score."""
        return [one for one in self.found if one.score is not None]

    @property
    def swept(self) -> list[str]:
        """Names of parameters with more than one value among the points."""
        names = [parameter.name for parameter in self.sweep.parameters]
        return [n for n in names if len({repr(one.point.get(n)) for one in self.found}) > 1]


@dataclass(frozen=True)
class _Stored:
    """A run of the store; `sweeps` are the W&B sweeps that asked for it."""

    name: str
    status: str
    settings: Mapping[str, Any]
    sweeps: Sequence[str]


def collect(
    sweep: Sweep, folder: SweepFolder, overrides: Sequence[str], metric: str | None
) -> SweepResult:
    """All points of a sweep with what became of each.

    Raises:
        ValueError: no point has a run, or the sweep has no metric.
    """
    identity = folder.identity or {}
    common = list(identity.get("overrides", overrides)) or list(overrides)
    common = merged(sweep.fixed, common)
    shown = metric or sweep.metric
    if shown is None:
        raise ValueError(f"{sweep.path} names no metric; type --metric SCORE")
    maximize = sweep.maximize if shown == sweep.metric else not lower_is_better(shown)
    states = folder.states()
    runs = list(_runs(folder.runs_dir))
    known = list(states.values())
    guessed = sweep.method != "grid" and not states
    if sweep.method == "grid":
        known = [
            states.get(key_of(point), PointState(number, point, State("missing")))
            for number, point in enumerate(points.grid(sweep))
        ]
    elif guessed:
        known = _guess(sweep, common, runs)
    by_name = {run.name: run for run in runs}
    found, agents, by_settings = [], Counter[str](), 0
    for one in known:
        if one.state.status == "missing":
            run = _run_of(one.point, common, runs)
            if run is not None:
                one = dataclasses.replace(one, state=State(run.status, run.name))
        elif not guessed:
            run = None
        else:
            run = by_name[str(one.state.run)]
        if run is not None:
            by_settings += 1
            agents.update(run.sweeps or [""])
        record = folder.record(one.state) if one.state.status == "complete" else None
        scores = dict((record or {}).get("scores", {}))
        found.append(Found(one.number, one.point, one.state, score_of(record, shown), scores))
    if not any(one.scores for one in found):
        raise ValueError(
            f"no point of the sweep {folder.name} has a complete run in {folder.runs_dir}; type "
            f"python -m ablate.sweep {sweep.path}, or --runs-dir DIR"
        )
    if not any(one.score is not None for one in found):
        there = sorted({name for one in found for name in one.scores})
        raise ValueError(f"no run has the score {shown}; there are: {', '.join(there)}")
    return SweepResult(
        folder.name, sweep, found, common, shown, maximize, by_settings, guessed, dict(agents)
    )


def _runs(runs_dir: Path) -> Iterator[_Stored]:
    """Every run of the store, complete ones first."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    files = sorted((runs_dir / "single").glob("*/record.json"))
    records = [(file.parent, read_record(file.parent) or {}) for file in files]
    for path, record in sorted(records, key=lambda pair: pair[1].get("status") != "complete"):
        try:
            content = yaml.load((path / "config.yaml").read_text("utf-8"), loader)
        except (OSError, yaml.YAMLError):
            continue
        sweeps = [run["sweep"] for run in record.get("wandb", []) if run.get("sweep")]
        if record.get("status") in STATES:
            yield _Stored(
                path.name, record["status"], flat_of(content), list(dict.fromkeys(sweeps))
            )


def _asked(overrides: Sequence[str]) -> dict[str, Any]:
    """Settings that a run of these overrides would store, but for what the machine chooses."""
    given, _ = with_source(compose_settings(overrides), named_settings(overrides))
    found = flat(resolve(given))
    return {
        k: v for k, v in found.items() if k not in _CHOSEN_BY_MACHINE or v not in (None, "auto")
    }


def _run_of(point: Point, common: Sequence[str], runs: Sequence[_Stored]) -> _Stored | None:
    """The run of a point; None where there is none, or the point is refused."""
    try:
        asked = _asked(merged(common, words_of(point)))
    except ValueError:
        return None
    return next((run for run in runs if not _differing(asked, run.settings)), None)


def _differing(asked: Mapping[str, Any], settings: Mapping[str, Any]) -> set[str]:
    """Names that two settings do not agree on; those that one version lacks are no difference."""
    return {k for k, v in asked.items() if k in settings and settings[k] != v}


def _guess(sweep: Sweep, common: Sequence[str], runs: Sequence[_Stored]) -> list[PointState]:
    """Runs that could be the sweep's: other settings than the swept ones are as the file says.

    Where agents ran some of them, what nobody's sweep asked for is left out.
    """
    middle = {parameter.name: parameter.at(0.5) for parameter in sweep.parameters}
    asked = _asked(merged(common, words_of(middle)))
    lacking = [name for name in middle if name not in asked]
    if lacking:
        raise ValueError(
            f"{sweep.path}: {lacking[0]} is no single setting, so an agent's runs of a "
            f"{sweep.method} sweep cannot be told from others; run it by python -m ablate.sweep"
        )
    found = []
    for run in runs:
        point = {parameter.name: run.settings.get(parameter.name) for parameter in sweep.parameters}
        inside = all(_inside(parameter, point[parameter.name]) for parameter in sweep.parameters)
        if inside and _differing(asked, run.settings) <= set(middle):
            found.append((run, point))
    if any(run.sweeps for run, _ in found):
        found = [(run, point) for run, point in found if run.sweeps]
    return [PointState(k, p, State(run.status, run.name)) for k, (run, p) in enumerate(found)]


def _inside(parameter: Any, value: Any) -> bool:
    if parameter.is_choice:
        return value in parameter.given.get("values", [parameter.given.get("value")])
    low, high = parameter.at(0.0), parameter.at(1.0)
    return isinstance(value, (int, float)) and low <= value <= high
