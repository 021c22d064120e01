"""A `Side` -> a step to be timed, and what it computes: ours and the classes of transformers.

Both sides get the same ids, the same predicted positions and, but for DeBERTa, the same weights:
ours draws them by name, and theirs takes them through `ablate.interop`. Their rows are full, so
they get no attention mask, which they would only find to be empty. No gradient is clipped on either
side. The imports of one side are never made in the other's process: they count in its peak memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ablate import rng
from ablate.bench.encoder_rows import Shape, Side, our_config
from ablate.bench.theirs import transformers_module
from ablate.encoder.backends import resolve
from ablate.encoder.heads import MaskedLanguageModel
from ablate.encoder.initialization import initialize, num_parameters
from ablate.inputs.batches import Batch, collate
from ablate.objectives.mlm import masked_lm_loss
from ablate.pretraining.optimizers import adamw

NUM_BATCHES = 4  # different ones
WARM_UP = 3  # steps; their losses are the probe
MASK_TOKEN_ID, FIRST_ID = 4, 5
OPTIMIZER: dict[str, Any] = {
    "learning_rate": 5e-4,
    "weight_decay": 0.01,
    "betas": (0.9, 0.98),
    "eps": 1e-6,
}
CEILING_SIZE = 2048  # of the square matrices
_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


@dataclass
class Made:
    """A built and warmed-up side: `step` does one timed step, `about` is told to the parent."""

    step: Callable[[], Any]
    about: dict[str, Any]


def their_config(side: Side) -> Any:
    """The config of transformers: sizes, token ids and what `side` asks for, else its defaults."""
    library = transformers_module()
    shape = side.shape
    options: dict[str, Any] = {
        "vocab_size": shape.vocab,
        "hidden_size": shape.width,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "intermediate_size": shape.intermediate,
        "max_position_embeddings": max(512, shape.length),
        "pad_token_id": 0,
    }
    if side.model == "modernbert":
        special = {"cls_token_id": 2, "sep_token_id": 3, "bos_token_id": 2, "eos_token_id": 3}
        return library.ModernBertConfig(
            **options, **special, sparse_prediction=side.sparse and side.training
        )
    if not side.as_it_comes:
        options |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    if side.model == "bert":
        return library.BertConfig(**options)
    return library.DebertaV2Config(  # the attention of microsoft/deberta-v3-small
        **options,
        type_vocab_size=0,
        relative_attention=True,
        position_buckets=256,
        norm_rel_ebd="layer_norm",
        share_att_key=True,
        pos_att_type="p2c|c2p",
        position_biased_input=False,
    )


def rows_of(shape: Shape, number: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Batch `number`: ids the encoder sees (R, L), predicted columns (R, M / R), their ids."""
    generator = rng.generator(0, "bench", "encoder", number)
    ids = generator.integers(FIRST_ID, shape.vocab, (shape.rows, shape.length))
    each = shape.predicted // shape.rows
    columns = np.sort(generator.random(ids.shape).argsort(axis=1)[:, :each], axis=1)
    labels = np.take_along_axis(ids, columns, axis=1)
    np.put_along_axis(ids, columns, MASK_TOKEN_ID, axis=1)
    return ids, columns, labels


def our_batch(shape: Shape, number: int) -> Batch:
    """The batch for our model."""
    ids, columns, labels = rows_of(shape, number)
    positions = columns + shape.length * np.arange(shape.rows)[:, None]
    return collate(
        ids.ravel(),
        np.full(shape.rows, shape.length),
        predict_positions=positions.ravel(),
        labels=labels.ravel(),
    )


def their_batch(shape: Shape, number: int) -> dict[str, torch.Tensor]:
    """The same batch as their collator would lay it out: labels everywhere, mostly -100."""
    ids, columns, labels = rows_of(shape, number)
    everywhere = np.full(ids.shape, -100)
    np.put_along_axis(everywhere, columns, labels, axis=1)
    return {"input_ids": torch.from_numpy(ids), "labels": torch.from_numpy(everywhere)}


def our_model(shape: Shape, precision: str, device: str = "cpu") -> MaskedLanguageModel:
    """Our model, on the CPU, with attention resolved as in a run on `device`."""
    config = our_config(shape)
    chosen = resolve("auto", device=device, dtype=_DTYPES[precision], max_length=shape.length)
    model = MaskedLanguageModel(config, chosen)
    initialize(model, config, lambda name: rng.torch_seed(0, "init", name))
    return model


