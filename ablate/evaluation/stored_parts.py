"""A file of predictions in a run's folder -> its parts, of the task and kind that the record names.

A file that was cut, edited or put in another's place is refused here where it cannot be scored;
one that can be scored is, and its numbers are held against the record's (`stored`).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ablate.evaluation import predictions, retrieval_scores, similarity_scores
from ablate.evaluation.measurement import Part
from ablate.evaluation.pair_scores import GROUPS

WHAT_TO_TYPE = "put the run's own file back, or type the command of the run with force=true"
_ALWAYS = ("example_id", "label", "prediction", "split", "finetune_seed")
_COLUMNS = {  # kind that is scored again -> what it reads beside `_ALWAYS`
    "classification": ("score_0",),
    "minimal_pairs": ("paradigm", *GROUPS, "log_likelihood_good", "log_likelihood_bad"),
    "mlm_quality": (
        *("log_probability", "word_number", "band", "tag", "pieces", "decile", "bytes"),
    ),
    "retrieval": ("zero_shot", "bm25", *retrieval_scores.PLACES),
    "sentence_similarity": similarity_scores.BESIDE,
}


def kind_of(facts: Mapping[str, Any], details: Mapping[str, Any]) -> str | None:
    """Which of `_COLUMNS` a task is, from the facts of a part and the record; None for others."""
    spec = facts.get("task")
    if isinstance(spec, Mapping):
        plain = {"labels", "metrics", "suite", "splits"} <= set(spec)
        constant = isinstance(facts.get("nothing"), (int, float, Mapping))
        return "classification" if plain and constant else None
    if "name" not in facts:
        return None
    if "likelihood" in facts:
        return "minimal_pairs"
    if {"architecture", "recall_at"} <= set(facts):
        return "retrieval"
    if "contrastive" in facts:
        return "sentence_similarity"
    return "mlm_quality" if "breakdown" in details else None


def read(file: Path, name: str, details: Mapping[str, Any]) -> list[Part]:
    """One part a fit of the task `name`.

    Raises:
        ValueError: no such file, another task's, a column that is not there, or fits of unequal
            rows.
    """
    found = predictions.read(file)
    facts = found.facts.get("parts") if found is not None else None
    if found is None or not isinstance(facts, list) or not facts:
        raise ValueError(
            f"{file} is missing or no file of predictions as a run has written it; {WHAT_TO_TYPE}"
        )
    spec = facts[0].get("task")
    task = spec.get("name") if isinstance(spec, Mapping) else facts[0].get("name")
    if task is not None and task != name:
        raise ValueError(f"{file} has the predictions of {task}, not {name}; {WHAT_TO_TYPE}")
    kind = kind_of(facts[0], details)
    needed = (*_ALWAYS, *_COLUMNS[kind]) if kind else ("finetune_seed",)
    lacking = [column for column in needed if column not in found.table]
    if lacking:
        raise ValueError(
            f"{file} lacks the column{'s' * (len(lacking) > 1)} {', '.join(lacking)}, which the "
            f"scores of {name} are computed from; {WHAT_TO_TYPE}"
        )
    parts = _divided(found, file)
    if kind != "minimal_pairs":  # whose parts are parts of the pairs
        _check_rows(parts, file)
    if kind is None:
        _check_recorded_rows(parts, file, details)
    return parts


def _divided(found: Part, file: Path) -> list[Part]:
    facts = found.facts["parts"]
    numbers = np.array(found.table.get("part", found.table["finetune_seed"]))
    if len(facts) == 1 and len(numbers):
        return [Part(found.table, facts[0])]
    there = list(dict.fromkeys(numbers.tolist()))
    if len(there) != len(facts):
        raise ValueError(
            f"{file} has rows for {len(there)} and facts for {len(facts)} fits: it was changed; "
            f"{WHAT_TO_TYPE}"
        )
    places = [np.flatnonzero(numbers == number) for number in there]
    return [
        Part({column: [values[i] for i in here] for column, values in found.table.items()}, fact)
        for here, fact in zip(places, facts, strict=True)
    ]


def _check_rows(parts: list[Part], file: Path) -> None:
    """Fits of one architecture have predicted the same examples."""
    first: dict[Any, Part] = {}
    for part in parts:
        other = first.setdefault(part.facts.get("architecture"), part)
        same = (part.table.get(key) == other.table.get(key) for key in ("split", "example_id"))
        if not all(same):
            counts = " and ".join(str(len(p.table["finetune_seed"])) for p in (other, part))
            raise ValueError(
                f"{file} has not the same examples in all its fits ({counts} rows): it was "
                f"changed; {WHAT_TO_TYPE}"
            )


def _check_recorded_rows(parts: list[Part], file: Path, details: Mapping[str, Any]) -> None:
    """What is not scored again has at least the record's number of rows."""
    splits = parts[0].table.get("split", [])
    for split, n in (details.get("n") or {}).items():
        if splits.count(split) != n:
            raise ValueError(
                f"{file} has {splits.count(split)} of the {n} rows of {split} in record.json: it "
                f"was changed; {WHAT_TO_TYPE}"
            )
