"""A pretrained model and an encoded task -> outputs for every example, through one short fit.

A plain loop: hundreds of small fits run in one process, and a Trainer costs more than a small task
and keeps its objects. The caller's model is never touched: the encoder is rebuilt with the dropout
of fine-tuning and the weights are copied in. The head is always new, also where pretraining trained
a pooler, so that arms with and without NSP start from the same head. Order, new weights and dropout
come from streams named by (pretraining seed, task, fine-tuning seed): equal for two paired arms.
The model of the last step is scored; nothing is chosen on the scored split. Devlin et al. 2019.
"""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ablate import rng
from ablate.encoder.backends import NAMES, Backend, resolve
from ablate.encoder.encoder import Encoder
from ablate.encoder.heads import POOLINGS, ClassificationHead, MaskedLanguageModel
from ablate.evaluation.encoding import EncodedTask, Rows, batches_by_tokens
from ablate.pretraining.optimizers import adamw
from ablate.pretraining.schedules import learning_rate_factor

PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16}
ADAM_BETAS, ADAM_EPS = (0.9, 0.999), 1e-8
SCORING_TOKENS = 8192  # of one batch where nothing is trained


@dataclass(frozen=True)
class FinetuneSettings:
    """One declared set of hyper-parameters for all tasks.

    Steps are `num_epochs` over the training examples, raised to `min_steps` for small tasks and cut
    at `max_steps`; `warmup_fraction` is of the steps. The last three go to `encode_task`.
    """

    learning_rate: float = 2e-3
    batch_size: int = 32
    num_epochs: int = 3
    min_steps: int = 150
    max_steps: int | None = None
    warmup_fraction: float = 0.1
    weight_decay: float = 0.01
    gradient_clip: float = 1.0
    dropout: float = 0.1
    pooling: str = "cls_mean"
    frozen: bool = False
    precision: str = "fp32"
    max_length: int = 128
    max_train_examples: int | None = None
    sample_seed: int = 0

    def __post_init__(self) -> None:
        rules = {
            "learning_rate": self.learning_rate > 0,
            "batch_size": self.batch_size >= 1,
            "num_epochs": self.num_epochs >= 1,
            "min_steps": self.min_steps >= 0,
            "max_steps": self.max_steps is None or self.max_steps >= 1,
            "max_train_examples": self.max_train_examples is None or self.max_train_examples >= 1,
            "max_length": self.max_length >= 8,
            "warmup_fraction": 0 <= self.warmup_fraction < 1,
            "weight_decay": self.weight_decay >= 0,
            "gradient_clip": self.gradient_clip > 0,
            "dropout": 0 <= self.dropout < 1,
            "precision": self.precision in PRECISIONS,
            "pooling": self.pooling in POOLINGS,
        }
        wrong = [name for name, good in rules.items() if not good]
        if wrong:
            given = ", ".join(f"evaluation.finetune.{n}={getattr(self, n)}" for n in wrong)
            raise ValueError(
                f"{given} is not possible. Counts and rates must be above 0, min_steps and "
                "weight_decay not below it, max_length at least 8, warmup_fraction and dropout in "
                f"[0, 1), precision one of {', '.join(PRECISIONS)}"
            )


@dataclass(frozen=True)
class Fit:
    """What one fit leaves. `outputs[split]` is (n, num_outputs) float32, in the order of the file:
    logits, or the regression value in the units of the labels."""

    outputs: dict[str, np.ndarray]
    steps: int
    train_loss: float  # loss sum / examples over the last epoch's worth of steps
    new_weights: tuple[str, ...]
    kernel: str  # of attention while training
    seconds: float


