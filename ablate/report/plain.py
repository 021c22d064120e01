"""Run folders that belong to no study -> a `StudyResult` that only describes.

Arms are the names in the records, as `python -m ablate -m ...` gives them. Nobody declared a margin
or a rule before these runs, so there are intervals and no verdicts.
"""

from __future__ import annotations

import glob
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ablate.report.wording import DESCRIPTIVE
from ablate.study import stats
from ablate.study.collect import ArmResult, StudyResult
from ablate.study.design import Study
from ablate.study.guard import consequences, flat
from ablate.study.parts import lower_is_better
from ablate.study.states import State
from ablate.study.verdict import Decision
from ablate.tracking.record import read_record

_TYPE = "python -m ablate.report 'runs/single/*' --baseline ARM"


def run_folders(places: Sequence[str]) -> list[Path]:
    """Folders with a run's record, in or below the given ones (`*` allowed).

    Raises:
        ValueError: there is none.
    """
    found: set[Path] = set()
    for place in places:
        for path in map(Path, sorted(glob.glob(place)) if glob.has_magic(place) else [place]):
            files = [path / "record.json"] if (path / "record.json").is_file() else []
            found |= {f.parent for f in files or sorted(path.rglob("record.json"))}
    runs = sorted(p for p in found if "arm" in (read_record(p) or {}))
    if not runs:
        raise ValueError(
            f"{' '.join(places)}: no run with a record.json is there; give a study's name, or "
            f"folders of runs, for example {_TYPE}"
        )
    return runs


def runs_dir_of(runs: Sequence[Path]) -> Path | None:
    """The folder whose `single/` holds all these runs; None where there is no such folder."""
    parents = {run.parent for run in runs}
    parent = next(iter(parents))
    return parent.parent if len(parents) == 1 and parent.name == "single" else None


def plain_result(
    runs: Sequence[Path], *, name: str, baseline: str | None = None, metric: str | None = None
) -> StudyResult:
    """Runs by arm and seed against one of the arms (the first by the alphabet if None).

    Raises:
        ValueError: two runs of one arm and seed, an unknown baseline or metric, no finished run.
    """
    records, states = _grouped(runs)
    names = sorted(states)
    base = baseline or names[0]
    if base not in states:
        raise ValueError(
            f"--baseline {base}: no run has this arm; allowed: {', '.join(names)}. "
            f"For example --baseline {names[0]}"
        )
    scores = {arm: _scores(of_arm) for arm, of_arm in records.items()}
    primary, others = _metrics(scores, records, metric)
    order = [base, *(arm for arm in names if arm != base)]
    overrides = {arm: _overrides(runs, arm) for arm in order}
    study = Study(
        name=name,
        question=f"What do these runs say of {primary}? (Plain runs: no question was declared.)",
        baseline=base,
        arms={arm: tuple(overrides[arm]) for arm in order},
        moves={},
        seeds=tuple(sorted({seed for of_arm in states.values() for seed in of_arm})),
        primary=primary,
        margin=0.0,
        higher_is_better=not lower_is_better(primary),
        secondary=tuple(others),
    )
    settings = {arm: _settings(runs, arm) for arm in order}
    arms = {}
    for arm in order:
        common = next((seed for seed in sorted(records[arm]) if seed in records[base]), None)
        ours, theirs = settings[arm], settings[base]
        arms[arm] = ArmResult(
            arm,
            overrides[arm],
            states[arm],
            records[arm],
            scores[arm],
            [],
            {k: (theirs.get(k), v) for k, v in ours.items() if theirs and theirs.get(k) != v},
            {} if common is None else consequences(records[base][common], records[arm][common]),
        )
    return _described(study, arms)


def _grouped(
    runs: Sequence[Path],
) -> tuple[dict[str, dict[int, Mapping[str, Any]]], dict[str, dict[int, State]]]:
    records: dict[str, dict[int, Mapping[str, Any]]] = {}
    states: dict[str, dict[int, State]] = {}
    for path in runs:
        record = read_record(path) or {}
        arm, seed = str(record["arm"]), int(record["seed"])
        before = states.setdefault(arm, {}).get(seed)
        if before is not None:
            raise ValueError(
                f"{path.name} and {before.run} are both arm {arm} at seed {seed}, with other "
                f"settings; give folders of one of them, for example 'runs/single/{arm}-s*'"
            )
        status = record.get("status", "missing")
        states[arm][seed] = State(status, path.name, error=record.get("failure"))
        records.setdefault(arm, {})
        if status == "complete":
            records[arm][seed] = record
    if not any(records.values()):
        raise ValueError(f"none of these {len(runs)} runs is complete; the same command continues")
    return records, states


