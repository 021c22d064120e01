"""A sweep -> its missing points, run; finished ones skipped, unfinished continued, failed retried.

One failed point never stops the others (unless that is asked for): it is said when it happens and
stands in the table at the end. The first and the last point are composed before anything runs, so
that a misspelt setting costs nothing.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ablate.config.compose import compose_settings
from ablate.config.schema import Settings
from ablate.pretraining.interrupted import stoppable
from ablate.run.single import arm_name
from ablate.study.compute import Job, check_possible, run_all
from ablate.study.design import merged
from ablate.study.designs import key_of as setting_of
from ablate.study.states import State, settings_hash
from ablate.sweep import bayes, points, stopping
from ablate.sweep.files import Sweep
from ablate.sweep.folder import PointState, SweepFolder, score_of
from ablate.sweep.jobs import PointJob, run_point
from ablate.sweep.options import Options
from ablate.sweep.points import Point, key_of, words_of


@dataclass(frozen=True)
class Driven:
    """A sweep after its points; `states` in their order."""

    folder: SweepFolder
    states: list[PointState]

    @property
    def failed(self) -> int:
        return sum(one.state.status not in ("complete", "stopped") for one in self.states)


class _Run:
    """One command: what is the same for all its points."""

    def __init__(self, sweep: Sweep, options: Options, say: Callable[[str], None]) -> None:
        self.sweep, self.options, self.say = sweep, options, say
        extra = merged(sweep.fixed, options.overrides)
        self._refuse(extra)
        check_possible(options.compute)
        self.extra = extra
        self.common: Settings = self._check()
        self.extra = merged(extra, options.compute.overrides(extra, self.common))
        runs_dir = Path(self.common.paths.runs_dir)
        self.folder = SweepFolder(runs_dir, options.name or sweep.name)
        self.rule = self._rule()
        self.known = self.folder.states()
        self.began = time.monotonic()
        self.done = 0

    def _refuse(self, extra: Sequence[str]) -> None:
        swept = {parameter.name for parameter in self.sweep.parameters}
        for word in extra:
            name = setting_of(word)
            if name in swept:
                raise ValueError(f"{word}: the file sweeps {name}; leave it out")
            if name in ("arm", "force", "study"):
                raise ValueError(f"{word}: {name} has no place in a sweep; leave it out")

    def _check(self) -> Settings:
        """Settings of the first point, the last one composed as well."""
        ends = points.corners(self.sweep.parameters)
        if self.sweep.method != "bayes":
            every = listed(self.sweep, self.options)
            ends = (every[0], every[-1])
        else:
            wanted(self.sweep, self.options)
        first, _ = (self.compose(point) for point in ends)
        return first

    def compose(self, point: Point) -> Settings:
        """Settings of a point; an error names it."""
        try:
            return compose_settings(self.overrides(point))
        except ValueError as error:
            raise ValueError(
                f"{self.sweep.path}, the point {' '.join(words_of(point))}: {error}"
            ) from None

    def overrides(self, point: Point) -> list[str]:
        """All of a point's run, without its name."""
        return merged(self.extra, words_of(point))

    def _rule(self) -> stopping.Rule | None:
        given = self.sweep.early_terminate
        if given is None:
            return None
        stopping.optuna("early_terminate")
        number = self.common.trainer.num_validations
        return stopping.rule_of(given, values=number, maximize=self.sweep.maximize)

    def is_complete(self, point: Point) -> bool:
        """Whether the point has a complete run of what is asked for now, or was ended early."""
        one = self.known.get(key_of(point))
        if one is None or one.state.status not in ("complete", "stopped"):
            return False
        if one.state.status == "stopped":
            return True
        return one.state.settings == settings_hash(self.compose(point))

    def job(self, number: int, point: Point) -> PointJob:
        """The point's run, named by what makes it."""
        words = self.overrides(point)
        named = [word for word in words if not word.startswith("trainer.threads=")]
        more = [f"arm={arm_name(named)}"]
        tracking = self.common.tracking
        if tracking.kind == "wandb" and tracking.group is None:
            more.append(f"tracking.group={self.folder.name}")
        seed = next((int(word[5:]) for word in words if word.startswith("seed=")), 0)
        stop = None
        if self.rule is not None:
            stop = stopping.Stop(self.rule, str(self.sweep.metric), number, self.folder.path)
        return PointJob(number, point, Job(more[0][4:], seed, merged(words, more)), stop)

    def note(self, one: PointJob, state: State) -> PointState:
        """Keep and say how a point ended."""
        score = score_of(self.folder.record(state), self.sweep.metric)
        values: Sequence[float] = ()
        if self.rule is not None:
            values = stopping.all_values(self.folder.path).get(one.number, ())
        found = PointState(one.number, one.point, state, score, values)
        self.folder.note(found)
        self.known[key_of(one.point)] = found
        return found

    def progress(self, found: PointState, total: int, left: int) -> None:
        """One line: which point of how many, its result, the time that is left."""
        self.done += 1
        seconds = (time.monotonic() - self.began) / self.done * left
        parts = [f"point {total - left} of {total}: {' '.join(words_of(found.point))}"]
        parts.append(found.state.status)
        if found.score is not None:
            parts.append(f"{self.sweep.metric}={found.score:.4g}")
        elif found.state.status == "complete" and self.sweep.metric:
            parts.append(f"its record has no {self.sweep.metric}")
        if found.state.error:
            parts.append(f"({found.state.error})")
        self.say(" ".join(parts) + (f"; about {seconds / 60:.0f} min left" if left else ""))

    def run(self, jobs: Sequence[PointJob], total: int, left: int) -> bool:
        """Run them; False where the sweep is to end before its last point."""
        ended = run_all(run_point, jobs, self.options.compute, self.folder.path)
        with stoppable(), contextlib.closing(ended) as found:
            for one, state in found:
                left -= 1
                noted = self.note(one, state)
                self.progress(noted, total, left)
                if state.status == "failed" and self.options.stop_at_failure:
                    self.say("stopped at the first failure, as asked; the same command continues")
                    return False
                if _reached(self.sweep, noted):
                    self.say(f"metric.target {self.sweep.target} is reached: the sweep ends")
                    return False
        return True


