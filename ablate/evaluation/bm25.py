"""Documents -> an index; a query -> one BM25 score a document.

Robertson and Zaragoza 2009 with the idf of Lucene, log(1 + (N - n + .5) / (n + .5)), which is never
negative. Words are runs of letters and digits without regard to case; nothing is stemmed and no
word is left out, so that the baseline has no language of its own.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

import numpy as np

_WORD = re.compile(r"\w+")


def words(text: str) -> list[str]:
    """Words of a text, in order."""
    return _WORD.findall(text.casefold())


class BM25:
    """An inverted index: for each word, the documents that hold it and what it adds to them."""

    def __init__(self, documents: Sequence[str], *, k1: float = 1.2, b: float = 0.75) -> None:
        self.num_documents = len(documents)
        counts = [Counter(words(text)) for text in documents]
        lengths = np.array([sum(count.values()) for count in counts], dtype=np.float64)
        norm = k1 * (1 - b + b * lengths / max(lengths.mean(), 1.0))
        found: dict[str, tuple[list[int], list[int]]] = {}
        for number, count in enumerate(counts):
            for word, times in count.items():
                where, how_often = found.setdefault(word, ([], []))
                where.append(number)
                how_often.append(times)
        self._postings = {}
        for word, (where, how_often) in found.items():
            documents_, times_ = np.array(where), np.array(how_often, dtype=np.float64)
            held_by = len(where)
            idf = np.log(1 + (self.num_documents - held_by + 0.5) / (held_by + 0.5))
            gain = idf * times_ * (k1 + 1) / (times_ + norm[documents_])
            self._postings[word] = documents_, gain

    def scores(self, query: str) -> np.ndarray:
        """(num_documents,) float64; a word that the query repeats counts as often."""
        total = np.zeros(self.num_documents)
        for word in words(query):
            if word in self._postings:
                documents, gain = self._postings[word]
                total[documents] += gain
        return total

    def ranked(self, query: str, number: int) -> np.ndarray:
        """The best `number` documents; ties in the order of the collection."""
        return np.argsort(-self.scores(query), kind="stable")[:number]
