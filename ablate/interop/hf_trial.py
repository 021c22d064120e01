"""A built encoder of transformers -> whether it works on rows as ours does, and what it costs.

The interface promises nothing about padding or direction, and classes differ (ConvBERT's
convolution and FNet's transform read the padding), so each is run once on two short rows when it is
built, with the vectors of padding as they may become: zero at first, they are trained by a decoder
that shares them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ablate.interop.hf_config import refusal, said

if TYPE_CHECKING:
    from ablate.interop.hf_encoder import HFEncoder, HFMaskedLanguageModel

_TOLERANCE = 1e-3  # of the largest hidden value, in float32; a leak is of order 1


@torch.no_grad()
def check_rows(encoder: HFEncoder) -> None:
    """Two rows of unlike lengths together against each alone, and what a last token changes.

    Raises:
        ValueError: the class fails on them, padding leaks, or tokens do not see to their right.
    """
    config, was_training = encoder.config, encoder.training
    device = encoder.embedding_weight.device
    longest = min(config.max_position_embeddings, 12)
    lengths = (longest, max(longest // 2, 1))
    ordinary = [i for i in range(config.vocab_size) if i != config.pad_token_id]
    rows = [
        torch.tensor([ordinary[(7 * i + n) % len(ordinary)] for i in range(n)], device=device)
        for n in lengths
    ]
    encoder.eval()
    try:
        with _trained_padding(encoder):
            together = _hidden(encoder, rows)
            alone = torch.cat([_hidden(encoder, [row]) for row in rows])
            changed = rows[0].clone()
            changed[-1] = next(i for i in ordinary if i != int(changed[-1]))
            right = (_hidden(encoder, [changed])[0] - alone[0]).abs().max()
    except Exception as error:
        raise refusal(config, f"does not run on rows of tokens: {said(error)}") from error
    finally:
        encoder.train(was_training)
    if together.shape != (sum(lengths), config.hidden_size):
        raise refusal(
            config,
            f"gives {tuple(together.shape)} for {sum(lengths)} tokens, not a vector of "
            f"{config.hidden_size} a token",
        )
    if not float((together - alone).abs().max()) <= _TOLERANCE * float(alone.abs().max()):
        raise refusal(config, "lets padding change the tokens beside it")
    if float(right) == 0.0:
        raise refusal(config, "does not let a token see those to its right")


@contextmanager
def _trained_padding(encoder: HFEncoder) -> Iterator[None]:
    """Inside, the padding row of every table is as training may leave it."""
    tables = [
        (module.weight, module.padding_idx)
        for module in encoder.body.modules()
        if isinstance(module, nn.Embedding) and module.padding_idx is not None
    ]
    kept = [weight[row].clone() for weight, row in tables]
    generator = torch.Generator().manual_seed(0)
    for weight, row in tables:
        noise = torch.randn(weight.shape[1], generator=generator)
        weight[row] = (noise * weight.std().clamp(min=0.1).cpu()).to(weight)
    try:
        yield
    finally:
        for (weight, row), before in zip(tables, kept, strict=True):
            weight[row] = before


def _hidden(encoder: HFEncoder, rows: list[Tensor]) -> Tensor:
    lengths = torch.tensor([len(row) for row in rows], device=rows[0].device)
    bounds = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)]).int()
    positions = torch.cat([torch.arange(len(row), device=row.device) for row in rows])
    ids = torch.cat(rows)
    return encoder(
        ids,
        token_type_ids=torch.zeros_like(ids),
        position_ids=positions,
        cu_seqlens=bounds,
        max_seqlen=int(lengths.max()),
    )


def flops_per_token(
    model: HFMaskedLanguageModel, seq_len: int, *, predict_rate: float = 1.0
) -> float:
    """Forward operations a token in a full row, counted while one row runs through the class.

    Matrix products only, with attention as plain products (`FlopCounterMode`); the masked-LM head
    as in `encoder.config.flops_per_token`.
    """
    from torch.utils.flop_counter import FlopCounterMode

    encoder, was_training = model.encoder, model.training
    settings = encoder.body.config
    implementation = settings._attn_implementation
    row = torch.full((seq_len,), (encoder.config.pad_token_id + 1) % encoder.config.vocab_size)
    counter = FlopCounterMode(display=False)
    model.eval()
    try:
        settings._attn_implementation = "eager"  # fused kernels are not counted on every device
        with torch.no_grad(), counter:
            _hidden(encoder, [row.to(encoder.embedding_weight.device)])
    finally:
        settings._attn_implementation = implementation
        model.train(was_training)
    vocab, embedding = encoder.embedding_weight.shape
    head = 2.0 * (encoder.config.hidden_size * embedding + embedding * vocab)
    return counter.get_total_flops() / seq_len + predict_rate * head


def facts(model: HFMaskedLanguageModel) -> dict[str, Any]:
    """For the record: what the class is and where it departs from its file."""
    config = model.encoder.config
    return {
        "class": config.class_name,
        "attention": config.attention,
        "overridden": config.overridden,
        "dropout": config.dropout(),
        "token_types": model.encoder.takes_token_types,
        "unused_parameters": unused_parameters(model.encoder),
    }


def unused_parameters(encoder: HFEncoder) -> dict[str, int]:
    """Name -> number of values, of what the class holds and its hidden states do not depend on.

    Poolers and heads of other tasks: they are counted among the parameters and never trained.
    """
    config = encoder.config
    row = torch.arange(min(config.max_position_embeddings, 12)) % config.vocab_size
    named = {name: p for name, p in encoder.named_parameters() if p.requires_grad}
    was_training = encoder.training
    encoder.eval()
    try:
        with torch.enable_grad():
            loss = _hidden(encoder, [row.to(encoder.embedding_weight.device)]).square().sum()
            found = torch.autograd.grad(loss, list(named.values()), allow_unused=True)
    finally:
        encoder.train(was_training)
    pairs = zip(named.items(), found, strict=True)
    return {name: p.numel() for (name, p), gradient in pairs if gradient is None}
