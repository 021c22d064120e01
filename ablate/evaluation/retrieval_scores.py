"""Stored tables of candidates -> nDCG@10, MRR@10 and recall, beside BM25 and a random order.

Nothing here looks at a model or at texts. The unit of a mean and its standard error is the query;
fine-tuning seeds are averaged first. All metrics are expected values over the orders of tied
documents (`ranking`), so the random order's value is exact.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ablate.evaluation.measurement import EvaluationResult, Part
from ablate.evaluation.ranking import Places, by_query, places, random_places
from ablate.evaluation.uncertainty import of_mean

PLACES = ("above", "tied", "bm25_above", "bm25_tied")


_COMMON = (  # facts that do not depend on the architecture
    "num_train_examples",
    "num_train_available",
    "num_scored_available",
    "num_test_documents",
    "recall_at",
    "loss",
    "negatives_per_query",
    "counted",
)


def add(
    result: EvaluationResult, parts: Sequence[Part], hyper_parameters: Mapping[str, Any]
) -> None:
    """Scores `<suite>/<name>/<architecture>_<metric>`, and what they rest on."""
    facts = parts[0].facts
    suite, name = facts["suite"], facts["name"]
    metrics = ["ndcg10", "mrr10", *(f"recall{k}" for k in facts["recall_at"])]
    entry: dict[str, Any] = {"metrics": {}, "n": {}, "by_architecture": {}}
    means: dict[str, dict[str, np.ndarray]] = {}  # of each query, by metric and architecture
    for architecture in dict.fromkeys(part.facts["architecture"] for part in parts):
        own = [part for part in parts if part.facts["architecture"] == architecture]
        for prefix, found in _rankings(own, architecture).items():
            for metric in metrics:
                score = f"{suite}/{name}/{architecture}_{prefix}{metric}"
                values = [by_query(metric, ranked) for ranked in found["seeds"]]
                entry["metrics"][score] = _entry(metric, values, found)
                result.scores[score] = float(np.mean(entry["metrics"][score]["by_seed"]))
                if not prefix:
                    means.setdefault(metric, {})[architecture] = np.mean(values, axis=0)
            entry["n"][prefix.strip("_") or "candidates"] = len(found["seeds"][0])
        entry["by_architecture"][architecture] = _own_facts(own)
    result.details[name] = {
        **entry,
        **{key: facts[key] for key in _COMMON},
        "notes": _notes(facts),
        "crossencoder_minus_biencoder": {
            metric: _difference(found["crossencoder"] - found["biencoder"])
            for metric, found in means.items()
            if len(found) == 2
        },
        "hyper_parameters": dict(hyper_parameters),
    }


def _notes(facts: Mapping[str, Any]) -> dict[str, str]:
    """What a reader must be told of the data."""
    counted = facts["counted"]
    queries, documents = counted["train_queries_dropped"], counted["train_documents_dropped"]
    found = {}
    if queries or documents:
        found["train"] = (
            f"without {queries} queries and {documents} documents, to share no text with the test"
        )
    if counted.get("queries_without_relevant_document"):
        found["queries"] = (
            f"without {counted['queries_without_relevant_document']} that no document answers"
        )
    return found


def _rankings(parts: Sequence[Part], architecture: str) -> dict[str, dict[str, Any]]:
    """By prefix of the score's name: places of each query, of every seed and of the baselines."""
    listed = [_split(part, "candidates") for part in parts]
    found = {"": _with_baselines(listed, "prediction")}
    if architecture == "biencoder":
        found["zero_shot_"] = _with_baselines(listed[:1], "zero_shot")
        whole = [_split(part, "collection") for part in parts]
        size = parts[0].facts["num_test_documents"]
        found["collection_"] = {
            "seeds": [_by_places(table, "") for table in whole],
            "bm25": _by_places(whole[0], "bm25_"),
            "random": _each(whole[0], lambda rows: random_places(size, whole[0]["label"][rows])),
            "finite": [bool(np.isfinite(table["prediction"]).all()) for table in whole],
        }
    return found


def _with_baselines(tables: list[dict[str, np.ndarray]], column: str) -> dict[str, Any]:
    grades = tables[0]["label"]
    return {
        "seeds": [_by_scores(table, column) for table in tables],
        "bm25": _by_scores(tables[0], "bm25"),
        "random": _each(tables[0], lambda r: random_places(len(r), grades[r][grades[r] > 0])),
        "finite": [bool(np.isfinite(table[column]).all()) for table in tables],
    }


def _split(part: Part, split: str) -> dict[str, np.ndarray]:
    """Columns of one split; numbers are float64, with NaN for what is not there."""
    here = np.flatnonzero(np.array(part.table["split"]) == split)
    columns = ("label", "prediction", "zero_shot", "bm25", *PLACES)
    found = {name: np.array(part.table[name], dtype=np.float64)[here] for name in columns}
    found["query"] = np.array(part.table["example_id"])[here]
    return found


def _each(table: dict[str, np.ndarray], function: Callable[[np.ndarray], Places]) -> list[Places]:
    """The function of the rows of each query, in order of first appearance."""
    _, first, which = np.unique(table["query"], return_index=True, return_inverse=True)
    order = np.argsort(which, kind="stable")
    groups = np.split(order, np.cumsum(np.bincount(which))[:-1])
    return [function(groups[i]) for i in np.argsort(first)]


def _by_scores(table: dict[str, np.ndarray], column: str) -> list[Places]:
    def one(rows: np.ndarray) -> Places:
        grades = table["label"][rows]
        relevant = np.flatnonzero(grades > 0)
        return places(table[column][rows], relevant, grades[relevant])

    return _each(table, one)


def _by_places(table: dict[str, np.ndarray], prefix: str) -> list[Places]:
    above, tied = table[f"{prefix}above"], table[f"{prefix}tied"]
    return _each(
        table,
        lambda rows: Places(
            above[rows].astype(np.int64), tied[rows].astype(np.int64), table["label"][rows]
        ),
    )


def _entry(metric: str, values: list[np.ndarray], found: dict[str, Any]) -> dict[str, Any]:
    error = of_mean(np.mean(values, axis=0))
    return {
        "metric": metric,
        "n": len(values[0]),
        "majority": float(by_query(metric, found["random"]).mean()),
        "majority_flag": None,
        "bm25": float(by_query(metric, found["bm25"]).mean()),
        "by_seed": [float(value.mean()) for value in values],
        "flags": [None if finite else "not_finite" for finite in found["finite"]],
        "standard_error": error.value,
        "standard_error_method": "queries",
    }


def _difference(values: np.ndarray) -> dict[str, Any]:
    """Mean over queries of a paired difference and its standard error."""
    return {
        "difference": float(values.mean()),
        "standard_error": of_mean(values).value,
        "n": len(values),
    }


def _own_facts(parts: Sequence[Part]) -> dict[str, Any]:
    facts = {k: v for k, v in parts[0].facts.items() if k not in (*_COMMON, "name", "suite")}
    facts.pop("train_loss")
    return {**facts, "train_loss_by_seed": [part.facts["train_loss"] for part in parts]}
