"""Plan + store + masking policy -> masked `Batch`es.

A row's ids, masks and replacements are a function of (plan, seed, epoch, the row's id) alone, so
the same row comes out of any batch, worker or device.
"""

from __future__ import annotations

import numpy as np

from ablate import rng
from ablate.inputs import units
from ablate.inputs.batches import Batch, collate
from ablate.inputs.candidates import Candidates
from ablate.inputs.draws import further, two_uniforms
from ablate.inputs.formats import Plan
from ablate.inputs.mask_counts import MaskCounts, count_predicted, count_selected
from ablate.inputs.masking import MaskingPolicy, corrupt
from ablate.inputs.pmi import NgramList
from ablate.inputs.rows import AssembledRows, assemble
from ablate.inputs.selection import select
from ablate.tokens.store import TokenStore
from ablate.tokens.tokenizer import Tokenizer

CANDIDATE, UNITS = 1, 2  # numbers of `draws.further`


def check_words(selection: str, tokenizer: Tokenizer) -> None:
    """Refuse units of words where the tokenizer cannot tell words apart.

    Raises:
        ValueError: naming the tokenizer's file and what to type.
    """
    if selection != "token" and not tokenizer.knows_words:
        raise ValueError(
            f"masking.selection={selection} needs a tokenizer with a pre-tokenizer that tells "
            f"words apart, {tokenizer.file} has none; type masking.selection=token"
        )


class MaskedRows:
    """Draws masked batches.

    Args:
        policy: what to select, how much, what stands there.
        max_length: longest row, which addresses the random numbers (see `rng.uniforms`).
        seed, stream, replicate: the masking stream.
        candidates: for random replacements; None = uniform over the tokenizer's ordinary ids.
        ngrams: the collocation list that `pmi` needs.
    """

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
        candidates: Candidates | None = None,
        ngrams: NgramList | None = None,
    ) -> None:
        check_words(policy.selection, tokenizer)
        self.store, self.tokenizer, self.policy = store, tokenizer, policy
        self.max_length, self.ngrams = max_length, ngrams
        self.candidates = candidates or Candidates(tokenizer.ordinary_ids)
        self.key = rng.key(seed, stream, replicate)

    def batch(
        self, plan: Plan, rows: np.ndarray, *, epoch: int, progress: float = 0.0
    ) -> tuple[Batch, MaskCounts]:
        """The rows numbered `rows` of the epoch's plan, masked at the rate due at `progress`."""
        policy = self.policy
        flat = assemble(self.store, self.tokenizer, plan, rows)
        row_starts = np.concatenate([[0], np.cumsum(flat.lengths)])
        shown = epoch if policy.copies is None else epoch % policy.copies
        uniforms, fates = two_uniforms(
            self.key, plan.row_ids[rows], flat.lengths, width=self.max_length, epoch=shown
        )
        words = units.word_begins(flat.word_starts, flat.eligible)
        heads = self._heads(flat, words, uniforms, fates)
        own = row_starts[:-1]  # no text stands at a row's [CLS]: its numbers are the row's own
        chosen = [heads, uniforms, row_starts, np.stack([uniforms[own], fates[own]])]
        selected = select(policy, policy.rate_at(progress), *chosen)
        positions = np.flatnonzero(selected)
        fated = heads[positions] if policy.corruption_unit == "unit" else positions
        ids, masked, random = corrupt(
            policy,
            flat.input_ids,
            positions,
            fates[fated],
            further(uniforms[positions], fates[positions], CANDIDATE),
            mask_token_id=self.tokenizer.mask_token_id,
            candidates=self.candidates,
        )
        predicted = positions
        if policy.prediction_rate is not None:
            predicted = np.flatnonzero(select(policy, policy.prediction_rate, *chosen))
        counts = count_selected(selected, positions, masked, random, heads, words)
        changed = positions[random]
        counts.random_same = int((ids[changed] == flat.input_ids[changed]).sum())
        count_predicted(counts, selected, predicted, row_starts)
        batch = collate(
            ids,
            flat.sequence_lengths,
            token_type_ids=flat.token_type_ids,
            predict_positions=predicted,
            labels=flat.input_ids[predicted],
            pair_labels=None if plan.pair_labels is None else plan.pair_labels[np.asarray(rows)],
        )
        return batch, counts

    def _heads(
        self, flat: AssembledRows, words: np.ndarray, uniforms: np.ndarray, fates: np.ndarray
    ) -> np.ndarray:
        """(N,) the head of each position's unit under the policy's selection."""
        selection = self.policy.selection
        if selection == "token":
            return units.heads_of(flat.eligible, flat.eligible)
        if selection == "whole_word":
            return units.heads_of(words, flat.eligible)
        places = np.flatnonzero(words)
        drawn = further(uniforms[places], fates[places], UNITS)
        if selection == "pmi":
            assert self.ngrams is not None, "the caller builds the list that pmi needs"
            at_words = np.zeros(len(words))
            at_words[places] = drawn
            return self.ngrams.units(flat.input_ids, words, flat.eligible, at_words)
        begins = units.tile(places, flat.eligible, drawn, self.policy.length_distribution())
        return units.heads_of(begins, flat.eligible)
