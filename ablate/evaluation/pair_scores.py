"""Stored log-likelihoods of minimal pairs -> accuracies of the suite and of its parts.

A tie counts one half and is reported, so that a model that cannot tell, or two sentences that the
tokenizer maps to the same ids, score .5 and not 0 or 1. The accuracy of a suite, a phenomenon or a
field is the unweighted mean over its paradigms (Warstadt et al. 2020, where they are equally
large). Nothing here looks at a model.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ablate.evaluation.measurement import EvaluationResult, Part, Table

LIKELIHOODS = ("original", "within_word_l2r")
GROUPS = ("phenomenon", "field")
_NOTES = {
    "pseudo-log-likelihood": "Salazar et al. 2020: every token masked in turn",
    "pseudo-log-likelihood within_word_l2r": "Kauf & Ivanova 2023: with a piece, the later pieces "
    "of its word are masked too",
    "log-likelihood": "of a causal model; not the quantity that masked models are ranked by",
}


@dataclass(frozen=True)
class PairScores:
    """`good`, `bad` (n,) log-likelihoods (natural log) and what follows from them."""

    ids: list[Any]
    paradigms: list[str]
    good: np.ndarray
    bad: np.ndarray
    truncated_tokens: int = 0  # of the different sentences, as are the unknown ones
    unknown_tokens: int = 0

    @property
    def wins(self) -> np.ndarray:
        """1 where the good sentence is more probable, .5 for a tie or no number, else 0, (n,)."""
        undecided = (self.good == self.bad) | ~self.finite
        return np.where(undecided, 0.5, (self.good > self.bad).astype(np.float64))

    @property
    def finite(self) -> np.ndarray:
        """Whether both likelihoods are numbers, (n,)."""
        return np.isfinite(self.good) & np.isfinite(self.bad)

    @property
    def accuracy(self) -> float:
        """Unweighted mean over paradigms."""
        return mean_over_paradigms(self.by_paradigm())["accuracy"]

    @property
    def num_ties(self) -> int:
        return int((self.good == self.bad).sum())

    def by_paradigm(self) -> dict[str, dict[str, Any]]:
        """Accuracy with its standard error, number of pairs and ties, by first appearance."""
        found: dict[str, dict[str, Any]] = {}
        names, wins, ties = np.array(self.paradigms), self.wins, self.good == self.bad
        broken = ~self.finite
        for name in dict.fromkeys(self.paradigms):
            here = names == name
            n = int(here.sum())
            found[name] = {
                "accuracy": float(wins[here].mean()),
                "n": n,
                "ties": int(ties[here].sum()),
                "not_finite": int(broken[here].sum()),
                "standard_error": float(wins[here].std() / np.sqrt(n)),
            }
        return found


def mean_over_paradigms(paradigms: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Accuracy of a group = unweighted mean over its paradigms; its standard error takes the
    pairs of each as a sample and the paradigms as given."""
    entries = list(paradigms.values())
    errors = np.array([entry["standard_error"] for entry in entries])
    return {
        "accuracy": float(np.mean([entry["accuracy"] for entry in entries])),
        "n": sum(entry["n"] for entry in entries),
        "ties": sum(entry["ties"] for entry in entries),
        "not_finite": sum(entry["not_finite"] for entry in entries),
        "standard_error": float(np.sqrt((errors**2).sum()) / len(entries)),
        "num_paradigms": len(entries),
    }


def add_pairs(result: EvaluationResult, parts: Sequence[Part]) -> None:
    """Accuracy of the suite and of each phenomenon, and the tables they are means of."""
    table = {
        name: list(itertools.chain.from_iterable(part.table[name] for part in parts))
        for name in parts[0].table
    }
    facts = dict(parts[0].facts)
    for count in ("truncated_tokens", "unknown_tokens"):
        facts[count] = sum(part.facts[count] for part in parts)
    suite, name = facts.pop("suite"), facts.pop("name")
    prefix = name if suite == name else f"{suite}/{name}"
    found = PairScores(
        table["example_id"],
        table["paradigm"],
        np.array(table["log_likelihood_good"]),
        np.array(table["log_likelihood_bad"]),
    )
    paradigms = found.by_paradigm()
    groups = {group: _by_group(paradigms, table, group) for group in GROUPS}
    whole = mean_over_paradigms(paradigms)
    entries = {"": whole, **{f"/{key}": entry for key, entry in groups["phenomenon"].items()}}
    metrics = {f"{prefix}{key}/accuracy": _metric(entry) for key, entry in entries.items()}
    for score, entry in metrics.items():
        result.scores[score] = entry["by_seed"][0]
    likelihood = facts["likelihood"]
    result.details[name] = {
        "metrics": metrics,
        **{f"by_{group}": entry for group, entry in groups.items() if entry},
        "paradigms": paradigms,
        "ties": whole["ties"],
        "notes": {
            "accuracy": "is the unweighted mean over paradigms; its s.e. takes pairs as the sample",
            "baseline": "is chance",
            "likelihood": f"is the {likelihood} ({_NOTES[likelihood]})",
        },
        **facts,
    }


def _by_group(
    paradigms: Mapping[str, Mapping[str, Any]], table: Table, group: str
) -> dict[str, dict[str, Any]]:
    """Value of a column -> mean over its paradigms; pairs without a value are in none.

    A paradigm whose pairs differ in the column (BLiMP has none) counts with its commonest value.
    """
    values: dict[str, list[str]] = {}
    for paradigm, value in zip(table["paradigm"], table[group], strict=True):
        values.setdefault(paradigm, []).append(value)
    of_paradigm = {name: max(sorted(set(seen)), key=seen.count) for name, seen in values.items()}
    return {
        value: mean_over_paradigms({p: paradigms[p] for p in paradigms if of_paradigm[p] == value})
        for value in sorted(set(of_paradigm.values()) - {""})
    }


def _metric(entry: Mapping[str, Any]) -> dict[str, Any]:
    ties = f"{entry['ties']} ties" if entry["ties"] else None
    return {
        "metric": "accuracy",
        "n": entry["n"],
        "majority": 0.5,
        "majority_flag": None,
        "by_seed": [entry["accuracy"]],
        "flags": ["not_finite" if entry["not_finite"] else ties],
        "standard_error": entry["standard_error"],
        "ties": entry["ties"],
    }
