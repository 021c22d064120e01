"""Lightning's logger interface -> the run's `metrics.jsonl`, and its mirror where there is one.

Apart from `loggers`, so that a finished run is looked up without importing Lightning.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pytorch_lightning.loggers import Logger

from ablate.tracking.record import MetricsFile
from ablate.tracking.tracker import Tracker

_SECONDS = 5.0  # between two looks at a file that another process writes
_listeners: list[Callable[[], None]] = []


@contextlib.contextmanager
def listening(call: Callable[[], None]) -> Iterator[None]:
    """Call after every line that a fit of this process adds to its file, before its next step."""
    _listeners.append(call)
    try:
        yield
    finally:
        _listeners.remove(call)


class RecordLogger(Logger):
    """Lightning's logger interface over `MetricsFile`, and over the mirror where there is one.

    The mirror is this process's alone: W&B's run does not survive a fork and cannot be pickled.
    """

    def __init__(self, file: MetricsFile, mirror: Tracker | None = None) -> None:
        super().__init__()
        self.file, self.mirror, self._process = file, mirror, os.getpid()
        self._following = False

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "mirror": None}

    @property
    def name(self) -> str:
        return "record"

    @property
    def version(self) -> str:
        return "0"

    def log_hyperparams(self, *args: Any, **kwargs: Any) -> None:
        """The settings are in `config.yaml`; nothing to do."""

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        self.file.append(int(step or 0), dict(metrics))
        if self.mirror is not None and not self._following and os.getpid() == self._process:
            self.mirror.log(dict(metrics), int(step or 0))
        if os.getpid() == self._process:
            for call in list(_listeners):
                call()

    @contextlib.contextmanager
    def following(self) -> Iterator[None]:
        """Mirror the lines that any process adds to the file meanwhile, as they come."""
        if self.mirror is None:
            yield
            return
        seen, ended = len(self.file.rows()), threading.Event()

        def look() -> None:
            nonlocal seen
            rows = self.file.rows()
            self.mirror.replay(rows[seen:])  # type: ignore[union-attr]
            seen = len(rows)

        def follow() -> None:
            while not ended.wait(_SECONDS):
                look()

        self._following = True
        thread = threading.Thread(target=follow, name="mirror", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
            look()
            self._following = False
