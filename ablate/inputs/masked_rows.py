"""Plan + store + masking policy -> masked `Batch`es.

A row's ids, masks and replacements are a function of (plan, seed, epoch, the row's id) alone, so
the same row comes out of any batch, worker or device.
"""

from __future__ import annotations

import numpy as np

from ablate import rng
from ablate.inputs import units
from ablate.inputs.batches import Batch, collate, ragged_arange
from ablate.inputs.candidates import Candidates
from ablate.inputs.formats import Plan
from ablate.inputs.mask_counts import MaskCounts, count_runs
from ablate.inputs.masking import MaskingPolicy, corrupt
from ablate.inputs.pmi import NgramList
from ablate.inputs.rows import AssembledRows, assemble
from ablate.inputs.selection import select
from ablate.tokens.store import TokenStore
from ablate.tokens.tokenizer import Tokenizer

SELECTION, FATE, CANDIDATE, UNITS = 0, 1, 2, 3  # substreams of the masking stream


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
        draw = _Draws(
            self.key,
            plan.row_ids[rows],
            flat.lengths,
            self.max_length,
            epoch if policy.copies is None else epoch % policy.copies,
        )
        words = units.word_begins(flat.word_starts, flat.eligible)
        heads = self._heads(flat, words, draw)
        uniforms = draw(SELECTION)
        # no text stands at a row's [CLS]: its uniforms are the row's own
        row_uniforms = np.stack([uniforms[row_starts[:-1]], draw(FATE)[row_starts[:-1]]])
        chosen = [heads, uniforms, row_starts, row_uniforms]
        rate = policy.rate_at(progress)
        selected = select(policy, rate, *chosen)
        positions = np.flatnonzero(selected)
        fated = heads[positions] if policy.corruption_unit == "unit" else positions
        ids, masked, random = corrupt(
            policy,
            flat.input_ids,
            positions,
            draw(FATE)[fated],
            draw(CANDIDATE)[positions],
            mask_token_id=self.tokenizer.mask_token_id,
            candidates=self.candidates,
        )
        predicted = positions
        if policy.prediction_rate is not None:
            predicted = np.flatnonzero(select(policy, policy.prediction_rate, *chosen))
        counts = count_runs(selected, heads, words, row_starts)
        counts.selected, counts.predicted = len(positions), len(predicted)
        counts.masked, counts.random = int(masked.sum()), int(random.sum())
        counts.kept = counts.selected - counts.masked - counts.random
        first = heads[positions] == positions  # a unit is taken whole, so its head is selected
        counts.units = int((heads == np.arange(len(heads))).sum())
        counts.units_selected = int(first.sum())
        counts.units_masked = int(masked[first].sum())
        counts.units_random = int(random[first].sum())
        changed = positions[random]
        counts.random_same = int((ids[changed] == flat.input_ids[changed]).sum())
        both = int(selected[predicted].sum())
        counts.visible_predicted = counts.predicted - both
        counts.unpredicted = counts.selected - both
        with_prediction = np.unique(np.searchsorted(row_starts, predicted, side="right"))
        counts.rows_without_prediction = counts.rows - len(with_prediction)
        batch = collate(
            ids,
            flat.sequence_lengths,
            token_type_ids=flat.token_type_ids,
            predict_positions=predicted,
            labels=flat.input_ids[predicted],
            pair_labels=None if plan.pair_labels is None else plan.pair_labels[np.asarray(rows)],
        )
        return batch, counts

    def _heads(self, flat: AssembledRows, words: np.ndarray, draw: _Draws) -> np.ndarray:
        """(N,) the head of each position's unit under the policy's selection."""
        selection = self.policy.selection
        if selection == "pmi":
            assert self.ngrams is not None, "the caller builds the list that pmi needs"
            return self.ngrams.units(flat.input_ids, words, flat.eligible, draw(UNITS))
        begins = words
        if selection == "token":
            begins = flat.eligible
        elif selection in ("span", "ngram"):
            lengths = self.policy.length_distribution()
            begins = units.tile(words, flat.eligible, draw(UNITS), lengths)
        return units.heads_of(begins, flat.eligible)


class _Draws:
    """One uniform for each position of some rows, by substream, each drawn once."""

    def __init__(
        self, key: np.ndarray, row_ids: np.ndarray, lengths: np.ndarray, width: int, epoch: int
    ) -> None:
        self.key, self.row_ids, self.width, self.epoch = key, row_ids, width, epoch
        self.cells = np.repeat(np.arange(len(row_ids)) * width, lengths) + ragged_arange(lengths)
        self.known: dict[int, np.ndarray] = {}

    def __call__(self, substream: int) -> np.ndarray:
        if substream not in self.known:
            drawn = rng.uniforms(
                self.key, self.row_ids, self.width, epoch=self.epoch, substream=substream
            )
            self.known[substream] = drawn.reshape(-1)[self.cells]
        return self.known[substream]
