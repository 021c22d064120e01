"""An arm's rows, one after the other -> counts of what the policy did; nothing is trained.

The rows are the arm's own: same plan, same masks. Each chunk is drawn twice: as it is trained on,
and with a sign in the place of every random token and the loss where the corruption is, which tells
apart what looks alike (kept, and random but the same).
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ablate.inputs.candidates import Candidates
from ablate.inputs.mask_counts import MaskCounts
from ablate.inputs.masked_rows import MaskedRows
from ablate.inputs.pairs import NO_PAIR, PAIRINGS
from ablate.inputs.plan import Plan
from ablate.inputs.rows import assemble

BINS = 8  # of the positions in a row
_CHUNK = 512  # rows drawn at a time
_RANDOM = -1  # stands for any random token


class TracedRows(MaskedRows):
    """The same draws as `source`: predicts what is corrupted, shows -1 for a random token."""

    heads: np.ndarray  # of the latest batch

    def __init__(self, source: MaskedRows) -> None:
        vars(self).update(vars(source))
        self.policy = dataclasses.replace(source.policy, prediction_rate=None)
        self.candidates = Candidates(np.array([_RANDOM]))

    def _heads(self, *drawn: Any) -> np.ndarray:
        self.heads = super()._heads(*drawn)
        return self.heads


@dataclass
class Walk:
    """Sums over the rows walked through; what a plan says of itself is that of `first_plan`."""

    asked: int  # eligible tokens
    first_plan: Plan
    progress: float | None
    rate: float  # of the policy, at that progress
    counts: MaskCounts = field(default_factory=MaskCounts)
    epochs: int = 0
    row_tokens: int = 0  # special ones included
    expected_same: float = 0.0  # of the random draws, how many give the original on average
    expected_empty: float = 0.0  # rows without a prediction, where units are drawn one by one
    pairs: dict[int, int] = field(default_factory=dict)  # kind -> rows that are new
    position_eligible: list[int] = field(default_factory=lambda: [0] * BINS)
    position_selected: list[int] = field(default_factory=lambda: [0] * BINS)
    ended_by: str = ""  # why fewer tokens than asked


def walk(
    data: Any, *, tokens: int, epoch: int, progress: float | None, row_copies: int | None
) -> Walk:
    """Go through the rows from `epoch` on until they hold `tokens` eligible tokens.

    Under `masking.copies` masks repeat after as many epochs, and the walk ends there: a repeated
    draw is no new evidence. Where rows repeat (`row_copies`, that is `input_format.copies`) labels
    of pairs are counted once.
    """
    rows: MaskedRows = data.rows
    policy = rows.policy
    plan = data.steps.plan(epoch)
    out = Walk(tokens, plan, progress, policy.rate_at(progress or 0.0))
    chances = _chances(rows)
    traced = TracedRows(rows)
    while out.counts.eligible < tokens:
        if policy.copies is not None and out.epochs == policy.copies:
            out.ended_by = f"masking.copies={policy.copies}: masks repeat from here on"
            break
        plan = data.steps.plan(epoch + out.epochs)
        rows_repeat = row_copies is not None and out.epochs >= row_copies
        before = out.counts.eligible
        for begin in range(0, plan.num_rows, _CHUNK):
            chunk = np.arange(begin, min(begin + _CHUNK, plan.num_rows))
            chunk = _until(data, plan, chunk, tokens - out.counts.eligible)
            _add(out, rows, traced, plan, chunk, epoch + out.epochs, chances)
            if not rows_repeat:
                _add_pairs(out, plan, chunk)
            if out.counts.eligible >= tokens:
                break
        out.epochs += 1
        if out.counts.eligible == before:
            out.ended_by = "an epoch holds no eligible token"
            break
    return out


def _until(data: Any, plan: Plan, rows: np.ndarray, wanted: int) -> np.ndarray:
    """The first of `rows` that together hold `wanted` eligible tokens."""
    flat = assemble(data.store, data.tokenizer, plan, rows)
    starts = np.concatenate([[0], np.cumsum(flat.lengths)])[:-1]
    running = np.cumsum(np.add.reduceat(flat.eligible, starts, dtype=np.int64))
    return rows[: int(np.searchsorted(running, wanted)) + 1]


def _chances(rows: MaskedRows) -> np.ndarray:
    """(V,) probability of each id as a random replacement."""
    candidates = rows.candidates
    chances = np.zeros(rows.tokenizer.vocab_size)
    share = np.full(len(candidates.ids), 1.0 / len(candidates.ids))
    if candidates.cumulative is not None:
        share = np.diff(candidates.cumulative, prepend=0.0)
    chances[candidates.ids] = share
    return chances


def _add(
    out: Walk, rows: MaskedRows, traced: TracedRows, plan: Plan, chunk: np.ndarray, epoch: int,
    chances: np.ndarray,
) -> None:  # fmt: skip
    policy, progress = rows.policy, out.progress or 0.0
    _, counts = rows.batch(plan, chunk, epoch=epoch, progress=progress)
    batch, _ = traced.batch(plan, chunk, epoch=epoch, progress=progress)
    out.counts += counts
    lengths = plan.row_lengths[chunk]
    ids, originals = batch.input_ids.numpy(), batch.labels.numpy()
    selected, heads = batch.predict_positions.numpy(), traced.heads
    out.row_tokens += int(lengths.sum())
    random = ids[selected] == _RANDOM
    out.expected_same += float(chances[originals[random]].sum())

    is_head = heads == np.arange(len(heads))
    begins = np.concatenate([[0], np.cumsum(lengths)])
    units = np.add.reduceat(is_head, begins[:-1], dtype=np.int64)
    predicted = out.rate if policy.prediction_rate is None else policy.prediction_rate
    out.expected_empty += float(((1.0 - predicted) ** units).sum())

    place = np.arange(begins[-1]) - np.repeat(begins[:-1], lengths)
    bins = place * BINS // np.repeat(lengths, lengths)
    for total, which in (
        (out.position_eligible, np.flatnonzero(heads >= 0)),
        (out.position_selected, selected),
    ):
        for number, count in enumerate(np.bincount(bins[which], minlength=BINS).tolist()):
            total[number] += count


def _add_pairs(out: Walk, plan: Plan, rows: np.ndarray) -> None:
    if plan.pairing is None or plan.pair_labels is None:
        return
    labels = plan.pair_labels[rows]
    kinds = dict(enumerate(PAIRINGS[plan.pairing])) | {NO_PAIR: NO_PAIR}
    for label, kind in kinds.items():
        out.pairs[kind] = out.pairs.get(kind, 0) + int((labels == label).sum())
