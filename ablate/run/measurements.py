"""The group `evaluation` -> what is measured, with its data read.

Bad data is refused here, before anything trains.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ablate.config.evaluation_rules import finetune_settings, plan_fields
from ablate.config.schema import EvaluationSettings, Settings
from ablate.config.task_files import task_definition
from ablate.corpus.sources import Corpus
from ablate.evaluation.measurement import Measurement
from ablate.evaluation.plan import Plan
from ablate.pretraining import machine


def measurements(
    settings: Settings, cache: Path, corpus: Corpus | None = None
) -> list[Measurement]:
    """Everything that the evaluation asks for; empty where it asks for nothing.

    `corpus` is what `evaluation.mlm_quality` takes its held-out text from.

    Raises:
        ValueError: a definition or data that cannot be used.
    """
    found = _tasks(settings, cache)
    if settings.evaluation.mlm_quality:
        assert corpus is not None, "its held-out text is asked for"
        found.append(_quality(settings, cache, corpus))
    names = [measurement.name for measurement in found]
    for name in {name for name in names if names.count(name) > 1}:
        raise ValueError(
            f"two of evaluation.tasks are named {name}; give one another `name:` in its file"
        )
    _check_plan(settings, found)
    return found


def _check_plan(settings: Settings, found: list[Measurement]) -> None:
    """Refuse, before anything trains, what a protocol would refuse after it."""
    from ablate.evaluation.measurement import Setup

    plan = protocol_plan(settings)
    plan.check_names(found)
    shared = Setup(0, finetune_settings(settings.evaluation), 1, Path())
    for measurement in found:
        plan.setup_of(measurement, shared)
    plan.dependents(found)


def _tasks(settings: Settings, cache: Path) -> list[Measurement]:
    from ablate.evaluation import kinds

    wanted = settings.evaluation
    if wanted.kind == "synthetic":
        return _synthetic(settings)
    if wanted.kind == "none":
        return []
    return [
        kinds.load(_definition(name, wanted), path=wanted.path, cache_dir=cache / "hub")
        for name in wanted.tasks
    ]


def _definition(name: str, wanted: EvaluationSettings) -> dict[str, Any]:
    """A task's definition; its test splits stay out unless they are asked for, or scored.

    GLUE's are ten times as large as what is scored (QQP: 391,000 rows for every fit), and without
    labels they are for submissions alone.
    """
    found = task_definition(name)
    if wanted.predict_test or found.get("kind", "classification") != "classification":
        return found
    scored = {*(found.get("metrics_of") or {}), *(found.get("merged_labels") or {})}
    named = found.get("predicted_splits") or []
    if found.get("splits") == []:  # there is nothing else to measure
        return found
    kept = [split for split in named if not str(split).startswith("test") or split in scored]
    return {**found, "predicted_splits": kept}


def _quality(settings: Settings, cache: Path, corpus: Corpus) -> Measurement:
    """Held-out text in rows of a word for each three places of `max_length`: few are split."""
    from ablate.evaluation.held_out_text import from_corpus, synthetic_tags
    from ablate.evaluation.mlm_quality import NUM_WORDS, MLMQuality

    length = settings.evaluation.finetune.max_length or settings.input_format.max_length
    text = from_corpus(
        corpus,
        num_words=NUM_WORDS,
        words_per_row=max(length // 3, 4),
        seed=settings.corpus.seed,
        tags=synthetic_tags() if settings.corpus.kind == "synthetic" else None,
        cache_dir=cache,
    )
    return MLMQuality(text)


def _synthetic(settings: Settings) -> list[Measurement]:
    from ablate.evaluation import synthetic_pairs, synthetic_tasks
    from ablate.evaluation.classification import Classification
    from ablate.evaluation.pair_task import MinimalPairs
    from ablate.evaluation.tasks import TaskSpec, from_rows

    wanted, seed = settings.evaluation, settings.corpus.seed
    found: list[Measurement] = []
    for name in wanted.tasks:
        spec = TaskSpec.from_dict(
            {"name": name, "suite": "synthetic", **synthetic_tasks.SPECS[name]}
        )
        train = synthetic_tasks.generate(
            name, "train", seed=seed, num_examples=wanted.num_train_examples
        )
        scored = synthetic_tasks.generate(
            name,
            "validation",
            seed=seed,
            num_examples=wanted.num_validation_examples,
            exclude=train,
        )
        found.append(Classification(from_rows(spec, train, {"validation": scored})))
    if wanted.pairs_per_paradigm:
        pairs = synthetic_pairs.minimal_pairs(seed=seed, num_per_paradigm=wanted.pairs_per_paradigm)
        found.append(MinimalPairs("synthetic", "minimal_pairs", pairs))
    return found


def devices(settings: Settings, device: str) -> list[str]:
    """One worker each: GPUs there are, or `cpu` as often as cores divide by threads."""
    jobs, threads = settings.evaluation.jobs, settings.evaluation.threads
    if device == "cuda":
        import torch

        gpus = [f"cuda:{number}" for number in range(torch.cuda.device_count())]
        return gpus[:jobs]
    return ["cpu"] * (jobs or max(machine.available_cores() // threads, 1))


def finetune_arguments(settings: Settings, precision: str) -> dict[str, Any]:
    """Fields of `FinetuneSettings`, checked before anything is trained.

    Raises:
        ValueError: a value out of range.
    """
    return dict(vars(finetune_settings(settings.evaluation, precision)))


def protocol_plan(settings: Settings) -> Plan:
    """What single tasks have of their own, grids, and who starts from whose fit."""
    return Plan(**plan_fields(settings.evaluation))
