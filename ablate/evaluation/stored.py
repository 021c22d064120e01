"""The folder of a finished run -> its scores, computed again from stored predictions.

Reads `record.json` and `predictions/*.parquet` and nothing else; no model, no data, no torch. What
a kind of measurement scores without torch is computed again and must be what the record says; the
other kinds' scores are taken from the record and listed as such.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ablate.evaluation import predictions, retrieval_scores, similarity_scores
from ablate.evaluation.averages import add_averages
from ablate.evaluation.measurement import EvaluationResult, Part
from ablate.evaluation.mlm_scores import add_quality
from ablate.evaluation.pair_scores import add_pairs
from ablate.evaluation.scoring import add_scores

_TOLERANCE = 1e-9


@dataclass(frozen=True)
class StoredRun:
    """A run's record and the predictions of each task; `parts[task]` has one part a fit."""

    folder: Path
    record: Mapping[str, Any]
    parts: Mapping[str, list[Part]]


@dataclass(frozen=True)
class Rescored:
    """Computed again; `as_recorded` names the tasks whose scores were taken from the record, and
    `differences` the scores that are not what the record says, (recorded, found)."""

    result: EvaluationResult
    as_recorded: list[str] = field(default_factory=list)
    differences: dict[str, tuple[float, float]] = field(default_factory=dict)


def open_run(path: str | Path) -> StoredRun:
    """Read a run's folder.

    Raises:
        ValueError: no run, an unfinished one, or one without predictions; says what to type.
    """
    folder = Path(path).expanduser()
    file = folder / "record.json"
    if not file.is_file():
        raise ValueError(
            f"{path} is not the folder of a run: it has no record.json; type the path of one, for "
            "example runs/single/NAME"
        )
    try:
        record = json.loads(file.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError, OSError) as error:
        raise ValueError(f"{file} cannot be read: {error}") from None
    if not isinstance(record, dict) or record.get("status") != "complete":
        status = record.get("status") if isinstance(record, dict) else "no record"
        raise ValueError(
            f"the run in {path} is not complete (status: {status}); the command that started it "
            "continues it"
        )
    files = sorted((folder / "predictions").glob("*.parquet"))
    if not files or "evaluation" not in record:
        raise ValueError(
            f"the run in {path} has no predictions: nothing was evaluated; run it again with, for "
            "example, evaluation=glue"
        )
    return StoredRun(folder, record, {name: _parts(folder, name) for name in record["evaluation"]})


def _parts(folder: Path, name: str) -> list[Part]:
    file = folder / "predictions" / f"{name}.parquet"
    found = predictions.read(file)
    if found is None or not isinstance(found.facts.get("parts"), list):
        raise ValueError(f"{file} is missing or no file of predictions; run the evaluation again")
    facts = found.facts["parts"]
    seeds = np.array(found.table.get("part", found.table["finetune_seed"]))
    if len(facts) == 1:
        return [Part(found.table, facts[0])]
    places = [np.flatnonzero(seeds == seed) for seed in dict.fromkeys(seeds.tolist())]
    return [
        Part({column: [values[i] for i in here] for column, values in found.table.items()}, fact)
        for here, fact in zip(places, facts, strict=True)
    ]


def score_again(run: StoredRun) -> Rescored:
    """All scores and averages of a run from its predictions."""
    result = EvaluationResult()
    as_recorded = []
    recorded: Mapping[str, float] = run.record["scores"]
    for name, details in run.record["evaluation"].items():
        parts = run.parts[name]
        facts = parts[0].facts
        if _is_classification(facts):
            kept = {**facts, "hyper_parameters": details.get("hyper_parameters", {})}
            losses = [part.facts["train_loss"] for part in parts]
            add_scores(result, kept, [part.table for part in parts], losses)
        elif "log_likelihood_good" in parts[0].table and "likelihood" in facts and "name" in facts:
            add_pairs(result, parts)
        elif "log_probability" in parts[0].table and "name" in facts:
            add_quality(result, parts)
        elif "architecture" in facts and "recall_at" in facts:
            retrieval_scores.add(result, parts, details.get("hyper_parameters", {}))
        elif "contrastive" in facts and "word_overlap" in parts[0].table:
            similarity_scores.add(result, parts, details.get("hyper_parameters", {}))
        else:
            as_recorded.append(name)
            result.details[name] = dict(details)
            result.scores |= {
                score: recorded[score] for score in details.get("metrics", {}) if score in recorded
            }
        result.details[name] = {**details, **result.details[name]}
    add_averages(result)
    for name, average in run.record.get("averages", {}).items():
        if average.get("start_from") and name in result.averages:
            result.averages[name]["start_from"] = average["start_from"]
    differences = {
        name: (recorded[name], value)
        for name, value in result.scores.items()
        if name in recorded
        and not math.isclose(recorded[name], value, rel_tol=0, abs_tol=_TOLERANCE)
    }
    return Rescored(result, as_recorded, differences)


def _is_classification(facts: Mapping[str, Any]) -> bool:
    spec = facts.get("task")
    return (
        isinstance(spec, Mapping)
        and {"labels", "metrics", "suite", "splits"} <= set(spec)
        and isinstance(facts.get("nothing"), (int, float, Mapping))
    )
