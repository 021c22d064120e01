"""Every arm at every point of a grid -> the settings that each keeps, before the study's own runs.

Equal effort for all, the baseline too: the same points on the same seeds, which no table shows. The
runs are ordinary ones in `runs/single`; their states lie apart, in the study's folder under
`tuning/`, so that nothing which reads the study's states sees them. `tuned.json` keeps the scores
of all points and the choice, with the rule and the overrides that it was made for: what is asked
for otherwise later is tuned again, anything else never.
"""

from __future__ import annotations

import copy
import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from ablate.study.design import Study, Tune, merged
from ablate.study.designs import key_of
from ablate.study.guard import NEUTRAL, Composed, compose_arm
from ablate.study.states import StudyFolder
from ablate.tracking.record import locked, read_kept, write_json

# of an arm's overrides, what does not decide which value is best
_NO_MATTER = (*NEUTRAL, "paths", "tracking", "trainer.threads")


@dataclass(frozen=True)
class Point:
    """One point of the grid for one arm: scores of the seeds that ended, reasons of the others."""

    overrides: tuple[str, ...]
    scores: Mapping[int, float]
    errors: Mapping[int, str]

    @property
    def mean(self) -> float | None:
        """None where any seed lacks a score: such a point cannot win."""
        if self.errors or not self.scores:
            return None
        return sum(self.scores.values()) / len(self.scores)


@dataclass(frozen=True)
class Tuned:
    """What tuning found for one arm. `chosen` None: no point ended on all seeds."""

    rule: Mapping[str, Any]
    asked: tuple[str, ...]
    points: tuple[Point, ...]
    chosen: int | None

    @property
    def overrides(self) -> tuple[str, ...]:
        """What is added to the arm's own."""
        return () if self.chosen is None else self.points[self.chosen].overrides

    @property
    def failure(self) -> str:
        """Why nothing was chosen; empty where something was."""
        if self.chosen is not None:
            return ""
        point = next(p for p in self.points if p.errors)
        seed, why = next(iter(point.errors.items()))
        where = f"{' '.join(point.overrides)} seed {seed}"
        return f"tuning failed: no point ended on all seeds; {where}: {why}"

    @property
    def edges(self) -> list[str]:
        """Chosen overrides whose number is the smallest or the largest of its grid."""
        found = []
        for override in self.overrides:
            key, _, value = override.partition("=")
            numbers = [_number(text) for text in self.rule["grid"][key]]
            if None not in numbers and _number(value) in (min(numbers), max(numbers)):  # type: ignore[type-var]
                found.append(override)
        return found


@dataclass(frozen=True)
class Plan:
    """Tuning that is to be done: a study whose arms are points, with its own folder of states."""

    tune: Tune
    study: Study
    composed: Mapping[str, Composed]
    folder: StudyFolder
    arms: Mapping[str, Mapping[str, tuple[str, ...]]]  # arm -> name of the point -> its overrides
    asked: Mapping[str, tuple[str, ...]]

    @property
    def seeds(self) -> dict[str, list[int]]:
        return {name: list(self.tune.seeds) for name in self.study.arms}

    def choose(self, owner: StudyFolder) -> dict[str, Tuned]:
        """Read the points' runs, choose for each arm, keep it in the study's folder."""
        found = {
            arm: _chosen(
                self.tune,
                self.asked[arm],
                [self._point(name, overrides) for name, overrides in points.items()],
            )
            for arm, points in self.arms.items()
        }
        with locked(owner.path):
            every = {**(read_kept(owner.path / "tuned.json", dict) or {})}
            every |= {arm: dataclasses.asdict(tuned) for arm, tuned in found.items()}
            write_json(owner.path / "tuned.json", every)
        return found

    def _point(self, name: str, overrides: tuple[str, ...]) -> Point:
        scores, errors = {}, {}
        for seed in self.tune.seeds:
            state = self.folder.state(name, seed)
            record = self.folder.record(state)
            if state.status != "complete" or record is None:
                errors[seed] = state.error or state.status
            elif self.tune.metric not in record["scores"]:
                there = ", ".join(sorted(record["scores"]))
                errors[seed] = f"its record has no score {self.tune.metric}, but {there}"[:300]
            else:
                scores[seed] = float(record["scores"][self.tune.metric])
        return Point(overrides, scores, errors)


