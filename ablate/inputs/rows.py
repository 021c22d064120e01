"""Plan + store -> rows of ids with [CLS] and [SEP], before masking.

A row is one attention sequence or, where the plan keeps attention inside a slice, as many as it has
slices: `sequence_lengths` is what attention and positions are counted from, `lengths` what a row's
random numbers are. Legend: R rows, Q sequences, N tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ablate.inputs.batches import ragged_arange
from ablate.inputs.plan import Plan
from ablate.tokens.store import TokenStore
from ablate.tokens.tokenizer import Tokenizer


@dataclass
class AssembledRows:
    """Rows end to end before masking."""

    input_ids: np.ndarray  # (N,) int64
    token_type_ids: np.ndarray  # (N,)
    eligible: np.ndarray  # (N,) bool, False at [CLS] and [SEP]
    word_starts: np.ndarray  # (N,) bool
    lengths: np.ndarray  # (R,)
    sequence_lengths: np.ndarray  # (Q,), Q = R unless attention stays inside a slice


def assemble(
    store: TokenStore, tokenizer: Tokenizer, plan: Plan, rows: np.ndarray
) -> AssembledRows:
    """Gather the slices of `rows` from the store and set [CLS] and [SEP] around them."""
    rows = np.asarray(rows, dtype=np.int64)
    per_row = plan.row_starts[rows + 1] - plan.row_starts[rows]
    place = ragged_arange(per_row)  # of a slice in its row
    slices = np.repeat(plan.row_starts[rows], per_row) + place
    sizes = plan.slice_stops[slices] - plan.slice_starts[slices]
    has_cls = (place == 0) | plan.cls_per_slice
    spans = has_cls + sizes + 1  # [CLS], slice, [SEP]
    begins = np.concatenate([[0], np.cumsum(spans)])
    targets = begins[:-1] + has_cls
    source = np.repeat(plan.slice_starts[slices], sizes) + ragged_arange(sizes)
    destination = np.repeat(targets, sizes) + ragged_arange(sizes)
    total = int(begins[-1])
    input_ids = np.full(total, tokenizer.sep_token_id, dtype=np.int64)
    input_ids[begins[:-1][has_cls]] = tokenizer.cls_token_id
    input_ids[destination] = store.tokens[source]
    eligible = np.zeros(total, dtype=bool)
    eligible[destination] = True
    word_starts = np.zeros(total, dtype=bool)
    word_starts[destination] = store.word_starts[source]
    types = np.zeros(total, dtype=np.int64)
    if plan.pair_labels is not None:
        types = np.repeat(place, spans)
    # an unknown piece in the text is no token to predict
    eligible &= ~np.isin(input_ids, tokenizer.special_ids)
    lengths = plan.row_lengths[rows]
    return AssembledRows(
        input_ids, types, eligible, word_starts, lengths, spans if plan.block else lengths
    )
