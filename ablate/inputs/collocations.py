"""Flat ids + where words begin -> word hashes, n-gram hashes, and the units of PMI masking.

A word is a run of tokens, an n-gram is n words of one text, a text is a run of eligible tokens.
Both are known by 64-bit hashes of their ids, never by text, so the same few functions count a
store and match a batch. Two of G different n-grams share a hash with probability about G^2 / 2^65
(6e-6 for 15 million). Hashes are array operations, because products that wrap around are silent in
numpy's arrays only; the loops that numba compiles do nothing but compare.

Units follow Levine et al. 2021, sec. 3: the longest listed n-gram wins; which of two overlapping
ones of a length wins is random; every other word is a unit. Legend: N tokens, W words, G n-grams.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ablate.inputs.compiled import compiled

_MODULUS = 2**64
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_ODD, _PLACE = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD1B54A32D192ED03)


@dataclass(frozen=True)
class Words:
    """The words of some texts, in order, (W,) each.

    `starts` is where the first token stands and `lengths` counts tokens; `left` is the number of
    words from this one to the end of its text, itself included.
    """

    starts: np.ndarray
    lengths: np.ndarray
    hashes: np.ndarray  # uint64
    left: np.ndarray


def words_of(
    input_ids: np.ndarray,
    word_begins: np.ndarray,
    eligible: np.ndarray,
    text_begins: np.ndarray | None = None,
) -> Words:
    """Words of flat ids (N,).

    A word begins where `word_begins` is True and where a text does: after an ineligible token, at
    the first token of all, and where `text_begins` says so. Ineligible tokens belong to no word.
    """
    positions = np.flatnonzero(eligible)
    fresh = np.ones(len(positions), dtype=bool)
    fresh[1:] = np.diff(positions) > 1
    if text_begins is not None:
        fresh |= text_begins[positions]
    first = np.flatnonzero(word_begins[positions] | fresh)
    lengths = np.diff(first, append=len(positions))
    place = np.arange(len(positions)) - np.repeat(first, lengths)
    ids = np.asarray(input_ids)[positions].astype(np.uint64) + np.uint64(1)
    tokens = _mix(ids * _ODD + place.astype(np.uint64) * _PLACE)
    hashes = _mix(np.add.reduceat(tokens, first)) if len(first) else np.empty(0, np.uint64)
    heads = np.flatnonzero(fresh[first])  # first word of each text
    sizes = np.diff(heads, append=len(first))
    ends = np.repeat(heads + sizes, sizes)
    return Words(positions[first], lengths, hashes, ends - np.arange(len(first)))


def ngram_hashes(hashes: np.ndarray, max_words: int) -> list[np.ndarray]:
    """Word hashes (W,) -> the hashes of all n-grams of n = 1..max_words; entry n - 1 has n words.

    Place i of entry n - 1 stands for the words i .. i + n - 1, (max(W - n + 1, 0),); whether they
    are of one text is not looked at here (`Words.left` knows).
    """
    found = [hashes]
    for n in range(2, max_words + 1):
        size = np.uint64(n * int(_PLACE) % _MODULUS)
        found.append(_mix(found[-1][:-1] * _ODD + hashes[n - 1 :] + size))
    return found


def _mix(values: np.ndarray) -> np.ndarray:
    """The finaliser of splitmix64 (Steele, Lea and Flood 2014); a one-to-one map of uint64."""
    values = (values ^ (values >> np.uint64(30))) * _FIRST
    values = (values ^ (values >> np.uint64(27))) * _SECOND
    return values ^ (values >> np.uint64(31))


class HashIndex:
    """Sorted distinct hashes (G,) uint64 that can be looked up.

    Hashes are spread evenly, so their leading bits say where in the sorted array to look: about one
    comparison a look-up, instead of the twenty of a binary search, and nothing to build but a table
    of offsets.
    """

    def __init__(self, hashes: np.ndarray) -> None:
        self.hashes = hashes
        bits = max(len(hashes).bit_length(), 1)
        self._shift = np.uint64(64 - bits)
        counts = np.bincount(self._buckets(hashes), minlength=1 << bits)
        self._offsets = np.concatenate([[0], np.cumsum(counts)])

    def __len__(self) -> int:
        return len(self.hashes)

    def _buckets(self, hashes: np.ndarray) -> np.ndarray:
        return (hashes >> self._shift).astype(np.int64)

    def find(self, wanted: np.ndarray) -> np.ndarray:
        """Where each of `wanted` (M,) uint64 stands in `hashes`, (M,) int64; -1 where it is not."""
        return compiled(look_up)(self.hashes, self._offsets, self._buckets(wanted), wanted)


def look_up(
    hashes: np.ndarray, offsets: np.ndarray, buckets: np.ndarray, wanted: np.ndarray
) -> np.ndarray:
    """The loop of `HashIndex.find`."""
    found = np.full(len(wanted), -1, dtype=np.int64)
    for i in range(len(wanted)):
        place = offsets[buckets[i]]
        stop = offsets[buckets[i] + 1]
        while place < stop and hashes[place] < wanted[i]:
            place += 1
        if place < stop and hashes[place] == wanted[i]:
            found[i] = place
    return found


def collocation_units(
    input_ids: np.ndarray,
    word_begins: np.ndarray,
    eligible: np.ndarray,
    uniforms: np.ndarray,
    indexes: Sequence[HashIndex],
) -> np.ndarray:
    """The unit of each token of a batch: (N,) int64, the place of the unit's first token.

    It is -1 where `eligible` is False. `indexes[n - 2]` holds the listed n-grams of n words.
    `uniforms` (N,) are read at the first token of words only. A text decides for itself: a row's
    units do not depend on the rows beside it, as long as an ineligible token stands between them
    (tests/inputs/test_collocations.py::test_row_alone_gives_what_it_gives_in_a_batch).
    """
    words = words_of(input_ids, word_begins, eligible)
    heads = unit_heads(words, uniforms[words.starts], indexes)
    units = np.full(len(eligible), -1, dtype=np.int64)
    units[eligible] = np.repeat(words.starts[heads], words.lengths)
    return units


def unit_heads(words: Words, uniforms: np.ndarray, indexes: Sequence[HashIndex]) -> np.ndarray:
    """The first word of each word's unit, (W,) int64; `uniforms` (W,), one a word.

    Lengths come in turn, the longest first. Those of one length come in the order of the uniform at
    their first word and take their words if all are free.
    """
    heads = np.full(len(words.hashes), -1, dtype=np.int64)
    grams = ngram_hashes(words.hashes, len(indexes) + 1)
    for n in range(len(indexes) + 1, 1, -1):
        firsts = np.flatnonzero(words.left[: len(grams[n - 1])] >= n)
        firsts = firsts[indexes[n - 2].find(grams[n - 1][firsts]) >= 0]
        order = np.argsort(uniforms[firsts], kind="stable")
        compiled(claim)(heads, firsts[order], n)
    return np.where(heads < 0, np.arange(len(heads)), heads)


def claim(heads: np.ndarray, firsts: np.ndarray, n: int) -> None:
    """Give n words each to `firsts`, in order, where all n are free (-1); writes into `heads`."""
    for i in range(len(firsts)):
        first = firsts[i]
        free = True
        for word in range(first, first + n):
            if heads[word] >= 0:
                free = False
        if free:
            for word in range(first, first + n):
                heads[word] = first
