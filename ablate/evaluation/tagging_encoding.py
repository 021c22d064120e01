"""Sentences of words -> rows of pieces, and the first piece of each word.

The words are joined by single blanks and tokenised as one text, not word by word: a byte-level or
sentencepiece tokenizer then cuts them as it did in pretraining, where a word follows a blank. Which
word a piece belongs to is read from the character with which it begins. A word may have no piece of
its own: normalisation left nothing of it, the row is full, or the tokenizer put it into a piece
that begins in another word. HF counterpart: `word_ids()` of a fast tokenizer with
`is_split_into_words=True` (the labels are on the same pieces: tests/evaluation/test_tagging.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ablate.evaluation.encoding import Rows
from ablate.evaluation.token_fitting import AskedRows
from ablate.inputs.batches import from_segments

if TYPE_CHECKING:
    from ablate.tokens.tokenizer import Tokenizer


@dataclass(frozen=True)
class WordRows:
    """[CLS] pieces [SEP] for each sentence; the first pieces of its words are asked.

    `word_of_asked` (A,) numbers the words through all sentences; words that are not in it have no
    piece: `vanished` of them have none at all, `cut` lie behind `max_length`.
    """

    asked: AskedRows
    word_of_asked: np.ndarray
    num_words: int
    vanished: int
    cut: int


def encode_words(
    tokenizer: Tokenizer, sentences: Sequence[Sequence[str]], *, max_length: int
) -> WordRows:
    """Tokenise every sentence; pieces beyond `max_length` are cut and their words counted."""
    located = tokenizer.encode_with_offsets([" ".join(words) for words in sentences])
    room = max_length - 2
    rows, truncated = from_segments(
        [[found.ids.tolist()] for found in located],
        cls_token_id=tokenizer.cls_token_id,
        sep_token_id=tokenizer.sep_token_id,
        max_length=max_length,
    )
    starts = rows.cu_seqlens.numpy().astype(np.int64)
    asked, words_asked, asked_counts = [], [], []
    before = vanished = cut = 0
    for number, (words, found) in enumerate(zip(sentences, located, strict=True)):
        words_seen, pieces = _first_pieces(words, found.offsets)
        inside = pieces < room
        vanished += len(words) - len(words_seen)
        cut += int((~inside).sum())
        asked.append(starts[number] + 1 + pieces[inside])
        words_asked.append(before + words_seen[inside])
        asked_counts.append(int(inside.sum()))
        before += len(words)
    encoded = Rows(rows.input_ids.numpy(), rows.token_type_ids.numpy(), starts, truncated)
    bounds = np.concatenate([[0], np.cumsum(asked_counts)]).astype(np.int64)
    return WordRows(
        AskedRows(encoded, np.concatenate(asked), bounds),
        np.concatenate(words_asked),
        before,
        vanished,
        cut,
    )


def _first_pieces(words: Sequence[str], offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Words of one sentence that have a piece, and the number of the first one, both (W,)."""
    begins = np.cumsum([0, *(len(word) + 1 for word in words)])[:-1]
    real = np.flatnonzero(offsets[:, 1] > offsets[:, 0])
    owners = np.searchsorted(begins, offsets[real, 0], side="right") - 1
    found, first = np.unique(owners, return_index=True)
    return found.astype(np.int64), real[first]
