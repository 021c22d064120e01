"""A signal as an exception; imports nothing, since it is raised from signal handlers."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Any


class Interrupted(Exception):  # noqa: N818  (no error: a state of the run)
    """A signal stopped the run; what was finished is on disk. `exit_code` is 128 + its number."""

    def __init__(self, signum: int, where: str) -> None:
        super().__init__(f"stopped by {signal.Signals(signum).name} {where}")
        self.exit_code = 128 + signum


@contextlib.contextmanager
def stoppable() -> Iterator[None]:
    """SIGTERM raises `Interrupted` wherever it comes, so that the record says so."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(signum: int, frame: Any) -> None:
        raise Interrupted(signum, "outside training")

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
