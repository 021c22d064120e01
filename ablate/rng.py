"""(seed, name) -> random numbers; the only place of the package where randomness begins.

Every stream is counter-based (Philox 4x64), so a number is a function of its address and not of how
many were drawn before it: the same for any batch size, worker, device or resume point. Bulk draws
put the address of a row into the counter; no two rows, epochs, substreams or names share a block.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator, Sequence

import numpy as np

Name = str | int


def digest(seed: int, *names: Name) -> bytes:
    """16 bytes that depend on the seed and on every part of the name, in order and type."""
    address = "\x1f".join(f"{type(part).__name__}:{part}" for part in (seed, *names))
    return hashlib.blake2b(address.encode(), digest_size=16).digest()


def key(seed: int, *names: Name) -> np.ndarray:
    """Philox key (2,) uint64 of the stream `names` under `seed`."""
    return np.frombuffer(digest(seed, *names), dtype=np.uint64).copy()


def generator(seed: int, *names: Name) -> np.random.Generator:
    """A `Generator` for rare draws (an order of documents, a sample of tasks)."""
    return np.random.Generator(np.random.Philox(key=key(seed, *names), counter=0))


def torch_seed(seed: int, *names: Name) -> int:
    """A seed for `torch.manual_seed` or `torch.Generator`, in [0, 2**63)."""
    return int.from_bytes(digest(seed, *names)[:8], "little") >> 1


def uniforms(
    stream: np.ndarray, rows: Sequence[int] | np.ndarray, length: int, *, epoch: int, substream: int
) -> np.ndarray:
    """Uniforms in [0, 1) with 53 bits, (R, length): one line for each row number in `rows`.

    Row r owns the counter blocks [r * ceil(length / 4), (r + 1) * ceil(length / 4)) of
    (epoch, substream), so `length` must be the same constant wherever the stream is used (the
    longest row), not the length of the batch at hand. Consecutive rows cost one call.
    """
    out = np.empty((len(rows), -(-length // 4) * 4))
    for begin, end, philox in _runs(stream, rows, length, epoch, substream):
        np.random.Generator(philox).random(out=out[begin:end].reshape(-1))
    return out[:, :length]


def bits(
    stream: np.ndarray, rows: Sequence[int] | np.ndarray, length: int, *, epoch: int, substream: int
) -> np.ndarray:
    """64 random bits a place, (R, length) uint64: what `uniforms` makes its numbers of."""
    width = -(-length // 4) * 4
    parts = [
        philox.random_raw((end - begin) * width).reshape(-1, width)
        for begin, end, philox in _runs(stream, rows, length, epoch, substream)
    ]
    if len(parts) == 1:
        return parts[0][:, :length]
    return np.concatenate([np.empty((0, width), dtype=np.uint64), *parts])[:, :length]


def _runs(
    stream: np.ndarray, rows: Sequence[int] | np.ndarray, length: int, epoch: int, substream: int
) -> Iterator[tuple[int, int, np.random.Philox]]:
    """(first, end, its generator) of each run of consecutive numbers in `rows`."""
    blocks = -(-length // 4)
    rows = np.asarray(rows, dtype=np.int64)
    breaks = np.flatnonzero(np.diff(rows) != 1) + 1
    for begin, end in itertools.pairwise([0, *breaks.tolist(), len(rows)]):
        if begin < end:
            counter = np.array([int(rows[begin]) * blocks, 0, epoch, substream], dtype=np.uint64)
            yield begin, end, np.random.Philox(key=stream, counter=counter)
