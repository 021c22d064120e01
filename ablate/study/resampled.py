"""Predictions of one run, and how often each example counts -> its score, as often as is asked.

A score is computed on each resample by the function that computed it on all examples
(`evaluation.metrics`), for each fine-tuning seed, and averaged inside the run. Classes go to it as
counts of (prediction, label), which a matrix product gives for all fits at once.
Legend: n examples, F fits, b resamples.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ablate.evaluation.averages import Rule
from ablate.evaluation.metrics import METRICS, REGRESSION_METRICS, score

PAIRS = "mean over paradigms"  # of wins; the accuracy of minimal pairs


@dataclass(frozen=True)
class Predictions:
    """What one score of one run is computed from.

    `where` names the examples: scores of equal `where` share them. `sizes` are those of the sets
    that are resampled within themselves, one after another.
    """

    where: str
    metric: str
    ids: np.ndarray  # (n,) in order within each set
    labels: np.ndarray  # (n,)
    fits: Sequence[np.ndarray]  # F of (n,): classes, numbers, or wins of minimal pairs
    sizes: tuple[int, ...]

    def values(self, weights: np.ndarray) -> np.ndarray:
        """The mean over fits of the score where examples count so often, (b, n) -> (b,)."""
        if self.metric == PAIRS:
            share = np.repeat(1 / np.array(self.sizes), self.sizes) / len(self.sizes)
            return weights @ (np.mean(self.fits, axis=0) * share)
        if self.metric in REGRESSION_METRICS:
            found = [self._of_numbers(fit, weights) for fit in self.fits]
        else:
            cells, indicator = self._cells
            ends = np.cumsum([len(labels) for _, labels in cells])
            counts = np.split(weights @ indicator, ends[:-1], axis=1)
            found = [
                METRICS[self.metric](predicted, labels, count)
                for (predicted, labels), count in zip(cells, counts, strict=True)
            ]
        return np.mean(found, axis=0)

    def _of_numbers(self, fit: np.ndarray, weights: np.ndarray) -> np.ndarray:
        if score(self.metric, fit, self.labels).flag in ("undefined", "not_finite"):
            return np.zeros(len(weights))
        return METRICS[self.metric](fit, self.labels, weights)

    @functools.cached_property
    def _cells(self) -> tuple[list[tuple[np.ndarray, np.ndarray]], np.ndarray]:
        """(prediction, label) of the cells of each fit, and which examples are in them."""
        cells, columns = [], []
        for fit in self.fits:
            kinds, which = np.unique(np.stack([fit, self.labels]), axis=1, return_inverse=True)
            cells.append((kinds[0], kinds[1]))
            columns.append(np.eye(kinds.shape[1])[which.ravel()])
        return cells, np.concatenate(columns, axis=1)


@dataclass(frozen=True)
class Scored:
    """A score of a run, or an average by a rule over several."""

    terms: Mapping[str, Predictions]
    rule: Rule | None = None

    @property
    def samples(self) -> dict[str, Predictions]:
        """One of the terms for each set of examples."""
        return {term.where: term for term in self.terms.values()}

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(size for sample in self.samples.values() for size in sample.sizes)

    def values(self, weights: np.ndarray) -> np.ndarray:
        """Weights of the examples of all samples, one sample after another, (b, n) -> (b,)."""
        places, end = {}, 0
        for where, sample in self.samples.items():
            begin, end = end, end + sum(sample.sizes)
            places[where] = weights[:, begin:end]
        found = {name: term.values(places[term.where]) for name, term in self.terms.items()}
        if self.rule is None:
            (only,) = found.values()
            return only
        columns = np.array(
            [np.mean([found[n] for n in names], axis=0) for names in self.rule.columns.values()]
        )
        if not self.rule.harmonic:
            return np.asarray(columns.mean(axis=0))
        positive = (columns > 0).all(axis=0)
        return np.where(positive, len(columns) / (1 / np.where(positive, columns, 1)).sum(0), 0.0)
