"""Worker processes on this machine that end with the process that drives them.

Each worker is a loky executor of its own (joblib's). `joblib.Parallel` shares one among all
workers, and where the system kills one of them, for memory as a rule, everything that was given to
it ends; here that is one run, and a new worker takes the place. Workers lead sessions of their own,
so that Ctrl-C reaches the driving process alone, which asks each of them once to stop.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Future, wait
from typing import Any

from ablate.study.compute import NOT_BEGUN
from ablate.study.states import State
from ablate.tokens.encoders import THREAD_POOLS

_KILLED = State("failed", error="its process was killed, most likely because memory ran out")
WATCH_SECONDS = 0.5  # how often a worker looks whether it is still wanted
GRACE_SECONDS = 60.0  # for the step in progress and its checkpoint, after the parent has gone


class Workers:
    """A pool of `compute.ended`; a handle is the future of a worker's answer."""

    stopping = "runs finish their step and keep a checkpoint; once more kills them"

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._idle: list[_Worker] = []
        self._busy: dict[Future[State], _Worker] = {}
        self._asked = False

    def give(self, work: Callable[[Any], State], job: Any) -> Future[State]:
        while True:
            worker = self._idle.pop() if self._idle else _Worker(self.threads)
            with contextlib.suppress(BrokenExecutor):  # killed while it had nothing to do
                future = worker.give(work, job)
                self._busy[future] = worker
                return future

    def wait(self, handles: Sequence[Future[State]]) -> list[Future[State]]:
        return list(wait(handles, return_when=FIRST_COMPLETED).done)

    def state(self, handle: Future[State]) -> State:
        worker = self._busy.pop(handle)
        try:
            state = handle.result()
        except BrokenExecutor:
            return NOT_BEGUN if self._asked else _KILLED
        self._idle.append(worker)
        return state

    def ask_to_stop(self, handle: Future[State]) -> None:
        self._asked = True
        self._busy[handle].ask_to_stop()

    def close(self) -> None:
        for worker in self._busy.values():
            worker.kill()
        for worker in self._idle:
            worker.end()


def executor_class() -> Any:
    """loky's.

    Raises:
        ValueError: joblib is not installed.
    """
    try:
        from joblib.externals.loky import ProcessPoolExecutor
    except ImportError:
        raise ValueError(
            "compute=joblib needs joblib; type pip install 'ablate[cluster]', or compute=serial"
        ) from None
    return ProcessPoolExecutor


class _Worker:
    """One process that does one job after another."""

    def __init__(self, threads: int) -> None:
        self._pool = executor_class()(
            1,
            initializer=_begin,
            initargs=(os.getpid(),),
            env=dict.fromkeys(THREAD_POOLS, str(threads)),
        )

    def give(self, work: Callable[[Any], State], job: Any) -> Future[State]:
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


def _there(work: Callable[[Any], State], job: Any, parent: int) -> State:
    try:
        return work(job)
    finally:
        if os.getppid() != parent:  # nobody waits for the answer, nor will there be another job
            os._exit(1)
