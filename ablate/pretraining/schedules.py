"""Progress through the budget -> factor on the peak learning rate.

Progress is taken at the end of the step, in (0, 1], so the first step already moves (`k / warm-up`
from k = 1) and the schedule depends on neither micro-batches nor the unit of the budget.
"""

from __future__ import annotations

import math

SCHEDULES = ("linear", "cosine", "constant")


def learning_rate_factor(
    progress: float, *, schedule: str, warmup_fraction: float, final_fraction: float = 0.0
) -> float:
    """Factor in [0, 1] on the peak rate: linear warm-up, then the decay.

    Args:
        progress: share of the budget spent when the step ends; beyond 1 the factor stays.
        schedule: `linear` or `cosine` to `final_fraction`, or `constant`.
        warmup_fraction: share of the budget spent warming up, in [0, 1).
        final_fraction: factor at the end of the budget.
    """
    progress = min(max(progress, 0.0), 1.0)
    if progress < warmup_fraction:
        return progress / warmup_fraction
    if schedule == "constant":
        return 1.0
    done = (progress - warmup_fraction) / (1.0 - warmup_fraction)
    remaining = 1.0 - done if schedule == "linear" else 0.5 * (1.0 + math.cos(math.pi * done))
    return final_fraction + (1.0 - final_fraction) * remaining