@torch.no_grad()
def enlarge(model: MaskedLanguageModel) -> MaskedLanguageModel:
    """Scale the matrices to a standard deviation of 1 / sqrt(width).

    At their initial size the layers hardly change the residual stream, and two models whose
    attention differs would still agree.
    """
    config = model.config
    for parameter in model.parameters():
        if parameter.dim() > 1:
            parameter.mul_(1 / (config.init_std * config.hidden_size**0.5))
    return model


def their_model(side: Side) -> Any:
    """Their class, with our weights where ours has the same ones."""
    library, config = transformers_module(), their_config(side)
    if side.model == "deberta":
        torch.manual_seed(0)
        return library.DebertaV2Model(config)
    from ablate.interop import bert, modernbert

    drawn = enlarge(our_model(side.shape, "fp32"))
    if side.model == "bert":
        model = library.BertForMaskedLM(config)
        model.load_state_dict(bert.state_dict_to_hf(drawn.state_dict(), drawn.config))
    else:
        model = library.ModernBertForMaskedLM(config)
        model.load_state_dict(modernbert.state_dict_to_hf(drawn.state_dict(), drawn.config))
    return model if side.training else model.model


def build(side: Side) -> Made:
    """Build a side and warm it up."""
    if side.model == "matmul":
        return _matmul(side.precision)
    is_ours = side.model == "ours"
    model: Any = enlarge(our_model(side.shape, side.precision)) if is_ours else their_model(side)
    numbers = range(NUM_BATCHES if side.training else 1)
    make = our_batch if is_ours else their_batch
    batches: list[Any] = [make(side.shape, number) for number in numbers]
    autocast = torch.autocast("cpu", torch.bfloat16, enabled=side.precision == "bf16")
    about: dict[str, Any] = {"parameters": num_parameters(model)}
    about["kernel"] = model.encoder.backend.kernel if is_ours else model.config._attn_implementation
    if side.training:
        step = _training_step(side, model, batches, autocast)
        about["probe"] = [float(step()) for _ in range(WARM_UP)]
        return Made(step, about)
    model.eval()
    forward = _forward(model, batches[0], autocast, is_ours=is_ours)
    about["probe"] = forward().flatten()[:: side.shape.tokens].float().tolist()
    return Made(forward, about)


def _training_step(side: Side, model: Any, batches: list[Any], autocast: Any) -> Callable[[], Any]:
    """Forward, backward, AdamW; returns the loss."""
    rate = OPTIMIZER["learning_rate"]
    plain = side.as_it_comes
    optimizer = (
        torch.optim.AdamW(model.parameters(), lr=rate) if plain else adamw(model, **OPTIMIZER)
    )
    loss_of = _our_loss if side.model == "ours" else _their_loss
    model.train()
    done = 0

    def step() -> torch.Tensor:
        nonlocal done
        batch = batches[done % len(batches)]
        done += 1
        with autocast:
            loss = loss_of(model, batch)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    return step


def _our_loss(model: Any, batch: Batch) -> torch.Tensor:
    found = masked_lm_loss(model(batch).mlm_logits, batch.labels)
    return found.loss_sum / found.count


def _their_loss(model: Any, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    return model(**batch).loss


def _forward(model: Any, batch: Any, autocast: Any, *, is_ours: bool) -> Callable[[], torch.Tensor]:
    """Hidden states of the encoder without gradients."""

    def forward() -> torch.Tensor:
        with torch.no_grad(), autocast:
            if not is_ours:
                return model(input_ids=batch["input_ids"]).last_hidden_state
            return model.encoder(
                batch.input_ids,
                token_type_ids=batch.token_type_ids,
                position_ids=batch.position_ids,
                cu_seqlens=batch.cu_seqlens,
                max_seqlen=batch.max_seqlen,
            )

    return forward


def _matmul(precision: str) -> Made:
    """One product of square matrices: 2 x CEILING_SIZE^3 operations a step."""
    size = (CEILING_SIZE, CEILING_SIZE)
    a, b = (torch.rand(size).sub_(0.5).to(_DTYPES[precision]) for _ in range(2))
    out = torch.empty_like(a)
    for _ in range(WARM_UP):
        torch.mm(a, b, out=out)
    return Made(lambda: torch.mm(a, b, out=out), {"flops": 2 * CEILING_SIZE**3})