def listed(sweep: Sweep, options: Options) -> list[Point]:
    """All points of a grid, or the first so many; so many random ones."""
    if sweep.method == "random":
        number = wanted(sweep, options)
        found = [points.random_point(sweep.parameters, options.seed, k) for k in range(number)]
    else:
        found = points.grid(sweep)[: options.count or sweep.run_cap]
    return list({key_of(point): point for point in found}.values())


def wanted(sweep: Sweep, options: Options) -> int:
    """How many points.

    Raises:
        ValueError: nothing says it.
    """
    number = options.count or sweep.run_cap
    if number is None:
        raise ValueError(
            f"method: {sweep.method} has no last point: type --count 10, or run_cap: 10 in "
            f"{sweep.path}"
        )
    return number


def drive(sweep: Sweep, options: Options, say: Callable[[str], None] = print) -> Driven:
    """Run what a sweep lacks.

    Raises:
        ValueError: a bad sweep or option; nothing has run then.
    """
    run = _Run(sweep, options, say)
    is_bayes = sweep.method == "bayes"
    if is_bayes:
        say(bayes.words(options.sampler))
        bayes.optuna("method: bayes")
    if run.rule is not None:
        say(run.rule.words)
    for note in sweep.notes:
        say(f"note: {note}")
    sampler = options.sampler if is_bayes else None
    run.folder.take_lock(sweep, merged(sweep.fixed, options.overrides), options.seed, sampler)
    if is_bayes:
        return Driven(run.folder, _drive_bayes(run))
    every = listed(sweep, options)
    jobs = [run.job(k, point) for k, point in enumerate(every) if not run.is_complete(point)]
    say(f"sweep {run.folder.name}: {len(every)} points, {len(every) - len(jobs)} of them ended")
    run.run(jobs, len(every), len(jobs))
    missing = State("missing")
    return Driven(
        run.folder,
        [
            run.known.get(key_of(point), PointState(k, point, missing))
            for k, point in enumerate(every)
        ],
    )


def _drive_bayes(run: _Run) -> list[PointState]:
    """Points are asked for when a worker is free of the round before."""
    total = wanted(run.sweep, run.options)
    asked = {one.number: one for one in run.known.values()}
    ready = sum(run.is_complete(one.point) for one in asked.values() if one.number < total)
    run.say(f"sweep {run.folder.name}: {total} points, {ready} of them ended")
    left = total - ready
    size = run.options.compute.jobs
    if size > 1:
        run.say(
            f"note: points are asked for {min(size, total)} at a time (compute.jobs), and those "
            "learn nothing from each other"
        )
    for numbers in _rounds(total, run.options.compute.jobs):
        fresh = [number for number in numbers if number not in asked]
        known = [one for number, one in sorted(asked.items()) if number < numbers[-1] + 1]
        found = bayes.next_points(
            run.sweep.parameters,
            known,
            numbers=fresh,
            seed=run.options.seed,
            sampler=run.options.sampler,
            maximize=run.sweep.maximize,
        )
        todo = dict(zip(fresh, found, strict=True))
        todo |= {n: asked[n].point for n in numbers if n in asked}
        jobs = [run.job(n, todo[n]) for n in numbers if not run.is_complete(todo[n])]
        goes_on = run.run(jobs, total, left)
        left -= len(jobs)
        by_key = run.known
        asked |= {n: by_key[key_of(todo[n])] for n in numbers if key_of(todo[n]) in by_key}
        if not goes_on:
            break
    return [one for number, one in sorted(asked.items()) if number < total]


def _rounds(total: int, size: int) -> Iterator[list[int]]:
    for first in range(0, total, size):
        yield list(range(first, min(first + size, total)))


def _reached(sweep: Sweep, one: PointState) -> bool:
    if sweep.target is None or one.score is None:
        return False
    return one.score >= sweep.target if sweep.maximize else one.score <= sweep.target


def table(states: Sequence[PointState], metric: str | None) -> list[str]:
    """One line a point, and how many ended how."""
    lines = []
    for one in states:
        score = "" if one.score is None else f"{one.score:.4f}"
        error = f"  {one.state.error}" if one.state.error else ""
        words = " ".join(words_of(one.point))
        lines.append(f"{one.number + 1:>4}  {one.state.status:<11} {score:>9}  {words}{error}")
    counts = Counter(one.state.status for one in states)
    summary = ", ".join(f"{number} {status}" for status, number in counts.most_common())
    return [f"   #  {'state':<11} {'score':>9}  point ({metric or 'no metric'})", *lines, summary]
