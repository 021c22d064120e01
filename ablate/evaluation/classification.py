"""Classification and regression tasks as measurements: one fit a fine-tuning seed."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ablate.evaluation.encoding import EncodedTask, encode_task
from ablate.evaluation.finetune import Fit, finetune
from ablate.evaluation.grids import SUITE_SUFFIX, choose
from ablate.evaluation.measurement import EvaluationResult, Fitted, Part, Setup, Subject, Table
from ablate.evaluation.minimal_pairs import is_causal
from ablate.evaluation.predictions import FORMAT_VERSION
from ablate.evaluation.scoring import add_task
from ablate.evaluation.settings import FinetuneSettings
from ablate.evaluation.tasks import TaskData, TaskSpec, load_task
from ablate.evaluation.texts import num_copies


@dataclass(frozen=True)
class Classification(Fitted):
    """A task with its examples, fitted once a fine-tuning seed."""

    data: TaskData

    @functools.cached_property
    def train_overlap(self) -> dict[str, int]:
        """By scored split, how many examples are in train too; official data have some."""
        scored = {*self.data.scored, *self.data.spec.metrics_of}
        texts = {name: x.texts for name, x in self.data.evaluated.items() if name in scored}
        return num_copies(texts, self.data.train.texts)

    @property
    def takes_plan(self) -> bool:
        """Grids and encoders of other tasks' fits are understood here (see `plan.takes_plan`)."""
        return True

    def key(self, setup: Setup) -> dict[str, Any]:
        key = {
            "data": self.hash(),
            "seed": setup.seed,
            "settings": dataclasses.asdict(setup.settings),
        }
        return {**key, "points": [dict(p) for p in setup.points]} if setup.points else key

    def measure(
        self, subject: Subject, setup: Setup, number: int, on_progress: Callable[[int, int], None]
    ) -> Part:
        settings, facts = setup.settings, _facts(self, setup, number)
        task = _encoded(self, subject, settings)
        start = setup.encoder_in[number % len(setup.encoder_in)] if setup.encoder_in else None

        def run(chosen: FinetuneSettings, **options: Any) -> Fit:
            _check_pooling(subject, chosen)
            return finetune(
                subject.model, task, chosen, seed=setup.seed, finetune_seed=number,
                start_from=start, **options,
            )  # fmt: skip

        if setup.points:
            choice = choose(
                setup.points,
                settings,
                lambda point: run(point, only_held_out=True).selection or {},
                folder=setup.folder / "points",
                key={
                    "format": FORMAT_VERSION,
                    "device": next(subject.model.parameters()).device.type,
                    **{"weights": subject.weights, "tokenizer": subject.tokenizer.hash},
                    **{"data": self.hash(), "seed": setup.seed, "part": number},
                    "start": None if start is None else start.name,
                    "threads": torch.get_num_threads(),
                },
                on_point=lambda done: on_progress(done, len(setup.points) + 1),
            )
            settings, facts["grid"] = choice.settings, choice.facts
        keep = setup.encoder_out[number] if setup.encoder_out else None
        fit = run(settings, on_step=None if setup.points else on_progress, keep_encoder=keep)
        if setup.points:
            on_progress(len(setup.points) + 1, len(setup.points) + 1)
        columns = [
            _columns(self.data, split, task.scored_examples[split], fit.outputs[split], number)
            for split in task.scored
        ]
        table = {name: [value for part in columns for value in part[name]] for name in columns[0]}
        rows = {"train": task.train, **task.scored}
        facts |= {
            "steps": fit.steps,
            "new_weights": list(fit.new_weights),
            "attention_kernel": fit.kernel,
            "num_train_examples": len(task.train),
            "num_train_available": len(self.data.train),
            "num_scored_available": {name: len(x) for name, x in self.data.evaluated.items()},
            "truncated_tokens": {split: part.truncated_tokens for split, part in rows.items()},
            "train_loss": fit.train_loss,
        }
        if fit.selection is not None:
            facts["early_stopping"] = fit.selection
        return Part(table, facts)

    def add_to(self, result: EvaluationResult, parts: Sequence[Part], setup: Setup) -> None:
        add_task(result, parts, setup.settings)
        entry = result.details[self.name]
        for fact in ("grid", "early_stopping"):  # differ from seed to seed
            if entry.pop(fact, None) is not None:
                entry[f"{fact}_by_seed"] = [part.facts[fact] for part in parts]
        if "early_stopping" in parts[0].facts:
            entry["steps"] = [part.facts["steps"] for part in parts]
        if "start_from" in parts[0].facts:
            entry["start_from"] = [part.facts["start_from"] for part in parts]


