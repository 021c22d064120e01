"""A pretrained model, tasks and minimal pairs -> stored predictions and an `EvaluationResult`.

Each task is fitted `num_finetune_seeds` times and its predictions go to one parquet file; all
numbers are computed from that table, whether it was made now or by a run that was interrupted. A
file is used again iff its key (weights, tokenizer, data, hyper-parameters, seeds) is the same.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ablate.encoder.heads import MaskedLanguageModel
from ablate.evaluation import predictions
from ablate.evaluation.encoding import encode_task
from ablate.evaluation.finetune import FinetuneSettings, finetune
from ablate.evaluation.minimal_pairs import is_causal, score_pairs
from ablate.evaluation.predictions import Table
from ablate.evaluation.scoring import EvaluationResult, add_averages, add_pairs, add_task
from ablate.evaluation.tasks import TaskData

if TYPE_CHECKING:
    from ablate.tokens.tokenizer import Tokenizer

FORMAT_VERSION = 1  # of the parquet files and of what decides their content
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class _Job:
    """What all tasks of one call share; `key` is the part of the files' keys that they share."""

    model: MaskedLanguageModel
    tokenizer: Tokenizer
    settings: FinetuneSettings
    seed: int
    num_finetune_seeds: int
    folder: Path
    on_progress: Progress
    key: dict[str, Any]


def evaluate(
    model: MaskedLanguageModel,
    tokenizer: Tokenizer,
    *,
    tasks: Sequence[TaskData],
    pairs: Sequence[Mapping[str, Any]] = (),
    seed: int,
    num_finetune_seeds: int = 1,
    out_dir: str | Path,
    pairs_name: str = "synthetic/minimal_pairs",
    on_progress: Progress | None = None,
    **settings: Any,
) -> EvaluationResult:
    """Fine-tune on each task, score the pairs, write `out_dir/predictions/<task>.parquet`.

    Args:
        seed: the pretraining seed of the model; names the random streams.
        pairs_name: `<suite>/<name>` of the pairs' score and file.
        on_progress: called with (task, done, total): steps of all its fits, or sentences.
        settings: fields of `FinetuneSettings`; `max_length` and `precision` hold for pairs too.
    """
    if num_finetune_seeds < 1:
        raise ValueError(
            f"evaluation.finetune.num_seeds={num_finetune_seeds} is not possible: give 1 or more"
        )
    if tasks and is_causal(model) and FinetuneSettings(**settings).pooling.startswith("cls"):
        raise ValueError(
            "evaluation.finetune.pooling=cls or cls_mean reads a row's first token, which sees no "
            "other token in a causal encoder; type evaluation.finetune.pooling=last_mean"
        )
    assert len({data.spec.name for data in tasks}) == len(tasks), "one file and entry a task"
    job = _Job(
        model,
        tokenizer,
        FinetuneSettings(**settings),
        seed,
        num_finetune_seeds,
        Path(out_dir) / "predictions",
        on_progress or (lambda task, done, total: None),
        {"format": FORMAT_VERSION, "weights": weights_hash(model), "tokenizer": tokenizer.hash},
    )
    result = EvaluationResult()
    for data in tasks:
        began = time.perf_counter()
        add_task(result, data, *_task_table(job, data), job.settings)
        result.seconds[data.spec.name] = time.perf_counter() - began
    if pairs:
        began = time.perf_counter()
        add_pairs(result, pairs_name, *_pairs_table(job, pairs, pairs_name.split("/")[-1]))
        result.seconds[pairs_name.split("/")[-1]] = time.perf_counter() - began
    add_averages(result, tasks)
    return result


