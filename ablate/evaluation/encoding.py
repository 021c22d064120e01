"""Texts -> rows of token ids laid end to end, tokenised once; any choice of rows -> a `Batch`.

Every fit and every scoring of a task shares one `Rows`, so a batch costs one gather of flat arrays.
Scoring takes rows sorted by length in batches of about equal token counts: backends work on rows
of one length at a time, and results go back to their own places.
Legend: n rows, T tokens of all rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from ablate import rng
from ablate.evaluation.tasks import TaskData
from ablate.evaluation.texts import example_numbers
from ablate.inputs.batches import Batch, collate, from_segments, ragged_arange

if TYPE_CHECKING:
    from ablate.tokens.tokenizer import Tokenizer


@dataclass(frozen=True)
class Rows:
    """[CLS] A [SEP] (B [SEP]) for n examples; row i is `input_ids[starts[i]:starts[i + 1]]`."""

    input_ids: np.ndarray  # (T,) int64
    token_type_ids: np.ndarray  # (T,) int64
    starts: np.ndarray  # (n + 1,) int64
    truncated_tokens: int

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def lengths(self) -> np.ndarray:
        return np.diff(self.starts)

    def batch(self, which: np.ndarray) -> Batch:
        """The rows numbered `which` (R,), in that order."""
        lengths = self.starts[which + 1] - self.starts[which]
        places = np.repeat(self.starts[which], lengths) + ragged_arange(lengths)
        return collate(self.input_ids[places], lengths, token_type_ids=self.token_type_ids[places])


def encode(tokenizer: Tokenizer, texts: Sequence[tuple[str, ...]], *, max_length: int) -> Rows:
    """Tokenise texts of one or two sides; tokens beyond `max_length` are cut and counted."""
    sides = [tokenizer.encode_batch(list(side)) for side in zip(*texts, strict=True)]
    batch, cut = from_segments(
        [[side.ids for side in row] for row in zip(*sides, strict=True)],
        cls_token_id=tokenizer.cls_token_id,
        sep_token_id=tokenizer.sep_token_id,
        max_length=max_length,
    )
    return Rows(
        batch.input_ids.numpy(),
        batch.token_type_ids.numpy(),
        batch.cu_seqlens.numpy().astype(np.int64),
        cut,
    )


def batches_by_tokens(lengths: np.ndarray, *, tokens_per_batch: int) -> Iterator[np.ndarray]:
    """Row numbers sorted by length, in groups that begin a new one every `tokens_per_batch`."""
    order = np.argsort(lengths, kind="stable")
    group = (np.cumsum(lengths[order]) - 1) // tokens_per_batch
    yield from np.split(order, np.flatnonzero(np.diff(group)) + 1)


@dataclass(frozen=True)
class EncodedTask:
    """A task's rows and targets; regression targets are standardised by the training labels."""

    name: str
    num_outputs: int
    is_regression: bool
    train: Rows
    targets: np.ndarray  # (n,) int64 classes, or float64 with mean 0 and s.d. 1
    scored: dict[str, Rows]
    center: float
    scale: float
    metric: str = "accuracy"  # the task's first one; judges evaluations on held-out examples
    scored_examples: dict[str, np.ndarray] = field(default_factory=dict)  # their numbers, ascending
    groups: np.ndarray | None = None  # (n,) of the training rows: copies of a text share a number

    def longest(self) -> int:
        return max(int(rows.lengths.max()) for rows in (self.train, *self.scored.values()))


def encode_task(
    data: TaskData,
    tokenizer: Tokenizer,
    *,
    max_length: int,
    max_train_examples: int | None = None,
    max_scored_examples: int | None = None,
    sample_seed: int = 0,
) -> EncodedTask:
    """Sample the examples where there is a cap, and tokenise everything once.

    The samples depend on `sample_seed` and the names of task and split alone: all runs of a study
    train on and are scored on the same examples, as if the task had no others. Splits that are only
    predicted are whole, or left out where there is a cap: a part of a test set serves nobody.
    """
    name = data.spec.name
    chosen = sample(len(data.train), max_train_examples, (sample_seed, "finetune_sample", name))
    labels, texts = data.train.labels[chosen], [data.train.texts[i] for i in chosen]
    center, scale = 0.0, 1.0
    if data.spec.is_regression:
        center, scale = float(labels.mean()), float(labels.std()) or 1.0
        labels = (labels - center) / scale
    numbers = {
        split: sample(
            len(examples), max_scored_examples, (sample_seed, "scored_sample", name, split)
        )
        for split, examples in data.evaluated.items()
        if max_scored_examples is None or split in data.scored or split in data.spec.metrics_of
    }
    scored = {
        split: encode(
            tokenizer,
            [data.evaluated[split].texts[i] for i in which],
            max_length=max_length,
        )
        for split, which in numbers.items()
    }
    train = encode(tokenizer, texts, max_length=max_length)
    return EncodedTask(
        name, data.spec.num_outputs, data.spec.is_regression, train, labels, scored, center, scale,
        data.spec.metrics[0], numbers, example_numbers(texts),
    )  # fmt: skip


def sample(number: int, cap: int | None, stream: tuple) -> np.ndarray:
    """Numbers of `cap` of `number` examples in ascending order; all of them without a cap."""
    if cap is None or cap >= number:
        return np.arange(number)
    return np.sort(rng.generator(*stream).permutation(number)[:cap])
