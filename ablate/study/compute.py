"""Runs of a study or sweep -> their states as they end, wherever they are computed.

Serial ones run in the process of the command; others in a `Pool` of jobs, of joblib
(`study.local_workers`) or of submitit (`study.cluster`). A failure is a state; a signal to the
command asks every job to stop, hands out what they answer and goes on its way.
"""

from __future__ import annotations

import functools
import sys
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from ablate.config.compose import compose_settings
from ablate.config.failures import raised_by_us
from ablate.pretraining.disk import full_disk
from ablate.pretraining.machine import hand_back_memory
from ablate.study.computes import Compute
from ablate.study.states import State, settings_hash

NOT_BEGUN = State("interrupted", error="stopped before it had begun")
J = TypeVar("J")  # a Job, or what has one
Handle = TypeVar("Handle")


@dataclass(frozen=True)
class Job:
    """One run of a study, picklable."""

    arm: str
    seed: int
    overrides: list[str]


def run_job(job: Job) -> State:
    """Run one arm at one seed; its failure is a state and no exception."""
    try:
        return _run(job)
    finally:
        hand_back_memory()


def _run(job: Job) -> State:
    from ablate.run.single import run

    mark = None
    try:
        settings = compose_settings(job.overrides)
        mark = settings_hash(settings)
        record = run(settings, overrides=job.overrides, quiet=True)
    except Exception as error:
        ours = isinstance(error, ValueError) and raised_by_us(error)
        if not ours and full_disk(error) is None:
            traceback.print_exc(file=sys.stderr)
        return State("failed", None, mark, f"{type(error).__name__}: {error}"[:300])
    return State("complete", record["folder"], mark)


def is_signal(error: BaseException) -> bool:
    """Whether somebody stopped us, as opposed to something going wrong."""
    return isinstance(error, KeyboardInterrupt) or hasattr(error, "exit_code")


class Pool(Protocol, Generic[Handle]):
    """Where jobs run beside each other."""

    stopping: str  # what a person reads of the jobs that are asked to stop

    def give(self, work: Callable[[Any], State], job: Any) -> Handle | None:
        """Start a job; None where one of those that run must end first."""

    def wait(self, handles: Sequence[Handle]) -> list[Handle]:
        """Those that have ended, as soon as there are any."""

    def state(self, handle: Handle) -> State:
        """What an ended job came to; `failed` where it gave no answer."""

    def ask_to_stop(self, handle: Handle) -> None:
        """Let it finish its step and keep a checkpoint."""

    def close(self) -> None:
        """End what still runs, and the pool."""


def run_all(
    work: Callable[[J], State], jobs: Sequence[J], compute: Compute, folder: Path
) -> Generator[tuple[J, State]]:
    """(job, what `work` made of it) as they end, where `compute` says; after a signal come the
    states of the jobs that it stopped.

    Args:
        folder: of the study or sweep; a pool may keep there what is needed to find its jobs.

    Raises:
        ValueError: `compute` is not possible here.
    """
    if compute.kind == "serial":
        return one_by_one(work, jobs)
    return ended(functools.partial(answered, work), jobs, _pool(compute, folder), compute.jobs)


def check_possible(compute: Compute) -> None:
    """Before anything is locked or composed.

    Raises:
        ValueError: a package or a command is missing here.
    """
    if compute.kind == "joblib":
        from ablate.study import local_workers

        local_workers.executor_class()
    elif compute.kind != "serial":
        from ablate.study import cluster

        cluster.check(compute)


def _pool(compute: Compute, folder: Path) -> Pool[Any]:
    if compute.kind == "joblib":
        from ablate.study.local_workers import Workers

        return Workers(compute.cores)
    from ablate.study.cluster import Cluster

    return Cluster(compute, folder)


def one_by_one(work: Callable[[J], State], jobs: Sequence[J]) -> Generator[tuple[J, State]]:
    """All of them here, one after another."""
    for job in jobs:
        try:
            state = work(job)
        except BaseException as error:
            if is_signal(error):
                yield job, State("interrupted", error=str(error))
            raise
        yield job, state


def answered(work: Callable[[J], State], job: J) -> State:
    """`work` elsewhere: a signal is its answer, since the exception would stay there."""
    try:
        return work(job)
    except BaseException as error:
        if not is_signal(error):
            raise
        return State("interrupted", error=str(error))


def ended(
    work: Callable[[J], State], jobs: Sequence[J], pool: Pool[Handle], size: int
) -> Generator[tuple[J, State]]:
    """Like `run_all`, at most `size` jobs of a pool at once. A second signal ends them at once."""
    waiting = deque(jobs)
    busy: dict[Handle, J] = {}
    try:
        while waiting or busy:
            while waiting and len(busy) < size:
                handle = pool.give(work, waiting[0])
                if handle is None:
                    break
                busy[handle] = waiting.popleft()
            for handle in pool.wait(list(busy)):
                job = busy.pop(handle)
                yield job, pool.state(handle)
    except GeneratorExit:  # the signal came while the caller had the turn
        deque(_stopped(pool, busy), maxlen=0)
        raise
    except BaseException:
        yield from _stopped(pool, busy)
        raise
    finally:
        pool.close()


def _stopped(pool: Pool[Handle], busy: dict[Handle, J]) -> Iterator[tuple[J, State]]:
    """Ask all to stop, and hand out what they answer."""
    if not busy:
        return
    print(f"ablate: stopping; {len(busy)} {pool.stopping}", file=sys.stderr, flush=True)
    for handle in busy:
        pool.ask_to_stop(handle)
    while busy:
        for handle in pool.wait(list(busy)):
            yield busy.pop(handle), pool.state(handle)
