"""Scores of tasks -> averages by rules with names, or what a rule lacks.

Published GLUE averages differ by 2 to 4 points for the same predictions, by rule alone: so no
average goes without the name of its rule, and that of fewer tasks is another quantity and does not
get the name. A rule is a mean over columns, a column the mean of its scores; the standard error is
that of exactly this mean.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ablate.evaluation.measurement import EvaluationResult
from ablate.evaluation.uncertainty import of_combination


@dataclass(frozen=True)
class Rule:
    """`columns[label]` are the names of the scores whose mean is one term of the average."""

    columns: Mapping[str, Sequence[str]]
    source: str
    harmonic: bool = False

    @property
    def needed(self) -> list[str]:
        return [name for names in self.columns.values() for name in names]

    def of_suite(self, suite: str) -> Rule:
        """The rule over scores of a suite that holds GLUE's tasks under another protocol."""
        return dataclasses.replace(
            self,
            columns={
                label: [f"{suite}/{name.split('/', 1)[1]}" for name in names]
                for label, names in self.columns.items()
            },
        )

    @property
    def formula(self) -> str:
        mean = "harmonic mean" if self.harmonic else "mean"
        shown = (
            f"{label} {'/'.join(name.rsplit('/', 1)[-1] for name in names)}"
            for label, names in self.columns.items()
        )
        return f"{mean} over {len(self.columns)} columns of: {', '.join(shown)}"


def _glue(source: str, columns: Mapping[str, tuple[str, ...]], *, harmonic: bool = False) -> Rule:
    """A rule over GLUE; a column `mnli_m` (a part of a task) names the task before the `_`."""
    return Rule(
        {
            label: [f"glue/{label.split('_')[0]}/{metric}" for metric in metrics]
            for label, metrics in columns.items()
        },
        source,
        harmonic,
    )


_F1, _ACCURACY, _BOTH = ("f1",), ("accuracy",), ("f1", "accuracy")
_MATCHED, _MISMATCHED = ("matched_accuracy",), ("mismatched_accuracy",)

# GLUE without WNLI; each task the plain mean of its scores here, the rule the plain mean of tasks.
MEAN8: dict[str, tuple[str, ...]] = {
    "cola": ("mcc",),
    "sst2": _ACCURACY,
    "mrpc": _BOTH,
    "stsb": ("pearson", "spearman"),
    "qqp": _BOTH,
    "mnli": _MATCHED + _MISMATCHED,
    "qnli": _ACCURACY,
    "rte": _ACCURACY,
}
_NINE: dict[str, tuple[str, ...]] = {
    "mnli_m": _MATCHED,
    "mnli_mm": _MISMATCHED,
    **{name: MEAN8[name] for name in ("qnli", "sst2", "cola", "rte")},
    "qqp": _F1,
    "mrpc": _F1,
}
RULES: dict[str, Rule] = {
    "official": _glue("the GLUE leaderboard (Wang et al. 2019)", {**MEAN8, "wnli": _ACCURACY}),
    "mean8": _glue("GLUE's score without WNLI; NeoBERT, Le Breton et al. 2025", MEAN8),
    "bert9": _glue("Devlin et al. 2019, table 1", {**_NINE, "stsb": ("spearman",)}),
    "electra8": _glue(
        "Clark et al. 2020, table 2",
        {**MEAN8, "mrpc": _ACCURACY, "qqp": _ACCURACY, "stsb": ("spearman",), "mnli": _MATCHED},
    ),
    "mosaic8": _glue("MosaicBERT, Portes et al. 2023", {**MEAN8, "stsb": ("spearman",)}),
    "modernbert8": _glue(
        "ModernBERT's code: of two metrics of QQP and MRPC the last one, F1, is kept",
        {**MEAN8, "stsb": ("spearman",), "qqp": _F1, "mrpc": _F1},
    ),
    "cramming9": _glue("Geiping and Goldstein 2023", {**_NINE, "stsb": ("pearson",)}),
    "cramming9_harmonic": _glue(
        "the same repository", {**_NINE, "stsb": ("pearson",)}, harmonic=True
    ),
    "hf": _glue("combined_score of transformers' run_glue", {**MEAN8, "mnli": _MATCHED}),
}


