"""Runs of a study -> their states as they end, on workers that end with the process that drives.

Each worker is a loky executor of its own (joblib's). `joblib.Parallel` shares one among all
workers, and where the system kills one of them, for memory as a rule, everything that was given to
it ends; here that is one run, and a new worker takes the place. Workers lead sessions of their own,
so that Ctrl-C reaches the driving process alone, which asks each of them once to stop.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Future, wait
from dataclasses import dataclass

from ablate.config.compose import compose_settings
from ablate.config.failures import raised_by_us
from ablate.pretraining.machine import hand_back_memory
from ablate.study.states import State, settings_hash

_KILLED = State("failed", error="its process was killed, most likely because memory ran out")
_NOT_BEGUN = State("interrupted", error="stopped before it had begun")
WATCH_SECONDS = 0.5  # how often a worker looks whether it is still wanted
GRACE_SECONDS = 60.0  # for the step in progress and its checkpoint, after the parent has gone
_THREAD_POOLS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


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
        if is_signal(error):  # the study stops, and goes on where it was
            raise
        if not (isinstance(error, ValueError) and raised_by_us(error)):
            traceback.print_exc(file=sys.stderr)
        return State("failed", None, mark, f"{type(error).__name__}: {error}"[:300])
    return State("complete", record["folder"], mark)


def run_there(job: Job) -> State:
    """`run_job` on a worker: a signal is its answer, since the exception would stay there."""
    try:
        return run_job(job)
    except BaseException as error:
        if not is_signal(error):
            raise
        return State("interrupted", error=str(error))


def is_signal(error: BaseException) -> bool:
    """Whether somebody stopped us, as opposed to something going wrong."""
    return isinstance(error, KeyboardInterrupt) or hasattr(error, "exit_code")


def ended(
    work: Callable[[Job], State], jobs: Sequence[Job], *, workers: int, threads: int
) -> Generator[tuple[Job, State]]:
    """(job, what `work` made of it) as they end; `failed` where the job's process was killed.

    A signal to this process asks every worker to stop; what they answer is handed out before the
    signal goes on its way. A second one kills them.

    Raises:
        ValueError: joblib is not installed.
    """
    waiting, idle = deque(jobs), list[_Worker]()
    busy: _Busy = {}
    try:
        while waiting or busy:
            while waiting and len(busy) < workers:
                worker = idle.pop() if idle else _Worker(threads)
                with contextlib.suppress(BrokenExecutor):  # killed while it had nothing to do
                    future = worker.give(work, waiting[0])
                    busy[future] = worker, waiting.popleft()
            for future in wait(busy, return_when=FIRST_COMPLETED).done:
                worker, job = busy.pop(future)
                state = _state(future)
                idle += [worker] * (state is not None)
                yield job, state or _KILLED
    except GeneratorExit:  # the signal came while the caller had the turn
        deque(_stopped(busy), maxlen=0)
        raise
    except BaseException:
        yield from _stopped(busy)
        raise
    finally:
        for worker, _ in busy.values():
            worker.kill()
        for worker in idle:
            worker.end()


class _Worker:
    """One process that does one job after another."""

    def __init__(self, threads: int) -> None:
        try:
            from joblib.externals.loky import ProcessPoolExecutor
        except ImportError:
            raise ValueError(
                "compute=joblib needs joblib; type pip install 'ablate[cluster]', or compute=serial"
            ) from None
        self._pool = ProcessPoolExecutor(
            1,
            initializer=_begin,
            initargs=(os.getpid(),),
            env=dict.fromkeys(_THREAD_POOLS, str(threads)),
        )

    def give(self, work: Callable[[Job], State], job: Job) -> Future[State]:
        given: Future[State] = self._pool.submit(_there, work, job, os.getpid())
        return given

    def ask_to_stop(self) -> None:
        for pid in list(self._pool._processes):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)

    def end(self) -> None:
        self._pool.shutdown(wait=True)

    def kill(self) -> None:
        self._pool.shutdown(wait=True, kill_workers=True)


_Busy = dict[Future[State], tuple[_Worker, Job]]


def _state(future: Future[State]) -> State | None:
    """What the job came to; None where its worker was killed."""
    try:
        return future.result()
    except BrokenExecutor:
        return None


def _stopped(busy: _Busy) -> Iterator[tuple[Job, State]]:
    """Ask all to stop, and hand out what they answer."""
    if not busy:
        return
    print(
        f"ablate: stopping; {len(busy)} runs finish their step and keep a checkpoint; once more "
        "kills them",
        file=sys.stderr,
        flush=True,
    )
    for worker, _ in busy.values():
        worker.ask_to_stop()
    while busy:
        for future in wait(busy, return_when=FIRST_COMPLETED).done:
            worker, job = busy.pop(future)
            state = _state(future)
            if state is not None:
                worker.end()
            yield job, state or _NOT_BEGUN


def _begin(parent: int) -> None:
    """Once in each worker."""
    os.setsid()
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: int) -> None:
    """Stop where the parent is gone, however it went: first as a signal asks to, then at once."""
    while os.getppid() == parent:
        time.sleep(WATCH_SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE_SECONDS)
    os._exit(1)


def _there(work: Callable[[Job], State], job: Job, parent: int) -> State:
    try:
        return work(job)
    finally:
        if os.getppid() != parent:  # nobody waits for the answer, nor will there be another job
            os._exit(1)
