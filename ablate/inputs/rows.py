"""Plan + store -> rows of ids with [CLS] and [SEP], before masking."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ablate.inputs.batches import ragged_arange
from ablate.inputs.formats import Plan
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
