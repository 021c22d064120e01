"""A plan of rows -> lines of the table: kinds of pairs, fill, tokens that no row shows."""

from __future__ import annotations

from ablate.inputs.pairs import NEXT, NO_PAIR, PAIRINGS, RANDOM, SWAPPED
from ablate.inspect.lines import Line
from ablate.inspect.walk import Walk


def pair_lines(walk: Walk, sampling: str) -> list[Line]:
    """How many pairs are of each kind; `sampling` is `input_format.pair_sampling`."""
    pairing = walk.first_plan.pairing
    if pairing is None:
        return []
    kinds = PAIRINGS[pairing]
    labelled = sum(walk.pairs.get(kind, 0) for kind in kinds)
    names = {NEXT: "next" if RANDOM in kinds else "in order", RANDOM: "random", SWAPPED: "swapped"}
    nominal, why = 1.0 / len(kinds), ""
    if RANDOM in kinds:
        why = f"{nominal:.0%} where drawn; one sentence alone is always random: no interval"
    if sampling == "exact":
        why = "kinds are balanced, not drawn: no interval"
    lines = [
        Line("pairs", f"{names[kind]} pairs", "of the pairs", walk.pairs.get(kind, 0), labelled,
             None if RANDOM in kinds and sampling != "exact" else nominal, not why, why)
        for kind in kinds
    ]  # fmt: skip
    if walk.pairs.get(NO_PAIR, 0):
        lines.append(
            Line("pairs", "rows of one segment", "of the rows", walk.pairs[NO_PAIR],
                 labelled + walk.pairs[NO_PAIR], note="one sentence left: no pair, no label")
        )  # fmt: skip
    return lines


def row_lines(walk: Walk) -> list[Line]:
    """Fill and losses of the first epoch's plan."""
    plan = walk.first_plan
    found = plan.statistics
    shown = int(found.get("tokens_in_rows", 0)) - int(found.get("partner_tokens", 0))
    dropped = int(found.get("tokens_dropped", 0))
    lines = [
        Line("rows", "fill of the rows", f"tokens of {plan.num_rows:,} rows of the epoch",
             int(plan.row_lengths.sum()), plan.num_rows * plan.max_length,
             note="[CLS] and [SEP] included; of max_length")
    ]  # fmt: skip
    reasons = [name for name in found if name.startswith("tokens_dropped_")]
    for name in reasons or ["tokens_dropped"]:
        title = "tokens dropped" + name.removeprefix("tokens_dropped").replace("_", ", ", 1)
        lines.append(
            Line("rows", title.replace("_", " "), "of the epoch's tokens", int(found.get(name, 0)),
                 shown + dropped)
        )  # fmt: skip
    if "partner_tokens_cut" in found:
        cut = int(found["partner_tokens_cut"])
        lines.append(
            Line("rows", "tokens cut off random partners", "of those drawn", cut,
                 cut + int(found["partner_tokens"]), note="they are shown elsewhere at their place")
        )  # fmt: skip
    return lines
