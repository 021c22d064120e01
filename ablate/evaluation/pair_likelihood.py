"""A language model and rows of token ids -> the log-likelihood of each row (natural log).

Pseudo-log-likelihood: each token is masked in turn and the log-probabilities of the true tokens are
summed (Salazar et al. 2020). In a word of several pieces the pieces on both sides of the asked one
give it away, so that words cut in many pieces look probable; `within_word_l2r` also masks the later
pieces of the same word (Kauf & Ivanova 2023, PLL-word-l2r). Masked rows that are equal - a pair's
two sentences with the differing token hidden - are run once and asked for several labels. A causal
model is asked for log p(row) itself: its sum and the pseudo-log-likelihood order sentences, and are
no numbers to compare with each other.

Legend: n sentences, Q questions (one a token), U distinct masked rows, V vocabulary.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch

from ablate.encoder.heads import MaskedLanguageModel
from ablate.evaluation.encoding import Rows, batches_by_tokens
from ablate.evaluation.fitting import autocast, backend_for
from ablate.inputs.batches import Batch, collate, ragged_arange

TOKENS_PER_BATCH = 4096  # measured on one core, 2 x 128: 1,024 and 16,384 are 12-20% slower
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Questions:
    """Distinct masked rows in the order of their lengths, and what is asked of them.

    Row u is sentence `sentence[u]` with the places [first[u], stop[u]) masked, and its first masked
    place is asked. Questions are in the order of their rows: log p of `label[q]` there counts for
    sentence `owner[q]`.
    """

    sentence: np.ndarray  # (U,)
    first: np.ndarray  # (U,) in the row
    stop: np.ndarray  # (U,)
    row: np.ndarray  # (Q,) ascending
    label: np.ndarray  # (Q,)
    owner: np.ndarray  # (Q,)

    def __len__(self) -> int:
        return len(self.sentence)


def pseudo_log_likelihood(
    model: MaskedLanguageModel,
    rows: Rows,
    *,
    mask_token_id: int,
    word_starts: np.ndarray | None = None,
    precision: str = "fp32",
    tokens_per_batch: int = TOKENS_PER_BATCH,
    on_progress: Progress | None = None,
) -> np.ndarray:
    """Sum of log p(token | all others) over the ordinary tokens of each row, (n,) float64.

    `word_starts` (T,) turns the within-word correction on: also the later pieces of the token's
    word are hidden. The model's mode and backend and the global random state are as before
    afterwards.
    """
    asked = questions(rows, mask_token_id=mask_token_id, word_starts=word_starts)
    found = np.zeros(len(rows), dtype=np.float64)
    lengths = rows.lengths[asked.sentence]
    with evaluating(model, rows, precision) as device:
        for which in batches_by_tokens(lengths, tokens_per_batch=tokens_per_batch):
            if not len(which):
                continue
            begin, end = which[0], which[-1] + 1
            batch = masked_batch(rows, asked, which, mask_token_id)
            here = slice(*np.searchsorted(asked.row, [begin, end]))
            with autocast(device, precision):
                logits = model(batch.to(device)).mlm_logits.float()
            values = log_probabilities(logits, asked.row[here] - begin, asked.label[here])
            found += np.bincount(asked.owner[here], weights=values, minlength=len(rows))
            if on_progress is not None:
                on_progress(int(end), len(asked))
    return found


def log_likelihood(
    model: MaskedLanguageModel,
    rows: Rows,
    *,
    precision: str = "fp32",
    tokens_per_batch: int = TOKENS_PER_BATCH // 4,
    on_progress: Progress | None = None,
) -> np.ndarray:
    """Sum of log p(token | those before) over the ordinary tokens of each row, (n,) float64.

    For causal models, which are trained to predict no [SEP] either. Mode, backend and the global
    random state are as before afterwards.
    """
    found, done = np.zeros(len(rows), dtype=np.float64), 0
    with evaluating(model, rows, precision) as device:
        for which in batches_by_tokens(rows.lengths, tokens_per_batch=tokens_per_batch):
            batch, owner = _next_tokens(rows, which)
            if len(owner):
                with autocast(device, precision):
                    logits = model(batch.to(device)).mlm_logits.float()
                values = log_probabilities(logits, np.arange(len(owner)), batch.labels.numpy())
                found += np.bincount(owner, weights=values, minlength=len(rows))
            done += len(which)
            if on_progress is not None:
                on_progress(done, len(rows))
    return found


def is_causal(model: MaskedLanguageModel) -> bool:
    """Whether the model's tokens see only those before them; encoders of others have no such."""
    return bool(getattr(model.config, "causal", False))


