"""A signal as an exception; imports nothing heavy, since it is raised from signal handlers."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Interrupted(BaseException):
    """A signal stopped the run; what was finished is on disk. `exit_code` is 128 + its number.

    No `Exception`, as KeyboardInterrupt is none: what takes any failure of a library for "not
    there" or goes on without it, here or in a library, must not take a signal for one.
    """

    def __init__(self, signum: int, where: str) -> None:
        super().__init__(signum, where)
        self.exit_code = 128 + signum

    def __str__(self) -> str:
        signum, where = self.args
        return f"stopped by {signal.Signals(signum).name} {where}"


class RankStopped(Exception):  # noqa: N818
    """A child rank's `Interrupted`: torch, which started it, hands on Exceptions alone."""


@contextlib.contextmanager
def stoppable() -> Iterator[None]:
    """SIGTERM and Ctrl-C raise `Interrupted` wherever they come, so that the record says so.

    Once: while the first one unwinds, SIGTERM is ignored, and a second Ctrl-C cuts short what is
    waited for. Signals that are ignored (a shell's background jobs) stay so, and Ctrl-C, which a
    terminal sends to all, is for this process and not for workers that were forked from it.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    noted: list[int] = []
    owner = os.getpid()

    def stop(signum: int, frame: Any) -> None:
        if signum == signal.SIGINT and os.getpid() != owner:
            return
        noted.append(signum)
        if len(noted) == 1 or signum == signal.SIGINT:
            raise Interrupted(signum, "outside training")

    before = {n: signal.getsignal(n) for n in _SIGNALS if signal.getsignal(n) != signal.SIG_IGN}
    for signum in before:
        signal.signal(signum, stop)
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)


@contextlib.contextmanager
def signals_wait() -> Iterator[None]:
    """What is inside is done before a signal is acted on: the last words of a record."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