def weights_hash(model: MaskedLanguageModel) -> str:
    """Identity of the parameters: a result of other weights is never taken for this model's."""
    digest = hashlib.blake2b(digest_size=16)
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name}{tuple(tensor.shape)}{tensor.dtype}".encode())
        digest.update(tensor.detach().float().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def _task_table(job: _Job, data: TaskData) -> tuple[Table, dict[str, Any]]:
    """The task's predictions and the facts of its fits, from the file or from new fits."""
    key = {
        **job.key,
        "data": data.hash(),
        "seed": job.seed,
        "num_finetune_seeds": job.num_finetune_seeds,
        "settings": dataclasses.asdict(job.settings),
    }
    file = job.folder / f"{data.spec.name}.parquet"
    table_and_facts = predictions.read(file, key=key)
    if table_and_facts is None:
        table_and_facts = _fit_task(job, data)
        predictions.write(file, table_and_facts[0], key=key, facts=table_and_facts[1])
    return table_and_facts


def _fit_task(job: _Job, data: TaskData) -> tuple[Table, dict[str, Any]]:
    """All fits of one task: a row an example, split and fit."""
    settings = job.settings
    task = encode_task(
        data,
        job.tokenizer,
        max_length=settings.max_length,
        max_train_examples=settings.max_train_examples,
        sample_seed=settings.sample_seed,
    )
    fits = []
    for number in range(job.num_finetune_seeds):

        def on_step(done: int, total: int, before: int = number) -> None:
            job.on_progress(data.spec.name, before * total + done, job.num_finetune_seeds * total)

        fits.append(
            finetune(
                job.model, task, settings, seed=job.seed, finetune_seed=number, on_step=on_step
            )
        )
    parts = [
        _columns(data, split, fit.outputs[split], number)
        for number, fit in enumerate(fits)
        for split in data.scored
    ]
    table = {name: [value for part in parts for value in part[name]] for name in parts[0]}
    rows = {"train": task.train, **task.scored}
    return table, {
        "steps": fits[0].steps,
        "new_weights": list(fits[0].new_weights),
        "attention_kernel": fits[0].kernel,
        "num_train_examples": len(task.train),
        "num_train_available": len(data.train),
        "truncated_tokens": {split: part.truncated_tokens for split, part in rows.items()},
        "train_loss_by_seed": [fit.train_loss for fit in fits],
    }


def _columns(data: TaskData, split: str, outputs: np.ndarray, number: int) -> Table:
    """Columns of one fit on one split; NaN outputs (a diverged fit) stay visible in `score_*`."""
    examples = data.scored[split]
    clean = np.nan_to_num(outputs, nan=0.0)
    predicted = clean[:, 0].astype(np.float64) if data.spec.is_regression else clean.argmax(1)
    return {
        "example_id": list(examples.ids),
        "label": examples.labels.tolist(),
        "prediction": predicted.tolist(),
        "split": [split] * len(examples),
        "finetune_seed": [number] * len(examples),
        **{f"score_{i}": outputs[:, i].tolist() for i in range(outputs.shape[1])},
    }


def _pairs_table(
    job: _Job, pairs: Sequence[Mapping[str, Any]], name: str
) -> tuple[Table, dict[str, Any]]:
    content = json.dumps([sorted(pair.items()) for pair in pairs], default=str).encode()
    key = {
        **job.key,
        "data": hashlib.blake2b(content, digest_size=8).hexdigest(),
        "max_length": job.settings.max_length,
        "precision": job.settings.precision,
    }
    if is_causal(job.model):  # equal weights say something else with a mask over what follows
        key["likelihood"] = "causal"
    file = job.folder / f"{name}.parquet"
    table_and_facts = predictions.read(file, key=key)
    if table_and_facts is None:
        found = score_pairs(
            job.model,
            job.tokenizer,
            pairs,
            max_length=job.settings.max_length,
            precision=job.settings.precision,
            on_progress=lambda done, total: job.on_progress(name, done, total),
        )
        table: Table = {
            "example_id": found.ids,
            "label": [1.0] * len(found.ids),
            "prediction": found.wins.tolist(),
            "split": ["validation"] * len(found.ids),
            "finetune_seed": [0] * len(found.ids),
            "paradigm": found.paradigms,
            "log_likelihood_good": found.good.tolist(),
            "log_likelihood_bad": found.bad.tolist(),
        }
        table_and_facts = table, {"truncated_tokens": found.truncated_tokens}
        predictions.write(file, table, key=key, facts=table_and_facts[1])
    return table_and_facts
