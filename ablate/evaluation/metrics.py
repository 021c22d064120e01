"""Predictions and labels of a whole split -> named scores and baselines, in numpy alone.

Every score is computed once over all examples (never a mean over batches), with the averaging
named here; tests hold each equal to torchmetrics, scikit-learn and scipy. Each takes `weights` -
how often an example counts - so that a thousand resamples are one call (`uncertainty`). Where a
score is undefined it is 0 - the convention of GLUE's own scorer - and a flag stands beside it, so
that an average can say what it rests on. Legend: n examples, B sets of weights, C classes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

BELOW_CHANCE_SDS = 4.0


class Score(NamedTuple):
    """A value that is always a number. `flag`: None | degenerate | undefined | not_finite |
    below_chance."""

    value: float
    flag: str | None = None


def accuracy(predictions: np.ndarray, labels: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Share of examples whose class is right (micro, not a mean of class recalls), (B,)."""
    return weights @ (predictions == labels) / weights.sum(axis=1)


def f1(predictions: np.ndarray, labels: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """F1 of class 1; 0 where class 1 is never right, (B,)."""
    found, gold = predictions == 1, labels == 1
    return _ratio(2.0 * (weights @ (found & gold)), weights @ found + weights @ gold)


def mcc(predictions: np.ndarray, labels: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Matthews correlation of any number of classes (Gorodkin 2004), (B,).

    0 where predictions or labels hold one class only.
    """
    classes = np.unique(np.concatenate([predictions, labels]))
    found = weights @ (predictions[:, None] == classes)  # (B, C)
    gold = weights @ (labels[:, None] == classes)
    total = weights.sum(axis=1, dtype=np.float64)
    right = weights @ (predictions == labels)
    over = right * total - (found * gold).sum(axis=1)
    spread = [total**2 - (side.astype(np.float64) ** 2).sum(axis=1) for side in (found, gold)]
    return _ratio(over, np.sqrt(spread[0]) * np.sqrt(spread[1]))


def pearson(predictions: np.ndarray, labels: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Linear correlation; 0 where either side is constant, (B,)."""
    n = weights.sum(axis=1, dtype=np.float64)
    x, y = _standard(predictions), _standard(labels)
    mean_x, mean_y = weights @ x / n, weights @ y / n
    over = weights @ (x * y) / n - mean_x * mean_y
    spread_x = np.maximum(weights @ (x * x) / n - mean_x**2, 0.0)
    spread_y = np.maximum(weights @ (y * y) / n - mean_y**2, 0.0)
    return np.clip(_ratio(over, np.sqrt(spread_x * spread_y)), -1.0, 1.0)


def spearman(predictions: np.ndarray, labels: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Rank correlation (ties share their mean rank); 0 where either side is constant, (B,)."""
    x, y = _ranks(predictions, weights), _ranks(labels, weights)
    weighted = weights * x
    over = np.einsum("bn,bn->b", weighted, y)
    spread_x = np.einsum("bn,bn->b", weighted, x)
    spread_y = np.einsum("bn,bn->b", weights * y, y)
    return np.clip(_ratio(over, np.sqrt(spread_x * spread_y)), -1.0, 1.0)


Metric = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
METRICS: dict[str, Metric] = {
    "accuracy": accuracy,
    "f1": f1,
    "mcc": mcc,
    "pearson": pearson,
    "spearman": spearman,
}
REGRESSION_METRICS = ("pearson", "spearman")


def check_metrics(
    names: tuple[str, ...], *, regression: bool, task: str, num_labels: int = 2
) -> None:
    """Refuse metrics that do not exist or do not fit the labels (F1 is of class 1, of two).

    Raises:
        ValueError: names the task, what was given and what fits.
    """
    allowed = [name for name in METRICS if (name in REGRESSION_METRICS) == regression]
    wrong = [name for name in names if name not in allowed]
    if wrong:
        kind = "regression (no labels)" if regression else "classification"
        raise ValueError(f"task {task!r}: metrics {wrong} do not fit {kind}; allowed: {allowed}")
    if "f1" in names and num_labels != 2:
        raise ValueError(
            f"task {task!r}: metrics {list(names)} for {num_labels} labels: f1 is that of the "
            "second of two labels; allowed here: accuracy, mcc. Type metrics: [accuracy] or [mcc]"
        )


def score(
    name: str, predictions: np.ndarray, labels: np.ndarray, *, num_classes: int | None = None
) -> Score:
    """One metric over all examples of a split, both arguments (n,).

    With `num_classes` (correlations need none) a score far below what guessing gets is flagged
    `below_chance`: labels and predictions are then likely numbered in different orders.
    """
    predictions, labels = np.asarray(predictions), np.asarray(labels)
    assert len(predictions) == len(labels) > 0
    flag = _undefined(name, predictions, labels)
    if flag is not None and name != "f1":
        return Score(0.0, flag)
    value = float(METRICS[name](predictions, labels, np.ones((1, len(labels))))[0])
    return Score(value, flag or _below_chance(name, value, len(labels), num_classes))


def majority_prediction(train_labels: np.ndarray, *, regression: bool) -> float:
    """What a model that reads nothing says: the commonest class (lowest on ties), or the mean."""
    if regression:
        return float(np.mean(train_labels))
    return float(np.bincount(train_labels).argmax())


def is_constant(values: np.ndarray) -> bool:
    """Whether all values are one; for floats, up to rounding at their own scale."""
    if values.dtype.kind == "f":
        return bool(np.ptp(values) <= 1e-6 * np.abs(values).max())
    return bool((values == values[0]).all())


def _undefined(name: str, predictions: np.ndarray, labels: np.ndarray) -> str | None:
    if name in REGRESSION_METRICS:
        if not np.isfinite(predictions).all():
            return "not_finite"
        return "undefined" if is_constant(predictions) or is_constant(labels) else None
    if name == "mcc" and (len(np.unique(predictions)) < 2 or len(np.unique(labels)) < 2):
        return "degenerate"
    if name == "f1" and not (np.any(predictions == 1) or np.any(labels == 1)):
        return "degenerate"
    return None


def _below_chance(name: str, value: float, n: int, num_classes: int | None) -> str | None:
    """FAULTS B19: accuracy of an even guess, or a correlation of 0, less 4 standard deviations."""
    if name in ("mcc", *REGRESSION_METRICS):
        chance, sd = 0.0, max(n - 1, 1) ** -0.5
    elif name == "accuracy" and num_classes is not None:
        chance = 1.0 / num_classes
        sd = (chance * (1.0 - chance) / n) ** 0.5
    else:
        return None
    return "below_chance" if value < chance - BELOW_CHANCE_SDS * sd else None


def _ratio(over: np.ndarray, under: np.ndarray) -> np.ndarray:
    """Quotient, 0 where the divisor is (up to rounding) 0."""
    tiny = under <= 1e-12
    return np.where(tiny, 0.0, over / np.where(tiny, 1.0, under))


def _standard(values: np.ndarray) -> np.ndarray:
    """Mean 0 and s.d. 1: correlation has no scale, and small values would lose their bits."""
    values = values.astype(np.float64)
    return (values - values.mean()) / (values.std() or 1.0)


def _ranks(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Mean ranks under each set of weights, less their weighted mean, (B, n)."""
    order = np.argsort(values, kind="stable")
    starts = np.flatnonzero(np.diff(values[order], prepend=-np.inf))  # of equal values
    held = weights[:, order]
    if len(starts) < len(values):
        held = np.add.reduceat(held, starts, axis=1)  # (B, distinct values)
    ranks = np.cumsum(held, axis=1) - held / 2.0 - weights.sum(axis=1, keepdims=True) / 2.0
    group = np.empty(len(values), dtype=np.int64)
    group[order] = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(values)))
    return ranks[:, group]
