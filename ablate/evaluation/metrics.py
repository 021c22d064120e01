"""Predictions and labels of a whole split -> named scores, baselines and averages.

Every score is computed once over all examples (never a mean over batches) by torchmetrics, with the
averaging named here: its defaults would make F1 the micro one and accuracy class-averaged. Where a
score is undefined it is 0 - the convention of GLUE's own scorer - and a flag stands beside it, so
that an average can say what it rests on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

# GLUE without WNLI; each task the plain mean of its scores here, the rule the plain mean of tasks.
MEAN8: dict[str, tuple[str, ...]] = {
    "cola": ("mcc",),
    "sst2": ("accuracy",),
    "mrpc": ("f1", "accuracy"),
    "stsb": ("pearson", "spearman"),
    "qqp": ("f1", "accuracy"),
    "mnli": ("matched_accuracy", "mismatched_accuracy"),
    "qnli": ("accuracy",),
    "rte": ("accuracy",),
}
RULES = {"mean8": MEAN8}


class Score(NamedTuple):
    """A value that is always a number. `flag`: None | degenerate | undefined | not_finite."""

    value: float
    flag: str | None = None


def accuracy(predictions: np.ndarray, labels: np.ndarray) -> Score:
    """Share of examples whose class is right (micro, not a mean of class recalls)."""
    from torchmetrics.functional.classification import multiclass_accuracy

    classes = _num_classes(predictions, labels)
    found = multiclass_accuracy(*_tensors(predictions, labels), classes, average="micro")
    return Score(float(found))


def f1(predictions: np.ndarray, labels: np.ndarray) -> Score:
    """F1 of class 1; 0 where class 1 is never predicted."""
    from torchmetrics.functional.classification import binary_f1_score

    flag = None if np.any(predictions == 1) or np.any(labels == 1) else "degenerate"
    return Score(float(binary_f1_score(*_tensors(predictions, labels))), flag)


def mcc(predictions: np.ndarray, labels: np.ndarray) -> Score:
    """Matthews correlation; 0 and `degenerate` where predictions or labels hold one class only."""
    from torchmetrics.functional.classification import multiclass_matthews_corrcoef

    if len(np.unique(predictions)) < 2 or len(np.unique(labels)) < 2:
        return Score(0.0, "degenerate")
    classes = _num_classes(predictions, labels)
    return Score(float(multiclass_matthews_corrcoef(*_tensors(predictions, labels), classes)))


def pearson(predictions: np.ndarray, labels: np.ndarray) -> Score:
    """Linear correlation; 0 and `undefined` where either side is constant."""
    from torchmetrics.functional import pearson_corrcoef

    return _correlation(pearson_corrcoef, predictions, labels)


def spearman(predictions: np.ndarray, labels: np.ndarray) -> Score:
    """Rank correlation (ties share their mean rank); 0 and `undefined` as in `pearson`."""
    from torchmetrics.functional import spearman_corrcoef

    return _correlation(spearman_corrcoef, predictions, labels)


METRICS: dict[str, Callable[[np.ndarray, np.ndarray], Score]] = {
    "accuracy": accuracy,
    "f1": f1,
    "mcc": mcc,
    "pearson": pearson,
    "spearman": spearman,
}
REGRESSION_METRICS = ("pearson", "spearman")


def check_metrics(names: tuple[str, ...], *, regression: bool, task: str) -> None:
    """Refuse metrics that do not exist or do not fit the kind of label.

    Raises:
        ValueError: names the task, what was given and what fits.
    """
    allowed = [name for name in METRICS if (name in REGRESSION_METRICS) == regression]
    wrong = [name for name in names if name not in allowed]
    if wrong:
        kind = "regression (no labels)" if regression else "classification"
        raise ValueError(f"task {task!r}: metrics {wrong} do not fit {kind}; allowed: {allowed}")


def score(name: str, predictions: np.ndarray, labels: np.ndarray) -> Score:
    """One metric over all examples of a split, both arguments (n,)."""
    assert len(predictions) == len(labels) > 0
    return METRICS[name](np.asarray(predictions), np.asarray(labels))


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


def average(rule: str, scores: Mapping[str, float]) -> dict[str, Any]:
    """Apply an aggregation rule to scores such as `glue/cola/mcc`.

    Returns {"value", "missing", "formula"}; the value is None where any score is missing: the
    average of fewer tasks is another quantity and does not get this name.
    """
    tasks = RULES[rule]
    needed = {task: [f"glue/{task}/{metric}" for metric in tasks[task]] for task in tasks}
    missing = [name for names in needed.values() for name in names if name not in scores]
    value = None
    if not missing:
        value = float(np.mean([np.mean([scores[n] for n in names]) for names in needed.values()]))
    formula = ", ".join(f"{task} {'/'.join(metrics)}" for task, metrics in tasks.items())
    return {"value": value, "missing": missing, "formula": f"mean over tasks of: {formula}"}


def _correlation(function: Any, predictions: np.ndarray, labels: np.ndarray) -> Score:
    predictions, labels = predictions.astype(np.float64), labels.astype(np.float64)
    if not np.isfinite(predictions).all():
        return Score(0.0, "not_finite")
    if is_constant(predictions) or is_constant(labels):
        return Score(0.0, "undefined")
    # Correlation has no scale; the library warns about small variances, so it is given unit ones.
    return Score(float(function(*_tensors(_standard(predictions), _standard(labels)))))


def _standard(values: np.ndarray) -> np.ndarray:
    return (values - values.mean()) / values.std()


def _num_classes(predictions: np.ndarray, labels: np.ndarray) -> int:
    return int(max(predictions.max(), labels.max(), 1)) + 1


def _tensors(predictions: np.ndarray, labels: np.ndarray) -> tuple[Any, Any]:
    import torch

    return torch.from_numpy(predictions.copy()), torch.from_numpy(labels.copy())
