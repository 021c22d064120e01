"""Predictions of one or more fits on the same examples -> standard errors of their mean scores.

What is resampled is the examples, jointly over fine-tuning seeds and over the metrics of a split:
the answer is to "what if other examples had been drawn", and says nothing of other pretraining
seeds. Accuracy has a closed form (binomial for one fit); the others are bootstrapped, with draws
that depend on the number of examples alone, so that a score has one standard error everywhere.
Legend: S fits, n examples, B resamples.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ablate import rng
from ablate.evaluation.metrics import METRICS, REGRESSION_METRICS

NUM_RESAMPLES = 1000
_CELLS = 4_000_000  # of one block of weights, (resamples, n)


class StandardError(NamedTuple):
    """`method`: binomial | examples (s.d. of their means over fits / sqrt n) | bootstrap."""

    value: float
    method: str


def of_split(
    metrics: Sequence[str], predictions: Sequence[np.ndarray], labels: np.ndarray
) -> tuple[dict[str, StandardError], dict[tuple[str, str], float]]:
    """Of the mean over fits of each metric, and how the errors of each two go together.

    `predictions` holds S arrays (n,), of the same examples in the same order.
    """
    alone = len(metrics) == 1
    drawn = {
        metric: replicates(metric, predictions, labels)
        for metric in metrics
        if not (alone and metric == "accuracy")
    }
    errors = {}
    for metric in metrics:
        if metric == "accuracy":
            right = np.mean([found == labels for found in predictions], axis=0)
            errors[metric] = of_mean(right, exact=len(predictions) == 1)
        else:
            errors[metric] = StandardError(float(drawn[metric].std()), "bootstrap")
    return errors, {
        (first, second): _correlation(drawn[first], drawn[second])
        for number, first in enumerate(metrics)
        for second in metrics[number + 1 :]
    }


def of_mean(values: np.ndarray, *, exact: bool = False) -> StandardError:
    """Of the mean of one number an example (share of right answers, 0 or 1 where `exact`)."""
    return StandardError(
        float(values.std() / len(values) ** 0.5), "binomial" if exact else "examples"
    )


def replicates(metric: str, predictions: Sequence[np.ndarray], labels: np.ndarray) -> np.ndarray:
    """The mean over fits of a metric on each of the resamples, (B,).

    A resample in which the metric is undefined counts 0, as the metric itself does; outputs that
    are not finite score 0 in all. Classes are drawn by kinds of examples (equal label and equal
    predictions), which is the same distribution and costs nothing for many examples.
    """
    n = len(labels)
    if metric in REGRESSION_METRICS:
        return resampled(lambda weights: _mean(metric, predictions, labels, weights), n)
    kinds, counts = np.unique(np.stack([labels, *predictions]), axis=1, return_counts=True)
    draw = rng.generator(0, "bootstrap", n)
    weights = draw.multinomial(n, counts / n, size=NUM_RESAMPLES).astype(np.float64)
    return _mean(metric, list(kinds[1:]), kinds[0], weights)


def _mean(
    metric: str, predictions: Sequence[np.ndarray], labels: np.ndarray, weights: np.ndarray
) -> np.ndarray:
    found = [
        METRICS[metric](values, labels, weights)
        if np.isfinite(values).all()
        else np.zeros(len(weights))
        for values in predictions
    ]
    return np.mean(found, axis=0)


def resampled(
    statistic: Callable[[np.ndarray], np.ndarray], n: int, *, resamples: int = NUM_RESAMPLES
) -> np.ndarray:
    """A statistic of weights (b, n) -> (b,), on each of the resamples of n examples, (B,)."""
    draw = rng.generator(0, "bootstrap", n)
    block = max(_CELLS // n, 1)
    found = []
    for begin in range(0, resamples, block):
        count = min(block, resamples - begin)
        chosen = draw.integers(0, n, (count, n)) + n * np.arange(count)[:, None]
        weights = np.bincount(chosen.ravel(), minlength=count * n).reshape(count, n)
        found.append(statistic(weights.astype(np.float64)))
    return np.concatenate(found)


def _correlation(first: np.ndarray, second: np.ndarray) -> float:
    """0 where one of them does not vary."""
    spread = first.std() * second.std()
    if spread <= 1e-15:
        return 0.0
    return float(
        np.clip(np.mean((first - first.mean()) * (second - second.mean())) / spread, -1, 1)
    )


def of_combination(
    gradient: Mapping[str, float],
    errors: Mapping[str, float],
    correlated: Mapping[tuple[str, str], float],
) -> float:
    """Standard error of a number whose change with each score is `gradient[name]`.

    Scores on different examples are independent; for those on the same ones `correlated` holds the
    correlation of their errors. For a plain mean of k scores the gradient is 1 / k each: the error
    belongs to that mean and to no other weighting of the same scores.
    """
    names = list(gradient)
    parts = np.array([gradient[name] * errors[name] for name in names])
    matrix = np.eye(len(names))
    for (first, second), value in correlated.items():
        if first in gradient and second in gradient:
            i, j = names.index(first), names.index(second)
            matrix[i, j] = matrix[j, i] = value
    return float(max(parts @ matrix @ parts, 0.0) ** 0.5)
