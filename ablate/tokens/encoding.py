"""Documents -> the arrays that they add to a token store, whoever encodes them.

A group of documents is encoded by itself, its positions count from its own first token: the store
(`store.py`) shifts them and puts the groups one after another. How the documents are grouped, and
in which process, cannot change what comes out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ablate.corpus.sentences import split_sentences
from ablate.corpus.sources import document_hash
from ablate.tokens.words import EncodedTexts

_BLANKS = "".join(chr(code) for code in range(0x110000) if chr(code).isspace())
_ASCII_BLANKS = "".join(character for character in _BLANKS if character.isascii())


class Encodes(Protocol):
    """What is needed of a tokenizer here."""

    vocab_size: int

    def encode_texts(self, texts: list[str]) -> EncodedTexts: ...


@dataclass(frozen=True)
class EncodedDocuments:
    """D documents, the kept K of them with T tokens in S sentences.

    `tokens` (T,), `word_starts` (T,) bool; `sentence_starts` (S,), `document_starts` (K,) int64 in
    tokens of this group; `document_hashes` (K,) uint64 and `document_bytes` (K,) int64; `seen` (D,)
    uint64, the hashes of all of them. A sentence or document without a token is counted, not kept.
    """

    tokens: np.ndarray
    word_starts: np.ndarray
    sentence_starts: np.ndarray
    document_starts: np.ndarray
    document_hashes: np.ndarray
    document_bytes: np.ndarray
    seen: np.ndarray
    counts: Counter[str]


def token_dtype(vocab_size: int) -> np.dtype:
    """The narrowest type that holds every id."""
    return np.dtype(np.uint32 if vocab_size > 1 << 16 else np.uint16)


def group(documents: Iterable[str], characters: int) -> Iterator[list[str]]:
    """Documents in lists of at least so many characters; the last one may be shorter."""
    chunk: list[str] = []
    length = 0
    for document in documents:
        chunk.append(document)
        length += len(document)
        if length >= characters:
            yield chunk
            chunk, length = [], 0
    if chunk:
        yield chunk


def encode_documents(documents: list[str], tokenizer: Encodes) -> EncodedDocuments:
    """Split into sentences, encode each by itself, and count."""
    of_document = [split_sentences(document) for document in documents]
    sentences = [sentence for some in of_document for sentence in some]
    encoded = tokenizer.encode_texts(sentences)
    ends = np.cumsum(encoded.lengths)
    full = encoded.lengths > 0
    last = np.cumsum(np.fromiter(map(len, of_document), dtype=np.int64))  # sentences so far
    document_ends = np.concatenate([[0], ends])[last]
    document_starts = np.concatenate([[0], document_ends[:-1]])
    kept = document_ends > document_starts
    hashes = np.array([document_hash(text) for text in documents], dtype=np.uint64)
    num_bytes = np.array([len(text.encode()) for text in documents], dtype=np.int64)
    counts = {
        "words": encoded.word_starts.sum(),
        "characters": sum(map(visible_characters, documents)),
        "unk_tokens": encoded.unk_tokens.sum(),
        "unk_characters": encoded.unk_characters.sum(),
        "special_in_text": encoded.special_in_text.sum(),
        "sentences_without_tokens": (~full).sum(),
        "documents_without_tokens": (~kept).sum(),
    }
    return EncodedDocuments(
        tokens=encoded.ids.astype(token_dtype(tokenizer.vocab_size)),
        word_starts=encoded.word_starts,
        sentence_starts=(ends - encoded.lengths)[full],
        document_starts=document_starts[kept],
        document_hashes=hashes[kept],
        document_bytes=num_bytes[kept],
        seen=hashes,
        counts=Counter({name: int(count) for name, count in counts.items()}),
    )


def visible_characters(text: str) -> int:
    """Characters that are not blanks; counting each kind of blank is quicker than splitting."""
    blanks = _ASCII_BLANKS if text.isascii() else _BLANKS
    return len(text) - sum(map(text.count, blanks))
