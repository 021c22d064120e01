"""Rows of ids -> the units that a selection takes whole: tokens, words, spans and n-grams of words.

Units tile every stretch of text between two special tokens: each eligible position belongs to
exactly one. So a unit selected with probability p makes every position selected with probability p,
at row edges as in the middle, any rate up to 1 can be reached, and the units of a row do not
depend on the rate. (Spans that are thrown at random places and rejected where they overlap do
neither.) Legend: N tokens of the batch end to end; a unit's head is its first token.
"""

from __future__ import annotations

import numpy as np

from ablate.inputs.compiled import compiled


def word_begins(word_starts: np.ndarray, eligible: np.ndarray) -> np.ndarray:
    """(N,) bool, the first token of each word that can be selected.

    A word begins where `word_starts` says so and after a special token: what a cut at a row's edge
    leaves of a word is a word.
    """
    begins = word_starts | ~np.concatenate([[False], eligible[:-1]])
    return begins & eligible


def heads_of(begins: np.ndarray, eligible: np.ndarray) -> np.ndarray:
    """(N,) int64: for each position the head of its unit, -1 at special tokens."""
    places = np.arange(len(begins))
    heads = np.maximum.accumulate(np.where(begins, places, -1))
    heads[~eligible] = -1
    return heads


def tile(
    words: np.ndarray, eligible: np.ndarray, uniforms: np.ndarray, probabilities: np.ndarray
) -> np.ndarray:
    """(N,) bool, the heads of units of 1, 2, ... words drawn one after the other.

    `probabilities` are those of each number of words; the uniform at a unit's head draws its
    length. The last unit before a special token ends there.
    """
    cumulative = np.cumsum(probabilities)
    cumulative[-1] = 1.0
    return compiled(tile_loop)(words, eligible, uniforms, cumulative)


def tile_loop(words, eligible, uniforms, cumulative):  # type: ignore[no-untyped-def]
    """The sequential part of `tile`."""
    begins = np.zeros(len(words), dtype=np.bool_)
    left = 0  # words that the open unit still takes
    for i in range(len(words)):
        if not eligible[i]:
            left = 0
        elif words[i]:
            if left == 0:
                begins[i] = True
                while uniforms[i] >= cumulative[left]:
                    left += 1
            else:
                left -= 1
    return begins
