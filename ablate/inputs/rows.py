"""Plan + store -> rows of ids with [CLS] and [SEP], before masking.

A row is one attention sequence or, where the plan keeps attention inside a slice, as many as it has
slices: `sequence_lengths` is what attention and positions are counted from, `lengths` what a row's
random numbers are. Legend: R rows, Q sequences, N tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ablate.inputs.compiled import compiled
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
    lengths = plan.row_lengths[rows]
    special = np.zeros(tokenizer.vocab_size, dtype=bool)
    special[tokenizer.special_ids] = True
    num_slices = int((plan.row_starts[rows + 1] - plan.row_starts[rows]).sum())
    input_ids, types, eligible, word_starts, spans = compiled(fill)(
        np.asarray(store.tokens), np.asarray(store.word_starts), special, rows,
        plan.row_starts, plan.slice_starts, plan.slice_stops, plan.cls_per_slice,
        plan.pair_labels is not None, tokenizer.cls_token_id, tokenizer.sep_token_id,
        int(lengths.sum()), num_slices,
    )  # fmt: skip
    return AssembledRows(
        input_ids, types, eligible, word_starts, lengths, spans if plan.block else lengths
    )


def fill(  # type: ignore[no-untyped-def]
    tokens, starts, special, rows, row_starts, slice_starts, slice_stops, cls_per_slice, pairs,
    cls_token_id, sep_token_id, total, num_slices,
):  # fmt: skip
    """The loop of `assemble`; an unknown piece in the text is no token to predict."""
    input_ids = np.empty(total, dtype=np.int64)
    types = np.zeros(total, dtype=np.int64)
    eligible = np.zeros(total, dtype=np.bool_)
    word_starts = np.zeros(total, dtype=np.bool_)
    spans = np.empty(num_slices, dtype=np.int64)
    at = 0
    done = 0
    for row in rows:
        for s in range(row_starts[row], row_starts[row + 1]):
            begin = at
            if s == row_starts[row] or cls_per_slice:
                input_ids[at] = cls_token_id
                at += 1
            for source in range(slice_starts[s], slice_stops[s]):
                token = tokens[source]
                input_ids[at] = token
                eligible[at] = not special[token]
                word_starts[at] = starts[source]
                at += 1
            input_ids[at] = sep_token_id
            at += 1
            if pairs and s > row_starts[row]:
                types[begin:at] = 1
            spans[done] = at - begin
            done += 1
    return input_ids, types, eligible, word_starts, spans
