"""Budget + plans -> one loader item per optimizer step.

Step k's item is a function of (seed, k): the epochs' plans, end to end, are one sequence of rows,
and step k takes the k-th run of `global_batch_size` rows, across an epoch's edge if need be, so no
row is dropped. The number of steps follows from the budget before training starts (the plan knows
row lengths). The loader keeps its place in its `state_dict`; resuming at k gives item k.
"""

from __future__ import annotations

import functools
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from torch.utils.data import DataLoader, Dataset

from ablate.inputs.batches import Batch
from ablate.inputs.formats import Plan
from ablate.inputs.mask_counts import MaskCounts


@dataclass
class StepItem:
    """All that one optimizer step needs on this rank.

    `num_rows` and `tokens` count over all ranks: rows of this step, tokens spent when it ends
    ([CLS] and [SEP] included). `progress` in (0, 1] is the share of the budget spent by then.
    """

    step: int
    micro_batches: list[Batch]
    num_rows: int
    tokens: int
    progress: float
    counts: MaskCounts


class StepSequence:
    """The rows of all epochs as one sequence, cut into steps until the budget is spent.

    Args:
        plan_of_epoch: epoch -> plan; called once for each epoch the budget reaches.
        clock, amount: `tokens` stops at the first step that reaches `amount`; 0 = no step at all.
    """

    def __init__(
        self,
        plan_of_epoch: Callable[[int], Plan],
        *,
        clock: str,
        amount: int,
        global_batch_size: int,
    ) -> None:
        self._plan_of_epoch = plan_of_epoch
        self.plan = functools.lru_cache(maxsize=2)(plan_of_epoch)
        self.clock, self.amount, self.global_batch_size = clock, amount, global_batch_size
        self.epoch_starts = [0]  # first row of each epoch in the sequence
        lengths: list[np.ndarray] = []
        tokens = 0
        while self._short_of(tokens):
            plan = self.plan(len(lengths))
            lengths.append(plan.row_lengths)
            tokens += int(plan.row_lengths.sum())
            self.epoch_starts.append(self.epoch_starts[-1] + plan.num_rows)
        after = np.cumsum(np.concatenate([[0], *lengths]))[::global_batch_size]
        steps = int(np.searchsorted(after, amount)) if clock == "tokens" else amount
        self.tokens_after = after[: steps + 1]  # (K + 1,) tokens spent before step k

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "plan": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.plan = functools.lru_cache(maxsize=2)(self._plan_of_epoch)

    def _short_of(self, tokens: int) -> bool:
        """Whether the epochs planned so far cannot fill the budget with whole steps."""
        if self.clock == "steps":
            return self.epoch_starts[-1] < self.amount * self.global_batch_size
        margin = self.global_batch_size * self.plan(0).max_length
        return self.amount > 0 and tokens < self.amount + margin

    def __len__(self) -> int:
        return len(self.tokens_after) - 1

    @property
    def num_epochs(self) -> float:
        """Passes over the plan that the budget buys."""
        rows = len(self) * self.global_batch_size
        full = int(np.searchsorted(self.epoch_starts, rows, side="right")) - 1
        if full + 1 >= len(self.epoch_starts):
            return float(full)
        inside = self.epoch_starts[full + 1] - self.epoch_starts[full]
        return full + (rows - self.epoch_starts[full]) / inside

    def progress(self, step: int) -> float:
        """Share of the budget spent when `step` (from 0) ends; -1 = before the first."""
        spent = step + 1 if self.clock == "steps" else int(self.tokens_after[step + 1])
        return min(1.0, spent / self.amount)

    def rows(self, step: int) -> list[tuple[int, np.ndarray]]:
        """[(epoch, row numbers in its plan)] of a step, in order."""
        begin = step * self.global_batch_size
        numbers = np.arange(begin, begin + self.global_batch_size)
        epochs = np.searchsorted(self.epoch_starts, numbers, side="right") - 1
        return [
            (int(e), numbers[epochs == e] - self.epoch_starts[int(e)]) for e in np.unique(epochs)
        ]


class RowSource(Protocol):
    """Rows of a plan -> a batch with labels, and what was done: `MaskedRows`, `NextTokenRows`."""

    def batch(
        self, plan: Plan, rows: np.ndarray, *, epoch: int, progress: float = 0.0
    ) -> tuple[Batch, MaskCounts]: ...


class StepDataset(Dataset):
    """`dataset[k]` is step k's item for this rank."""

    def __init__(
        self, steps: StepSequence, rows: RowSource, *, micro_batch_size: int, rank: int, world: int
    ) -> None:
        self.steps, self.source = steps, rows
        self.micro_batch_size, self.rank, self.world = micro_batch_size, rank, world

    def __len__(self) -> int:
        return len(self.steps)

    def __getitem__(self, step: int) -> StepItem:
        micro_batches, counts = [], MaskCounts()
        due = self.steps.progress(step - 1)  # schedules of the data follow what is spent before
        for epoch, rows in self.steps.rows(step):
            mine = rows[(rows + self.steps.epoch_starts[epoch]) % self.world == self.rank]
            for begin in range(0, len(mine), self.micro_batch_size):
                chunk = mine[begin : begin + self.micro_batch_size]
                batch, found = self.source.batch(
                    self.steps.plan(epoch), chunk, epoch=epoch, progress=due
                )
                micro_batches.append(batch)
                counts += found
        return StepItem(
            step=step,
            micro_batches=micro_batches,
            num_rows=self.steps.global_batch_size,
            tokens=int(self.steps.tokens_after[step + 1]),
            progress=self.steps.progress(step),
            counts=counts,
        )


def _outlive_a_signal(worker: int) -> None:
    """A batch system sends SIGTERM to all processes at once: this one still serves the step that
    the run finishes, and ends with it, or at a second signal."""

    def once(signum: int, frame: Any) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)

    signal.signal(signal.SIGTERM, once)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


class StepLoader:
    """Sized, stateful, one pass: yields the items from `position` on."""

    def __init__(self, dataset: StepDataset, *, num_workers: int) -> None:
        self.dataset, self.num_workers, self.position = dataset, num_workers, 0

    def __len__(self) -> int:
        return len(self.dataset)

    def __iter__(self) -> Iterator[StepItem]:
        sampler = range(self.position, len(self.dataset))
        items = DataLoader(
            self.dataset,
            batch_size=None,
            sampler=sampler,
            num_workers=self.num_workers,
            worker_init_fn=_outlive_a_signal,
        )
        for item in items:
            self.position = item.step + 1
            yield item

    def state_dict(self) -> dict[str, int]:
        return {"position": self.position}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.position = state["position"]
