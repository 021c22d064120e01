"""Runs made of drawn predictions, scored and stored as a real run's are; nothing is trained."""

import numpy as np

from ablate import rng
from ablate.evaluation import pair_scores, predictions, scoring
from ablate.evaluation.averages import add_averages
from ablate.evaluation.measurement import EvaluationResult, Part
from ablate.study import collect
from ablate.study.design import from_dict
from ablate.study.states import State, StudyFolder

GLUE = {  # task -> (metrics, labels, splits)
    "cola": (["mcc"], 2, ["validation"]),
    "sst2": (["accuracy"], 2, ["validation"]),
    "mrpc": (["accuracy", "f1"], 2, ["validation"]),
    "stsb": (["pearson", "spearman"], 0, ["validation"]),
    "qqp": (["accuracy", "f1"], 2, ["validation"]),
    "mnli": (["accuracy"], 3, ["validation_matched", "validation_mismatched"]),
    "qnli": (["accuracy"], 2, ["validation"]),
    "rte": (["accuracy"], 2, ["validation"]),
}


def generator(*names):
    return rng.generator(0, "test", *names)


def fit_of(task, arm, seed, number, n, skill=0.7):
    """Columns of one fit; labels depend on the task alone."""
    _, classes, splits = GLUE[task]
    table = {
        k: [] for k in ("example_id", "label", "prediction", "split", "finetune_seed", "score_0")
    }
    for split in splits:
        gold, draw = generator(task, split), generator(task, split, arm, seed, number)
        if classes:
            label = gold.integers(classes, size=n)
            guess = np.where(draw.random(n) < skill, label, draw.integers(classes, size=n))
        else:
            label = np.round(gold.random(n) * 5, 1)
            guess = np.round(label + draw.normal(0, 2, n), 1)
        table["example_id"] += list(range(n))
        table["label"] += label.tolist()
        table["prediction"] += guess.tolist()
        table["split"] += [split] * n
        table["finetune_seed"] += [number] * n
        table["score_0"] += [0.0] * n
    return table


def facts_of(task, merged=None):
    names, classes, splits = GLUE[task]
    spec = {
        "name": task, "suite": "glue", "metrics": names, "splits": splits,
        "labels": [str(i) for i in range(classes)], "merged_labels": merged or {},
    }  # fmt: skip
    return {"task": spec, "nothing": 0.0, "train_loss": 0.5, "hyper_parameters": {}}


def write_run(folder, parts, add):
    """Store parts of tasks and return the record that `add` makes of them."""
    result = EvaluationResult()
    for task, of_task in parts.items():
        predictions.write(
            folder / "predictions" / f"{task}.parquet", predictions.joined(of_task), key={}
        )
        add(result, task, of_task)
    add_averages(result)
    return {
        "status": "complete",
        "scores": result.scores,
        "evaluation": result.details,
        "averages": result.averages,
    }


def add_classes(result, task, parts):
    del task
    scoring.add_scores(result, parts[0].facts, [p.table for p in parts], [0.5] * len(parts))


def glue_run(folder, arm, seed, *, tasks=tuple(GLUE), fits=2, n=60, skill=0.7):
    parts = {
        task: [Part(fit_of(task, arm, seed, f, n, skill), facts_of(task)) for f in range(fits)]
        for task in tasks
    }
    return write_run(folder, parts, add_classes)


def study_of(runs_dir, records, primary, *, higher=True):
    """A `StudyResult` of records[arm][seed], the first arm being the baseline."""
    base = next(iter(records))
    study = from_dict(
        {
            "question": "?", "baseline": base,
            "arms": {arm: [f"tracking.group={arm}"] for arm in records},
            "seeds": max(map(len, records.values())), "primary": primary, "margin": 0.01,
            "higher_is_better": higher,
        },
        name="made",
    )  # fmt: skip
    arms = {
        arm: collect.ArmResult(
            arm, [], {s: State("complete", f"{arm}-s{s}") for s in of_arm}, of_arm,
            collect._scores(of_arm), [], {}, {},
        )
        for arm, of_arm in records.items()
    }  # fmt: skip
    return collect.decided(study, arms, StudyFolder(runs_dir, study))


def glue_study(runs_dir, primary, *, arms=("base", "other"), seeds=3, higher=True, **options):
    records = {
        arm: {
            s: glue_run(runs_dir / "single" / f"{arm}-s{s}", arm, s, **options)
            for s in range(seeds)
        }
        for arm in arms
    }
    return study_of(runs_dir, records, primary, higher=higher)


def pairs_part(arm, seed):
    draw = generator("pairs", arm, seed)
    paradigms = ["b"] * 30 + ["a"] * 10
    good, bad = draw.normal(size=(2, 40)).round(1)
    table = {
        "example_id": list(range(40)), "label": [1.0] * 40, "prediction": [1.0] * 40,
        "split": ["validation"] * 40, "finetune_seed": [0] * 40, "paradigm": paradigms,
        "phenomenon": ["p"] * 30 + ["q"] * 10, "field": [""] * 40,
        "log_likelihood_good": good.tolist(), "log_likelihood_bad": bad.tolist(),
    }  # fmt: skip
    facts = {
        "suite": "blimp", "name": "blimp", "likelihood": "log-likelihood", "tier": "full",
        "truncated_tokens": 0, "unknown_tokens": 0,
    }  # fmt: skip
    return Part(table, facts)


def pairs_run(folder, arm, seed):
    def add(result, task, parts):
        pair_scores.add_pairs(result, parts)

    return write_run(folder, {"blimp": [pairs_part(arm, seed)]}, add)
