"""A function -> its value, computed in a fresh process whose memory is its own.

Peaks are of the process's own memory map (VmHWM on Linux): `getrusage` there also remembers the
process that this one was started from, and would show the parent's peak where that was higher.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import resource
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

_STATUS = Path("/proc/self/status")


def run_alone(function: Callable[..., Any], *args: Any) -> Any:
    """`function(*args)` in a new process that ends afterwards.

    Raises:
        ValueError: the process was killed (as a rule by the system, for its memory), or what the
            function raised.
    """
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(max_workers=1, mp_context=context) as pool:
        try:
            value, refusal = pool.submit(_guarded, function, *args).result()
        except BrokenProcessPool:
            raise ValueError(
                f"the process that measured {function.__name__} was killed, most likely because "
                "memory ran out; ask for fewer --rows or --megabytes"
            ) from None
    if refusal is not None:
        raise ValueError(refusal)
    return value


def _guarded(function: Callable[..., Any], *args: Any) -> tuple[Any, str | None]:
    """The function's value, or the message of an error of the user's."""
    try:
        return function(*args), None
    except ValueError as error:
        from ablate.config.failures import raised_by_us

        if not raised_by_us(error):
            raise
        return None, str(error)


def peak_megabytes() -> float:
    """Most memory (resident, 10^6 bytes) that this process has held so far."""
    if _STATUS.exists():
        return _status()["VmHWM"]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1e6 if sys.platform == "darwin" else peak * 1024 / 1e6


def children_peaks() -> list[float]:
    """The same of each child process that runs now; none where the system does not say."""
    found = []
    for children in Path("/proc/self/task").glob("*/children"):
        for number in children.read_text().split():
            with contextlib.suppress(OSError):  # it has just ended
                found += [
                    int(line.split()[1]) * 1024 / 1e6
                    for line in Path(f"/proc/{number}/status").read_text().splitlines()
                    if line.startswith("VmHWM")
                ]
    return found


def resident_megabytes() -> float:
    """What this process holds now; where the system does not say, its peak."""
    return _status()["VmRSS"] if _STATUS.exists() else peak_megabytes()


def private_megabytes() -> float | None:
    """The part of it that is no mapped file, which the system cannot drop; None = unknown."""
    return _status()["RssAnon"] if _STATUS.exists() else None


def _status() -> dict[str, float]:
    lines = [line.split() for line in _STATUS.read_text().splitlines()]
    return {line[0].rstrip(":"): int(line[1]) * 1024 / 1e6 for line in lines if line[-1] == "kB"}
