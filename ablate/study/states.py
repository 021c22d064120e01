"""A study's folder: what was locked when it was first run, and what became of each arm x seed.

`runs/studies/<name>[-<scale>]/lock.json` is written before the first run and never changed by a
later one: composed arms and the decision rule. A study whose file says something else afterwards is
labelled exploratory in its report, with what changed. Tuned settings (`study.tuning`) are locked by
their grid and not by the value that won. What an arm was trained on is known when its first run is
complete: its hashes go to `data.json`, and a run on other data is a change too. `states.json` says
where each run lies; the runs themselves are in `runs/single` and serve every study that asks for
them.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ablate.config.fingerprint import RESULT_VERSION
from ablate.config.schema import Settings
from ablate.study.design import Study
from ablate.study.guard import Composed, flat
from ablate.tracking.record import locked, read_kept, read_record, write_json

STATES = ("complete", "running", "interrupted", "failed", "missing")
# of a study's file, what may be told better later without deciding anything
_PROSE = ("question", "source", "file", "cost", "held_fixed", "levels", "secondary")
_DATA = ("corpus_fingerprint", "tokenizer")  # of a record's data: hashes of documents, tokenizer
_THREADS = "trainer.threads"  # compute=joblib sets it; it is in every record, and the report says
# where it is mixed


@dataclasses.dataclass(frozen=True)
class State:
    """One arm at one seed. `run` is the name of its folder under `runs/single`."""

    status: str
    run: str | None = None
    settings: str | None = None  # hash of what was asked for
    error: str | None = None


class StudyFolder:
    """Lock and states of one study at one scale."""

    def __init__(self, runs_dir: Path, study: Study) -> None:
        name = study.name + (f"-{study.scale}" if study.scale else "")
        self.runs_dir, self.path = runs_dir, runs_dir / "studies" / name

    @property
    def lock(self) -> dict[str, Any] | None:
        """What was locked; None before the first run."""
        found: dict[str, Any] | None = read_kept(
            self.path / "lock.json", dict, lambda lock: {"locked", "rule", "arms"} <= set(lock)
        )
        return found

    def take_lock(self, study: Study, composed: Mapping[str, Composed], today: str) -> None:
        """Write the lock where there is none."""
        if self.lock is None:
            content = lock_content(study, composed)
            write_json(self.path / "lock.json", {"locked": today, **content})

    def changes(self, study: Study, composed: Mapping[str, Composed]) -> list[str]:
        """What the study says otherwise than its lock; empty where it is as it was locked."""
        before = self.lock
        if before is None:
            return []
        now = json.loads(json.dumps(lock_content(study, composed)))
        kept, is_now = before["arms"], now["arms"]
        pairs = [("rule.", before["rule"], now["rule"])] + [
            (f"arms.{name}.", kept.get(name), is_now.get(name)) for name in {**kept, **is_now}
        ]
        lines = [line for prefix, was, new in pairs for line in _changes(prefix, was, new)]
        return [*lines, *self._data_changes(study)]

    def _data_changes(self, study: Study) -> list[str]:
        """Runs of an arm on other data than its first complete one."""
        noted = read_kept(self.path / "data.json", dict) or {}
        states = self._states()
        lines = []
        for arm in study.arms:
            first = noted.get(arm)
            for seed in sorted(map(int, states.get(arm, {}))):
                state = self.state(arm, seed)
                found = data_of(self.record(state)) if state.status == "complete" else {}
                first = first or found
                lines += [
                    f"arms.{arm}.data.{name}: {first[name]} when first run, {value} at seed {seed}"
                    for name, value in found.items()
                    if first.get(name, value) != value
                ]
        return lines

    def _states(self) -> dict[str, dict[str, Any]]:
        return read_kept(self.path / "states.json", dict, _are_states) or {}

    def state(self, arm: str, seed: int) -> State:
        """What became of an arm x seed, by the record of its run."""
        kept = self._states().get(arm, {}).get(str(seed))
        if kept is None:
            return State("missing")
        return as_recorded(self.runs_dir, State(**kept))

    def record(self, state: State) -> dict[str, Any] | None:
        """The record of a run; None where there is none."""
        return record_of(self.runs_dir, state)

    def note(self, arm: str, seed: int, state: State) -> None:
        """Keep a state, and what data the arm's first complete run had; several processes may do so
        at once."""
        with locked(self.path):
            states = self._states()
            states.setdefault(arm, {})[str(seed)] = dataclasses.asdict(state)
            write_json(self.path / "states.json", states)
            data = read_kept(self.path / "data.json", dict) or {}
            found = data_of(self.record(state)) if state.status == "complete" else {}
            if found and arm not in data:
                write_json(self.path / "data.json", {**data, arm: found})

    def asked(self, study: Study) -> dict[str, list[int]]:
        """Seeds of each arm: those of the study's file, and those of the looks."""
        seeds = {arm: list(study.seeds) for arm in study.arms}
        for look in self.looks:
            for arm, seen in look.get("asked", look["seeds"]).items():
                if arm in seeds:
                    seeds[arm] = sorted({*seeds[arm], *seen})
        return seeds

    def arms_of_run(self, run: str) -> list[str]:
        """Arms that have this run."""
        states = self._states()
        return [
            arm for arm, seeds in states.items() if any(s["run"] == run for s in seeds.values())
        ]

    def seeds(self) -> list[int]:
        """Seeds that any arm was run at, ended or not."""
        states = self._states()
        return sorted({int(seed) for arm in states.values() for seed in arm})

    @property
    def looks(self) -> list[dict[str, Any]]:
        """Verdicts drawn so far: {"seeds": {arm: [...]}, "decisions": {arm: {...}}} each."""
        file = self.path / "looks.json"
        found: list[dict[str, Any]] = read_kept(file, list) or []
        if not all(
            isinstance(look, dict)
            and isinstance(look.get("seeds"), dict)
            and isinstance(look.get("decisions"), dict)
            for look in found
        ):
            raise ValueError(f"{file} is damaged: a look must hold seeds and decisions")
        return found

    def add_look(self, look: dict[str, Any]) -> None:
        write_json(self.path / "looks.json", [*self.looks, look])


