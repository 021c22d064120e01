"""Sizes of pieces -> the row of each: best-fit-decreasing bin packing.

Pieces go from the longest to the shortest, each into the row with the least space that still takes
it, or into a new row. Packing whole documents so, and cutting only those longer than a row, is
best-fit packing (Ding et al. 2024, "Fewer Truncations Improve Language Modeling"). A tree over the
possible spaces finds the tightest row in log2(max_length) steps, whatever the number of rows.
"""

from __future__ import annotations

import numpy as np


def best_fit(generator, sizes, order, max_length, short_seq_prob, shortest):  # type: ignore[no-untyped-def]
    """Row of each piece (P,) and the number of rows, of which some may have stayed empty.

    Pieces are taken in `order`, which must not let a longer one follow a shorter one. A row holds
    `max_length`; for a share `short_seq_prob` of the fewest rows that could hold all, a row of a
    random limit from `shortest` to that stands open from the start, since one opened by a piece
    could not be shorter than the longest piece left.
    """
    width = 1
    while width <= max_length:
        width *= 2
    fewest = sizes.sum() // max_length + 1
    tree = np.zeros(2 * width, dtype=np.int64)  # node -> rows with a space below it
    newest = np.full(width, -1, dtype=np.int64)  # space -> the last row that has it
    before = np.empty(len(sizes) + fewest, dtype=np.int64)  # row -> one before it with its space
    row_of = np.empty(len(sizes), dtype=np.int64)
    rows = 0
    if short_seq_prob > 0.0:
        for _ in range(fewest):
            if generator.random() < short_seq_prob:
                space = shortest + int(generator.random() * (max_length - shortest + 1))
                before[rows] = newest[space]
                newest[space] = rows
                tree[width + space] += 1
                rows += 1
        for node in range(width - 1, 0, -1):
            tree[node] = tree[2 * node] + tree[2 * node + 1]
    for piece in order:
        size = sizes[piece]
        node = width + size
        if tree[node] == 0:  # up, until a larger space stands to the right
            while node > 1 and (node % 2 == 1 or tree[node + 1] == 0):
                node //= 2
            node = node + 1 if node > 1 else 0
        if node == 0:
            row, space = rows, max_length
            rows += 1
        else:
            while node < width:  # down to the smallest space
                node = 2 * node if tree[2 * node] > 0 else 2 * node + 1
            space = node - width
            row = newest[space]
            newest[space] = before[row]
            while node > 0:
                tree[node] -= 1
                node //= 2
        row_of[piece] = row
        left = space - size
        before[row] = newest[left]
        newest[left] = row
        node = width + left
        while node > 0:
            tree[node] += 1
            node //= 2
    return row_of, rows