def prepare(study: Study, folder: StudyFolder, extra: Sequence[str] = ()) -> Plan | None:
    """What is to be tuned now: arms without a choice, or with one that was made for another rule.

    Raises:
        ValueError: a seed that was reported, a point that does not compose or that moves more
            than the grid names. Nothing has run then.
    """
    if study.tune is None:
        return None
    refuse_reported(study, folder)
    there = kept(folder)
    asked = {arm: _asked(study, arm, extra) for arm in study.arms}
    wanted = [
        arm
        for arm in study.arms
        if arm not in there
        or there[arm].chosen is None
        or (there[arm].rule, there[arm].asked) != (_rule(study.tune), asked[arm])
    ]
    arms = {
        arm: {f"{arm}-tune{n}": point for n, point in enumerate(study.tune.points, 1)}
        for arm in wanted
    }
    overrides = {
        name: tuple(merged(study.arms[arm], point))
        for arm, points in arms.items()
        for name, point in points.items()
    }
    points = dataclasses.replace(
        study, name=f"{study.name}-tuning", arms=overrides, seeds=study.tune.seeds, tune=None
    )
    composed = {}
    for of_arm in arms.values():
        first, _ = compose_arm(points, next(iter(of_arm)), extra)
        for name in of_arm:
            values, settings = compose_arm(points, name, extra)
            moved = {key for key in values if values[key] != first.get(key)}
            if moved - set(study.tune.grid):
                raise ValueError(
                    f"study {study.name}: tune.grid also moves "
                    f"{', '.join(sorted(moved - set(study.tune.grid)))}, which follows from "
                    f"{', '.join(study.tune.grid)}. Hold it fixed (common: [...])"
                )
            composed[name] = Composed(settings, {})
    return Plan(study.tune, points, composed, _own(folder), arms, asked) if wanted else None


def applied(study: Study, folder: StudyFolder) -> Study:
    """The study with what was chosen in its arms, and these settings among their moves."""
    if study.tune is None:
        return study
    arms, moves = dict(study.arms), dict(study.moves)
    for arm, tuned in kept(folder).items():
        if arm in arms:
            arms[arm] = tuple(merged(arms[arm], tuned.overrides))
    keys = {key_of(o) for tuned in kept(folder).values() for o in tuned.overrides}
    for arm, own in moves.items():
        moves[arm] = (*own, *sorted(keys - set(own)))
    return dataclasses.replace(study, arms=arms, moves=moves)


def kept(folder: StudyFolder) -> dict[str, Tuned]:
    """What was found so far, by arm."""
    found = read_kept(folder.path / "tuned.json", dict) or {}
    return {
        arm: Tuned(
            given["rule"],
            tuple(given["asked"]),
            tuple(
                Point(
                    tuple(point["overrides"]),
                    {int(seed): score for seed, score in point["scores"].items()},
                    {int(seed): why for seed, why in point["errors"].items()},
                )
                for point in given["points"]
            ),
            given["chosen"],
        )
        for arm, given in found.items()
    }


def refuse_reported(study: Study, folder: StudyFolder) -> None:
    """A seed is for tuning or for the tables.

    Raises:
        ValueError: the study has, or has run, one of the tuning seeds.
    """
    if study.tune is not None:
        shared = sorted(set(study.tune.seeds) & {*study.seeds, *folder.seeds()})
        if shared:
            raise ValueError(
                f"study {study.name}: tune.seeds {shared} are seeds of the study's own runs, of "
                "its file or added by study.more_seeds; type others, for example "
                f"{[max(*study.seeds, *folder.seeds(), *study.tune.seeds) + 1000]}"
            )


def runs_of_arm(study: Study) -> int:
    """Tuning runs of each arm; 0 without tuning."""
    return 0 if study.tune is None else len(study.tune.points) * len(study.tune.seeds)


def status_lines(study: Study, folder: StudyFolder) -> list[str]:
    """How far tuning is, and what it chose; empty for a study without."""
    if study.tune is None:
        return []
    own, done = _own(folder), 0
    for arm in study.arms:
        for number in range(1, len(study.tune.points) + 1):
            states = [own.state(f"{arm}-tune{number}", seed) for seed in study.tune.seeds]
            done += sum(state.status == "complete" for state in states)
    lines = [f"  tuning: {done} of {len(study.arms) * runs_of_arm(study)} runs complete"]
    there = kept(folder)
    for arm in study.arms:
        if arm in there:
            what = " ".join(there[arm].overrides) or there[arm].failure
            lines.append(f"    {arm}: {what}")
    return lines


def _own(folder: StudyFolder) -> StudyFolder:
    """States of the tuning runs."""
    found = copy.copy(folder)
    found.path = folder.path / "tuning"
    return found


def _rule(tune: Tune) -> Any:
    """As JSON reads it back."""
    return json.loads(json.dumps(dataclasses.asdict(tune)))


def _asked(study: Study, arm: str, extra: Sequence[str]) -> tuple[str, ...]:
    return tuple(
        override
        for override in study.overrides(arm, extra)
        if not any(fnmatchcase(key_of(override), name) for name in _NO_MATTER)
    )


def _chosen(tune: Tune, asked: tuple[str, ...], points: Sequence[Point]) -> Tuned:
    """The best mean; of equal ones the first in the grid."""
    sign = 1.0 if tune.higher_is_better else -1.0
    best: tuple[float, int] | None = None
    for number, point in enumerate(points):
        if point.mean is not None and (best is None or sign * point.mean > best[0]):
            best = sign * point.mean, number
    return Tuned(_rule(tune), asked, tuple(points), None if best is None else best[1])


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
