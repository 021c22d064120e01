"""A language model and pairs of sentences -> the likelihood of each sentence.

Equal sentences (mirrored pairs share theirs) are scored once, and two sentences that the tokenizer
maps to the same ids have one value: rounding must not tell them apart.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ablate.encoder.heads import MaskedLanguageModel
from ablate.evaluation.encoding import Rows, encode
from ablate.evaluation.pair_likelihood import (
    TOKENS_PER_BATCH,
    is_causal,
    log_likelihood,
    pseudo_log_likelihood,
)
from ablate.evaluation.pair_scores import PairScores

if TYPE_CHECKING:
    from ablate.tokens.tokenizer import Tokenizer

__all__ = ["is_causal", "score_pairs", "word_starts"]
PAIR_KEYS = ("sentence_good", "sentence_bad", "paradigm")


def score_pairs(
    model: MaskedLanguageModel,
    tokenizer: Tokenizer,
    pairs: Sequence[Mapping[str, Any]],
    *,
    likelihood: str = "original",
    max_length: int = 128,
    precision: str = "fp32",
    tokens_per_batch: int = TOKENS_PER_BATCH,
    on_progress: Callable[[int, int], None] | None = None,
) -> PairScores:
    """Score mappings with `sentence_good`, `sentence_bad`, `paradigm` and optionally `idx`.

    `likelihood` (see `pair_likelihood`) is for masked models; a causal one has only one.

    Raises:
        ValueError: no pairs, a pair without one of these keys, or a correction for words where the
            tokenizer cannot tell them apart.
    """
    for number, pair in enumerate(pairs):
        missing = [key for key in PAIR_KEYS if pair.get(key) is None]
        if missing:
            raise ValueError(f"minimal pair {number} has no {missing}; it has {sorted(pair)}")
    if not pairs:
        raise ValueError("no minimal pairs were given; evaluation.tasks without them skips them")
    sentences = [str(pair[key]) for key in PAIR_KEYS[:2] for pair in pairs]
    number_of = {text: number for number, text in enumerate(dict.fromkeys(sentences))}
    rows = encode(tokenizer, [(text,) for text in number_of], max_length=max_length)
    how: dict[str, Any] = {"precision": precision, "on_progress": on_progress}
    if is_causal(model):  # every token has logits, not one in a row
        likelihoods = log_likelihood(model, rows, tokens_per_batch=tokens_per_batch // 4, **how)
    else:
        if likelihood == "within_word_l2r":
            how["word_starts"] = word_starts(tokenizer, list(number_of), rows)
        likelihoods = pseudo_log_likelihood(
            model,
            rows,
            mask_token_id=tokenizer.mask_token_id,
            tokens_per_batch=tokens_per_batch,
            **how,
        )
    same_ids = _first_with_equal_ids(rows)  # rounding must not decide between equal rows
    values = likelihoods[same_ids[[number_of[text] for text in sentences]]]
    return PairScores(
        [pair.get("idx", number) for number, pair in enumerate(pairs)],
        [str(pair["paradigm"]) for pair in pairs],
        values[: len(pairs)],
        values[len(pairs) :],
        rows.truncated_tokens,
        int((rows.input_ids == tokenizer.unk_token_id).sum()),
    )


def word_starts(tokenizer: Tokenizer, texts: Sequence[str], rows: Rows) -> np.ndarray:
    """(T,) bool: the tokens of `rows` that begin a word, by the tokenizer's own pre-tokenizer.

    Raises:
        ValueError: it does not tell words apart.
    """
    if not tokenizer.knows_words:
        raise ValueError(
            "likelihood: within_word_l2r needs a tokenizer with a pre-tokenizer that tells words "
            f"apart, {tokenizer.file} has none; write likelihood: original"
        )
    found = np.ones(len(rows.input_ids), dtype=bool)
    encoded = tokenizer.encode_batch(list(texts))
    for side, begin, end in zip(encoded, rows.starts[:-1], rows.starts[1:], strict=True):
        found[begin + 1 : end - 1] = side.word_starts[: end - begin - 2]
    return found


def _first_with_equal_ids(rows: Rows) -> np.ndarray:
    """For each row the number of the first row that holds the same ids, (n,)."""
    seen: dict[bytes, int] = {}
    bounds = zip(rows.starts[:-1], rows.starts[1:], strict=True)
    keys = [rows.input_ids[begin:end].tobytes() for begin, end in bounds]
    return np.array([seen.setdefault(key, number) for number, key in enumerate(keys)])
