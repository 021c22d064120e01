"""Tables of predictions -> scores, what they rest on, and averages.

Nothing here looks at a model: every number follows from stored predictions, so that another rule
can be applied to a finished run. Scores are means over fine-tuning seeds; these are nested in the
pretraining seed and are no replication of it. A metric that is undefined for one of them counts as
0 there (GLUE's convention) and its flag is kept.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ablate.evaluation import metrics
from ablate.evaluation.finetune import FinetuneSettings
from ablate.evaluation.minimal_pairs import PairScores
from ablate.evaluation.predictions import Table
from ablate.evaluation.tasks import TaskData


@dataclass
class EvaluationResult:
    """`scores`: name -> number (shares and correlations in [0, 1] or [-1, 1], never NaN).

    `details[task]` holds what the scores rest on and depends on nothing but the inputs;
    `averages[rule]` has the value or what was missing; `seconds` is the wall time spent now, by
    task (next to nothing for a task taken from its file).
    """

    scores: dict[str, float] = field(default_factory=dict)
    details: dict[str, dict[str, Any]] = field(default_factory=dict)
    averages: dict[str, dict[str, Any]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)


def add_task(
    result: EvaluationResult,
    data: TaskData,
    table: Table,
    facts: dict[str, Any],
    settings: FinetuneSettings,
) -> None:
    """Scores of every split and metric of a task, with baseline, flags and values by seed."""
    splits, seeds = np.array(table["split"]), np.array(table["finetune_seed"])
    predicted, labels = np.array(table["prediction"]), np.array(table["label"])
    outputs = np.array([table[name] for name in table if name.startswith("score_")])
    entry: dict[str, Any] = {"metrics": {}, "n": {}, "collapsed": {}, "not_finite": {}}
    for split in data.scored:
        parts = [
            (splits == split) & (seeds == seed) for seed in sorted(set(table["finetune_seed"]))
        ]
        gold, found = labels[parts[0]], [predicted[part] for part in parts]
        entry["n"][split] = len(gold)
        entry["collapsed"][split] = [metrics.is_constant(values) for values in found]
        entry["not_finite"][split] = [
            not bool(np.isfinite(outputs[:, part]).all()) for part in parts
        ]
        for metric in data.spec.metrics:
            name = _score_name(data, split, metric)
            entry["metrics"][name] = _measure(metric, found, gold, data)
            result.scores[name] = float(np.mean(entry["metrics"][name]["by_seed"]))
    result.details[data.spec.name] = {
        **entry,
        **facts,
        "notes": dict(data.notes),
        "hyper_parameters": dataclasses.asdict(settings),
    }


def _measure(
    metric: str, found: list[np.ndarray], gold: np.ndarray, data: TaskData
) -> dict[str, Any]:
    """One metric for each fit, beside what an answer that reads nothing gets."""
    nothing = metrics.majority_prediction(data.train.labels, regression=data.spec.is_regression)
    majority = metrics.score(metric, np.full_like(gold, nothing), gold)
    scores = [metrics.score(metric, values, gold) for values in found]
    return {
        "metric": metric,
        "n": len(gold),
        "majority": majority.value,
        "majority_flag": majority.flag,
        "by_seed": [score.value for score in scores],
        "flags": [score.flag for score in scores],
    }


def _score_name(data: TaskData, split: str, metric: str) -> str:
    """`glue/cola/mcc`; a split of another name stands before the metric: `matched_accuracy`."""
    part = split.removeprefix("validation").strip("_")
    return f"{data.spec.suite}/{data.spec.name}/{part + '_' if part else ''}{metric}"


def add_pairs(result: EvaluationResult, name: str, table: Table, facts: dict[str, Any]) -> None:
    found = PairScores(
        table["example_id"],
        table["paradigm"],
        np.array(table["log_likelihood_good"]),
        np.array(table["log_likelihood_bad"]),
        facts["truncated_tokens"],
    )
    result.scores[f"{name}/accuracy"] = found.accuracy
    result.details[name.split("/")[-1]] = {
        "metrics": {
            f"{name}/accuracy": {
                "metric": "accuracy",
                "n": len(found.ids),
                "majority": 0.5,
                "majority_flag": None,
                "by_seed": [found.accuracy],
                "flags": [None],
            }
        },
        "paradigms": found.by_paradigm(),
        "ties": found.num_ties,
        **facts,
    }


def add_averages(result: EvaluationResult, tasks: Sequence[TaskData]) -> None:
    """Each rule that at least one task takes part in: its value, or what it lacks."""
    if not any(data.spec.suite == "glue" and data.spec.in_average for data in tasks):
        return
    for rule in metrics.RULES:
        found = metrics.average(rule, result.scores)
        flagged = [
            name
            for entry in result.details.values()
            for name, measured in entry["metrics"].items()
            if any(measured["flags"])
        ]
        result.averages[f"glue/{rule}"] = {**found, "flagged": flagged}
        if found["value"] is not None:
            result.scores[f"glue/{rule}"] = found["value"]