def _facts(task: Classification, setup: Setup, number: int) -> dict[str, Any]:
    """What is known before the fit. Scores of a grid go to a suite of their own."""
    data = task.data
    suffix = SUITE_SUFFIX if setup.points else ""
    facts: dict[str, Any] = {
        "task": {
            **dataclasses.asdict(data.spec),
            "suite": data.spec.suite + suffix,
            "stand_ins": None,
        },
        "nothing": data.nothing(),
        "notes": _notes(task, setup.settings),
        "train_overlap": task.train_overlap,
    }
    if setup.start_from is not None:
        part = number % len(setup.encoder_in)
        facts["start_from"] = {"task": setup.start_from, "finetune_seed": part}
    return facts


def _notes(task: Classification, settings: FinetuneSettings) -> dict[str, str]:
    data = task.data
    notes = dict(data.notes)
    for split, number in task.train_overlap.items():
        if number:
            said = f"has {number} of {len(data.evaluated[split])} examples that are in train too"
            notes[split] = "; ".join([*([notes[split]] if split in notes else []), said])
    if settings.max_scored_examples is not None:
        for split in data.predicted:
            if split not in data.spec.metrics_of:
                notes[split] = "not predicted, since evaluation.finetune.max_scored_examples is set"
    return notes


def _check_pooling(subject: Subject, settings: FinetuneSettings) -> None:
    if is_causal(subject.model) and settings.pooling in ("cls", "cls_mean"):
        raise ValueError(
            f"evaluation.finetune.pooling={settings.pooling} reads a row's first token, which sees "
            "no other token in a causal encoder; type evaluation.finetune.pooling=last_mean"
        )


_last: tuple[Any, EncodedTask] | None = None  # the fits of one task share its encoded rows


def _encoded(task: Classification, subject: Subject, settings: FinetuneSettings) -> EncodedTask:
    global _last
    options = {
        name: getattr(settings, name)
        for name in ("max_length", "max_train_examples", "max_scored_examples", "sample_seed")
    }
    key = (task.hash(), subject.tokenizer.hash, options)
    if _last is None or _last[0] != key:
        _last = key, encode_task(task.data, subject.tokenizer, **options)
    return _last[1]


def _columns(
    data: TaskData, split: str, which: np.ndarray, outputs: np.ndarray, number: int
) -> Table:
    """Columns of one fit on the examples of a split that were scored.

    NaN outputs (a diverged fit) stay visible in `score_*`.
    """
    examples = data.evaluated[split]
    clean = np.nan_to_num(outputs, nan=0.0)
    predicted = clean[:, 0].astype(np.float64) if data.spec.is_regression else clean.argmax(1)
    return {
        "example_id": [examples.ids[i] for i in which],
        "label": examples.labels[which].tolist(),
        "prediction": predicted.tolist(),
        "split": [split] * len(which),
        "finetune_seed": [number] * len(which),
        **{f"score_{i}": outputs[:, i].tolist() for i in range(outputs.shape[1])},
    }


def load(
    definition: Mapping[str, Any], *, path: str | Path | None, cache_dir: str | Path | None
) -> Classification:
    """The measurement of a definition in `conf/evaluation/task` (see `tasks.TaskSpec`)."""
    spec = TaskSpec.from_dict({"suite": "own", **definition})
    return Classification(load_task(spec, path=path, cache_dir=cache_dir))
