"""Scores and grades of a query's candidates -> nDCG, reciprocal rank, recall, with ties made fair.

A rank is not defined among equal scores, and an order that happens to put the relevant document
first gives a constant scorer 1. Here every order of tied documents is equally likely and a metric
is its expected value (McSherry and Najork 2008; scikit-learn's `ndcg_score` does the same): a
constant scorer gets exactly what a random order gets. Documents without a grade add nothing, so a
ranking is known by the `Places` of the relevant ones, and a collection of any size is stored as
few numbers. Gains are the grades themselves, discounts 1 / log2(rank + 1).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np


class Places(NamedTuple):
    """Relevant documents of one ranking, (m,): how many others score higher than each, how many
    score the same (itself among them), and its grade (above 0)."""

    above: np.ndarray
    tied: np.ndarray
    grades: np.ndarray


def places(scores: np.ndarray, relevant: np.ndarray, grades: np.ndarray) -> Places:
    """Where the documents numbered `relevant` (m,) stand among all `scores` (n,).

    What is not a number stands last, tied with its like.
    """
    scores = np.where(np.isnan(scores), -np.inf, scores)
    own = scores[relevant][:, None]
    return Places((scores > own).sum(1), (scores == own).sum(1), np.asarray(grades, np.float64))


def random_places(num_documents: int, grades: np.ndarray) -> Places:
    """All documents tied: the expectation of a random order."""
    nothing = np.zeros(len(grades), dtype=np.int64)
    return Places(nothing, nothing + num_documents, np.asarray(grades, np.float64))


def ndcg(found: Places, k: int) -> float:
    """Expected discounted gain of the first k, over that of the best order."""
    longest = int((found.above + found.tied).max(initial=k))
    summed = np.concatenate([[0.0], np.cumsum(_discounts(longest, k))])
    mean = (summed[found.above + found.tied] - summed[found.above]) / found.tied
    best = np.sort(found.grades)[::-1]
    ideal = float(best @ _discounts(len(best), k))
    return float(found.grades @ mean) / ideal if ideal else 0.0


def reciprocal_rank(found: Places, k: int) -> float:
    """Expected 1 / rank of the first relevant document, 0 where it stands behind the first k."""
    if not len(found.above):
        return 0.0
    first = found.above.min()
    group = int(found.tied[found.above == first][0])
    relevant = int((found.above == first).sum())
    # P(the first of `relevant` among `group` places is the j-th), from the product of its survival
    place = np.arange(1, group + 1)
    hazard = np.minimum(relevant / (group - place + 1), 1.0)
    reached = np.concatenate([[1.0], np.cumprod(1.0 - hazard)[:-1]])
    ranks = first + place
    return float((reached * hazard / ranks)[ranks <= k].sum())


def recall(found: Places, k: int) -> float:
    """Expected share of the relevant documents that stand in the first k."""
    if not len(found.above):
        return 0.0
    return float(np.clip((k - found.above) / found.tied, 0.0, 1.0).mean())


METRICS: dict[str, Callable[[Places, int], float]] = {
    "ndcg": ndcg,
    "mrr": reciprocal_rank,
    "recall": recall,
}


def by_query(name: str, found: Sequence[Places]) -> np.ndarray:
    """One value a query of a metric such as `ndcg10`, (q,)."""
    metric = METRICS[name.rstrip("0123456789")]
    k = int(name[len(name.rstrip("0123456789")) :])
    return np.array([metric(one, k) for one in found])


def _discounts(length: int, k: int) -> np.ndarray:
    """Of ranks 1 .. length; 0 beyond k."""
    ranks = np.arange(1, length + 1)
    return np.where(ranks <= k, 1.0 / np.log2(ranks + 1), 0.0)
