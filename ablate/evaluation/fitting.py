"""A pretrained encoder and a new head -> trained on a task: the part that all kinds of tasks share.

A plain loop: hundreds of small fits run in one process, and a Trainer costs more than a small task
and keeps its objects. The caller's model is never touched: the encoder is rebuilt with the dropout
of fine-tuning and the weights are copied in. Order, new weights and dropout come from streams named
by (pretraining seed, task, fine-tuning seed): equal for two paired arms. Devlin et al. 2019.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from ablate import rng
from ablate.encoder.backends import NAMES, Backend, resolve
from ablate.encoder.encoder import Encoder
from ablate.evaluation.settings import FinetuneSettings
from ablate.inputs.batches import Batch
from ablate.pretraining.optimizers import decay_groups
from ablate.pretraining.schedules import learning_rate_factor

PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16}
ADAM_BETA1 = 0.9
SCORING_TOKENS = 8192  # of one batch where nothing is trained
LossOf = Callable[[np.ndarray], tuple[Tensor, int]]  # row numbers -> (loss sum, what it counts)


class Watch(Protocol):
    """What looks at a fit between its steps (`early_stopping.BestWeights`)."""

    every: int

    def __call__(self, step: int) -> bool:
        """After `step` steps; True ends the fit."""
        ...


def num_steps(num_examples: int, settings: FinetuneSettings) -> int:
    """Optimizer steps of a fit."""
    per_epoch = -(-num_examples // settings.batch_size)
    steps = max(settings.num_epochs * per_epoch, settings.min_steps)
    return steps if settings.max_steps is None else min(steps, settings.max_steps)


def learning_rate(step: int, num_steps: int, settings: FinetuneSettings) -> float:
    """Rate of step `step` (from 0): linear up, then down to what would be step `num_steps`.

    So no step of a fit has the rate 0, however short the fit.
    """
    return settings.learning_rate * learning_rate_factor(
        (step + 1) / (num_steps + 1),
        schedule=settings.schedule,
        warmup_fraction=settings.warmup_fraction,
    )


def parameter_groups(
    encoder: nn.Module, head: nn.Module, settings: FinetuneSettings
) -> list[dict[str, Any]]:
    """Groups of AdamW, each with its `scale` on the learning rate.

    With `layerwise_decay` d and L layers the head has scale 1, layer i of 1 .. L
    d^(L + 1 - i + 1) and the embeddings d^(L + 2), which is ELECTRA's rule (its code leaves one
    step between head and top layer; Clark et al. 2020). The final norm goes with the top layer.

    Raises:
        ValueError: layers that share parameters, or an encoder without layers of its own.
    """
    decay, rate = settings.weight_decay, settings.layerwise_decay
    if rate == 1.0:
        groups = decay_groups(nn.ModuleList([encoder, head]), decay)
        return [{**group, "scale": 1.0} for group in groups]
    config: Any = getattr(encoder, "config", None)
    if not hasattr(encoder, "layers") or getattr(config, "shared_layers", "none") != "none":
        raise ValueError(
            f"evaluation.finetune.layerwise_decay={rate} needs layers with parameters of their "
            "own; with shared layers or an encoder of transformers type "
            "evaluation.finetune.layerwise_decay=1"
        )
    parts: list[tuple[nn.Module | None, int]] = [(head, 0)]
    parts += [(layer, depth + 2) for depth, layer in enumerate(reversed([*encoder.layers]))]  # type: ignore[misc]
    parts += [(encoder.final_norm, 2), (encoder.embeddings, len(parts) + 1)]  # type: ignore[list-item]
    found = [
        {**group, "scale": rate**exponent}
        for part, exponent in parts
        if part is not None
        for group in decay_groups(part, decay)
    ]
    named = sum(p.numel() for group in found for p in group["params"])
    trained = nn.ModuleList([encoder, head]).parameters()
    assert named == sum(p.numel() for p in trained if p.requires_grad), "each parameter once"
    return found


def copy_encoder(
    encoder: Encoder, settings: FinetuneSettings, *, longest: int, task: str
) -> Encoder:
    """The encoder with the dropout of fine-tuning and weights of its own, on the same device.

    Raises:
        ValueError: rows of `longest` tokens exceed the learned positions.
    """
    config = encoder.config
    if config.position_embedding == "learned" and longest > config.max_position_embeddings:
        raise ValueError(
            f"task {task!r} has rows of {longest} tokens, the encoder has positions "
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
    backend = backend_for(encoder, settings.precision, longest, dropout)
    copy = type(encoder)(changed, backend)  # a transformers class has its own
    copy.load_state_dict(encoder.state_dict())
    device = next(encoder.parameters()).device
    return copy.requires_grad_(not settings.frozen).to(device)


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


def initialize_head(head: nn.Module, stream: tuple) -> None:
    """Matrices normal with variance 1 / inputs, whatever the scheme of the encoder; biases 0.

    Each parameter is drawn from the stream of its own name.
    """
    with torch.no_grad():
        for name, parameter in head.named_parameters():
            if parameter.ndim < 2:
                parameter.zero_()
                continue
            source = torch.Generator().manual_seed(rng.torch_seed(*stream, "init", name))
            parameter.normal_(0.0, parameter.shape[1] ** -0.5, generator=source)


def fit(
    encoder: Encoder,
    head: nn.Module,
    loss_of: LossOf,
    settings: FinetuneSettings,
    *,
    num_rows: int,
    stream: tuple,
    on_step: Callable[[int, int], None] | None = None,
    watch: Watch | None = None,
) -> tuple[int, float]:
    """Train both on rows 0 .. num_rows - 1; the steps taken and the loss of the last epoch's worth.

    Args:
        loss_of: differentiable loss sum of the rows given, and the count that divides it once.
        stream: names the order of the rows and the dropout, e.g. (seed, "finetune", task, number).
        watch: asked every `watch.every` steps and after the last whether to stop.
    """
    steps = num_steps(num_rows, settings)
    optimizer = torch.optim.AdamW(
        parameter_groups(encoder, head, settings),
        lr=settings.learning_rate,
        betas=(ADAM_BETA1, settings.adam_beta2),
        eps=settings.adam_eps,
        fused=True,
    )
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    losses: list[Tensor] = []
    counts: list[int] = []
    device = parameters[0].device
    _train_mode(encoder, head, settings)
    for step, which in zip(range(steps), _rows(num_rows, settings, stream), strict=False):
        _seed(rng.torch_seed(*stream, "dropout", step), device)
        rate = learning_rate(step, steps, settings)
        for group in optimizer.param_groups:
            group["lr"] = rate * group["scale"]
        loss, count = loss_of(which)
        optimizer.zero_grad(set_to_none=True)
        (loss / max(count, 1)).backward()
        if settings.gradient_clip is not None:
            nn.utils.clip_grad_norm_(parameters, settings.gradient_clip, foreach=True)
        optimizer.step()
        losses.append(loss.detach())
        counts.append(count)
        if on_step is not None:
            on_step(step + 1, steps)
        if watch is not None and ((step + 1) % watch.every == 0 or step + 1 == steps):
            if watch(step + 1):
                break
            _train_mode(encoder, head, settings)
    last = -(-num_rows // settings.batch_size)
    mean = float(torch.stack(losses[-last:]).double().sum()) / max(sum(counts[-last:]), 1)
    return len(losses), mean


def _seed(seed: int, device: torch.device) -> None:
    """Seed the generator that dropout on this device draws from.

    `torch.manual_seed` does the same and, in a process without a GPU, formats a stack trace for
    each kind of device that may yet be initialised: 2 ms a call, 6% of a step of a tiny encoder.
    """
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed(seed)


def _train_mode(encoder: Encoder, head: nn.Module, settings: FinetuneSettings) -> None:
    encoder.train(not settings.frozen)
    head.train()


def _rows(num_rows: int, settings: FinetuneSettings, stream: tuple) -> Iterator[np.ndarray]:
    """Row numbers of one step after another: a new order each epoch, all rows once in each."""
    for epoch in itertools.count():
        order = rng.generator(*stream, "order", epoch).permutation(num_rows)
        yield from np.split(order, range(settings.batch_size, len(order), settings.batch_size))


def hidden_states(encoder: Encoder, batch: Batch, settings: FinetuneSettings) -> Tensor:
    """(N, D) of a batch on the encoder's device, without gradients where the encoder is frozen.

    To be called under `autocast`, and so is the head.
    """
    with torch.set_grad_enabled(torch.is_grad_enabled() and not settings.frozen):
        return encoder(
            batch.input_ids,
            token_type_ids=batch.token_type_ids,
            position_ids=batch.position_ids,
            cu_seqlens=batch.cu_seqlens,
            max_seqlen=batch.max_seqlen,
        )


def autocast(device: torch.device, precision: str) -> torch.autocast:
    """Half precision inside; what comes out is taken to float32 by the caller."""
    return torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16")
