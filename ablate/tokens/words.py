"""Texts -> tokens by way of the chunks between blanks, each distinct chunk encoded only once.

Where a tokenizer cuts at every blank and throws it away (BERT's pre-tokenizer), a text's tokens are
those of its chunks end to end, so a corpus costs what its distinct chunks cost: about ten times
less than encoding every sentence. Only U+0020 cuts chunks; any other blank stays inside one and is
the tokenizer's to judge. That the result is the same is tested in
tests/tokens/test_tokenizer.py::test_chunks_give_what_whole_texts_give.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class EncodedTexts:
    """S texts end to end: `ids` (T,) int32, `word_starts` (T,) bool, `lengths` (S,) int64.

    For each text (S,) int64: unknown tokens; the characters they stand for, blanks not counted;
    special tokens that the text spelled out and that were made unknown.
    """

    ids: np.ndarray
    word_starts: np.ndarray
    lengths: np.ndarray
    unk_tokens: np.ndarray
    unk_characters: np.ndarray
    special_in_text: np.ndarray


class ChunkCache(dict[str, int]):
    """chunk -> its number, given at first sight; `max_chunks` bounds what is remembered."""

    def __init__(self, encode: Callable[[list[str]], EncodedTexts], max_chunks: int = 1 << 20):
        super().__init__()
        self._encode = encode
        self._max_chunks = max_chunks
        self._forget()

    def _forget(self) -> None:
        self.clear()
        self._new: list[str] = []
        self._known = self._encode([])
        self._begins = np.empty(0, dtype=np.int64)

    def __missing__(self, chunk: str) -> int:
        number = self[chunk] = len(self)
        self._new.append(chunk)
        return number

    def encode_texts(self, texts: list[str]) -> EncodedTexts:
        """What `encode` would give for whole texts."""
        if not texts:
            return self._encode(texts)
        if len(self) > self._max_chunks:
            self._forget()
        chunks = " ".join(texts).split(" ")  # a list a text would keep the garbage collector busy
        blanks = (text.count(" ") for text in texts)
        num_chunks = np.fromiter(blanks, dtype=np.int64, count=len(texts)) + 1
        numbers = np.fromiter(map(self.__getitem__, chunks), dtype=np.int64, count=len(chunks))
        if self._new:
            self._learn()
        lengths = self._known.lengths[numbers]
        first = np.cumsum(num_chunks) - num_chunks  # every text has a chunk, if an empty one
        ends = np.cumsum(lengths)
        shift = self._begins[numbers] - (ends - lengths)
        places = np.arange(ends[-1]) + np.repeat(shift, lengths)
        return EncodedTexts(
            self._known.ids[places],
            self._known.word_starts[places],
            np.add.reduceat(lengths, first),
            np.add.reduceat(self._known.unk_tokens[numbers], first),
            np.add.reduceat(self._known.unk_characters[numbers], first),
            np.add.reduceat(self._known.special_in_text[numbers], first),
        )

    def _learn(self) -> None:
        fresh = self._encode(self._new)
        self._new = []
        self._known = EncodedTexts(
            *(
                np.concatenate(pair)
                for pair in zip(_arrays(self._known), _arrays(fresh), strict=True)
            )
        )
        self._begins = np.cumsum(self._known.lengths) - self._known.lengths


def _arrays(encoded: EncodedTexts) -> list[np.ndarray]:
    return list(vars(encoded).values())
