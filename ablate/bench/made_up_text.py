"""A size -> a file of made-up text of that size, written as a stream.

Sentences of the built-in language in a new order, so that gigabytes cost seconds. One sentence in
eight also names a number from 1 to 10 million, small ones more often: like names and numbers of
real text, they keep new words coming however long the file is, and no two documents are equal.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ablate import rng
from ablate.corpus import synthetic

SENTENCES = 60  # a document: about 3 kB, as an encyclopaedia's
_POOL_DOCUMENTS = 500
_BLOCK = 500  # documents written at a time
_LARGEST = 10_000_000


def write(path: Path, megabytes: float, *, seed: int = 0) -> int:
    """Write at least `megabytes` (10^6 bytes) of documents, a blank line between; returns bytes."""
    pool = [
        sentence
        for document in synthetic.documents(seed, _POOL_DOCUMENTS)
        for sentence in document.split("\n")
    ]
    generator = rng.generator(seed, "bench", "text")
    wanted, written = int(megabytes * 1e6), 0
    with path.open("w", encoding="ascii", newline="\n") as file:
        while written < wanted:
            written += file.write(_documents(pool, generator, min(_BLOCK, 1 + wanted // 4000)))
    return written


def _documents(pool: list[str], generator: np.random.Generator, count: int) -> str:
    picked = generator.integers(0, len(pool), count * SENTENCES).tolist()
    numbers = np.exp(generator.random(len(picked)) * np.log(_LARGEST)).astype(np.int64)
    numbers[generator.random(len(picked)) >= 1 / 8] = 0
    sentences = [
        pool[index] if not number else f"{pool[index][:-1]}number {number} ."
        for index, number in zip(picked, numbers.tolist(), strict=True)
    ]
    documents = [
        "\n".join(sentences[begin : begin + SENTENCES])
        for begin in range(0, len(sentences), SENTENCES)
    ]
    return "\n\n".join(documents) + "\n\n"
