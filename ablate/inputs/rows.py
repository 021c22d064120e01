"""Plan + store + masking policy -> masked `Batch`es.

A row's ids, masks and replacements are a function of (plan, seed, epoch, row number) alone, so the
same row comes out of any batch, worker or device.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ablate import rng
from ablate.inputs.batches import Batch, collate, ragged_arange
from ablate.inputs.formats import Plan
from ablate.inputs.masking import (
    CANDIDATE,
    FATE,
    SELECTION,
    MaskCounts,
    MaskingPolicy,
    corrupt,
    select,
)
from ablate.tokens.store import TokenStore
from ablate.tokens.tokenizer import Tokenizer


@dataclass
class AssembledRows:
    """Rows end to end before masking. Legend as in `batches`: R rows, N tokens."""

    input_ids: np.ndarray  # (N,) int64
    token_type_ids: np.ndarray  # (N,)
    eligible: np.ndarray  # (N,) bool, False at [CLS] and [SEP]
    word_starts: np.ndarray  # (N,) bool
    lengths: np.ndarray  # (R,)


def assemble(
    store: TokenStore, tokenizer: Tokenizer, plan: Plan, rows: np.ndarray
) -> AssembledRows:
    """Gather the slices of `rows` from the store and set [CLS] and [SEP] around them."""
    rows = np.asarray(rows, dtype=np.int64)
    per_row = plan.row_starts[rows + 1] - plan.row_starts[rows]
    slices = np.repeat(plan.row_starts[rows], per_row) + ragged_arange(per_row)
    sizes = plan.slice_stops[slices] - plan.slice_starts[slices]
    lengths = plan.row_lengths[rows]
    heads = np.concatenate([[0], np.cumsum(lengths)])[:-1]  # where each [CLS] stands
    # a slice begins after the [CLS] of its row and the slices and [SEP]s before it
    row_of_slice = np.repeat(np.arange(len(rows)), per_row)
    targets = np.concatenate([[0], np.cumsum(sizes + 1)])[:-1] + 1 + row_of_slice
    source = np.repeat(plan.slice_starts[slices], sizes) + ragged_arange(sizes)
    destination = np.repeat(targets, sizes) + ragged_arange(sizes)
    total = int(lengths.sum())
    input_ids = np.full(total, tokenizer.sep_token_id, dtype=np.int64)
    input_ids[heads] = tokenizer.cls_token_id
    input_ids[destination] = store.tokens[source]
    eligible = np.zeros(total, dtype=bool)
    eligible[destination] = True
    word_starts = np.zeros(total, dtype=bool)
    word_starts[destination] = store.word_starts[source]
    types = np.zeros(total, dtype=np.int64)
    if plan.pair_labels is not None:
        second = np.flatnonzero(ragged_arange(per_row) == 1)
        types[np.repeat(targets[second], sizes[second] + 1) + ragged_arange(sizes[second] + 1)] = 1
    # an unknown piece in the text is no token to predict
    eligible &= ~np.isin(input_ids, tokenizer.special_ids)
    return AssembledRows(input_ids, types, eligible, word_starts, lengths)


def check_words(selection: str, tokenizer: Tokenizer) -> None:
    """Refuse whole-word masking where the tokenizer cannot tell words apart.

    Raises:
        ValueError: naming the tokenizer's file and what to type.
    """
    if selection == "whole_word" and not tokenizer.knows_words:
        raise ValueError(
            "masking.selection=whole_word needs a tokenizer with a pre-tokenizer that tells "
            f"words apart, {tokenizer.file} has none; type masking.selection=token"
        )


class MaskedRows:
    """Draws masked batches; `stream_seed` and the names after it address the masking stream."""

    def __init__(
        self,
        store: TokenStore,
        tokenizer: Tokenizer,
        policy: MaskingPolicy,
        *,
        max_length: int,
        seed: int,
        replicate: int = 0,
        stream: str = "masking",
    ) -> None:
        check_words(policy.selection, tokenizer)
        self.store, self.tokenizer, self.policy = store, tokenizer, policy
        self.max_length = max_length
        self.key = rng.key(seed, stream, replicate)

    def batch(self, plan: Plan, rows: np.ndarray, *, epoch: int) -> tuple[Batch, MaskCounts]:
        """The rows numbered `rows` of the epoch's plan, masked."""
        flat = assemble(self.store, self.tokenizer, plan, rows)
        cell = np.repeat(np.arange(len(rows)) * self.max_length, flat.lengths)
        cell += ragged_arange(flat.lengths)

        def draw(substream: int) -> np.ndarray:
            return rng.uniforms(
                self.key, rows, self.max_length, epoch=epoch, substream=substream
            ).reshape(-1)

        selected = select(self.policy, draw(SELECTION)[cell], flat.eligible, flat.word_starts)
        positions = np.flatnonzero(selected)
        chosen = cell[positions]
        ids, counts = corrupt(
            self.policy,
            flat.input_ids,
            positions,
            draw(FATE)[chosen],
            draw(CANDIDATE)[chosen],
            mask_token_id=self.tokenizer.mask_token_id,
            ordinary_ids=self.tokenizer.ordinary_ids,
        )
        row_of_cell = np.repeat(np.arange(len(rows)), flat.lengths)
        counts.eligible = int(flat.eligible.sum())
        counts.rows = len(rows)
        counts.rows_without_prediction = len(rows) - len(np.unique(row_of_cell[positions]))
        batch = collate(
            ids,
            flat.lengths,
            token_type_ids=flat.token_type_ids,
            predict_positions=positions,
            labels=flat.input_ids[positions],
            pair_labels=None if plan.pair_labels is None else plan.pair_labels[np.asarray(rows)],
        )
        return batch, counts
