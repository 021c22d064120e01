"""A study's runs -> scores by arm and seed, gates, decisions: all that a report shows.

Only records are read. Fine-tuning seeds are averaged inside a run already. A run that failed or is
missing leaves a gap that is listed; it shifts no pair.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ablate.study import stats, tuning
from ablate.study.design import Gate, Study
from ablate.study.guard import Composed, compose_arms, consequences
from ablate.study.states import State, StudyFolder
from ablate.study.verdict import ArmScores, Decision, decide, floor_of

_OPEN = ("missing", "running", "interrupted")  # a run that has not ended, well or badly


@dataclass(frozen=True)
class ArmResult:
    """What is known of one arm. `scores[name][seed]` holds every score of its complete runs."""

    name: str
    overrides: list[str]
    states: Mapping[int, State]
    records: Mapping[int, Mapping[str, Any]]  # of complete runs
    scores: Mapping[str, Mapping[int, float]]
    failed_gates: list[str]
    moved: Mapping[str, tuple[Any, Any]]
    consequences: Mapping[str, tuple[Any, Any]]  # against the baseline, at the first common seed


@dataclass(frozen=True)
class StudyResult:
    """A study with all that its runs say. `decisions` are of the primary metric."""

    study: Study
    arms: Mapping[str, ArmResult]
    decisions: Mapping[str, Decision]
    pairing: Mapping[str, stats.Pairing | None]
    looks: int
    changes: list[str]  # since it was locked; not empty = exploratory
    floor: float
    locked: str | None = None
    secondary: Mapping[str, Mapping[str, stats.Paired]] = field(default_factory=dict)
    tuning: Mapping[str, tuning.Tuned] = field(default_factory=dict)  # of no run that is in `arms`

    @property
    def baseline(self) -> ArmResult:
        return self.arms[self.study.baseline]

    @property
    def failures(self) -> list[tuple[str, int, State]]:
        """(arm, seed, state) of every run that is not complete."""
        return [
            (arm.name, seed, state)
            for arm in self.arms.values()
            for seed, state in arm.states.items()
            if state.status != "complete"
        ]


def collect(
    study: Study,
    composed: Mapping[str, Composed],
    folder: StudyFolder,
    seeds: Mapping[str, Sequence[int]] | None = None,
    extra: Sequence[str] = (),
) -> StudyResult:
    """Read every run of a study and decide, as of now.

    Raises:
        ValueError: a seed that arms are tuned on is among those of the study's runs.
    """
    tuning.refuse_reported(study, folder)
    tuned = tuning.applied(study, folder)
    if tuned != study:
        study, composed = tuned, compose_arms(tuned, extra)
    asked = seeds or folder.asked(study)
    found = {arm: _read(arm, folder, asked[arm]) for arm in study.arms}
    first = found[study.baseline][1]
    arms = {}
    for arm, (states, records) in found.items():
        common = next((seed for seed in sorted(records) if seed in first), None)
        arms[arm] = ArmResult(
            arm,
            study.overrides(arm, extra),
            states,
            records,
            _scores(records),
            failed_gates(study, arm, records),
            composed[arm].moved,
            {} if common is None else consequences(first[common], records[common]),
        )
    return decided(study, arms, folder)


def decided(study: Study, arms: Mapping[str, ArmResult], folder: StudyFolder) -> StudyResult:
    """The decisions of these results: a new look where runs or rule are new, else the last one's.

    `StudyFolder.add_look` keeps one, when all runs that were asked for have ended; before that no
    verdict is drawn, so that nobody stops at a favourable moment. What an earlier look decided
    stays where it was decided by this rule and from runs that are still the arm's.
    """
    looks = folder.looks
    seen = _seen(study, arms)
    kept = {
        name: _decision(decision)
        for look in looks
        for name, decision in look["decisions"].items()
        if name in arms and _still_holds(look, name, seen, study.baseline)
    }
    is_new = not looks or any(looks[-1].get(key) != seen[key] for key in seen)
    pending = sum(s.status in _OPEN for arm in arms.values() for s in arm.states.values())
    number = len(looks) + is_new
    sign = 1.0 if study.higher_is_better else -1.0
    scored = {
        name: ArmScores(
            {seed: sign * value for seed, value in arm.scores.get(study.primary, {}).items()},
            tuple(arm.failed_gates),
        )
        for name, arm in arms.items()
    }
    baseline = scored[study.baseline]
    treated = {name: scored[name] for name in study.treatments}
    floor = floor_of(treated, baseline)
    decisions = kept
    if is_new:
        decisions = decide(
            treated, baseline, margin=study.margin, look=number, decided=kept, floor=floor
        )
    if is_new and pending:
        number = len(looks)
        decisions = {
            name: decision if name in kept else _waiting(decision, pending)
            for name, decision in decisions.items()
        }
    lock = folder.lock
    return StudyResult(
        study,
        arms,
        decisions,
        {name: _pairing(arm, baseline) for name, arm in treated.items()},
        number,
        [],
        floor,
        None if lock is None else lock["locked"],
        {name: _others(study, arm, arms[study.baseline]) for name, arm in arms.items()},
        {} if study.tune is None else tuning.kept(folder),
    )


def _seen(study: Study, arms: Mapping[str, ArmResult]) -> dict[str, Any]:
    """What decisions rest on, as JSON reads it back: the rule, and each arm's runs by seed."""
    rule = [study.primary, study.margin, study.higher_is_better, study.baseline]
    rule += [[dataclasses.astuple(gate) for gate in study.gates]]
    runs = {
        name: {str(seed): arm.states[seed].run for seed in sorted(arm.records)}
        for name, arm in arms.items()
    }
    found: dict[str, Any] = json.loads(json.dumps({"rule": rule, "runs": runs}))
    return found


