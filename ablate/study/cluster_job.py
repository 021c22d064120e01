"""What runs inside a job of submitit: one run, and what the scheduler's signals mean to it."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ablate.pretraining.interrupted import Interrupted, stoppable
from ablate.study.compute import NOT_BEGUN
from ablate.study.states import State

_WARNING = "SUBMITIT_PREEMPT_SIGNAL"  # where submitit looks for the name of the scheduler's signal


@dataclass
class Warned:
    """`work` of a job as submitit has it: picklable, and queued again after a warning."""

    work: Callable[[Any], State]
    job: Any

    def __call__(self) -> State:
        number = getattr(signal, f"SIG{os.environ.get(_WARNING, 'USR2')}")
        queue_again: Any = signal.getsignal(number)  # submitit's own; it ends this process
        warnings: list[int] = []

        def stop(signum: int, frame: Any) -> None:
            warnings.append(signum)
            os.kill(os.getpid(), signal.SIGTERM)

        state = NOT_BEGUN
        # a signal inside the run is its answer; one that comes before or after it ends up here
        with contextlib.suppress(Interrupted), stoppable():
            signal.signal(number, stop)
            state = self.work(self.job)
        signal.signal(number, signal.SIG_IGN)
        if warnings and state.status == "interrupted":
            queue_again(number, None)
        return state

    def checkpoint(self) -> Any:
        """What is queued again: the same run, which continues from its own checkpoint."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self)
