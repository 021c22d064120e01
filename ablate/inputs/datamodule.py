"""Store + settings -> one loader item per optimizer step, and the fixed validation batches.

Step k's item is a function of (seed, k): the epochs' plans, end to end, are one sequence of rows, and
step k takes the k-th run of `global_batch_size` rows, across an epoch's edge if need be, so no row is
dropped. The number of steps follows from the budget before training starts (row lengths are known
from the plan). The loader keeps its place in its `state_dict`; resuming at k gives item k.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytorch_lightning as pl
from torch.utils.data import DataLoader, Dataset

from ablate.inputs.batches import Batch
from ablate.inputs.formats import Plan, plan_epoch
from ablate.inputs.masking import MaskCounts, MaskingPolicy
from ablate.inputs.rows import MaskedRows
from ablate.tokens.store import TokenStore
from ablate.tokens.tokenizer import Tokenizer

CLOCKS = ("tokens", "steps")


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
        self.plan = functools.lru_cache(maxsize=2)(plan_of_epoch)
        self.clock, self.amount, self.global_batch_size = clock, amount, global_batch_size
        self.epoch_starts = [0]  # first row of each epoch in the sequence
        lengths: list[np.ndarray] = []
        total = 0
        while (
            (total < amount)
            if clock == "tokens"
            else (self.epoch_starts[-1] < amount * global_batch_size)
        ):
            plan = self.plan(len(lengths))
            lengths.append(plan.row_lengths)
            total += int(plan.row_lengths.sum())
            self.epoch_starts.append(self.epoch_starts[-1] + plan.num_rows)
        if clock == "tokens" and lengths and self.epoch_starts[-1] % global_batch_size:
            plan = self.plan(len(lengths))  # the last step may reach into one more epoch
            lengths.append(plan.row_lengths)
            self.epoch_starts.append(self.epoch_starts[-1] + plan.num_rows)
        running = np.cumsum(np.concatenate([[0], *lengths]))
        steps = (len(running) - 1) // global_batch_size
        after = running[: steps * global_batch_size + 1 : global_batch_size]
        if clock == "tokens":
            steps = int(np.searchsorted(after, amount))
        else:
            steps = amount
        self.tokens_after = after[: steps + 1]  # (K + 1,) tokens spent before step k

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
        """Share of the budget spent when `step` (from 0) ends."""
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


class StepDataset(Dataset):
    """`dataset[k]` is step k's item for this rank."""

    def __init__(
        self, steps: StepSequence, rows: MaskedRows, *, micro_batch_size: int, rank: int, world: int
    ) -> None:
        self.steps, self.source = steps, rows
        self.micro_batch_size, self.rank, self.world = micro_batch_size, rank, world

    def __len__(self) -> int:
        return len(self.steps)

    def __getitem__(self, step: int) -> StepItem:
        micro_batches, counts = [], MaskCounts()
        for epoch, rows in self.steps.rows(step):
            mine = rows[(rows + self.steps.epoch_starts[epoch]) % self.world == self.rank]
            for begin in range(0, len(mine), self.micro_batch_size):
                chunk = mine[begin : begin + self.micro_batch_size]
                batch, found = self.source.batch(self.steps.plan(epoch), chunk, epoch=epoch)
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


class StepLoader:
    """Sized, stateful, one pass: yields the items from `position` on."""

    def __init__(self, dataset: StepDataset, *, num_workers: int) -> None:
        self.dataset, self.num_workers, self.position = dataset, num_workers, 0

    def __len__(self) -> int:
        return len(self.dataset)

    def __iter__(self) -> Iterator[StepItem]:
        sampler = range(self.position, len(self.dataset))
        items = DataLoader(
            self.dataset, batch_size=None, sampler=sampler, num_workers=self.num_workers
        )
        for item in items:
            self.position = item.step + 1
            yield item

    def state_dict(self) -> dict[str, int]:
        return {"position": self.position}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.position = state["position"]