def _are_states(found: dict[str, Any]) -> bool:
    names = {field.name for field in dataclasses.fields(State)}
    return all(
        isinstance(seeds, dict)
        and all(
            seed.isdecimal() and isinstance(state, dict) and {"status"} <= set(state) <= names
            for seed, state in seeds.items()
        )
        for seeds in found.values()
    )


def record_of(runs_dir: Path, state: State) -> dict[str, Any] | None:
    """The record of a state's run; None where there is none."""
    if state.run is None:
        return None
    return read_record(runs_dir / "single" / state.run)


def as_recorded(runs_dir: Path, state: State) -> State:
    """A kept state by what its run's record says; one that has lost it is missing, and said."""
    record = record_of(runs_dir, state)
    if record is not None:
        return dataclasses.replace(state, status=record["status"])
    if state.run is None:
        return state
    _say_lost(runs_dir / "single" / state.run)
    return State("missing")


@functools.cache
def _say_lost(run: Path) -> None:
    print(
        f"warning: {run} has no record any more, or a damaged one; the run counts as missing",
        file=sys.stderr,
        flush=True,
    )


def lock_content(study: Study, composed: Mapping[str, Composed]) -> dict[str, Any]:
    """Composed arms and the decision rule; of tuned settings their grid, not what was chosen."""
    tuned = study.tune.grid if study.tune else {}
    rule = dataclasses.asdict(study)
    for name in (*_PROSE, "arms", "moves", "common", "name", "scale"):
        rule.pop(name)
    rule["expected"] = {arm: found.sign for arm, found in study.expected.items()}
    return {
        "rule": rule,
        "arms": {
            arm: {k: v for k, v in flat(found.settings).items() if k not in tuned}
            for arm, found in composed.items()
        },
        "overrides": {arm: list(study.overrides(arm)) for arm in study.arms},
    }


def data_of(record: Mapping[str, Any] | None) -> dict[str, str]:
    """Hashes of what a run was trained on, as far as its record says them."""
    data = (record or {}).get("data", {})
    return {name: str(data[name]) for name in _DATA if name in data}


def settings_hash(settings: Any) -> str:
    """Of all that says what a run is, as it was asked for."""
    text = json.dumps([RESULT_VERSION, flat(settings)], sort_keys=True, default=str)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


@functools.cache
def _defaults() -> dict[str, Any]:
    """Of every setting, and of every part of a study's file."""
    rule = {
        field.name: field.default
        for field in dataclasses.fields(Study)
        if field.default is not dataclasses.MISSING
    }
    found: dict[str, Any] = json.loads(json.dumps(flat(Settings()) | rule))
    return found


def _changes(
    prefix: str, before: Mapping[str, Any] | None, now: Mapping[str, Any] | None
) -> list[str]:
    """What one mapping says otherwise than another; a setting or a part of the rule that a later
    version of this package knows, at its default, was no choice of anyone's and is no change."""
    if before is None or now is None:
        return [f"{prefix.rstrip('.')} {'is new' if before is None else 'is gone'}"]
    defaults = _defaults()
    return [
        f"{prefix}{name}: {_short(before.get(name))} when locked, {_short(now.get(name))} now"
        for name in sorted({*before, *now} - {_THREADS})
        if before.get(name) != now.get(name)
        and not (name not in before and name in defaults and now[name] == defaults[name])
    ]


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) < 80 else f"{text[:77]}..."


def expected_runs(study: Study, seeds: Mapping[str, Sequence[int]]) -> list[tuple[str, int]]:
    """(arm, seed), one seed of all arms after another: what is there at any moment is paired."""
    every = sorted({seed for of_arm in seeds.values() for seed in of_arm})
    return [(arm, seed) for seed in every for arm in study.arms if seed in seeds[arm]]
