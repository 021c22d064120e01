"""`Plan`: one epoch of rows as slices of the token store, without a token in it.

Made by `formats.plan_epoch`, turned into ids by `rows.assemble`. What all rows have in common (a
[CLS] for each slice, attention that stays inside a slice) is told once, and numbers of the record
are read off the arrays where they can be, so that rows and record cannot disagree.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field, replace

import numpy as np

from ablate.inputs.pairs import NEXT, NO_PAIR, PAIRINGS, RANDOM, SWAPPED

_SHARES = {RANDOM: "random_pair_share", SWAPPED: "swapped_pair_share"}


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One epoch of rows, in the order in which they are trained on.

    Row r takes the slices `row_starts[r] : row_starts[r + 1]`; slice s is
    `store.tokens[slice_starts[s] : slice_stops[s]]`. A row of a pair format has two slices, or one
    where its label is -100. `row_ids` addresses a row's random numbers in the masking streams: its
    place in the epoch or, with copies, in the first epoch that showed it.
    """

    slice_starts: np.ndarray  # (S,) int64
    slice_stops: np.ndarray  # (S,) int64
    row_starts: np.ndarray  # (R + 1,) int64
    row_ids: np.ndarray  # (R,) int64
    max_length: int
    pairing: str | None = None  # key of `pairs.PAIRINGS`; None = the rows are no pairs
    pair_labels: np.ndarray | None = None  # (R,) int64: place of the kind in the pairing, or -100
    cls_per_slice: bool = False  # each slice has a [CLS], not only the row
    block: bool = False  # attention stays inside a slice
    counts: dict[str, int] = field(default_factory=dict)

    @property
    def num_rows(self) -> int:
        return len(self.row_starts) - 1

    @functools.cached_property
    def row_lengths(self) -> np.ndarray:
        """(R,) tokens of each row, [CLS] and [SEP] included."""
        around = 2 if self.cls_per_slice else 1
        running = np.concatenate([[0], np.cumsum(self.slice_stops - self.slice_starts + around)])
        return np.diff(running[self.row_starts]) + (2 - around)

    @property
    def attention_length(self) -> float:
        """Mean number of tokens that a token may see where attention is full."""
        lengths = self.row_lengths
        if self.block:
            has_cls = np.full(len(self.slice_starts), self.cls_per_slice)
            has_cls[self.row_starts[:-1]] = True
            lengths = has_cls + (self.slice_stops - self.slice_starts) + 1
        return float((lengths.astype(np.float64) ** 2).sum() / lengths.sum())

    @functools.cached_property
    def statistics(self) -> dict[str, float]:
        """Rows, their fill (mean length / max_length), tokens shown and lost, shares of the pairs.

        A share is one of the rows that have a label; where none has, there is no share.
        """
        found: dict[str, float] = {"rows": self.num_rows, **self.counts}
        found["row_fill"] = float(self.row_lengths.mean() / self.max_length)
        found["attention_length"] = self.attention_length
        found["tokens_in_rows"] = int((self.slice_stops - self.slice_starts).sum())
        if self.pairing is not None and self.pair_labels is not None:
            labelled = self.pair_labels[self.pair_labels != NO_PAIR]
            found["rows_without_pair"] = self.num_rows - len(labelled)
            for label, kind in enumerate(PAIRINGS[self.pairing]):
                if kind != NEXT and len(labelled):
                    found[_SHARES[kind]] = float((labelled == label).mean())
        return found

    def reordered(self, order: np.ndarray) -> Plan:
        """The same rows, with their ids, in another order."""
        counts = np.diff(self.row_starts)[order]
        row_starts = np.concatenate([[0], np.cumsum(counts)])
        slices = np.repeat(self.row_starts[:-1][order] - row_starts[:-1], counts)
        slices += np.arange(row_starts[-1])
        return replace(
            self,
            slice_starts=self.slice_starts[slices],
            slice_stops=self.slice_stops[slices],
            row_starts=row_starts,
            row_ids=self.row_ids[order],
            pair_labels=None if self.pair_labels is None else self.pair_labels[order],
        )
