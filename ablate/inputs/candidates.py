"""Ordinary ids, and how often each occurs -> the ids that a random replacement is drawn from.

BERT and RoBERTa draw uniformly, SpanBERT from the training text, that is by frequency. Special
tokens are never drawn.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ablate.tokens.store import TokenStore

_CHUNK = 1 << 24  # tokens counted at a time


@dataclass(frozen=True)
class Candidates:
    """The ids that a random replacement is drawn from: ordinary ones only.

    `cumulative` (C,) is the running share of each id in the corpus; None = all alike.
    """

    ids: np.ndarray  # (C,) int64
    cumulative: np.ndarray | None = None

    def draw(self, uniforms: np.ndarray) -> np.ndarray:
        """One id for each uniform."""
        if self.cumulative is None:
            return self.ids[(uniforms * len(self.ids)).astype(np.int64)]
        return self.ids[np.searchsorted(self.cumulative, uniforms, side="right")]


def by_frequency(ordinary_ids: np.ndarray, counts: np.ndarray) -> Candidates:
    """Candidates with the probability that `counts` (V,) gives them; no count, no draw.

    Raises:
        ValueError: the corpus holds no ordinary token.
    """
    ids = ordinary_ids[counts[ordinary_ids] > 0]
    if not len(ids):
        raise ValueError("masking.random_candidates=frequency: the corpus has no ordinary token")
    running = np.cumsum(counts[ids], dtype=np.float64)
    cumulative = running / running[-1]
    cumulative[-1] = 1.0
    return Candidates(ids, cumulative)


def count_tokens(store: TokenStore, documents: np.ndarray, vocab_size: int) -> np.ndarray:
    """(vocab_size,) how often each id occurs in `documents`; neighbours are read together."""
    counts = np.zeros(vocab_size, dtype=np.int64)
    ordered = np.sort(documents)
    for run in np.split(ordered, np.flatnonzero(np.diff(ordered) != 1) + 1):
        if not len(run):
            continue
        begin, end = store.document_starts[run[0]], store.document_starts[run[-1] + 1]
        for first in range(begin, end, _CHUNK):
            part = store.tokens[first : min(first + _CHUNK, end)]
            counts += np.bincount(part, minlength=vocab_size)
    return counts
