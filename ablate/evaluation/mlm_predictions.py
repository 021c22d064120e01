"""A model and rows of words -> what it says of the masked ones: one line a predicted piece.

15% of the words, all their pieces hidden at once, and 15% of the pieces, each by itself; what is
hidden is always [MASK]. Which words is drawn by word before any tokenizer is asked; which pieces
depends on the tokenizer, as pieces do. A causal model is asked for every piece in turn instead.
Legend: R rows, T tokens with [CLS] and [SEP], M predicted.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ablate import rng
from ablate.encoder.heads import MaskedLanguageModel
from ablate.evaluation.encoding import Rows, batches_by_tokens
from ablate.evaluation.fitting import autocast
from ablate.evaluation.held_out_text import HeldOutText, Segment
from ablate.evaluation.measurement import Table
from ablate.evaluation.pair_likelihood import evaluating, is_causal
from ablate.inputs.batches import collate, ragged_arange

if TYPE_CHECKING:
    from ablate.tokens.tokenizer import Tokenizer

MASK_RATE = 0.15
TOKEN, WHOLE_WORD, CAUSAL = "token_mask", "whole_word_mask", "clm"
_TOKENS_PER_BATCH = 4096


@dataclass(frozen=True)
class Pieces:
    """The rows under one tokenizer. `word` (T,) is the number of each piece's word in the whole
    text, -1 at [CLS] and [SEP]; `asked` (T,) is false there and where a piece is unknown."""

    rows: Rows
    word: np.ndarray
    asked: np.ndarray
    pieces_of_word: np.ndarray  # (W,) 0 for a word that left no piece or fits no row
    facts: dict[str, int]


def predictions(
    model: MaskedLanguageModel,
    tokenizer: Tokenizer,
    text: HeldOutText,
    *,
    max_length: int,
    precision: str,
    on_progress: Callable[[int, int], None],
) -> tuple[Table, dict[str, int]]:
    """The table of all predictions, and what was cut or could not be asked."""
    pieces = cut_in_pieces(tokenizer, text, max_length=max_length)
    if is_causal(model):
        chosen = {CAUSAL: np.flatnonzero(pieces.asked)}
        pieces_of_words(pieces, np.ones(text.num_words, dtype=bool))  # counts the unanswered
    else:
        chosen = {
            TOKEN: chosen_pieces(pieces, text.seed),
            WHOLE_WORD: pieces_of_words(pieces, chosen_words(text)),
        }
    total, columns = sum(map(len, chosen.values())), _Columns(text, pieces)
    done = 0
    for split, places in chosen.items():
        label = pieces.rows.input_ids[places]
        found, log_probability = np.empty_like(places), np.empty(len(places))
        for which, guess, values in _answers(
            model, pieces, places, precision,
            mask_token_id=None if split == CAUSAL else tokenizer.mask_token_id,
        ):  # fmt: skip
            found[which], log_probability[which] = guess, values
            done += len(which)
            on_progress(done, total)
        columns.add(split, places, label, found, log_probability)
    return columns.table, pieces.facts


def chosen_words(text: HeldOutText) -> np.ndarray:
    """(W,) bool; a function of the text and its seed, never of a tokenizer or an arm."""
    draw = rng.generator(text.seed, "mlm_quality", WHOLE_WORD)
    return draw.random(text.num_words) < MASK_RATE


def chosen_pieces(pieces: Pieces, seed: int) -> np.ndarray:
    """Places (M,) of single pieces; a function of text, seed and tokenizer."""
    draw = rng.generator(seed, "mlm_quality", TOKEN)
    return np.flatnonzero((draw.random(len(pieces.word)) < MASK_RATE) & pieces.asked)


def pieces_of_words(pieces: Pieces, words: np.ndarray) -> np.ndarray:
    """Places (M,) of all pieces of the words; words with an unknown piece are left out, counted."""
    inside = pieces.word >= 0
    unknown = np.zeros(len(words), dtype=bool)
    unknown[pieces.word[inside & ~pieces.asked]] = True
    missing = pieces.pieces_of_word == 0
    pieces.facts["chosen_words"] = int(words.sum())
    pieces.facts["chosen_words_with_unknown_pieces"] = int((words & unknown).sum())
    pieces.facts["chosen_words_without_pieces"] = int((words & missing).sum())
    pieces.facts["unanswered_words"] = int((words & (unknown | missing)).sum())
    wanted = words & ~unknown
    return np.flatnonzero(inside & wanted[pieces.word])


def cut_in_pieces(tokenizer: Tokenizer, text: HeldOutText, *, max_length: int) -> Pieces:
    """[CLS], the pieces of a row's segments, [SEP]; a piece belongs to the word in which its first
    character stands. A row that does not fit into `max_length` goes on in another one, between
    words; a word that fits none is left out. Both are counted.
    """
    segments = [segment for row in text.rows for segment in row]
    encoded = tokenizer.encode_with_offsets([segment.text for segment in segments])
    first = np.cumsum([0, *(len(segment.begins) for segment in segments)])
    ids: list[Any] = []
    words: list[Any] = []
    lengths, cut, split, at = [], 0, 0, 0
    for row in text.rows:
        here = range(at, at + len(row))
        at += len(row)
        own = np.concatenate([encoded[i].ids for i in here])
        word = np.concatenate(
            [first[i] + _word_numbers(encoded[i].offsets, segments[i]) for i in here]
        )
        spans = list(_spans(word, max_length - 2)) or [(0, 0)]
        cut += len(own) - sum(end - begin for begin, end in spans)
        split += len(spans) > 1
        for begin, end in spans:
            ids += [[tokenizer.cls_token_id], own[begin:end], [tokenizer.sep_token_id]]
            words += [[-1], word[begin:end], [-1]]
            lengths.append(end - begin + 2)
    flat, word = np.concatenate(ids).astype(np.int64), np.concatenate(words).astype(np.int64)
    starts = np.concatenate([[0], np.cumsum(lengths)])
    rows = Rows(flat, np.zeros_like(flat), starts, cut)
    special = np.isin(flat, tokenizer.special_ids) | (flat == tokenizer.unk_token_id)
    count = np.bincount(word[word >= 0], minlength=text.num_words)
    facts = {
        "rows": len(lengths),
        "rows_split": split,
        "words": text.num_words,
        "pieces": int(count.sum()),
        "truncated_tokens": cut,
        "unknown_pieces": int((special & (word >= 0)).sum()),
        "words_without_pieces": int((count == 0).sum()),
    }
    return Pieces(rows, word, (word >= 0) & ~special, count, facts)


def _spans(word: np.ndarray, room: int) -> Iterator[tuple[int, int]]:
    """Runs of whole words with at most `room` pieces each; a word of more is in none of them."""
    bounds = np.flatnonzero(np.diff(word, prepend=-1, append=-1))  # of words, the end included
    begin = 0
    for first, end in itertools.pairwise(bounds.tolist()):
        if end - first > room:
            if first > begin:
                yield begin, first
            begin = end
        elif end - begin > room:
            yield begin, first
            begin = first
    if begin < len(word):
        yield begin, len(word)


def _word_numbers(offsets: np.ndarray, segment: Segment) -> np.ndarray:
    """For each piece the number of its word in the segment."""
    begins = np.array(segment.begins)
    return np.maximum(np.searchsorted(begins, offsets[:, 0], side="right") - 1, 0)


def _answers(
    model: MaskedLanguageModel,
    pieces: Pieces,
    places: np.ndarray,
    precision: str,
    *,
    mask_token_id: int | None,
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """(numbers among `places`, best ids, log p of the true ones), batch by batch.

    Without a mask each place is asked for at the one before it.
    """
    rows = pieces.rows
    row = np.searchsorted(rows.starts, places, side="right") - 1
    used = np.unique(row)
    lengths = rows.lengths[used]
    shown = rows.input_ids.copy()
    if mask_token_id is not None:
        shown[places] = mask_token_id
    size = _TOKENS_PER_BATCH if mask_token_id is not None else _TOKENS_PER_BATCH // 4
    with evaluating(model, rows, precision) as device:
        for batch in batches_by_tokens(lengths, tokens_per_batch=size):
            here, length = used[batch], lengths[batch]
            begins = np.repeat(rows.starts[here], length)
            which = np.concatenate(
                [np.arange(*np.searchsorted(row, [number, number + 1])) for number in here]
            )
            in_batch = np.zeros(len(rows), dtype=np.int64)
            in_batch[here] = np.cumsum(length) - length - rows.starts[here]
            asked = places[which] + in_batch[row[which]] - (mask_token_id is None)
            labels = rows.input_ids[places[which]]
            packed = collate(
                shown[begins + ragged_arange(length)], length,
                predict_positions=asked, labels=labels,
            )  # fmt: skip
            with autocast(device, precision):
                logits = model(packed.to(device)).mlm_logits.float()
            true = logits.gather(1, torch.from_numpy(labels).to(device)[:, None]).squeeze(1)
            values = (true - logits.logsumexp(dim=-1)).cpu().numpy()
            yield which, logits.argmax(dim=-1).cpu().numpy(), values


class _Columns:
    """The table, one line a predicted piece."""

    def __init__(self, text: HeldOutText, pieces: Pieces) -> None:
        segments = [segment for row in text.rows for segment in row]
        self.words = [
            segment.text[begin:end]
            for segment in segments
            for begin, end in zip(segment.begins, segment.ends, strict=True)
        ]
        self.bands = [band for segment in segments for band in segment.bands]
        self.tags = [tag for segment in segments for tag in segment.tags]
        self.bytes = np.array([len(word.encode()) for word in self.words], dtype=np.int64)
        self.pieces = pieces
        self.table: Table = {}

    def add(
        self,
        split: str,
        places: np.ndarray,
        label: np.ndarray,
        found: np.ndarray,
        log_probability: np.ndarray,
    ) -> None:
        rows, word = self.pieces.rows, self.pieces.word[places]
        row = np.searchsorted(rows.starts, places, side="right") - 1
        inside = places - rows.starts[row] - 1
        count = self.pieces.pieces_of_word[word]
        columns: dict[str, list[Any]] = {
            "example_id": [f"{r}:{i}" for r, i in zip(row.tolist(), inside.tolist(), strict=True)],
            "label": label.tolist(),
            "prediction": found.tolist(),
            "split": [split] * len(places),
            "finetune_seed": [0] * len(places),
            "log_probability": log_probability.tolist(),
            "word": [self.words[i] for i in word],
            "word_number": word.tolist(),
            "band": [self.bands[i] for i in word],
            "tag": [self.tags[i] for i in word],
            "pieces": count.tolist(),
            "decile": (inside * 10 // np.maximum(rows.lengths[row] - 2, 1) + 1).tolist(),
            "bytes": (self.bytes[word] / np.maximum(count, 1)).tolist(),
        }
        for name, values in columns.items():
            self.table.setdefault(name, []).extend(values)
