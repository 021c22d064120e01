"""Part of the training examples, kept from training -> the step whose weights are used.

The held-out examples come from *train*, never from a split that is reported: best-of-n on the
reported one raises a score by about the noise of that split (Dodge et al. 2020).
Which examples they are follows from a named stream, so that arms and the points of a grid share
them. Of two evaluations with one score the first is kept.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from torch import Tensor, nn

from ablate import rng


def hold_out(
    num_examples: int,
    fraction: float,
    *,
    sample_seed: int,
    task: str,
    finetune_seed: int,
    groups: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Row numbers (trained on, held out), both sorted; each at least one row.

    `groups` (num_examples,) numbers copies of a text alike, from 0: a text is held out whole, and
    texts until `fraction` of the examples are.

    Raises:
        ValueError: a single text, which cannot be both.
    """
    if num_examples < 2 or (groups is not None and not groups.any()):
        raise ValueError(
            f"task {task!r} has {num_examples} training examples"
            f"{' of one text' if num_examples > 1 else ''} and some are to be held out; "
            "type evaluation.finetune.early_stopping=null and leave evaluation.grid out"
        )
    number = min(max(round(fraction * num_examples), 1), num_examples - 1)
    draw = rng.generator(sample_seed, "selection", task, finetune_seed)
    if groups is None:
        groups = np.arange(num_examples)
    order = draw.permutation(int(groups.max()) + 1)
    held = np.cumsum(np.bincount(groups)[order])
    chosen = order[: min(int(np.searchsorted(held, number)) + 1, len(order) - 1)]
    inside = np.isin(groups, chosen)
    return np.flatnonzero(~inside), np.flatnonzero(inside)


class BestWeights:
    """Called between the steps of a fit; keeps a copy of the weights of the best score."""

    def __init__(
        self,
        modules: Sequence[nn.Module],
        score: Callable[[], float],
        *,
        every: int,
        patience: int,
    ) -> None:
        self.every = max(every, 1)
        self.history: list[tuple[int, float]] = []  # (steps, score on the held-out examples)
        self._modules, self._score, self._patience = list(modules), score, patience
        self._best: list[dict[str, Tensor]] = []
        self.best_step, self.best_score = 0, float("-inf")

    def __call__(self, step: int) -> bool:
        """Evaluate; True once `patience` evaluations in a row were no better than the best."""
        score = self._score()
        if not math.isfinite(score):  # diverged: never better than anything
            score = float("-inf")
        self.history.append((step, score))
        if score > self.best_score or not self._best:
            self.best_step, self.best_score = step, score
            self._best = [
                {name: value.detach().clone() for name, value in module.state_dict().items()}
                for module in self._modules
            ]
        since = [s for s, _ in self.history if s > self.best_step]
        return len(since) >= self._patience

    def restore(self) -> None:
        """Put the best weights back into the modules."""
        for module, state in zip(self._modules, self._best, strict=True):
            module.load_state_dict(state)

    def facts(self) -> dict[str, Any]:
        """For the record: where the best was, and all that it was chosen from."""
        return {
            "best_step": self.best_step,
            "best_score": self.best_score,
            "evaluations": [[step, score] for step, score in self.history],
        }
