"""Numerators and denominators of units -> the standard error of the ratio of their sums.

Words of a sentence, or questions on a paragraph, are not independent: the unit that is drawn is the
sentence or the paragraph. Accuracy and F1 over words or entities are ratios of sums over units, and
so have this error in closed form (delta method: Cochran 1977, sec. 2.11).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def ratio_error(fits: Sequence[np.ndarray]) -> float:
    """Standard error of the mean over fits of sum(parts[:, 0]) / sum(parts[:, 1]).

    `fits` holds one array (units, 2) a fit, of the same units in the same order. 0 where it cannot
    be told: one unit, or nothing below the line.
    """
    influences = []
    for parts in fits:
        numerators, denominators = np.asarray(parts, dtype=np.float64).T
        below = denominators.sum()
        if below == 0:
            return 0.0
        influences.append((numerators - numerators.sum() / below * denominators) / below)
    mean = np.mean(influences, axis=0)
    number = len(mean)
    return float(np.sqrt((mean**2).sum() * number / (number - 1))) if number > 1 else 0.0
