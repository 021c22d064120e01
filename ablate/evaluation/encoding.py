"""Texts -> rows of token ids laid end to end, tokenised once; any choice of rows -> a `Batch`.

Every fit and every scoring of a task shares one `Rows`, so a batch costs one gather of flat arrays.
Scoring takes rows sorted by length in batches of about equal token counts: backends work on rows
of one length at a time, and results go back to their own places.
Legend: n rows, T tokens of all rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ablate import rng
from ablate.evaluation.tasks import TaskData
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

    def longest(self) -> int:
        return max(int(rows.lengths.max()) for rows in (self.train, *self.scored.values()))


def encode_task(
    data: TaskData,
    tokenizer: Tokenizer,
    *,
    max_length: int,
    max_train_examples: int | None = None,
    sample_seed: int = 0,
) -> EncodedTask:
    """Sample the training examples if there is a cap, and tokenise everything once.

    The sample depends on `sample_seed` and the task's name alone: all runs of a study train on the
    same examples, as if the task had no others.
    """
    labels, texts = data.train.labels, data.train.texts
    if max_train_examples is not None and max_train_examples < len(labels):
        draw = rng.generator(sample_seed, "finetune_sample", data.spec.name)
        chosen = np.sort(draw.permutation(len(labels))[:max_train_examples])
        labels, texts = labels[chosen], [texts[i] for i in chosen]
    center, scale = 0.0, 1.0
    if data.spec.is_regression:
        center, scale = float(labels.mean()), float(labels.std()) or 1.0
        labels = (labels - center) / scale
    scored = {
        split: encode(tokenizer, examples.texts, max_length=max_length)
        for split, examples in data.scored.items()
    }
    train = encode(tokenizer, texts, max_length=max_length)
    spec = data.spec
    return EncodedTask(
        spec.name, spec.num_outputs, spec.is_regression, train, labels, scored, center, scale
    )
