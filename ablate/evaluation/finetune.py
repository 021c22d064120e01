"""A pretrained model and an encoded task -> outputs for every example, through one short fit.

The head is always new, also where pretraining trained a pooler, so that arms with and without NSP
start from the same head. The model of the last step is scored or, with early stopping, that of the
best evaluation on examples held out of *train*: nothing is chosen on a scored split. Devlin et al.
2019.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from ablate.encoder.encoder import Encoder
from ablate.encoder.heads import ClassificationHead, MaskedLanguageModel
from ablate.evaluation import metrics
from ablate.evaluation.early_stopping import BestWeights, hold_out
from ablate.evaluation.encoding import EncodedTask, Rows, batches_by_tokens
from ablate.evaluation.fitting import (
    SCORING_TOKENS,
    FinetuneSettings,
    autocast,
    copy_encoder,
    fit,
    hidden_states,
    initialize_head,
)
from ablate.evaluation.frozen import KeptStates, fits_in_memory

Forward = Callable[[np.ndarray], Tensor]  # row numbers (R,) -> outputs (R, num_outputs) float32


@dataclass(frozen=True)
class Fit:
    """What one fit leaves. `outputs[split]` is (n, num_outputs) float32, in the order of the file:
    logits, or the regression value in the units of the labels. `selection` says what the examples
    held out of train decided, None where none were."""

    outputs: dict[str, np.ndarray]
    steps: int
    train_loss: float  # loss sum / examples over the last epoch's worth of steps
    new_weights: tuple[str, ...]
    kernel: str  # of attention while training
    seconds: float
    selection: dict[str, Any] | None = None


def finetune(
    model: MaskedLanguageModel,
    task: EncodedTask,
    settings: FinetuneSettings,
    *,
    seed: int,
    finetune_seed: int,
    on_step: Callable[[int, int], None] | None = None,
    only_held_out: bool = False,
    start_from: Path | None = None,
    keep_encoder: Path | None = None,
) -> Fit:
    """Train a copy of the model's encoder with a new head and score every split of the task.

    Args:
        seed: the pretraining seed; `finetune_seed` counts the fits nested in it.
        on_step: called with (steps done, steps of the fit).
        only_held_out: score the examples held out of train and nothing else (a point of a grid).
        start_from: file of an encoder that another fit kept; its weights are the start.
        keep_encoder: file for the encoder as it was scored.

    Raises:
        ValueError: rows longer than the encoder's learned positions.
    """
    began = time.perf_counter()
    stream = (seed, "finetune", task.name, finetune_seed)
    device = next(model.parameters()).device
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        encoder = copy_encoder(model.encoder, settings, longest=task.longest(), task=task.name)
        if start_from is not None:
            encoder.load_state_dict(torch.load(start_from, map_location=device, weights_only=True))
        head = new_head(encoder, task, settings, stream).to(device)
        forward = _forward_of(encoder, head, task.train, settings)
        trained, held = np.arange(len(task.train)), None
        if only_held_out or settings.early_stopping is not None:
            trained, held = hold_out(
                len(task.train), settings.selection_fraction, sample_seed=settings.sample_seed,
                task=task.name, finetune_seed=finetune_seed, groups=task.groups,
            )  # fmt: skip

        def loss_of(which: np.ndarray) -> tuple[Tensor, int]:
            rows = trained[which]
            return _loss_sum(forward(rows), task, rows), len(rows)

        def held_out_score() -> float:
            assert held is not None
            encoder.eval()
            head.eval()
            lengths = task.train.lengths[held]
            found = _score(lambda which: forward(held[which]), lengths)
            return _judge(found, task, held)

        watch = None
        if settings.early_stopping is not None:
            per_epoch = -(-len(trained) // settings.batch_size)
            watch = BestWeights(
                [head] if settings.frozen else [encoder, head],
                held_out_score,
                every=per_epoch // settings.evaluations_per_epoch,
                patience=settings.early_stopping,
            )
        steps, train_loss = fit(
            encoder, head, loss_of, settings, num_rows=len(trained), stream=stream,
            on_step=on_step, watch=watch,
        )  # fmt: skip
        if watch is not None:
            watch.restore()
        selection = None
        if held is not None:
            score = held_out_score() if watch is None else watch.best_score
            selection = {"metric": task.metric, "held_out_examples": len(held), "score": score}
            selection |= {} if watch is None else watch.facts()
        outputs = {}
        if not only_held_out:
            encoder.eval()
            head.eval()
            for split, rows in task.scored.items():
                found = _score(_forward_of(encoder, head, rows, settings, keep=False), rows.lengths)
                outputs[split] = found * task.scale + task.center
        if keep_encoder is not None:
            _keep(encoder, keep_encoder)
    new = tuple(f"head.{name}" for name in head.state_dict())
    kernel = encoder.backend.kernel_for(encoder.config.attention_dropout, device.type)
    return Fit(
        outputs, steps, train_loss, new, kernel, time.perf_counter() - began, selection
    )  # fmt: skip


def _keep(encoder: Encoder, file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        torch.save(encoder.state_dict(), temporary)
        os.replace(temporary, file)
    finally:
        temporary.unlink(missing_ok=True)


def new_head(
    encoder: Encoder, task: EncodedTask, settings: FinetuneSettings, stream: tuple
) -> ClassificationHead:
    """A head whose weights depend on the stream and the width alone."""
    head = ClassificationHead(
        encoder.config.hidden_size, task.num_outputs, settings.pooling, settings.dropout,
        kind=settings.head,
    )  # fmt: skip
    initialize_head(head, stream)
    return head


def _forward_of(
    encoder: Encoder,
    head: ClassificationHead,
    rows: Rows,
    settings: FinetuneSettings,
    *,
    keep: bool = True,
) -> Forward:
    """Outputs in float32, whatever the precision inside; `keep` allows to compute the states of a
    frozen encoder once, here."""
    device = next(head.parameters()).device
    if keep and settings.frozen and fits_in_memory(encoder, rows, settings):
        kept = KeptStates(encoder, rows, settings)

        def from_kept(which: np.ndarray) -> Tensor:
            with autocast(device, settings.precision):
                return kept.outputs(head, which).float()

        return from_kept

    def through(which: np.ndarray) -> Tensor:
        batch = rows.batch(which).to(device)
        with autocast(device, settings.precision):
            return head(hidden_states(encoder, batch, settings), batch.cu_seqlens).float()

    return through


def _loss_sum(outputs: Tensor, task: EncodedTask, which: np.ndarray) -> Tensor:
    """Summed over the rows; the caller divides by their number once."""
    targets = torch.from_numpy(task.targets[which]).to(outputs.device)
    if task.is_regression:
        return (outputs.squeeze(-1) - targets.float()).square().sum()
    return F.cross_entropy(outputs, targets, reduction="sum")


def _score(forward: Forward, lengths: np.ndarray) -> np.ndarray:
    """Outputs (n, num_outputs) float32 of rows of these lengths, in their own order."""
    found: np.ndarray | None = None
    with torch.inference_mode():
        for which in batches_by_tokens(lengths, tokens_per_batch=SCORING_TOKENS):
            outputs = forward(which).cpu().numpy()
            if found is None:
                found = np.empty((len(lengths), outputs.shape[1]), dtype=np.float32)
            found[which] = outputs
    assert found is not None
    return found


def _judge(outputs: np.ndarray, task: EncodedTask, rows: np.ndarray) -> float:
    """The task's first metric on training examples; 0 where it is undefined, and less than any
    score where an output is no number."""
    if not np.isfinite(outputs).all():
        return float("-inf")
    if task.is_regression:
        found = outputs[:, 0].astype(np.float64) * task.scale + task.center
        return metrics.score(
            task.metric, found, task.targets[rows] * task.scale + task.center
        ).value
    return metrics.score(task.metric, outputs.argmax(axis=1), task.targets[rows]).value
