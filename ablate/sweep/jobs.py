"""One point of a sweep as a job, wherever it is computed.

A point is an ordinary run of its overrides (`study.compute.run_job`), so a finished one is looked
up and not trained again, an interrupted one is continued, and two shells that reach one point wait
for each other.
"""

from __future__ import annotations

from dataclasses import dataclass

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


def run_point(one: PointJob) -> State:
    """Run it; a failure is a state and no exception, a signal is one."""
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
