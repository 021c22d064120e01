"""`pairing`, `nsp` and `sop` -> kinds that a pair may be, their labels, classes of the loss.

A label counts the kinds of the pairing: 0 is always "B follows A", so BERT's polarity (0 next,
1 random) and ALBERT's (0 in order, 1 swapped) are both kept. Rows and losses are separate factors:
a loss reads the kinds it is defined on and passes over the others, so `nsp` and `sop` can be
compared on the same rows of `next_random_or_swapped`.
"""

from __future__ import annotations

NEXT, RANDOM, SWAPPED = 0, 1, 2  # kinds: A B of one document, B of another one, B A
NO_PAIR = -100  # the label that torch's cross-entropy passes over
PAIRINGS = {
    "next_or_random": (NEXT, RANDOM),  # Devlin et al. 2019, sec. 3.1
    "ordered_or_swapped": (NEXT, SWAPPED),  # Lan et al. 2019, sec. 3.1
    "next_random_or_swapped": (NEXT, RANDOM, SWAPPED),
}
LOSSES = {
    "nsp": PAIRINGS["next_or_random"],
    "sop": PAIRINGS["ordered_or_swapped"],
    "nsp_sop": PAIRINGS["next_random_or_swapped"],
}
SAMPLINGS = ("bert", "exact")


def loss_name(*, nsp: bool, sop: bool) -> str | None:
    """The loss on pairs, a key of `LOSSES`; both together are one loss of three classes."""
    return "_".join(["nsp"] * nsp + ["sop"] * sop) or None


def resolve_pairing(pairing: str, *, nsp: bool, sop: bool) -> str:
    """What `auto` stands for; with neither loss the rows are those of `nsp`."""
    if pairing != "auto":
        return pairing
    wanted = LOSSES[loss_name(nsp=nsp, sop=sop) or "nsp"]
    return next(name for name, kinds in PAIRINGS.items() if kinds == wanted)


def loss_classes(pairing: str, loss: str | None) -> tuple[int, ...]:
    """For each label of `pairing`, the class of `loss`, or `NO_PAIR` where it reads none."""
    if loss is None:
        return ()
    read = LOSSES[loss]
    return tuple(read.index(kind) if kind in read else NO_PAIR for kind in PAIRINGS[pairing])
