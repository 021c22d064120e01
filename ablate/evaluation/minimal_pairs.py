"""A language model and pairs of sentences -> which of each pair it finds more probable.

Pseudo-log-likelihood: each token is masked in turn and the log-probabilities of the true tokens are
summed (Salazar et al. 2020). A sentence of L tokens costs L rows; equal sentences (mirrored pairs
share theirs) are scored once. A tie counts one half and is reported, so that a model that cannot
tell, or two sentences that the tokenizer maps to the same ids, score .5 and not 0 or 1. A causal
model is asked for log p(sentence) itself, one row a sentence, over the same tokens: its sum and the
pseudo-log-likelihood order sentences, and are no numbers to compare with each other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ablate.encoder.heads import MaskedLanguageModel
from ablate.evaluation.encoding import Rows, batches_by_tokens, encode
from ablate.evaluation.finetune import autocast, backend_for
from ablate.inputs.batches import Batch, collate, ragged_arange

if TYPE_CHECKING:
    from ablate.tokens.tokenizer import Tokenizer

PAIR_KEYS = ("sentence_good", "sentence_bad", "paradigm")


@dataclass(frozen=True)
class PairScores:
    """`good`, `bad` (n,) log-likelihoods (natural log) and what follows from them."""

    ids: list[Any]
    paradigms: list[str]
    good: np.ndarray
    bad: np.ndarray
    truncated_tokens: int

    @property
    def wins(self) -> np.ndarray:
        """1 where the good sentence is more probable, .5 for a tie, 0 otherwise, (n,)."""
        return np.where(self.good == self.bad, 0.5, (self.good > self.bad).astype(np.float64))

    @property
    def accuracy(self) -> float:
        """Mean over pairs (equal to the mean over paradigms where these are equally large)."""
        return float(self.wins.mean())

    @property
    def num_ties(self) -> int:
        return int((self.good == self.bad).sum())

    def by_paradigm(self) -> dict[str, dict[str, float]]:
        """Accuracy, number of pairs and ties of each paradigm, in order of first appearance."""
        names = np.array(self.paradigms)
        found = {}
        for name in dict.fromkeys(self.paradigms):
            here = names == name
            found[name] = {
                "accuracy": float(self.wins[here].mean()),
                "n": int(here.sum()),
                "ties": int((self.good == self.bad)[here].sum()),
            }
        return found


def score_pairs(
    model: MaskedLanguageModel,
    tokenizer: Tokenizer,
    pairs: Sequence[Mapping[str, Any]],
    *,
    max_length: int = 128,
    precision: str = "fp32",
    tokens_per_batch: int = 8192,
    on_progress: Callable[[int, int], None] | None = None,
) -> PairScores:
    """Score mappings with `sentence_good`, `sentence_bad`, `paradigm` and optionally `idx`.

    Raises:
        ValueError: no pairs, or a pair without one of these keys.
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
    )


def pseudo_log_likelihood(
    model: MaskedLanguageModel,
    rows: Rows,
    *,
    mask_token_id: int,
    precision: str = "fp32",
    tokens_per_batch: int = 8192,
    on_progress: Callable[[int, int], None] | None = None,
) -> np.ndarray:
    """Sum of log p(token | all others) over the ordinary tokens of each row, (n,) float64.

    The model's mode and backend and the global random state are as before afterwards.
    """
    return _summed(
        model,
        rows,
        lambda which: _masked_copies(rows, which, mask_token_id),
        rows.lengths * np.maximum(rows.lengths - 2, 0),  # tokens run for each sentence
        precision=precision,
        tokens_per_batch=tokens_per_batch,
        on_progress=on_progress,
    )


def log_likelihood(
    model: MaskedLanguageModel,
    rows: Rows,
    *,
    precision: str = "fp32",
    tokens_per_batch: int = 2048,
    on_progress: Callable[[int, int], None] | None = None,
) -> np.ndarray:
    """Sum of log p(token | those before) over the ordinary tokens of each row, (n,) float64.

    For causal models, which are trained to predict no [SEP] either. Mode, backend and the global
    random state are as before afterwards.
    """
    return _summed(
        model,
        rows,
        lambda which: _next_tokens(rows, which),
        rows.lengths,
        precision=precision,
        tokens_per_batch=tokens_per_batch,
        on_progress=on_progress,
    )