def num_steps(num_examples: int, settings: FinetuneSettings) -> int:
    """Optimizer steps of a fit."""
    per_epoch = -(-num_examples // settings.batch_size)
    steps = max(settings.num_epochs * per_epoch, settings.min_steps)
    return steps if settings.max_steps is None else min(steps, settings.max_steps)


def learning_rate(step: int, num_steps: int, settings: FinetuneSettings) -> float:
    """Rate of step `step` (from 0): linear up, then linear down to what would be step `num_steps`.

    So no step of a fit has the rate 0, however short the fit.
    """
    return settings.learning_rate * learning_rate_factor(
        (step + 1) / (num_steps + 1), schedule="linear", warmup_fraction=settings.warmup_fraction
    )


def finetune(
    model: MaskedLanguageModel,
    task: EncodedTask,
    settings: FinetuneSettings,
    *,
    seed: int,
    finetune_seed: int,
    on_step: Callable[[int, int], None] | None = None,
) -> Fit:
    """Train a copy of the model's encoder with a new head and score every split of the task.

    Args:
        seed: the pretraining seed; `finetune_seed` counts the fits nested in it.
        on_step: called with (steps done, steps of the fit).

    Raises:
        ValueError: rows longer than the encoder's learned positions.
    """
    began = time.perf_counter()
    stream = (seed, "finetune", task.name, finetune_seed)
    device = next(model.parameters()).device
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        encoder = _copy_encoder(model.encoder, task, settings).to(device)
        head = _new_head(encoder, task, settings, stream).to(device)
        steps, train_loss = _train(encoder, head, task, settings, stream, on_step)
        outputs = {
            split: _score(encoder, head, rows, settings) * task.scale + task.center
            for split, rows in task.scored.items()
        }
    new = tuple(f"head.{name}" for name in head.state_dict())
    kernel = encoder.backend.kernel_for(encoder.config.attention_dropout, device.type)
    return Fit(outputs, steps, train_loss, new, kernel, time.perf_counter() - began)


def _copy_encoder(encoder: Encoder, task: EncodedTask, settings: FinetuneSettings) -> Encoder:
    config = encoder.config
    if config.position_embedding == "learned" and task.longest() > config.max_position_embeddings:
        raise ValueError(
            f"task {task.name!r} has rows of {task.longest()} tokens, the encoder has positions "
            f"for {config.max_position_embeddings}: set the fine-tuning max_length to "
            f"{config.max_position_embeddings} or less"
        )
    dropout = 0.0 if settings.frozen else settings.dropout
    changed = dataclasses.replace(
        config,
        attention_dropout=dropout,
        hidden_dropout=dropout,
        embedding_dropout=dropout,
    )
    backend = backend_for(encoder, settings.precision, task.longest(), dropout)
    copy = type(encoder)(changed, backend)  # a transformers class has its own
    copy.load_state_dict(encoder.state_dict())
    return copy.requires_grad_(not settings.frozen)


def backend_for(encoder: Encoder, precision: str, max_length: int, dropout: float = 0.0) -> Backend:
    """The encoder's own backend, resolved for this precision; flash and flex give way to sdpa where
    they have no kernel (dropout on the attention probabilities; flash: float32); a transformers
    class and an LSTM keep their own."""
    dtype, name = PRECISIONS[precision], encoder.backend.name
    if name not in NAMES:
        return encoder.backend
    if (name == "flash" and dtype == torch.float32) or (name in ("flash", "flex") and dropout):
        name = "sdpa"
    device = next(encoder.parameters()).device
    return resolve(name, device=str(device), dtype=dtype, max_length=max_length)


def _new_head(
    encoder: Encoder, task: EncodedTask, settings: FinetuneSettings, stream: tuple
) -> ClassificationHead:
    """Matrices normal with variance 1 / inputs, whatever the scheme of the encoder; biases 0."""
    head = ClassificationHead(
        encoder.config.hidden_size, task.num_outputs, settings.pooling, settings.dropout
    )
    with torch.no_grad():
        for name, parameter in head.named_parameters():
            if parameter.ndim < 2:
                parameter.zero_()
                continue
            source = torch.Generator().manual_seed(rng.torch_seed(*stream, "init", name))
            parameter.normal_(0.0, parameter.shape[1] ** -0.5, generator=source)
    return head


def _train(
    encoder: Encoder,
    head: ClassificationHead,
    task: EncodedTask,
    settings: FinetuneSettings,
    stream: tuple,
    on_step: Callable[[int, int], None] | None,
) -> tuple[int, float]:
    """Steps taken and the mean loss of the last epoch's worth of them."""
    steps = num_steps(len(task.train), settings)
    optimizer = adamw(
        nn.ModuleList([encoder, head]),
        learning_rate=settings.learning_rate,
        weight_decay=settings.weight_decay,
        betas=ADAM_BETAS,
        eps=ADAM_EPS,
    )
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    encoder.train(not settings.frozen)
    head.train()
    losses: list[Tensor] = []
    counts: list[int] = []
    for step, which in zip(range(steps), _training_rows(task, settings, stream), strict=False):
        torch.manual_seed(rng.torch_seed(*stream, "dropout", step))
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, steps, settings)
        loss = _loss_sum(_forward(encoder, head, task.train, which, settings), task, which)
        optimizer.zero_grad(set_to_none=True)
        (loss / len(which)).backward()
        nn.utils.clip_grad_norm_(parameters, settings.gradient_clip)
        optimizer.step()
        losses.append(loss.detach())
        counts.append(len(which))
        if on_step is not None:
            on_step(step + 1, steps)
    last = -(-len(task.train) // settings.batch_size)
    return steps, float(torch.stack(losses[-last:]).double().sum()) / sum(counts[-last:])


def _training_rows(
    task: EncodedTask, settings: FinetuneSettings, stream: tuple
) -> Iterator[np.ndarray]:
    """Row numbers of one step after another: a new order each epoch, all examples once in each."""
    for epoch in itertools.count():
        order = rng.generator(*stream, "order", epoch).permutation(len(task.train))
        yield from np.split(order, range(settings.batch_size, len(order), settings.batch_size))


def _forward(
    encoder: Encoder,
    head: ClassificationHead,
    rows: Rows,
    which: np.ndarray,
    settings: FinetuneSettings,
) -> Tensor:
    """Outputs (R, num_outputs) in float32, whatever the precision inside."""
    device = next(head.parameters()).device
    batch = rows.batch(which).to(device)
    with autocast(device, settings.precision):
        with torch.set_grad_enabled(torch.is_grad_enabled() and not settings.frozen):
            hidden = encoder(
                batch.input_ids,
                token_type_ids=batch.token_type_ids,
                position_ids=batch.position_ids,
                cu_seqlens=batch.cu_seqlens,
                max_seqlen=batch.max_seqlen,
            )
        return head(hidden, batch.cu_seqlens).float()


def autocast(device: torch.device, precision: str) -> torch.autocast:
    """Half precision inside; what comes out is taken to float32 by the caller."""
    return torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16")


def _loss_sum(outputs: Tensor, task: EncodedTask, which: np.ndarray) -> Tensor:
    """Summed over the rows; the caller divides by their number once."""
    targets = torch.from_numpy(task.targets[which]).to(outputs.device)
    if task.is_regression:
        return (outputs.squeeze(-1) - targets.float()).square().sum()
    return F.cross_entropy(outputs, targets, reduction="sum")


def _score(
    encoder: Encoder, head: ClassificationHead, rows: Rows, settings: FinetuneSettings
) -> np.ndarray:
    """Outputs (n, num_outputs) float32 of all rows, in their own order."""
    encoder.eval()
    head.eval()
    found: np.ndarray | None = None
    with torch.inference_mode():
        for which in batches_by_tokens(rows.lengths, tokens_per_batch=SCORING_TOKENS):
            outputs = _forward(encoder, head, rows, which, settings).cpu().numpy()
            if found is None:
                found = np.empty((len(rows), outputs.shape[1]), dtype=np.float32)
            found[which] = outputs
    assert found is not None
    return found
