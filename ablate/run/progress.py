"""Lines on stderr for the parts of a run that are not pretraining: the token store, the tasks."""

from __future__ import annotations

import sys
import time


class Stage:
    """A line on stderr whenever another tenth of a long stage is done, after its first seconds."""

    def __init__(self, name: str, total: int, *, patience: float = 3.0) -> None:
        self.name, self.total, self.done = name, max(total, 1), 0
        self._next = time.monotonic() + patience
        self._tenth = 0

    def advance(self, count: int) -> None:
        self.done += count
        tenth = self.done * 10 // self.total
        if tenth > self._tenth and time.monotonic() > self._next:
            self._tenth = tenth
            print(
                f"{self.name}: {self.done:,} of {self.total:,} documents",
                file=sys.stderr,
                flush=True,
            )


class TaskLines:
    """A line when a task begins; on a terminal the line counts up."""

    def __init__(self, *, show: bool) -> None:
        self.show, self.task = show, ""

    def __call__(self, task: str, done: int, total: int) -> None:
        if not self.show:
            return
        live = sys.stderr.isatty()
        if live and (done % 10 == 0 or done == total):
            end = "\n" if done == total else ""
            print(f"\revaluating {task}: {done} of {total}", end=end, file=sys.stderr, flush=True)
        elif not live and task != self.task:
            print(f"evaluating {task}", file=sys.stderr, flush=True)
        self.task = task
