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


def count_selected(
    selected: np.ndarray,
    positions: np.ndarray,
    masked: np.ndarray,
    random: np.ndarray,
    heads: np.ndarray,
    words: np.ndarray,
) -> MaskCounts:
    """Tokens, words, runs and units, and what stands at those selected.

    Args:
        selected: (N,) bool; `positions` are its True places (M,).
        masked, random: (M,) bool, which of them show [MASK] and which a random token.
        heads: (N,) the head of each position's unit, -1 at special tokens.
        words: (N,) bool, the first token of each word.
    """
    eligible, all_units = compiled(text_loop)(heads)
    numbers, runs, lengths = compiled(selected_loop)(
        selected, positions, masked, random, heads, words, SPAN_BINS, UNIT_BINS
    )
    names = "masked random units_selected units_masked units_random words_touched words_whole"
    found = dict(zip(names.split(), map(int, numbers), strict=True))
    kept = len(positions) - found["masked"] - found["random"]
    return MaskCounts(
        **found,  # type: ignore[arg-type]
        eligible=int(eligible),
        selected=len(positions),
        kept=kept,
        units=int(all_units),
        span_tokens=runs.tolist(),
        unit_words=lengths.tolist(),
    )


def count_predicted(
    counts: MaskCounts, selected: np.ndarray, predicted: np.ndarray, row_starts: np.ndarray
) -> None:
    """What is predicted (P,), and in how many rows nothing is."""
    both = int(selected[predicted].sum())
    counts.predicted = len(predicted)
    counts.visible_predicted = counts.predicted - both
    counts.unpredicted = counts.selected - both
    before = np.searchsorted(predicted, row_starts)
    counts.rows = len(row_starts) - 1
    counts.rows_without_prediction = int((before[1:] == before[:-1]).sum())


def text_loop(heads):  # type: ignore[no-untyped-def]
    """Eligible tokens, units."""
    eligible = 0
    units = 0
    for i in range(len(heads)):
        eligible += heads[i] >= 0
        units += heads[i] == i
    return eligible, units


def selected_loop(  # type: ignore[no-untyped-def]
    selected, positions, masked, random, heads, words, span_bins, unit_bins
):
    """(masked, random, units, of these masked and random, words touched and whole), runs by length,
    units by their words.

    Goes over the selected positions only: a branch at every token, which no processor can foresee,
    costs more than all else in a batch.
    """
    runs = np.zeros(span_bins, dtype=np.int64)
    units = np.zeros(unit_bins, dtype=np.int64)
    numbers = np.zeros(7, dtype=np.int64)
    run = 0
    words_in_unit = 0
    end = 0  # of the last word looked at
    for j in range(len(positions)):
        i = positions[j]
        numbers[0] += masked[j]
        numbers[1] += random[j]
        if j > 0 and positions[j - 1] != i - 1:
            runs[min(run, span_bins - 1)] += 1
            run = 0
        if heads[i] == i:  # a unit is taken whole, so its head is selected
            numbers[2] += 1
            numbers[3] += masked[j]
            numbers[4] += random[j]
            if j > 0:
                units[min(words_in_unit, unit_bins - 1)] += 1
            words_in_unit = 0
        run += 1
        words_in_unit += words[i] | (heads[i] == i)
        if i >= end:
            begin = i
            while not words[begin]:
                begin -= 1
            full = selected[begin]
            end = begin + 1
            while end < len(words) and heads[end] >= 0 and not words[end]:
                full &= selected[end]
                end += 1
            numbers[5] += 1
            numbers[6] += full
    if len(positions) > 0:
        runs[min(run, span_bins - 1)] += 1
        units[min(words_in_unit, unit_bins - 1)] += 1
    return numbers, runs, units
