"""Tags of whole sentences, given and predicted -> accuracy and entity F1, with standard errors.

Entity F1 is seqeval's, in its default mode, which decides as the CoNLL-2000 script `conlleval` does
for BIO tags: an I- that continues nothing begins an entity, and an entity is right where its type
and both ends are (micro over all entities). seqeval's strict IOB2 mode would leave such entities
out: the two differ for predictions that are not well formed. Tjong Kim Sang and De Meulder 2003.

Both scores are ratios of sums over sentences, whose words are not independent of each other: the
standard error takes the sentence as what is drawn (`ratio_error`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ablate.evaluation.metrics import Score

TAGGING_METRICS = ("accuracy", "entity_f1")
Tags = Sequence[Sequence[str]]


def score(metric: str, predicted: Tags, gold: Tags) -> Score:
    """One of `TAGGING_METRICS` over all sentences; 0 and `degenerate` where F1 has no entity."""
    if metric == "accuracy":
        right, words = counts(metric, predicted, gold).T
        return Score(float(right.sum() / words.sum()))
    from seqeval.metrics import f1_score

    here = [list(tags) for tags in gold], [list(tags) for tags in predicted]
    return Score(
        float(f1_score(*here, zero_division=0)),
        None if counts(metric, predicted, gold)[:, 1].any() else "degenerate",
    )


def counts(metric: str, predicted: Tags, gold: Tags) -> np.ndarray:
    """(sentences, 2): their share of the numerator and the denominator of the metric."""
    if metric == "accuracy":
        return np.array(
            [
                (sum(a == b for a, b in zip(p, g, strict=True)), len(g))
                for p, g in zip(predicted, gold, strict=True)
            ]
        )
    from seqeval.metrics.sequence_labeling import get_entities

    pairs = [
        (set(get_entities(list(p))), set(get_entities(list(g))))
        for p, g in zip(predicted, gold, strict=True)
    ]
    return np.array([(2 * len(p & g), len(p) + len(g)) for p, g in pairs])


def num_entities(tags: Tags) -> int:
    """How many entities the sentences hold."""
    from seqeval.metrics.sequence_labeling import get_entities

    return sum(len(get_entities(list(row))) for row in tags)


def check_iob(tags: Sequence[Any], *, task: str) -> None:
    """Refuse tags that entity F1 cannot read.

    Raises:
        ValueError: names them.
    """
    wrong = [tag for tag in tags if tag != "O" and (tag[:2] not in ("B-", "I-") or len(tag) < 3)]
    if wrong:
        raise ValueError(
            f"task {task!r}: entity_f1 reads O, B-<type> and I-<type>, and the data has "
            f"{wrong[:5]}; convert them, or take metrics: [accuracy]"
        )
