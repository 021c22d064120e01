"""One quantity of the table: a count of a total, its nominal value, and its exact interval.

An exact 95% interval (Clopper and Pearson 1934) is right for independent draws with one
probability. A count that a policy fixes, or a sum of tokens that were drawn together, has none.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Line:
    """One quantity. `independent`: the count is a sum of independent draws of one probability.

    `note` says why there is no interval, or what to know about the number.
    """

    group: str
    name: str
    counted: str
    count: int
    total: int
    nominal: float | None = None
    independent: bool = False
    note: str = ""

    @property
    def share(self) -> float | None:
        return self.count / self.total if self.total else None

    @cached_property
    def interval(self) -> tuple[float, float] | None:
        """Exact 95% interval of the share."""
        if not self.independent or not self.total:
            return None
        return exact_interval(self.count, self.total)

    @property
    def inside(self) -> bool | None:
        """Whether the nominal value lies in the interval."""
        if self.interval is None or self.nominal is None:
            return None
        return self.interval[0] <= self.nominal <= self.interval[1]

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            **{name: getattr(self, name) for name in self.__dataclass_fields__},
            "share": self.share,
            "interval": None if self.interval is None else list(self.interval),
            "nominal_inside": self.inside,
        }


def exact_interval(count: int, total: int) -> tuple[float, float]:
    """Clopper-Pearson interval of `count` successes in `total` independent draws."""
    from scipy.stats import binomtest

    found = binomtest(count, total).proportion_ci(CONFIDENCE, method="exact")
    return float(found.low), float(found.high)
