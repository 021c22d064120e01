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
    return compiled(heads_loop)(begins, eligible)


def heads_loop(begins, eligible):  # type: ignore[no-untyped-def]
    """The sequential part of `heads_of`."""
    heads = np.empty(len(begins), dtype=np.int64)
    head = -1
    for i in range(len(begins)):
        head = i if begins[i] else head
        heads[i] = head if eligible[i] else -1
    return heads


def tile(
    words: np.ndarray, eligible: np.ndarray, uniforms: np.ndarray, probabilities: np.ndarray
) -> np.ndarray:
    """(N,) bool, the heads of units of 1, 2, ... words drawn one after the other.

    `words` (W,) are the places of the words' first tokens and `uniforms` (W,) their numbers: that
    of a unit's first word draws its length by `probabilities`. The last unit before a special token
    ends there.
    """
    cumulative = np.cumsum(probabilities)
    cumulative[-1] = 1.0
    # for each 1/256 of the uniforms, the least length that it can mean
    least = 1 + np.searchsorted(cumulative, np.arange(256) / 256, side="right")
    return compiled(tile_loop)(words, eligible, uniforms, cumulative, least)


def tile_loop(words, eligible, uniforms, cumulative, least):  # type: ignore[no-untyped-def]
    """The sequential part of `tile`."""
    begins = np.zeros(len(eligible), dtype=np.bool_)
    k = 0
    while k < len(words):
        stop = k + 1  # of the words up to the next special token
        while stop < len(words) and eligible[words[stop] - 1]:
            stop += 1
        while k < stop:
            draw = uniforms[k]
            begins[words[k]] = True
            length = least[int(draw * 256)]
            while draw >= cumulative[length - 1]:
                length += 1
            k += length
        k = stop
    return begins
