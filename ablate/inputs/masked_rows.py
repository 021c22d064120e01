"""Plan + store + masking policy -> masked `Batch`es.

A row's ids, masks and replacements are a function of (plan, seed, epoch, row number) alone, so the
same row comes out of any batch, worker or device.
"""

from __future__ import annotations

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
from ablate.inputs.rows import assemble
from ablate.tokens.store import TokenStore
from ablate.tokens.tokenizer import Tokenizer


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
