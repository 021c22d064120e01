"""Training text -> how frequent each word is: a band of ranks, the same for every tokenizer.

A word is a run of letters and digits or one other sign, case ignored, so that neither tokenizer nor
vocabulary decides what is frequent. Ranks are by count and, among equals, by the alphabet.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping

WORD = re.compile(r"\w+|[^\w\s]")
BOUNDS = (100, 1_000, 10_000)
UNSEEN = "unseen"
MAX_COUNTED_WORDS = 20_000_000  # of the training text, in its order


def _names() -> tuple[str, ...]:
    firsts = [1, *(bound + 1 for bound in BOUNDS)]
    inside = [f"rank {a}-{b}" for a, b in zip(firsts, BOUNDS, strict=False)]
    return (*inside, f"rank {firsts[-1]}+", UNSEEN)


BANDS = _names()


def count_words(texts: Iterable[str], *, max_words: int = MAX_COUNTED_WORDS) -> Counter[str]:
    """Words of the texts in lower case; stops after the text that reaches `max_words`."""
    counts: Counter[str] = Counter()
    total = 0
    for text in texts:
        words = WORD.findall(text.lower())
        counts.update(words)
        total += len(words)
        if total >= max_words:
            break
    return counts


def bands_of(words: Iterable[str], counts: Mapping[str, int]) -> dict[str, str]:
    """Lower-case word -> its band, for each of `words`."""
    order = sorted(counts, key=lambda word: (-counts[word], word))
    rank = {word: number for number, word in enumerate(order, 1)}
    return {word: band_of_rank(rank.get(word)) for word in set(words)}


def band_of_rank(rank: int | None) -> str:
    """The name of the band; None = a word that training text has not."""
    if rank is None:
        return UNSEEN
    return BANDS[sum(rank > bound for bound in BOUNDS)]
