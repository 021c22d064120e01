"""Units, one uniform a unit and a rate -> which units of each row are selected.

`bernoulli` compares each unit's uniform with the rate. `exact` lays a row's units end to end on a
circle, in the order of their uniforms, and takes those that begin inside a window as long as the
row's count, which starts at a random token. Every unit then has the same chance whatever its
length (a prefix that leaves out the unit which overshoots would favour short ones), the count is
missed by less than one unit, and a larger count lengthens the window: what is selected at 15% is
a prefix of what is selected at 40%. Legend: R rows, N tokens, M selected.
"""

from __future__ import annotations

import numpy as np

from ablate.inputs.compiled import compiled
from ablate.inputs.masking import MaskingPolicy

BELOW, WINDOW, FITTING = 0, 1, 2  # ways of `take`


def select(
    policy: MaskingPolicy,
    rate: float,
    heads: np.ndarray,
    uniforms: np.ndarray,
    row_starts: np.ndarray,
    row_uniforms: np.ndarray,
) -> np.ndarray:
    """Selected positions (N,) bool; whole units, nothing special.

    Args:
        rate: share of the tokens; may differ from `policy.mask_rate` (schedules, predictions).
        heads: (N,) the first token of each position's unit, -1 at special tokens.
        uniforms: (N,) read at heads only.
        row_starts: (R + 1,) the first token of each row.
        row_uniforms: (2, R) where a row's window starts; how its count is rounded.
    """
    eligible = heads >= 0
    if policy.budget_rule == "bernoulli" and policy.max_predictions_per_row is None:
        return (uniforms[heads] < rate) & eligible  # the -1 of special tokens reads the last place
    counted = np.add.reduceat(eligible, row_starts[:-1], dtype=np.int64)
    limit = counted
    if policy.max_predictions_per_row is not None:
        limit = np.minimum(counted, policy.max_predictions_per_row)
    if policy.budget_rule == "bernoulli":
        budgets, mode = limit, BELOW
    else:
        base = np.diff(row_starts) if policy.budget_base == "row" else counted
        if policy.budget_rounding == "stochastic":
            budgets = np.floor(rate * base + row_uniforms[1]).astype(np.int64)
        else:
            budgets = np.maximum(np.floor(rate * base + 0.5), 1).astype(np.int64)
        budgets = np.minimum(budgets, limit)
        mode = FITTING if policy.overshoot == "skip" else WINDOW
    loop = compiled(take)
    return loop(heads, uniforms, row_starts, budgets, limit, row_uniforms[0], rate, mode)


def take(heads, uniforms, row_starts, budgets, limits, offsets, rate, mode):  # type: ignore[no-untyped-def]
    """Go through each row's units in the order of their uniforms and take some of them.

    BELOW takes those under `rate`, WINDOW those that begin in the window of `budgets` tokens from
    the share `offsets` of the circle, FITTING every one that the budget still has room for. None
    passes `limits`.
    """
    selected = np.zeros(len(heads), dtype=np.bool_)
    for r in range(len(row_starts) - 1):
        begin, end = row_starts[r], row_starts[r + 1]
        first = np.empty(end - begin, dtype=np.int64)
        sizes = np.zeros(end - begin, dtype=np.int64)
        units = 0
        tokens = 0
        for i in range(begin, end):
            if heads[i] == i:
                first[units] = i
                units += 1
            if heads[i] >= 0:
                sizes[units - 1] += 1
                tokens += 1
        order = np.argsort(uniforms[first[:units]], kind="mergesort")
        reached = 0  # tokens from the window's start to the unit's
        k = 0
        if mode == WINDOW and tokens > 0:
            start = int(offsets[r] * tokens)
            while start > 0:  # a unit that began before the window is the last one of the circle
                start -= sizes[order[k]]
                k += 1
            reached = -start
        taken = 0
        for j in range(units):
            unit = order[(k + j) % units]
            if mode == BELOW and uniforms[first[unit]] >= rate:
                break
            if mode == WINDOW and reached >= budgets[r]:
                break
            if taken + sizes[unit] > limits[r]:
                break
            if mode == FITTING and taken + sizes[unit] > budgets[r]:
                continue
            for i in range(first[unit], first[unit] + sizes[unit]):
                selected[i] = True
            taken += sizes[unit]
            reached += sizes[unit]
    return selected