def is_causal(model: MaskedLanguageModel) -> bool:
    """Whether the model's tokens see only those before them; encoders of others have no such."""
    return bool(getattr(model.config, "causal", False))


def _summed(
    model: MaskedLanguageModel,
    rows: Rows,
    questions: Callable[[np.ndarray], tuple[Batch, np.ndarray]],
    cost: np.ndarray,
    *,
    precision: str,
    tokens_per_batch: int,
    on_progress: Callable[[int, int], None] | None,
) -> np.ndarray:
    """Log-probabilities of the labels that `questions` asks for, summed by row, (n,)."""
    device = next(model.parameters()).device
    found = np.zeros(len(rows), dtype=np.float64)
    was_training, own_backend, done = model.training, model.encoder.backend, 0
    model.eval()
    model.encoder.backend = backend_for(model.encoder, precision, int(rows.lengths.max()))
    try:
        with torch.inference_mode():
            for which in batches_by_tokens(cost, tokens_per_batch=tokens_per_batch):
                batch, owner = questions(which)
                if len(owner):
                    with autocast(device, precision):
                        logits = model(batch.to(device)).mlm_logits.float()
                    found += _sum_of_log_probabilities(logits, batch, owner, len(rows))
                done += len(which)
                if on_progress is not None:
                    on_progress(done, len(rows))
    finally:
        model.train(was_training)
        model.encoder.backend = own_backend
    return found


def _first_with_equal_ids(rows: Rows) -> np.ndarray:
    """For each row the number of the first row that holds the same ids, (n,)."""
    seen: dict[bytes, int] = {}
    bounds = zip(rows.starts[:-1], rows.starts[1:], strict=True)
    keys = [rows.input_ids[begin:end].tobytes() for begin, end in bounds]
    return np.array([seen.setdefault(key, number) for number, key in enumerate(keys)])


def _masked_copies(rows: Rows, which: np.ndarray, mask_token_id: int) -> tuple[Batch, np.ndarray]:
    """One copy of a sentence for each of its tokens, that token masked; and whose copy each is."""
    pieces, lengths, places, labels, owner = [], [], [], [], []
    total = 0
    for number in which:
        ids = rows.input_ids[rows.starts[number] : rows.starts[number + 1]]
        length, copies = len(ids), len(ids) - 2
        if copies < 1:  # nothing but [CLS] [SEP]: no token to predict
            continue
        grid = np.tile(ids, (copies, 1))
        grid[np.arange(copies), np.arange(1, length - 1)] = mask_token_id
        pieces.append(grid.ravel())
        lengths.append(np.full(copies, length))
        places.append(total + np.arange(copies) * length + np.arange(1, length - 1))
        labels.append(ids[1:-1])
        owner.append(np.full(copies, number))
        total += copies * length
    if not pieces:
        return collate(np.empty(0, np.int64), np.empty(0, np.int64)), np.empty(0, np.int64)
    batch = collate(
        np.concatenate(pieces),
        np.concatenate(lengths),
        predict_positions=np.concatenate(places),
        labels=np.concatenate(labels),
    )
    return batch, np.concatenate(owner)


def _next_tokens(rows: Rows, which: np.ndarray) -> tuple[Batch, np.ndarray]:
    """The sentences themselves, each token but [CLS] and [SEP] asked for at the one before it."""
    batch = rows.batch(which)
    lengths = rows.lengths[which]
    inside = ragged_arange(lengths) < np.repeat(lengths - 2, lengths)
    places = np.flatnonzero(inside)
    batch.predict_positions = torch.from_numpy(places)
    batch.labels = batch.input_ids[places + 1]
    return batch, np.repeat(which, np.maximum(lengths - 2, 0))


def _sum_of_log_probabilities(
    logits: torch.Tensor, batch: Batch, owner: np.ndarray, num_rows: int
) -> np.ndarray:
    """Log-probability of each label, added up by the sentence it belongs to, (num_rows,)."""
    labels = batch.labels.to(logits.device)[:, None]
    values = torch.log_softmax(logits, dim=-1).gather(1, labels).squeeze(1).cpu().numpy()
    return np.bincount(owner, weights=values, minlength=num_rows)
