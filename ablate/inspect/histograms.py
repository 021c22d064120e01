"""A walk's counts -> lengths and places, each beside the law that the policy states for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ablate.inputs.mask_counts import SPAN_BINS
from ablate.inputs.masking import MaskingPolicy
from ablate.inspect.lines import exact_interval
from ablate.inspect.statistics import one_by_one, units_name
from ablate.inspect.walk import BINS, Walk


@dataclass(frozen=True)
class Bar:
    """One bin. `total` is what the share is of; `interval` only where draws are independent."""

    label: str
    count: int
    total: int
    nominal: float | None = None
    interval: tuple[float, float] | None = None

    @property
    def share(self) -> float:
        return self.count / self.total if self.total else 0.0

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "label": self.label,
            "count": self.count,
            "total": self.total,
            "share": self.share,
            "nominal": self.nominal,
            "interval": None if self.interval is None else list(self.interval),
        }


@dataclass(frozen=True)
class Histogram:
    """Bars under a title; `key` names it in JSON."""

    key: str
    title: str
    note: str
    bars: list[Bar]


def histograms(walk: Walk, policy: MaskingPolicy) -> list[Histogram]:
    """Runs of selected tokens, units in words, and the selected share along the row."""
    found = [_runs(walk, policy)]
    if policy.selection in ("span", "ngram", "pmi"):
        found.append(_units(walk, policy))
    return [*found, _positions(walk, policy)]


def _lengths(counts: list[int], law: list[float] | None) -> list[Bar]:
    """Bars from length 1 to the longest that occurs or has a share of half a percent in the law."""
    total, last = sum(counts), len(counts) - 1
    used = [n for n, count in enumerate(counts) if count]
    used += [n for n, share in enumerate(law or [], start=1) if share >= 0.005 and n <= last]
    bars = []
    for n in range(1, max(used, default=0) + 1):
        nominal = None
        if law is not None:
            nominal = sum(law[n - 1 :]) if n == last else (law[n - 1] if n <= len(law) else 0.0)
        bars.append(Bar(f"{n}+" if n == last else str(n), counts[n], total, nominal))
    return bars


def _runs(walk: Walk, policy: MaskingPolicy) -> Histogram:
    """Of independent tokens: length n has the share (1 - rate) rate^(n - 1)."""
    law, note = None, ""
    if policy.selection == "token" and one_by_one(policy):
        law = [(1 - walk.rate) * walk.rate ** (n - 1) for n in range(1, 4 * SPAN_BINS)]
        note = "Nominal: (1 - rate) rate^(n - 1); row edges end a run early."
    elif policy.selection != "token":
        note = "Neighbouring units make one run."
    bars = _lengths(walk.counts.span_tokens, law)
    return Histogram("runs", "Runs of selected tokens, by length in tokens", note, bars)


def _units(walk: Walk, policy: MaskingPolicy) -> Histogram:
    name = units_name(policy)
    law, note = None, "Units are collocations of the list and single words; the corpus decides."
    if policy.selection != "pmi":
        law = policy.length_distribution().tolist()
        note = "A unit ends at a special token, so short ones are more frequent than the law says."
    bars = _lengths(walk.counts.unit_words, law)
    return Histogram("units", f"Selected {name}, by length in words", note, bars)


def _positions(walk: Walk, policy: MaskingPolicy) -> Histogram:
    independent = policy.selection == "token" and one_by_one(policy)
    bars = []
    for number in range(BINS):
        selected, eligible = walk.position_selected[number], walk.position_eligible[number]
        interval = exact_interval(selected, eligible) if independent and eligible else None
        label = f"{number}/{BINS} to {number + 1}/{BINS}"
        bars.append(Bar(label, selected, eligible, walk.counts.shares()["mask_rate"], interval))
    note = "Nominal: the achieved rate of the whole row. The edges should be like the middle."
    return Histogram("positions", "Selected share along the row, in eighths", note, bars)
