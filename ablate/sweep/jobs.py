"""Points -> their states as they end: one after another here, or side by side on worker processes.

A point is an ordinary run of its overrides (`study.compute.run_job`), so a finished one is looked
up and not trained again, an interrupted one is continued, and two shells that reach one point wait
for each other. A failure is a state; a signal ends the sweep, which the same command continues.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any

from ablate.pretraining import machine
from ablate.study import compute
from ablate.study.compute import Job, is_signal, run_job
from ablate.study.states import State
from ablate.sweep.points import Point
from ablate.sweep.stopping import Stop, stopped_early


@dataclass(frozen=True)
class PointJob:
    """One point, picklable. `stop` where the file asks for early ending."""

    number: int
    point: Point
    job: Job
    stop: Stop | None = None


def threads_for(jobs: int) -> int:
    """Threads of each of so many workers."""
    return max(machine.available_cores() // jobs, 1)


def ended(jobs: Sequence[PointJob], workers: int) -> Generator[tuple[PointJob, State]]:
    """(point, state) as they end; a signal comes after an `interrupted` one."""
    if workers > 1 and len(jobs) > 1:
        pool: Any = compute.ended  # typed for a study's jobs, which is no matter to it
        yield from pool(_there, jobs, workers=workers, threads=threads_for(workers))
        return
    for one in jobs:
        try:
            state = _run(one)
        except BaseException as error:
            if is_signal(error):
                yield one, State("interrupted", error=str(error))
            raise
        yield one, state


def _run(one: PointJob) -> State:
    if one.stop is None:
        return run_job(one.job)
    watch = None
    try:
        with stopped_early(one.stop, one.job.overrides) as watch:
            return run_job(one.job)
    except BaseException as error:
        if watch is None or watch.fired is None or not is_signal(error):
            raise
        return State("stopped", error=watch.fired)


def _there(one: PointJob) -> State:
    """`_run` on a worker: a signal is its answer, since the exception would stay there."""
    try:
        return _run(one)
    except BaseException as error:
        if not is_signal(error):
            raise
        return State("interrupted", error=str(error))