def _still_holds(
    look: Mapping[str, Any], name: str, seen: Mapping[str, Any], baseline: str
) -> bool:
    """Whether a look decided of an arm by today's rule and from runs that are still there."""
    runs = look.get("runs", {})
    return look.get("rule") == seen["rule"] and all(
        runs.get(arm, {}).items() <= seen["runs"].get(arm, {}).items() for arm in (name, baseline)
    )


def _waiting(decision: Decision, pending: int) -> Decision:
    if decision.verdict == "not_trained_enough":
        return decision
    note = f"{pending} runs have not ended, and no verdict is drawn before all have"
    return dataclasses.replace(decision, verdict="undecided", note=note, more_seeds=None)


def failed_gates(study: Study, arm: str, records: Mapping[int, Mapping[str, Any]]) -> list[str]:
    """Gates that the mean over an arm's seeds does not pass, in words."""
    return [
        text
        for gate in study.gates
        if not gate.arms or arm in gate.arms
        for text in [_gate(gate, records)]
        if text
    ]


def _gate(gate: Gate, records: Mapping[int, Mapping[str, Any]]) -> str:
    found = [_value(record, gate.score) for record in records.values()]
    limits = [
        _value(record, gate.above) if isinstance(gate.above, str) else float(gate.above)
        for record in records.values()
    ]
    if not found:
        return ""
    if any(value is None for value in (*found, *limits)):
        return f"{gate.why}: the runs have no {gate.score} (or {gate.above}) to judge it by"
    value, limit = float(np.mean(found)), float(np.mean(limits))  # type: ignore[arg-type]
    if value > limit:
        return ""
    above = f"{gate.above} = " if isinstance(gate.above, str) else ""
    return f"{gate.why}: {gate.score} is {value:.3f}, not above {above}{limit:.3f}"


def _value(record: Mapping[str, Any], name: str) -> float | None:
    """A score, or what the last logged training steps had (`train/nsp_accuracy`)."""
    last = record.get("derived", {}).get("last_window", {})
    found = record["scores"].get(name, last.get(name))
    return None if found is None else float(found)


def _read(
    arm: str, folder: StudyFolder, seeds: Sequence[int]
) -> tuple[dict[int, State], dict[int, Mapping[str, Any]]]:
    states = {seed: folder.state(arm, seed) for seed in seeds}
    records: dict[int, Mapping[str, Any]] = {
        seed: record
        for seed, state in states.items()
        if state.status == "complete" and (record := folder.record(state)) is not None
    }
    return states, records


def _scores(records: Mapping[int, Mapping[str, Any]]) -> dict[str, dict[int, float]]:
    found: dict[str, dict[int, float]] = {}
    for seed, record in records.items():
        for name, value in record["scores"].items():
            if np.isfinite(value):
                found.setdefault(name, {})[seed] = float(value)
    return found


def _pairing(arm: ArmScores, baseline: ArmScores) -> stats.Pairing | None:
    both = sorted(set(arm.by_seed) & set(baseline.by_seed))
    if not both:
        return None
    values = [np.array([side.by_seed[seed] for seed in both]) for side in (arm, baseline)]
    return stats.pairing(*values)


def _others(study: Study, arm: ArmResult, baseline: ArmResult) -> dict[str, stats.Paired]:
    """Paired differences of the secondary metrics: description, no decision rests on them."""
    found = {}
    for metric in study.secondary:
        mine, theirs = arm.scores.get(metric, {}), baseline.scores.get(metric, {})
        both = sorted(set(mine) & set(theirs))
        if both and arm.name != baseline.name:
            found[metric] = stats.paired(np.array([mine[s] - theirs[s] for s in both]))
    return found


def look_of(result: StudyResult) -> dict[str, Any]:
    """What is kept of a look: seeds that were asked for and seen, what it decided, from what."""
    return {
        "asked": {name: sorted(arm.states) for name, arm in result.arms.items()},
        "seeds": {name: sorted(arm.records) for name, arm in result.arms.items()},
        "decisions": {
            name: dataclasses.asdict(decision) for name, decision in result.decisions.items()
        },
        **_seen(result.study, result.arms),
    }


def _decision(given: Mapping[str, Any]) -> Decision:
    lists = {k: tuple(v) for k, v in given.items() if isinstance(v, list)}
    return Decision(**{**given, **lists})