def average(rule: str | Rule, scores: Mapping[str, float]) -> dict[str, Any]:
    """Apply an aggregation rule to scores such as `glue/cola/mcc`.

    Returns {"value", "missing", "formula", "columns"}; the value is None where any score is
    missing, `columns` has those that are complete. A harmonic mean is 0 where a column is not
    above 0.
    """
    rule = RULES[rule] if isinstance(rule, str) else rule
    missing = [name for name in rule.needed if name not in scores]
    columns = {
        label: float(np.mean([scores[name] for name in names]))
        for label, names in rule.columns.items()
        if all(name in scores for name in names)
    }
    value = None
    if not missing:
        terms = np.array(list(columns.values()))
        if not rule.harmonic:
            value = float(terms.mean())
        else:
            value = float(len(terms) / (1.0 / terms).sum()) if (terms > 0).all() else 0.0
    return {"value": value, "missing": missing, "formula": rule.formula, "columns": columns}


def gradient(rule: Rule, scores: Mapping[str, float]) -> dict[str, float]:
    """How much the average moves with each of its scores; all of these must be there."""
    value, k = average(rule, scores)["value"], len(rule.columns)
    found: dict[str, float] = {}
    for names in rule.columns.values():
        slope = 1.0 / k
        if rule.harmonic:
            term = float(np.mean([scores[name] for name in names]))
            slope = value**2 / (k * term**2) if value else 0.0
        for name in names:
            found[name] = found.get(name, 0.0) + slope / len(names)
    return found


CAPPED = ", a fixed sample"  # how a note on capped examples ends


def said_of_protocol(details: Mapping[str, Any]) -> list[str]:
    """What no average of a task goes without: a start from another task's fit, capped examples."""
    found = []
    start = details.get("start_from")
    if start:
        source = (start[0] if isinstance(start, list) else start)["task"]
        found.append(f"starts from the encoder of this run's {source} fit")
    found += [
        f"{split}: {count} of {available} examples scored{CAPPED}"
        for split, (count, available) in scored_of_available(details).items()
        if count < available
    ]
    trained, whole = details.get("num_train_examples"), details.get("num_train_available")
    if trained is not None and whole is not None and trained < whole:
        found.append(f"trained on {trained} of {whole} examples{CAPPED}")
    return found


def scored_of_available(details: Mapping[str, Any]) -> dict[str, tuple[int, int]]:
    """Split -> (scored, there), both in the unit in which a cap counts.

    That of tagging is the sentence, while its `n` counts words: only `num_scored` can be compared,
    and a record without it says nothing.
    """
    available = details.get("num_scored_available") or {}
    scored = details.get("num_scored")
    if scored is None:
        scored = {} if "words" in details else details.get("n") or {}
    return {split: (scored[split], available[split]) for split in available if split in scored}


def add_averages(result: EvaluationResult) -> None:
    """Each rule that a score takes part in: its value with a standard error, or what it lacks."""
    measured = {
        name: entry
        for task in result.details.values()
        for name, entry in task.get("metrics", {}).items()
    }
    correlated = {
        (row["first"], row["second"]): row["correlation"]
        for task in result.details.values()
        for row in task.get("error_correlations", [])
    }
    errors = {
        name: entry["standard_error"]
        for name, entry in measured.items()
        if entry.get("standard_error") is not None
    }
    stand_ins = [
        (task, f"{task} {split}: {note}")
        for task, details in result.details.items()
        for split, note in (details.get("notes") or {}).items()
        if " was taken as " in note
    ]
    stand_ins += [
        (task, f"{task} {said}")
        for task, details in result.details.items()
        for said in said_of_protocol(details)
    ]
    suites = dict.fromkeys(name.split("/")[0] for name in result.scores)
    for suite in (name for name in suites if name.split("-")[0] == "glue"):  # also glue-grid
        for name, rule in ((name, rule.of_suite(suite)) for name, rule in RULES.items()):
            if not any(score in result.scores for score in rule.needed):
                continue
            found = average(rule, result.scores)
            error = None
            if found["value"] is not None and all(score in errors for score in rule.needed):
                error = of_combination(gradient(rule, result.scores), errors, correlated)
            flagged = [
                score for score in rule.needed if any(measured.get(score, {}).get("flags") or [])
            ]
            notes = [
                note
                for task, note in stand_ins
                if any(name.split("/")[1] == task for name in rule.needed)
            ]
            found |= {"standard_error": error, "flagged": flagged, "notes": notes}
            result.averages[f"{suite}/{name}"] = found
    for name, found in result.averages.items():
        if found["value"] is not None:
            result.scores[name] = found["value"]
