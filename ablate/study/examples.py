"""Stored predictions of arms and baseline -> intervals over other seeds and other examples.

The t interval over seeds says nothing of the examples, which all runs share; here both are drawn
anew. It describes, and no verdict rests on it: of 3, 5, 10 seeds that differ much it covers about
.84, .88, .94 where .95 is claimed, and of seeds that do not differ more than .95
(tests/study/test_examples.py). Examples are drawn once for all runs of a resample, minimal pairs
within their paradigm. What cannot be done is said in words in place of an interval.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from ablate import rng
from ablate.evaluation.averages import RULES
from ablate.evaluation.pair_scores import PairScores
from ablate.evaluation.scoring import merged_classes, score_name
from ablate.evaluation.stored_parts import kind_of
from ablate.study import stats
from ablate.study.collect import StudyResult
from ablate.study.resampled import PAIRS, Predictions, Scored

Table: TypeAlias = tuple[dict[str, np.ndarray], dict[str, Any]]  # columns, facts of the first fit

_TOLERANCE = 1e-9
_COLUMNS = (
    *("example_id", "label", "prediction", "split", "finetune_seed", "zero_shot"),
    *("paradigm", "log_likelihood_good", "log_likelihood_bad"),
)


class NoInterval(Exception):  # noqa: N818 - it is a reason and no error
    """Why there is none, in words."""


@dataclass(frozen=True)
class Interval:
    """Of the mean of n paired differences (higher is better); `examples` over all tasks."""

    n: int
    examples: int
    difference: float
    low: float
    high: float


def intervals(
    result: StudyResult, runs_dir: Path, *, num_resamples: int = 1000
) -> dict[str, Interval | str]:
    """Of each arm that is compared, on the primary metric and the seeds of its decision; or why
    there is none."""
    kept: dict[int, Scored | NoInterval] = {}

    def baseline(seed: int) -> Scored:
        if seed not in kept:
            try:
                kept[seed] = _scored(result, result.study.baseline, seed, runs_dir)
            except NoInterval as reason:
                kept[seed] = reason
        found = kept[seed]
        if isinstance(found, NoInterval):
            raise found
        return found

    found: dict[str, Interval | str] = {}
    for name, decision in result.decisions.items():
        try:
            if not decision.seeds:
                raise NoInterval("no seed in common with the baseline")
            pairs = []
            for seed in decision.seeds:
                theirs = baseline(seed)
                pairs.append((_scored(result, name, seed, runs_dir), theirs))
            found[name] = _interval(result, name, pairs, num_resamples)
        except NoInterval as reason:
            found[name] = str(reason)
    return found


def _interval(
    result: StudyResult, arm: str, pairs: Sequence[tuple[Scored, Scored]], num_resamples: int
) -> Interval:
    first = pairs[0][1]
    for run in (run for pair in pairs for run in pair):
        for name, term in run.terms.items():
            other = first.terms[name]
            if not np.array_equal(term.ids, other.ids):
                raise NoInterval(f"its runs and the baseline's have other examples of {name}")
            if not np.array_equal(term.labels, other.labels):
                raise NoInterval(f"its runs and the baseline's have other labels of {name}")
    sign = 1.0 if result.study.higher_is_better else -1.0

    def differences(weights: np.ndarray) -> np.ndarray:
        by_seed = [mine.values(weights) - theirs.values(weights) for mine, theirs in pairs]
        return sign * np.stack(by_seed, axis=1)

    low, high = stats.bootstrap_of(
        differences,
        first.sizes,
        rng=rng.generator(0, "bootstrap", result.study.name, arm),
        num_resamples=num_resamples,
    )
    n = sum(first.sizes)
    return Interval(len(pairs), n, float(differences(np.ones((1, n))).mean()), low, high)


def _scored(result: StudyResult, arm: str, seed: int, runs_dir: Path) -> Scored:
    """The primary metric of one run, held against its record."""
    run, name = result.arms[arm].states[seed].run, result.study.primary
    if run is None:
        raise NoInterval(f"the folder of a run of {arm} is not known")
    found = read(runs_dir / "single" / run, result.arms[arm].records[seed], name)
    value = float(found.values(np.ones((1, sum(found.sizes))))[0])
    recorded = result.arms[arm].scores[name][seed]
    if not abs(value - recorded) <= _TOLERANCE:
        raise NoInterval(
            f"the stored predictions of {arm} at seed {seed} give {value:.6g} and its record says "
            f"{recorded:.6g}: one of them was changed"
        )
    return found


def read(folder: Path, record: Mapping[str, Any], name: str) -> Scored:
    """What a score or an average of a finished run is computed from.

    Raises:
        NoInterval: nothing is kept of it, or it is of a kind that is not resampled here.
    """
    details: Mapping[str, Any] = record.get("evaluation") or {}
    measured = {score for entry in details.values() for score in entry.get("metrics", {})}
    tables: dict[str, Table] = {}
    suite, _, rule_name = name.rpartition("/")
    rule = RULES.get(rule_name)
    if name in measured or rule is None or suite.split("-")[0] != "glue":
        return Scored({name: _predictions(folder, details, name, tables)})
    rule = rule.of_suite(suite)
    return Scored({term: _predictions(folder, details, term, tables) for term in rule.needed}, rule)


def _predictions(
    folder: Path, details: Mapping[str, Any], name: str, tables: dict[str, Table]
) -> Predictions:
    task = next((task for task, d in details.items() if name in d.get("metrics", {})), None)
    if task is None:
        raise NoInterval(f"no per-example predictions are kept for {name}")
    if task not in tables:
        tables[task] = _table(folder / "predictions" / f"{task}.parquet", task)
    table, facts = tables[task]
    kind, metric = kind_of(facts, details[task]), details[task]["metrics"][name]["metric"]
    if kind in ("classification", "sentence_similarity"):
        spec = facts["task"] if kind == "classification" else facts
        for split in dict.fromkeys(table["split"]):
            for prefix in ("", "zero_shot_") if kind == "sentence_similarity" else ("",):
                if score_name(spec["suite"], spec["name"], split, prefix + metric) == name:
                    here = {key: column[table["split"] == split] for key, column in table.items()}
                    groups = merged_classes(spec, split)
                    return _of_split(f"{task}/{split}", metric, here, groups, prefix)
    elif kind == "minimal_pairs":
        own = facts["name"] if facts["suite"] == facts["name"] else f"{facts['suite']}/{task}"
        if name == f"{own}/accuracy":
            return _of_pairs(task, table)
    raise NoInterval(f"{name} is of a kind that is not resampled by examples")


def _of_split(
    where: str,
    metric: str,
    table: Mapping[str, np.ndarray],
    groups: np.ndarray | None,
    prefix: str,
) -> Predictions:
    numbers = list(dict.fromkeys(table["finetune_seed"].tolist()))
    column = "zero_shot" if prefix else "prediction"
    ids, labels, fits = [], [], []
    for number in numbers[:1] if prefix else numbers:
        here = table["finetune_seed"] == number
        order = _order(table["example_id"][here])
        fit = table[column][here][order]
        ids.append(table["example_id"][here][order])
        labels.append(table["label"][here][order])
        fits.append(fit if groups is None else groups[fit])
    for sides, what in ((ids, "examples"), (labels, "labels")):
        if not all(np.array_equal(sides[0], side) for side in sides):
            raise NoInterval(f"fine-tuning seeds of {where} have other {what}")
    return Predictions(where, metric, ids[0], labels[0], fits, (len(ids[0]),))


def _of_pairs(where: str, table: Mapping[str, np.ndarray]) -> Predictions:
    by_id = _order(table["example_id"])
    order = by_id[np.argsort(table["paradigm"][by_id], kind="stable")]
    of_paradigm = np.unique(table["paradigm"], return_counts=True)
    good, bad = (table[f"log_likelihood_{side}"][order] for side in ("good", "bad"))
    wins = PairScores([], [], good, bad).wins
    sizes = tuple(of_paradigm[1].tolist())
    return Predictions(
        where, PAIRS, table["example_id"][order], table["paradigm"][order], [wins], sizes
    )


def _order(ids: np.ndarray) -> np.ndarray:
    """Places of the examples in order of their ids."""
    order = np.argsort(ids, kind="stable")
    if (ids[order][1:] == ids[order][:-1]).any():
        raise NoInterval("several stored predictions have one example id")
    return order


def _table(file: Path, task: str) -> Table:
    """The columns that are read here, and the facts of the first fit."""
    import json

    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(file) as source:
            there = [name for name in _COLUMNS if name in source.schema_arrow.names]
            metadata = source.schema_arrow.metadata or {}
            table = source.read(columns=there)
        facts = json.loads(metadata[b"ablate_facts"])["parts"][0]
        columns = {
            name: np.array(table[name].to_pylist())
            if pa.types.is_string(table[name].type)
            else table[name].to_numpy()
            for name in there
        }
    except (OSError, pa.ArrowException, KeyError, IndexError, ValueError):
        raise NoInterval(f"a run has no readable predictions/{task}.parquet") from None
    return columns, facts