class PretrainingData(pl.LightningDataModule):
    """Training steps of an arm, and validation that is the same for every arm.

    Validation rows are `single_document` rows of the held-out documents under 15% all-[MASK], once
    by token and once by whole word, drawn from `validation_seed` (the corpus's) and not the run's.

    Raises:
        ValueError: a setting that the data cannot serve (see `formats`, `masking`, `rows`).
    """

    def __init__(
        self,
        store: TokenStore,
        tokenizer: Tokenizer,
        policy: MaskingPolicy,
        *,
        input_format: str,
        max_length: int,
        short_seq_prob: float,
        validation_threshold: int,
        validation_seed: int,
        validation_rows: int,
        clock: str,
        amount: int,
        global_batch_size: int,
        micro_batch_size: int,
        num_workers: int,
        seed: int,
        replicate_data: int = 0,
        replicate_masks: int = 0,
        rank: int = 0,
        world: int = 1,
    ) -> None:
        super().__init__()
        self.store, self.tokenizer, self.max_length = store, tokenizer, max_length
        self.micro_batch_size, self.num_workers = micro_batch_size, num_workers
        self.rank, self.world = rank, world
        training, held_out = store.split(validation_threshold)

        def plan_of_epoch(epoch: int) -> Plan:
            return plan_epoch(
                store,
                training,
                input_format=input_format,
                max_length=max_length,
                seed=seed,
                epoch=epoch,
                replicate=replicate_data,
                short_seq_prob=short_seq_prob,
            )

        self.steps = StepSequence(
            plan_of_epoch, clock=clock, amount=amount, global_batch_size=global_batch_size
        )
        self.rows = MaskedRows(
            store, tokenizer, policy, max_length=max_length, seed=seed, replicate=replicate_masks
        )
        self.validation_plan = plan_epoch(
            store,
            held_out,
            input_format="single_document",
            max_length=max_length,
            seed=validation_seed,
            epoch=0,
        )
        self.validation_rows = min(validation_rows, self.validation_plan.num_rows)
        self.validation_seed = validation_seed
        tokens = np.diff(store.document_starts)[held_out].sum()
        self.validation_bytes_per_token = float(store.document_bytes[held_out].sum() / tokens)
        selections = ("token", "whole_word") if tokenizer.knows_words else ("token",)
        self.validation_names = tuple(f"{selection}_mask" for selection in selections)
        self._selections = selections

    @functools.cached_property
    def validation_batches(self) -> list[list[Batch]]:
        """One list of batches for each of `validation_names`; drawn once, kept."""
        found = []
        for selection in self._selections:
            rows = MaskedRows(
                self.store,
                self.tokenizer,
                MaskingPolicy(selection, 0.15, 1.0, 0.0),
                max_length=self.max_length,
                seed=self.validation_seed,
                stream="validation",
            )
            size = max(self.micro_batch_size, 4096 // self.max_length)
            chunks = [
                np.arange(begin, min(begin + size, self.validation_rows))
                for begin in range(0, self.validation_rows, size)
            ]
            found.append([rows.batch(self.validation_plan, c, epoch=0)[0] for c in chunks])
        return found

    def train_dataloader(self) -> StepLoader:
        dataset = StepDataset(
            self.steps,
            self.rows,
            micro_batch_size=self.micro_batch_size,
            rank=self.rank,
            world=self.world,
        )
        return StepLoader(dataset, num_workers=self.num_workers)

    def val_dataloader(self) -> list[DataLoader]:
        return [DataLoader(b, batch_size=None) for b in self.validation_batches]  # type: ignore[arg-type]

    def statistics(self) -> dict[str, Any]:
        """Derived quantities for the record: the first epoch's rows, steps and epochs of budget."""
        first = self.steps.plan(0).statistics
        return {**first, "total_steps": len(self.steps), "epochs": self.steps.num_epochs}
