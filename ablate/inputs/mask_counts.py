"""Masked rows -> what the policy did, in whole numbers: add up over batches, divide once.

Shares of the plan (fill, pairs, dropped tokens) are `formats.Plan.statistics`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ablate.inputs.compiled import compiled

SPAN_BINS = 33  # runs of 1, 2, ... tokens; the last bin holds all from 32 on
UNIT_BINS = 17  # units of 1, 2, ... words; the last bin holds all from 16 on


@dataclass
class MaskCounts:
    """What a policy did. `selected` are the corrupted tokens: shown as [MASK], random or kept."""

    eligible: int = 0
    selected: int = 0
    masked: int = 0
    random: int = 0
    kept: int = 0
    random_same: int = 0  # random draws that gave the original id
    predicted: int = 0
    visible_predicted: int = 0  # predicted, not selected
    unpredicted: int = 0  # selected, not predicted
    units: int = 0  # whole: each is selected to its last token or not at all
    units_selected: int = 0
    units_masked: int = 0  # by the fate of the first token, that of all where the unit has one fate
    units_random: int = 0
    words_touched: int = 0  # words with a selected token
    words_whole: int = 0  # of these, words selected to the last token
    rows: int = 0
    rows_without_prediction: int = 0
    span_tokens: list[int] = field(default_factory=lambda: [0] * SPAN_BINS)
    unit_words: list[int] = field(default_factory=lambda: [0] * UNIT_BINS)

    def __iadd__(self, other: MaskCounts) -> MaskCounts:
        for name, value in vars(other).items():
            mine = getattr(self, name)
            if isinstance(value, list):
                setattr(self, name, [a + b for a, b in zip(mine, value, strict=True)])
            else:
                setattr(self, name, mine + value)
        return self

    def shares(self) -> dict[str, float]:
        """Achieved rates of the eligible tokens, of the selected ... (0.0 where there are none)."""
        selected, eligible = max(self.selected, 1), max(self.eligible, 1)
        return {
            "mask_rate": self.selected / eligible,
            "prediction_rate": self.predicted / eligible,
            "mask_replace_share": self.masked / selected,
            "random_replace_share": self.random / selected,
            "keep_share": self.kept / selected,
            "random_same_share": self.random_same / selected,
            "visible_prediction_share": self.visible_predicted / max(self.predicted, 1),
            "unpredicted_share": self.unpredicted / selected,
            "whole_word_integrity": self.words_whole / max(self.words_touched, 1),
            "rows_without_prediction": self.rows_without_prediction / max(self.rows, 1),
        }

    def histograms(self) -> dict[str, dict[str, int]]:
        """Lengths that occurred: runs of selected tokens, and selected units in words."""
        found = {"span_tokens": self.span_tokens, "unit_words": self.unit_words}
        return {
            name: {
                f"{n}+" if n == len(bins) - 1 else str(n): count
                for n, count in enumerate(bins)
                if count
            }
            for name, bins in found.items()
        }


def count_runs(
    selected: np.ndarray, heads: np.ndarray, words: np.ndarray, row_starts: np.ndarray
) -> MaskCounts:
    """The counts that need the order of the text: words, runs, units, and rows' predictions.

    Args:
        selected: (N,) bool.
        heads: (N,) the head of each position's unit, -1 at special tokens.
        words: (N,) bool, the first token of each word.
        row_starts: (R + 1,).
    """
    numbers, runs, units = compiled(count_loop)(selected, heads, words, SPAN_BINS, UNIT_BINS)
    return MaskCounts(
        eligible=int(numbers[0]),
        words_touched=int(numbers[1]),
        words_whole=int(numbers[2]),
        rows=len(row_starts) - 1,
        span_tokens=runs.tolist(),
        unit_words=units.tolist(),
    )


def count_loop(selected, heads, words, span_bins, unit_bins):  # type: ignore[no-untyped-def]
    """(eligible tokens, words touched, words whole), runs by length, units by their words."""
    runs = np.zeros(span_bins, dtype=np.int64)
    units = np.zeros(unit_bins, dtype=np.int64)
    eligible = 0
    touched = 0
    whole = 0
    run = 0
    words_in_unit = 0
    size = 0  # tokens of the open word, and how many of them are selected
    hits = 0
    for i in range(len(selected) + 1):
        inside = i < len(selected) and heads[i] >= 0
        if not inside or words[i]:
            if hits > 0:
                touched += 1
                whole += hits == size
            size = 0
            hits = 0
        if words_in_unit > 0 and (not inside or heads[i] == i):
            units[min(words_in_unit, unit_bins - 1)] += 1
            words_in_unit = 0
        hit = inside and selected[i]
        if run > 0 and not hit:
            runs[min(run, span_bins - 1)] += 1
            run = 0
        if inside:
            eligible += 1
            size += 1
            if hit:
                hits += 1
                run += 1
                if words[i] or heads[i] == i:
                    words_in_unit += 1
    return np.array([eligible, touched, whole]), runs, units
