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
    if policy.budget_rule == "bernoulli" and policy.max_predictions_per_row is None:
        return compiled(below)(heads, uniforms, rate)
    counted = np.add.reduceat(heads >= 0, row_starts[:-1], dtype=np.int64)
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
    return loop(heads, uniforms, row_starts, budgets, row_uniforms[0], rate, mode)


def below(heads, uniforms, rate):  # type: ignore[no-untyped-def]
    """Every unit whose uniform is under `rate`."""
    selected = np.empty(len(heads), dtype=np.bool_)
    for i in range(len(heads)):
        selected[i] = (heads[i] >= 0) & (uniforms[max(heads[i], 0)] < rate)
    return selected


def take(heads, uniforms, row_starts, budgets, offsets, rate, mode):  # type: ignore[no-untyped-def]
    """Go through each row's units in the order of their uniforms and take some of them.

    BELOW takes those under `rate` until there are `budgets` (R,), WINDOW those that begin in the
    window of `budgets` tokens from the share `offsets` of the circle, FITTING every one that the
    budget still has room for.
    """
    selected = np.zeros(len(heads), dtype=np.bool_)
    longest = 0
    for r in range(len(row_starts) - 1):
        longest = max(longest, row_starts[r + 1] - row_starts[r])
    first = np.empty(longest + 1, dtype=np.int64)
    stops = np.empty(longest + 2, dtype=np.int64)  # of unit u at u + 1; 0 takes what is no unit's
    order = np.empty(longest, dtype=np.int64)
    drawn = np.empty(longest)
    bins = np.empty(longest + 2, dtype=np.int64)
    for r in range(len(row_starts) - 1):
        units = 0
        tokens = 0
        for i in range(row_starts[r], row_starts[r + 1]):
            first[units] = i  # no branch: where units begin, no processor can foresee
            units += heads[i] == i
            stops[units * (heads[i] >= 0)] = i + 1
            tokens += heads[i] >= 0
        bins[: units + 1] = 0  # sort by uniform: into as many bins as units, then neighbours
        for u in range(units):
            bins[int(uniforms[first[u]] * units) + 1] += 1
        for u in range(units):
            bins[u + 1] += bins[u]
        for u in range(units):
            draw = uniforms[first[u]]
            b = int(draw * units)
            order[bins[b]] = u
            drawn[bins[b]] = draw
            bins[b] += 1
        for j in range(1, units):
            u, draw = order[j], drawn[j]
            k = j
            while k > 0 and drawn[k - 1] > draw:
                order[k], drawn[k] = order[k - 1], drawn[k - 1]
                k -= 1
            order[k], drawn[k] = u, draw
        reached = 0  # tokens from the window's start to the unit's
        k = 0
        if mode == WINDOW and tokens > 0:
            start = int(offsets[r] * tokens)
            while start > 0:  # a unit that began before the window is the last one of the circle
                start -= stops[order[k] + 1] - first[order[k]]
                k += 1
            reached = -start
        taken = 0
        for j in range(units):
            place = k + j if k + j < units else k + j - units
            unit = order[place]
            size = stops[unit + 1] - first[unit]
            if mode == BELOW and (drawn[place] >= rate or taken == budgets[r]):
                break
            if mode == WINDOW and reached >= budgets[r]:
                break
            if mode == FITTING and taken + size > budgets[r]:
                continue
            selected[first[unit] : stops[unit + 1]] = True
            taken += size
            reached += size
    return selected
