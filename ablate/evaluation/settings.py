"""Hyper-parameters of a fit, checked; no torch is needed to know whether they can be used.

One declared set serves all tasks; what a task has of its own (`evaluation.per_task`) and the points
of a grid are this set with a few fields replaced.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ablate.encoder.pooling import HEADS, POOLINGS
from ablate.pretraining.schedules import SCHEDULES

PRECISIONS = ("fp32", "bf16")


@dataclass(frozen=True)
class FinetuneSettings:
    """One declared set of hyper-parameters for all tasks.

    Steps are `num_epochs` over the training examples, raised to `min_steps` for small tasks and cut
    at `max_steps`; `warmup_fraction` is of the steps. With `early_stopping` (a number of
    evaluations without a better score) the weights of the best evaluation are taken, judged on
    `selection_fraction` of the training examples, which are then not trained on. The last four
    say which examples are used and go to `encode_task`.
    """

    learning_rate: float = 2e-3
    batch_size: int = 32
    num_epochs: int = 3
    min_steps: int = 150
    max_steps: int | None = None
    schedule: str = "linear"
    warmup_fraction: float = 0.1
    weight_decay: float = 0.01
    layerwise_decay: float = 1.0
    adam_beta2: float = 0.999
    adam_eps: float = 1e-8
    gradient_clip: float | None = 1.0
    dropout: float = 0.1
    pooling: str = "cls_mean"
    head: str = "mlp"
    frozen: bool = False
    early_stopping: int | None = None
    evaluations_per_epoch: int = 1
    selection_fraction: float = 0.1
    precision: str = "fp32"
    max_length: int = 128
    max_train_examples: int | None = None
    max_scored_examples: int | None = None
    sample_seed: int = 0

    def __post_init__(self) -> None:
        wrong_type = [name for name, kind in _KINDS.items() if not _is(getattr(self, name), kind)]
        if wrong_type:
            given = ", ".join(f"evaluation.finetune.{n}={getattr(self, n)!r}" for n in wrong_type)
            kinds = ", ".join(f"{n} is a {_KINDS[n].replace('|', ' or ')}" for n in wrong_type)
            raise ValueError(f"{given} is not possible: {kinds}")
        rules = {
            "learning_rate": self.learning_rate > 0,
            "batch_size": self.batch_size >= 1,
            "num_epochs": self.num_epochs >= 1,
            "min_steps": self.min_steps >= 0,
            "max_steps": self.max_steps is None or self.max_steps >= 1,
            "schedule": self.schedule in SCHEDULES,
            "warmup_fraction": 0 <= self.warmup_fraction < 1,
            "weight_decay": self.weight_decay >= 0,
            "layerwise_decay": 0 < self.layerwise_decay <= 1,
            "adam_beta2": 0 <= self.adam_beta2 < 1,
            "adam_eps": self.adam_eps > 0,
            "gradient_clip": self.gradient_clip is None or self.gradient_clip > 0,
            "dropout": 0 <= self.dropout < 1,
            "pooling": self.pooling in POOLINGS,
            "head": self.head in HEADS,
            "early_stopping": self.early_stopping is None or self.early_stopping >= 1,
            "evaluations_per_epoch": self.evaluations_per_epoch >= 1,
            "selection_fraction": 0 < self.selection_fraction < 1,
            "precision": self.precision in PRECISIONS,
            "max_length": self.max_length >= 8,
            "max_train_examples": self.max_train_examples is None or self.max_train_examples >= 1,
            "max_scored_examples": self.max_scored_examples is None
            or self.max_scored_examples >= 1,
        }
        wrong = [name for name, good in rules.items() if not good]
        if wrong:
            given = ", ".join(f"evaluation.finetune.{n}={getattr(self, n)}" for n in wrong)
            raise ValueError(
                f"{given} is not possible. Counts and rates must be above 0, min_steps and "
                "weight_decay not below it, max_length at least 8, warmup_fraction and dropout in "
                "[0, 1), selection_fraction in (0, 1), layerwise_decay in (0, 1] (1 = none), "
                f"precision one of {', '.join(PRECISIONS)}, schedule one of "
                f"{', '.join(SCHEDULES)}, pooling one of {', '.join(POOLINGS)}, head one of "
                f"{', '.join(HEADS)}"
            )
        if self.frozen and self.layerwise_decay != 1:
            raise ValueError(
                f"evaluation.finetune.layerwise_decay={self.layerwise_decay} has no effect on a "
                "frozen encoder; type evaluation.finetune.layerwise_decay=1 or "
                "evaluation.finetune.frozen=false"
            )

    def changed(self, changes: Mapping[str, Any], *, where: str) -> FinetuneSettings:
        """These settings with some fields replaced.

        Raises:
            ValueError: an unknown field, or a value that cannot be; begins with `where`.
        """
        unknown = sorted(set(changes) - set(_KINDS))
        if unknown:
            raise ValueError(
                f"{where} names {', '.join(unknown)}, which no fit has; allowed: "
                f"{', '.join(_KINDS)}. For example {where}={{learning_rate: 1e-5}}"
            )
        try:
            return dataclasses.replace(self, **changes)
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from None


_KINDS = {
    field.name: str(field.type).replace(" ", "") for field in dataclasses.fields(FinetuneSettings)
}


def _is(value: Any, kind: str) -> bool:
    if value is None:
        return kind.endswith("|None")
    kind = kind.removesuffix("|None")
    if kind == "bool" or isinstance(value, bool):
        return kind == "bool" and isinstance(value, bool)
    if kind == "str":
        return isinstance(value, str)
    return isinstance(value, int) or (kind == "float" and isinstance(value, float))
