"""Stored parts of a task -> scores, and what they rest on.

Nothing here looks at a model or at data, or imports torch: every number follows from stored
predictions, so that another rule can be applied to a finished run. Scores are means over
fine-tuning seeds; these are nested in the pretraining seed and are no replication of it. A metric
that is undefined for one of them counts as 0 there (GLUE's convention) and its flag is kept.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ablate.evaluation import metrics, uncertainty
from ablate.evaluation.measurement import EvaluationResult, Part

if TYPE_CHECKING:
    from ablate.evaluation.fitting import FinetuneSettings


def add_task(result: EvaluationResult, parts: Sequence[Part], settings: FinetuneSettings) -> None:
    """Scores of every split and metric of a task, with baseline, errors, flags, values by seed."""
    facts = {**parts[0].facts, "hyper_parameters": dataclasses.asdict(settings)}
    train_loss = [part.facts["train_loss"] for part in parts]
    add_scores(result, facts, [part.table for part in parts], train_loss)


def add_scores(
    result: EvaluationResult,
    facts: Mapping[str, Any],
    tables: Sequence[Mapping[str, Any]],
    train_loss: Sequence[float],
) -> None:
    """The same from facts that hold `hyper_parameters` and one table of columns a fit."""
    kept = dict(facts)
    spec, nothing = kept.pop("task"), kept.pop("nothing")
    kept.pop("train_loss", None)
    entry: dict[str, Any] = {
        "metrics": {}, "n": {}, "collapsed": {}, "not_finite": {}, "error_correlations": [],
    }  # fmt: skip
    for split in dict.fromkeys(tables[0]["split"]):
        here = [_of_split(table, split) for table in tables]
        gold = here[0]["label"]
        wanted = metrics_of(spec, split, gold)
        if not wanted:
            entry.setdefault("predicted", {})[split] = len(gold)
            continue
        entry["n"][split] = len(gold)
        entry["collapsed"][split] = [metrics.is_constant(one["prediction"]) for one in here]
        entry["not_finite"][split] = [not one["finite"].all() for one in here]
        groups = merged_classes(spec, split)
        found = [one["prediction"] if groups is None else groups[one["prediction"]] for one in here]
        baseline = nothing[split] if isinstance(nothing, Mapping) else nothing
        scored = _measure(
            wanted, found, gold, baseline,
            classes=_chance_classes(spec, groups), diverged=entry["not_finite"][split],
        )  # fmt: skip
        names = {m: score_name(spec["suite"], spec["name"], split, m) for m in wanted}
        entry["metrics"] |= {names[metric]: scored[0][metric] for metric in wanted}
        entry["error_correlations"] += [
            {"first": names[a], "second": names[b], "correlation": value}
            for (a, b), value in scored[1].items()
        ]
        for name in names.values():
            result.scores[name] = float(np.mean(entry["metrics"][name]["by_seed"]))
    result.details[spec["name"]] = {**entry, **kept, "train_loss_by_seed": list(train_loss)}


def metrics_of(spec: Mapping[str, Any], split: str, labels: np.ndarray) -> list[str]:
    """What a split is scored by; nothing where it is only predicted or a label of it is hidden."""
    if split in spec["splits"]:
        return list(spec["metrics"])
    hidden = np.isnan(labels).any() if labels.dtype.kind == "f" else (labels < 0).any()
    return [] if hidden else list((spec.get("metrics_of") or {}).get(split, ()))


def merged_classes(spec: Mapping[str, Any], split: str) -> np.ndarray | None:
    """Class of the head -> number of its group in a split whose file merges labels; else None."""
    groups = (spec.get("merged_labels") or {}).get(split)
    if groups is None:
        return None
    number = {name: i for i, members in enumerate(groups.values()) for name in members}
    return np.array([number[name] for name in spec["labels"]])


def _chance_classes(spec: Mapping[str, Any], groups: np.ndarray | None) -> int | None:
    """Classes that an even guess chooses from; unknown where groups have unequal sizes."""
    return None if groups is not None else len(spec["labels"]) or None


def _of_split(table: Mapping[str, Any], split: str) -> dict[str, np.ndarray]:
    """Labels, predictions and whether the outputs are finite, of one fit on one split, (n,)."""
    here = np.array(table["split"]) == split
    outputs = np.array([table[name] for name in table if name.startswith("score_")])
    return {
        "label": np.array(table["label"])[here],
        "prediction": np.array(table["prediction"])[here],
        "finite": np.isfinite(outputs[:, here]).all(axis=0),
    }


def _measure(
    wanted: Sequence[str],
    found: list[np.ndarray],
    gold: np.ndarray,
    nothing: float,
    *,
    classes: int | None,
    diverged: Sequence[bool],
) -> tuple[dict[str, dict[str, Any]], dict[tuple[str, str], float]]:
    """Each metric for each fit, beside what `nothing`, an answer that reads nothing, gets; and how
    the sampling errors of each two metrics go together."""
    errors, correlated = uncertainty.of_split(wanted, found, gold)
    entries = {}
    for metric in wanted:
        majority = metrics.score(metric, np.full_like(gold, nothing), gold)
        scores = [metrics.score(metric, values, gold, num_classes=classes) for values in found]
        entries[metric] = {
            "metric": metric,
            "n": len(gold),
            "majority": majority.value,
            "majority_flag": majority.flag,
            "standard_error": errors[metric].value,
            "standard_error_method": errors[metric].method,
            "by_seed": [score.value for score in scores],
            "flags": [
                "not_finite"
                if wrong
                else score.flag or ("collapsed" if metrics.is_constant(values) else None)
                for score, values, wrong in zip(scores, found, diverged, strict=True)
            ],
        }
    return entries, correlated


def score_name(suite: str, task: str, split: str, metric: str) -> str:
    """`glue/cola/mcc`; a split of another name stands before the metric: `matched_accuracy`."""
    part = split.removeprefix("validation").strip("_")
    return f"{suite}/{task}/{part + '_' if part else ''}{metric}"
