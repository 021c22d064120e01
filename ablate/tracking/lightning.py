"""Lightning's logger interface -> the run's `metrics.jsonl`, and its mirror where there is one.

Apart from `loggers`, so that a finished run is looked up without importing Lightning.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pytorch_lightning.loggers import Logger

from ablate.tracking.loggers import Mirror
from ablate.tracking.record import MetricsFile


class RecordLogger(Logger):
    """Lightning's logger interface over `MetricsFile`, and over the mirror where there is one."""

    def __init__(self, file: MetricsFile, mirror: Mirror | None = None) -> None:
        super().__init__()
        self.file, self.mirror = file, mirror

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
        if self.mirror is not None:
            self.mirror.log(dict(metrics), int(step or 0))
