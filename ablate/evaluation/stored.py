"""The folder of a finished run -> its scores, computed again from stored predictions.

Reads `record.json` and `predictions/*.parquet` and nothing else; no model, no data, no torch. What
a kind of measurement scores without torch is computed again and must be what the record says; the
other kinds' scores are taken from the record and listed as such.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ablate.evaluation import retrieval_scores, similarity_scores, stored_parts
from ablate.evaluation.averages import add_averages
from ablate.evaluation.measurement import EvaluationResult, Part, without_nan
from ablate.evaluation.mlm_scores import add_quality
from ablate.evaluation.pair_scores import add_pairs
from ablate.evaluation.scoring import add_scores
from ablate.evaluation.stored_parts import kind_of

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
    `differences` the scores that are not what the record says, (recorded, found), and
    `sizes` those of another number of examples."""

    result: EvaluationResult
    as_recorded: list[str] = field(default_factory=list)
    differences: dict[str, tuple[float, float]] = field(default_factory=dict)
    sizes: dict[str, tuple[int, int]] = field(default_factory=dict)


def open_run(path: str | Path, tasks: Collection[str] = ()) -> StoredRun:
    """Read a run's folder; of the predictions those of `tasks` alone, or all without any.

    Raises:
        ValueError: no run, an unfinished one, one without predictions or without such a task, or
            predictions that are no such task's; says what to type.
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
    there = record["evaluation"]
    unknown = [name for name in tasks if name not in there]
    if unknown:
        raise ValueError(
            f"--task {unknown[0]}: the run has no such task; allowed: {', '.join(there)}"
        )
    parts = {
        name: stored_parts.read(folder / "predictions" / f"{name}.parquet", name, there[name])
        for name in there
        if name in tasks or not tasks
    }
    return StoredRun(folder, record, parts)


def score_again(run: StoredRun) -> Rescored:
    """All scores and averages of a run from the predictions that were read.

    Raises:
        ValueError: rows of a score are not there.
    """
    result = EvaluationResult()
    as_recorded = []
    recorded: Mapping[str, float] = run.record["scores"]
    for name, parts in run.parts.items():
        details = run.record["evaluation"][name]
        kind, settings = kind_of(parts[0].facts, details), details.get("hyper_parameters", {})
        if kind == "classification":
            losses = [part.facts["train_loss"] for part in parts]
            kept = {**parts[0].facts, "hyper_parameters": settings}
            add_scores(result, kept, [part.table for part in parts], losses)
        elif kind == "minimal_pairs":
            add_pairs(result, parts)
        elif kind == "mlm_quality":
            add_quality(result, parts)
        elif kind == "retrieval":
            retrieval_scores.add(result, parts, settings)
        elif kind == "sentence_similarity":
            similarity_scores.add(result, parts, settings)
        else:
            as_recorded.append(name)
            result.details[name] = dict(details)
            result.scores |= {
                score: recorded[score] for score in details.get("metrics", {}) if score in recorded
            }
        _check_metrics(run, name, result.details[name].get("metrics", {}))
        result.details[name] = {**details, **result.details[name]}
    without_nan(result)
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
    return Rescored(result, as_recorded, differences, _sizes(run, result))


def _check_metrics(run: StoredRun, name: str, found: Collection[str]) -> None:
    lacking = [m for m in run.record["evaluation"][name].get("metrics", {}) if m not in found]
    if lacking:
        raise ValueError(
            f"{run.folder / 'predictions' / name}.parquet has no rows for {', '.join(lacking)}, "
            f"which record.json has: it was changed; {stored_parts.WHAT_TO_TYPE}"
        )


def _sizes(run: StoredRun, result: EvaluationResult) -> dict[str, tuple[int, int]]:
    """Scores of another number of examples than the record's: (recorded, found)."""
    found = {}
    for name in run.parts:
        recorded = run.record["evaluation"][name].get("metrics", {})
        for score, entry in result.details[name].get("metrics", {}).items():
            n = recorded.get(score, {}).get("n", entry.get("n"))
            if n != entry.get("n"):
                found[score] = (n, entry["n"])
    return found
