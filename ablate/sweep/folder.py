"""A sweep's folder: what it was run as, and what became of each point.

`runs/sweeps/<name>/sweep.json` holds the method, the overrides common to all points and the seed of
the draws; a command that says otherwise about these wants another name, since the points of one
sweep are compared. Values may be added to a grid; `file.yaml` is the file as it was last run.
`states.json` says where the run of each point lies; the runs themselves are in `runs/single`, where
studies and `python -m ablate` find them.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ablate.study.states import State, as_recorded, record_of
from ablate.sweep.files import Sweep
from ablate.sweep.points import Point, key_of
from ablate.tracking.record import locked, read_kept, write_atomically, write_json

# what must be the same whenever a sweep is driven
_COMMON = ("method", "overrides", "seed", "sampler", "early_terminate")
# of the common overrides, what does not decide what a point is
_NO_MATTER = (
    "paths.", "tracking", "trainer.threads=", "trainer.progress_bar=", "corpus.jobs=",
    "evaluation.jobs=",
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class PointState:
    """`state.status` is one of `study.states.STATES`, or `stopped`: ended early by the file's rule.

    `values` are the metric's values while it trained, where early ending is asked for.
    """

    number: int
    point: Point
    state: State
    score: float | None = None
    values: Sequence[float] = ()


class SweepFolder:
    """Lock and states of one sweep."""

    def __init__(self, runs_dir: Path, name: str) -> None:
        self.runs_dir, self.name, self.path = runs_dir, name, runs_dir / "sweeps" / name

    @property
    def identity(self) -> dict[str, Any] | None:
        """What was written when it was first run; None before that."""
        found: dict[str, Any] | None = read_kept(
            self.path / "sweep.json", dict, lambda kept: {*_COMMON} <= set(kept)
        )
        return found

    def take_lock(self, sweep: Sweep, extra: Sequence[str], seed: int, sampler: str | None) -> None:
        """Write what this sweep is, or hold it against what it was.

        Raises:
            ValueError: it was run as something else.
        """
        now = json.loads(json.dumps(identity_of(sweep, extra, seed, sampler)))
        with locked(self.path):
            before = self.identity
            for key in () if before is None else _held(sweep):
                if before is not None and before[key] != now[key]:
                    raise ValueError(
                        f"the sweep {self.name} was run with {key} = {_short(before[key])}, not "
                        f"{_short(now[key])}; its points would not be compared fairly: type "
                        f"--name {self.name}-2 for a sweep of its own"
                    )
            write_json(self.path / "sweep.json", now)
            write_atomically(self.path / "file.yaml", sweep.path.read_text(encoding="utf-8"))

    def states(self) -> dict[str, PointState]:
        """Key of a point -> its state, by the record of its run; in the order of the points."""
        kept = (read_kept(self.path / "states.json", dict, _are_points) or {}).values()
        found = []
        for entry in sorted(kept, key=lambda entry: entry["number"]):
            state = State(**entry["state"])
            if state.status != "stopped":
                state = as_recorded(self.runs_dir, state)
            found.append(PointState(**{**entry, "state": state}))
        return {key_of(one.point): one for one in found}

    def note(self, one: PointState) -> None:
        """Keep a point's state; several processes may do so at once."""
        with locked(self.path):
            states = read_kept(self.path / "states.json", dict, _are_points) or {}
            states[key_of(one.point)] = dataclasses.asdict(one)
            write_json(self.path / "states.json", states)

    def record(self, state: State) -> dict[str, Any] | None:
        """The record of a run; None where there is none."""
        return record_of(self.runs_dir, state)


def _are_points(found: dict[str, Any]) -> bool:
    names = {field.name for field in dataclasses.fields(PointState)}
    return all(
        isinstance(one, dict)
        and {"number", "point", "state"} <= set(one) <= names
        and isinstance(one["state"], dict)
        and "status" in one["state"]
        for one in found.values()
    )


def identity_of(
    sweep: Sweep, extra: Sequence[str], seed: int, sampler: str | None
) -> dict[str, Any]:
    """What of a sweep is written when it is run."""
    return {
        "method": sweep.method,
        "overrides": [word for word in extra if not word.startswith(_NO_MATTER)],
        "seed": None if sweep.method == "grid" else seed,
        "sampler": sampler,
        "parameters": {p.name: {"kind": p.kind, **p.given} for p in sweep.parameters},
        "metric": sweep.metric,
        "maximize": sweep.maximize,
        "early_terminate": sweep.early_terminate,
        "file": sweep.path.name,
    }


def _held(sweep: Sweep) -> Sequence[str]:
    """What must not change; a grid may get more values, and be read by another metric, but where
    points are ended early by what those before them logged."""
    if sweep.method == "grid" and sweep.early_terminate is None:
        return _COMMON
    return (*_COMMON, "parameters", "metric", "maximize")


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) < 100 else f"{text[:97]}..."


def score_of(record: Mapping[str, Any] | None, metric: str | None) -> float | None:
    """The metric in a record; None where it has none."""
    value = None if record is None or metric is None else record.get("scores", {}).get(metric)
    return None if value is None else float(value)
