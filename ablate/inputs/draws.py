"""(masking stream, row ids) -> the random numbers of a batch, one place after the other.

One 64-bit draw a place gives two uniforms of 32 bits (a rate is met to 2^-32, a mask needs no
more); drawing is the dearest part of a batch, so the few places that need further numbers hash
their draw.
Legend: R rows, N tokens of all rows, M places of these.
"""

from __future__ import annotations

import numpy as np

from ablate import rng
from ablate.inputs.compiled import compiled


def two_uniforms(
    key: np.ndarray, row_ids: np.ndarray, lengths: np.ndarray, *, width: int, epoch: int
) -> tuple[np.ndarray, np.ndarray]:
    """Two independent uniforms in [0, 1) for each place of some rows, (N,) each.

    A row's numbers are the same in any batch.

    Args:
        key: Philox key of the masking stream.
        row_ids: (R,) what addresses each row's numbers.
        lengths: (R,) tokens of each row.
        width: the longest row there may be; constant wherever the stream is used.
        epoch: the pass whose masks these are.
    """
    drawn = rng.bits(key, row_ids, width, epoch=epoch, substream=0)
    return compiled(halves)(drawn, lengths)


def halves(drawn, lengths):  # type: ignore[no-untyped-def]
    """(R, width) uint64 -> the upper and the lower 32 bits of the first `lengths` of each line."""
    upper = np.empty(lengths.sum())
    lower = np.empty(lengths.sum())
    at = 0
    for r in range(len(lengths)):
        for i in range(lengths[r]):
            upper[at + i] = (drawn[r, i] >> np.uint64(32)) * 2.0**-32
            lower[at + i] = (drawn[r, i] & np.uint64(0xFFFFFFFF)) * 2.0**-32
        at += lengths[r]
    return upper, lower


def further(upper: np.ndarray, lower: np.ndarray, number: int) -> np.ndarray:
    """(M,) uniforms in [0, 1) with 53 bits from the halves (M,) of a draw, as good as a new draw.

    All 64 bits are mixed with `number` (SplitMix64, Steele et al. 2014), so that what is known of
    the halves - both lie in some interval - says nothing about the result, nor does one number
    about another.
    """
    return compiled(mix)(upper, lower, np.uint64(number * 0x9E3779B97F4A7C15 % 2**64))


def mix(upper, lower, step):  # type: ignore[no-untyped-def]
    """The loop of `further`."""
    out = np.empty(len(upper))
    for j in range(len(upper)):
        bits = (np.uint64(upper[j] * 2.0**32) << np.uint64(32)) | np.uint64(lower[j] * 2.0**32)
        bits = bits + step
        bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        out[j] = ((bits ^ (bits >> np.uint64(31))) >> np.uint64(11)) * 2.0**-53
    return out