def _scores(records: Mapping[int, Mapping[str, Any]]) -> dict[str, dict[int, float]]:
    found: dict[str, dict[int, float]] = {}
    for seed, record in sorted(records.items()):
        for name, value in record["scores"].items():
            found.setdefault(name, {})[seed] = float(value)
    return found


def _metrics(
    scores: Mapping[str, Mapping[str, Any]], records: Mapping[str, Any], asked: str | None
) -> tuple[str, list[str]]:
    """The metric of the table, and the others: an average, else a task's score, else the loss."""
    there = [arm for arm in scores.values() if arm]
    shared = [name for name in there[0] if all(name in arm for arm in there)]
    shared = [name for name in shared if not name.endswith("gram_accuracy")]
    averages = {
        name
        for of_arm in records.values()
        for record in of_arm.values()
        for name in record.get("averages") or {}
    }
    if not shared or (asked is not None and asked not in shared):
        raise ValueError(
            f"--metric {asked}: not every arm has it; allowed: {', '.join(shared) or '(none)'}"
        )
    likely = [
        *(name for name in shared if name in averages),
        *(name for name in shared if not name.startswith("val/")),
        *shared,
    ]
    primary = asked or likely[0]
    return primary, [name for name in shared if name != primary]


def _overrides(runs: Sequence[Path], arm: str) -> list[str]:
    for path in runs:
        record = read_record(path) or {}
        if record.get("arm") == arm:
            return [o for o in record.get("overrides") or [] if not o.startswith("seed=")]
    return []


def _settings(runs: Sequence[Path], arm: str) -> dict[str, Any]:
    """What the config.yaml of an arm's first run says; empty where it is not readable any more.

    It is not checked again: it has run, and a check of some encoders loads torch.
    """
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    from ablate.config.schema import Settings

    for path in runs:
        file = path / "config.yaml"
        if (read_record(path) or {}).get("arm") == arm and file.is_file():
            try:
                merged = OmegaConf.merge(OmegaConf.structured(Settings), OmegaConf.load(file))
                found = flat(OmegaConf.to_object(merged))  # type: ignore[arg-type]
            except (ValueError, OSError, OmegaConfBaseException):
                return {}
            found.pop("seed", None)
            return found
    return {}


def _described(study: Study, arms: Mapping[str, ArmResult]) -> StudyResult:
    """Differences with their intervals, and nothing that was not declared."""
    sign = 1.0 if study.higher_is_better else -1.0
    base = arms[study.baseline]
    decisions: dict[str, Decision] = {}
    pairing: dict[str, stats.Pairing | None] = {}
    secondary: dict[str, dict[str, stats.Paired]] = {}
    for name, arm in arms.items():
        if name == study.baseline:
            continue
        mine, theirs = arm.scores.get(study.primary, {}), base.scores.get(study.primary, {})
        both = sorted(set(mine) & set(theirs))
        values = [np.array([side[seed] for seed in both]) for side in (mine, theirs)]
        here = Decision(DESCRIPTIVE, len(both), tuple(both), tuple(sorted(set(mine) ^ set(theirs))))
        pairing[name] = None
        if both:
            found = stats.paired(sign * (values[0] - values[1]))
            here = Decision(
                DESCRIPTIVE, here.n, here.seeds, here.missing_seeds, found.mean, found.low,
                found.high, deviation=found.deviation,
            )  # fmt: skip
            pairing[name] = stats.pairing(*values)
        decisions[name] = here
        secondary[name] = {
            metric: stats.paired(np.array([ours[s] - others[s] for s in common]))
            for metric in study.secondary
            for ours, others in [(arm.scores.get(metric, {}), base.scores.get(metric, {}))]
            for common in [sorted(set(ours) & set(others))]
            if common
        }
    return StudyResult(study, arms, decisions, pairing, 1, [], 0.0, None, secondary)
