"""Plan + masked batch -> rows that a person reads: each token's original, what is shown, and why.

What is told apart is what the encoder can be told apart by: a random token that is the original one
looks, and is trained, like a kept one.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ablate.inputs.pairs import NEXT, NO_PAIR, PAIRINGS, RANDOM, SWAPPED
from ablate.inputs.plan import Plan
from ablate.inputs.rows import assemble
from ablate.inspect.pieces import Pieces

TEXT, SPECIAL, MASKED, REPLACED, VISIBLE = "text", "special", "masked", "replaced", "visible"
LEGEND = {
    MASKED: ("[MASK:dog]", "the encoder sees [MASK] and predicts dog"),
    REPLACED: ("[cat→run]", "it sees the random token run and predicts cat"),
    VISIBLE: ("[=dog]", "it sees dog and predicts dog: kept, or a random draw that gave dog again"),
    "unpredicted": ("(MASK:dog) (cat→run)", "hidden or replaced, and nothing is predicted"),
    SPECIAL: ("[CLS]", "not eligible: nothing is selected there"),
    TEXT: (
        "[...] (...)",
        "[ ] has a loss, ( ) has none; plain text is as it was, without one",
    ),
}


@dataclass(frozen=True)
class Token:
    """One position. `attached`: goes on without a blank from the one before."""

    kind: str
    predicted: bool
    original: str
    shown: str
    original_id: int
    shown_id: int
    attached: bool

    @property
    def style(self) -> str:
        """Key of `LEGEND`, or `text`."""
        hidden = self.kind in (MASKED, REPLACED)
        return "unpredicted" if hidden and not self.predicted else self.kind

    @property
    def parts(self) -> tuple[str, str, str]:
        """Mark before, original token, mark after: [MASK:dog], [cat→run], [=dog], dog."""
        if self.kind in (TEXT, SPECIAL):
            return "", self.original, ""
        opening, closing = "[]" if self.predicted else "()"
        if self.kind == REPLACED:
            return opening, self.original, f"→{self.shown}{closing}"
        return opening + ("MASK:" if self.kind == MASKED else "="), self.original, closing


@dataclass(frozen=True)
class Row:
    """`lines`: a pair's A and B, or the documents of a packed row; `pair` is a phrase or empty."""

    number: int
    pair: str
    lines: list[list[Token]] = field(default_factory=list)

    @property
    def tokens(self) -> list[Token]:
        return [token for line in self.lines for token in line]


def pair_phrase(plan: Plan, row: int) -> str:
    """What B is to A, in the words of the loss that reads the label; empty where rows are none."""
    if plan.pairing is None or plan.pair_labels is None:
        return ""
    label = int(plan.pair_labels[row])
    if label == NO_PAIR:
        return "no pair: one segment, no label"
    kinds = PAIRINGS[plan.pairing]
    follows = "next: B follows A" if RANDOM in kinds else "in order: B follows A"
    return {
        NEXT: follows,
        RANDOM: "random: B is from another document",
        SWAPPED: "swapped: A follows B in the text",
    }[kinds[label]]


def shown_rows(data: Any, plan: Plan, count: int, *, epoch: int, progress: float) -> list[Row]:
    """The first `count` rows of the plan, masked as they are trained on."""
    numbers = np.arange(min(count, plan.num_rows))
    if not len(numbers):
        return []
    flat = assemble(data.store, data.tokenizer, plan, numbers)
    batch, _ = data.rows.batch(plan, numbers, epoch=epoch, progress=progress)
    ids = batch.input_ids.numpy()
    predicted = np.zeros(len(ids), dtype=bool)
    predicted[batch.predict_positions.numpy()] = True
    pieces = Pieces(data.tokenizer)
    originals = pieces.row(flat.input_ids, flat.word_starts, ~flat.eligible)
    tokens = []
    for i, piece in enumerate(originals):
        original_id, shown_id = int(flat.input_ids[i]), int(ids[i])
        kind = TEXT
        if not flat.eligible[i]:
            kind = SPECIAL
        elif shown_id == data.tokenizer.mask_token_id:
            kind = MASKED
        elif shown_id != original_id:
            kind = REPLACED
        elif predicted[i]:
            kind = VISIBLE
        shown = piece.text if shown_id == original_id else pieces.lone(shown_id)
        tokens.append(
            Token(
                kind, bool(predicted[i]), piece.text, shown, original_id, shown_id, piece.attached
            )
        )
    starts = np.concatenate([[0], np.cumsum(flat.lengths)])
    begins = _line_begins(flat.input_ids, flat.token_type_ids, data.tokenizer.cls_token_id)
    rows = []
    for number in numbers.tolist():
        row = slice(int(starts[number]), int(starts[number + 1]))
        edges = [*(np.flatnonzero(begins[row]) + row.start).tolist(), row.stop]
        lines = [tokens[a:b] for a, b in itertools.pairwise(edges)]
        rows.append(Row(number, pair_phrase(plan, number), lines))
    return rows


def _line_begins(ids: np.ndarray, types: np.ndarray, cls_token_id: int) -> np.ndarray:
    """(N,) bool: a [CLS], or the first token of segment B."""
    begins = ids == cls_token_id
    begins[1:] |= (types[1:] == 1) & (types[:-1] == 0)
    return begins


def line_names(row: Row) -> list[str]:
    """What stands before each line: which segment of a pair it is."""
    return ["A: ", "B: "] if len(row.lines) == 2 and row.pair else [""] * len(row.lines)
