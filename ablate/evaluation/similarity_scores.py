"""Stored cosines and gold similarities -> correlations, before and after training.

Nothing here looks at a model or at texts. The baseline 0 is the correlation of one cosine for all
pairs, which is undefined; the share of common words stands beside as what needs no encoder.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ablate.evaluation import metrics, uncertainty
from ablate.evaluation.measurement import EvaluationResult, Part

METRICS = ("spearman", "pearson")
BESIDE = ("zero_shot", "word_overlap")  # columns of what needs no fit


def add(
    result: EvaluationResult, parts: Sequence[Part], hyper_parameters: Mapping[str, Any]
) -> None:
    """Scores `<suite>/<name>/(zero_shot_)<metric>`; a split of another name stands before it."""
    facts, first = dict(parts[0].facts), parts[0].table
    suite, name = facts.pop("suite"), facts.pop("name")
    facts.pop("train_loss")
    entry: dict[str, Any] = {"metrics": {}, "n": {}}
    for split in dict.fromkeys(first["split"]):
        here = np.array(first["split"]) == split
        gold = np.array(first["label"], np.float64)[here]
        beside = {column: np.array(first[column], np.float64)[here] for column in BESIDE}
        found = [np.array(part.table["prediction"], np.float64)[here] for part in parts]
        entry["n"][split] = len(gold)
        part = split.removeprefix("validation").strip("_")
        start = f"{suite}/{name}/{part + '_' if part else ''}"
        for prefix, values in {"": found, "zero_shot_": [beside["zero_shot"]]}.items():
            for metric, measured in _measured(values, gold, beside).items():
                entry["metrics"][f"{start}{prefix}{metric}"] = measured
                result.scores[f"{start}{prefix}{metric}"] = float(np.mean(measured["by_seed"]))
    dropped = facts["num_repeats_dropped"]
    result.details[name] = {
        **entry,
        **facts,
        "notes": {"train": f"without {dropped} pairs that are scored too"} if dropped else {},
        "train_loss_by_seed": [part.facts["train_loss"] for part in parts],
        "hyper_parameters": dict(hyper_parameters),
    }


def _measured(
    found: list[np.ndarray], gold: np.ndarray, beside: Mapping[str, np.ndarray]
) -> dict[str, dict[str, Any]]:
    """Each metric over all fits."""
    errors, _ = uncertainty.of_split(METRICS, found, gold)
    measured = {}
    for metric in METRICS:
        scores = [metrics.score(metric, values, gold) for values in found]
        measured[metric] = {
            "metric": metric,
            "n": len(gold),
            "majority": 0.0,
            "majority_flag": "undefined",
            "by_seed": [score.value for score in scores],
            "flags": [score.flag for score in scores],
            "standard_error": errors[metric].value,
            "standard_error_method": errors[metric].method,
            **{name: metrics.score(metric, values, gold).value for name, values in beside.items()},
        }
    return measured