def questions(
    rows: Rows, *, mask_token_id: int, word_starts: np.ndarray | None = None
) -> Questions:
    """One question for each ordinary token ([CLS] and [SEP] of a row are none).

    Equal masked rows are found by a 64-bit hash: among a million, two different ones are taken for
    equal with probability 3e-8.
    """
    count = np.maximum(rows.lengths - 2, 0)
    owner = np.repeat(np.arange(len(rows)), count)
    place = 1 + ragged_arange(count)
    at = rows.starts[owner] + place
    stop = place + 1
    if word_starts is not None:
        stop = place + (_word_stops(rows, word_starts)[at] - at)
    _, representative, row = np.unique(
        _masked_hashes(rows, owner, place, stop, mask_token_id),
        return_index=True,
        return_inverse=True,
    )
    order = np.lexsort((representative, rows.lengths[owner[representative]]))
    representative = representative[order]
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    row = rank[row.ravel()]
    by_row = np.argsort(row, kind="stable")
    return Questions(
        owner[representative],
        place[representative],
        stop[representative],
        row[by_row],
        rows.input_ids[at][by_row],
        owner[by_row],
    )


def masked_batch(rows: Rows, asked: Questions, which: np.ndarray, mask_token_id: int) -> Batch:
    """The masked rows numbered `which`, one prediction in each."""
    sentence = asked.sentence[which]
    lengths = rows.lengths[sentence]
    place = ragged_arange(lengths)
    ids = rows.input_ids[np.repeat(rows.starts[sentence], lengths) + place]
    begin, end = (np.repeat(values[which], lengths) for values in (asked.first, asked.stop))
    ids[(place >= begin) & (place < end)] = mask_token_id
    predicted = np.cumsum(lengths) - lengths + asked.first[which]
    labels = rows.input_ids[rows.starts[sentence] + asked.first[which]]
    return collate(ids, lengths, predict_positions=predicted, labels=labels)


def log_probabilities(logits: torch.Tensor, row: np.ndarray, label: np.ndarray) -> np.ndarray:
    """log p of `label[q]` under the logits (M, V) of line `row[q]`, (Q,) float32."""
    lines, labels = (torch.from_numpy(v).to(logits.device) for v in (row, label))
    return (logits[lines, labels] - logits.logsumexp(dim=-1)[lines]).cpu().numpy()


@contextlib.contextmanager
def evaluating(model: MaskedLanguageModel, rows: Rows, precision: str) -> Iterator[torch.device]:
    """No dropout, no gradients, a backend for these lengths; the model as it was afterwards."""
    was_training, own_backend = model.training, model.encoder.backend
    model.eval()
    model.encoder.backend = backend_for(model.encoder, precision, int(rows.lengths.max()))
    try:
        with torch.inference_mode():
            yield next(model.parameters()).device
    finally:
        model.train(was_training)
        model.encoder.backend = own_backend


def _word_stops(rows: Rows, word_starts: np.ndarray) -> np.ndarray:
    """(T,) where the word of each token ends; a special token is a word of its own."""
    begins = word_starts.copy()
    begins[rows.starts[:-1]] = True
    begins[rows.starts[1:] - 1] = True
    begins[rows.starts[:-1] + 1] = True
    borders = np.append(np.flatnonzero(begins), len(begins))
    return borders[np.searchsorted(borders, np.arange(len(begins)), side="right")]


def _masked_hashes(
    rows: Rows, owner: np.ndarray, first: np.ndarray, stop: np.ndarray, mask_token_id: int
) -> np.ndarray:
    """(Q,) uint64: a row's hash is the sum over its places of a hash of (place, id)."""
    zero = np.zeros(1, dtype=np.uint64)
    own = _mix(ragged_arange(rows.lengths), rows.input_ids)
    summed = np.concatenate([zero, np.cumsum(own)])
    longest = np.arange(int(rows.lengths.max(initial=0)))
    masked = np.concatenate([zero, np.cumsum(_mix(longest, np.full_like(longest, mask_token_id)))])
    starts = rows.starts[owner]
    whole = summed[rows.starts[owner + 1]] - summed[starts]
    hidden = summed[starts + stop] - summed[starts + first]
    return whole - hidden + (masked[stop] - masked[first])


def _mix(place: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """splitmix64 of (place, id), uint64 modulo 2^64."""
    x = (place.astype(np.uint64) << np.uint64(32)) + ids.astype(np.uint64)
    x = (x + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _next_tokens(rows: Rows, which: np.ndarray) -> tuple[Batch, np.ndarray]:
    """The sentences themselves, each token but [CLS] and [SEP] asked for at the one before it."""
    batch = rows.batch(which)
    lengths = rows.lengths[which]
    inside = ragged_arange(lengths) < np.repeat(lengths - 2, lengths)
    places = np.flatnonzero(inside)
    batch.predict_positions = torch.from_numpy(places)
    batch.labels = batch.input_ids[places + 1]
    return batch, np.repeat(which, np.maximum(lengths - 2, 0))
