"""Texts -> numbers, one for all copies of a text; a fixed sample of many rows.

Two texts that differ in case or blanks alone are copies: what is one document to a reader must not
be a wrong answer to itself, nor stand in training and test both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ablate import rng


def text_numbers(texts: Sequence[str]) -> tuple[list[str], np.ndarray]:
    """The different texts (up to case and blanks) in order, and the number of each given one."""
    numbers: dict[str, int] = {}
    kept: list[str] = []
    found = []
    for text in texts:
        plain = plain_text(text)
        if plain not in numbers:
            numbers[plain] = len(kept)
            kept.append(text)
        found.append(numbers[plain])
    return kept, np.array(found, dtype=np.int64)


def example_numbers(examples: Sequence[tuple[str, ...]]) -> np.ndarray:
    """(n,) a number for each example, from 0 in order; copies of all its texts share one."""
    numbers: dict[tuple[str, ...], int] = {}
    plain = (tuple(map(plain_text, texts)) for texts in examples)
    return np.array([numbers.setdefault(texts, len(numbers)) for texts in plain], dtype=np.int64)


def num_copies(
    examples: Mapping[str, Sequence[tuple[str, ...]]], of: Sequence[tuple[str, ...]]
) -> dict[str, int]:
    """How many examples of each split have the same texts as one `of` others."""
    known = {tuple(map(plain_text, texts)) for texts in of}
    return {
        split: sum(tuple(map(plain_text, texts)) in known for texts in found)
        for split, found in examples.items()
    }


def plain_text(text: str) -> str:
    """What two copies of a text have in common."""
    return " ".join(text.split()).casefold()


def sampled(number: int, most: int | None, seed: int, name: str) -> np.ndarray:
    """Sorted numbers of at most `most` rows, the same for all runs of a study."""
    if most is None or number <= most:
        return np.arange(number)
    draw = rng.generator(seed, "finetune_sample", name)
    return np.sort(draw.permutation(number)[:most])
