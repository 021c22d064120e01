"""An exception -> what the person reads, and the exit code: the same for every command.

Bad input ends in one message and exit code 2; a run stopped by a signal in 128 + its number; a disk
that is full or read-only in one message and exit code 1; anything else is our mistake or the
machine's, with its traceback and exit code 1.
"""

from __future__ import annotations

import sys
import traceback
from pathlib import Path

from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException

from ablate.config.compose import readable
from ablate.pretraining.disk import full_disk


def raised_by_us(error: BaseException) -> bool:
    """Whether the innermost frame of the traceback is code of this package."""
    frames = traceback.extract_tb(error.__traceback__)
    here = str(Path(__file__).resolve().parent.parent)
    return bool(frames) and str(Path(frames[-1].filename).resolve()).startswith(here)


def fail(message: str) -> int:
    """Bad input: one message; returns the exit code."""
    print(f"ablate: {message}", file=sys.stderr)
    return 2


def report(error: BaseException) -> int:
    """Say what went wrong; returns the exit code."""
    if isinstance(error, (HydraException, OmegaConfBaseException)):
        return fail(readable(error))
    if isinstance(error, ValueError) and raised_by_us(error):
        return fail(str(error))
    if hasattr(error, "exit_code"):
        print(f"ablate: {error}; the same command continues", file=sys.stderr)
        return int(error.exit_code)
    if isinstance(error, FloatingPointError) and raised_by_us(error):
        print(f"ablate: {error}", file=sys.stderr)
        return 1
    unwritten = full_disk(error)
    if unwritten is not None:
        print(f"ablate: {unwritten}", file=sys.stderr)
        return 1
    traceback.print_exception(error)
    return 1
