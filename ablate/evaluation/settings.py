"""Hyper-parameters of a fit, checked; no torch is needed to know whether they can be used.

One declared set serves all tasks; what a task has of its own (`evaluation.per_task`) and the points
of a grid are this set with a few fields replaced.
"""

from __future__ import annotations

import dataclasses
import math
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
        wrong = {n: said for n, (good, said) in self._rules().items() if not good}
        if wrong:
            given = ", ".join(f"evaluation.finetune.{n}={getattr(self, n)}" for n in wrong)
            allowed = "; ".join(f"{name} must be {said}" for name, said in wrong.items())
            raise ValueError(f"{given} is not possible: {allowed}")
        if self.frozen and self.layerwise_decay != 1:
            raise ValueError(
                f"evaluation.finetune.layerwise_decay={self.layerwise_decay} has no effect on a "
                "frozen encoder; type evaluation.finetune.layerwise_decay=1 or "
                "evaluation.finetune.frozen=false"
            )

    def _rules(self) -> dict[str, tuple[bool, str]]:
        """Name -> whether its value is possible, and which are."""

        def number(name: str, low: float, high: float = math.inf, *, above: bool = False) -> None:
            value = getattr(self, name)
            limits = f"{'above' if above else 'at least'} {low:g}"
            limits += f" and below {high:g}" if high < math.inf else " and finite"
            good = value is None or ((value > low if above else value >= low) and value < high)
            found[name] = good, limits

        found: dict[str, tuple[bool, str]] = {}
        for name in ("batch_size", "num_epochs", "max_steps", "early_stopping"):
            number(name, 1)
        for name in ("evaluations_per_epoch", "max_train_examples", "max_scored_examples"):
            number(name, 1)
        for name in ("learning_rate", "adam_eps", "gradient_clip"):
            number(name, 0, above=True)
        for name in ("min_steps", "weight_decay"):
            number(name, 0)
        for name in ("warmup_fraction", "adam_beta2", "dropout"):
            number(name, 0, 1)
        number("selection_fraction", 0, 1, above=True)
        number("max_length", 8)
        found["layerwise_decay"] = 0 < self.layerwise_decay <= 1, "above 0 and at most 1 (1 = none)"
        for name, words in (
            ("schedule", SCHEDULES), ("pooling", POOLINGS), ("head", HEADS),
            ("precision", PRECISIONS),
        ):  # fmt: skip
            found[name] = getattr(self, name) in words, f"one of {', '.join(words)}"
        return found

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
