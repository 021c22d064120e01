"""Norms, MLPs and attention blocks -> one encoder layer in any of the configured forms.

Names do not depend on the form: a layer has `attention_norm` and `mlp_norm` whether they stand
before the block (pre) or after the residual sum (post), so that two arms that differ in
`norm_position` share every initial value; `sandwich` adds norms after the blocks under names of
their own. What all layers share are parameters of layer 0 alone, which the others borrow at each
call: one name, one count, one copy in a file. Parameters are NaN until `initialize` or
`load_weights` has filled them: torch's own initialisation would draw from the global generator, and
a forgotten one must not go unnoticed. HF counterparts: BertLayer, ModernBertEncoderLayer.

Legend: N tokens, D hidden, I intermediate, H heads, K head size.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ablate.encoder.attention import Rotary
from ablate.encoder.backends import Backend
from ablate.encoder.config import EncoderConfig
from ablate.encoder.layouts import Layout


@dataclass(frozen=True)
class View:
    """What the layers of one kind share in a forward pass: layout, angles and backend."""

    layout: Layout
    rotary: Rotary | None
    backend: Backend


class Linear(nn.Linear):
    """Affine map, NaN until filled."""

    def reset_parameters(self) -> None:
        for parameter in self.parameters():
            nn.init.constant_(parameter, math.nan)


class Embedding(nn.Module):
    """A table of vectors, NaN until filled; the weight may be shared with the decoder."""

    def __init__(self, num_embeddings: int, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((num_embeddings, size), math.nan))

    def forward(self, ids: Tensor) -> Tensor:
        return self.weight.index_select(0, ids)  # a third cheaper than F.embedding with backward


class Norm(nn.Module):
    """Layer norm, or RMS norm (Zhang and Sennrich 2019), with or without bias."""

    def __init__(self, config: EncoderConfig, size: int | None = None) -> None:
        super().__init__()
        size = config.hidden_size if size is None else size
        self.is_rms, self.eps, self.shape = config.norm_type == "rms", config.norm_eps, (size,)
        self.weight = nn.Parameter(torch.full((size,), math.nan))
        self.bias = nn.Parameter(torch.full((size,), math.nan)) if config.norm_bias else None

    def forward(self, x: Tensor) -> Tensor:
        if not self.is_rms:
            return F.layer_norm(x, self.shape, self.weight, self.bias, self.eps)
        y = F.rms_norm(x.float(), self.shape, self.weight, self.eps)  # no fused mix of dtypes
        return (y if self.bias is None else y + self.bias).to(x.dtype)


def activate(x: Tensor, name: str) -> Tensor:
    """The activation `name` of the config, elementwise; `gelu` is the exact one (erf)."""
    if name == "gelu":
        return F.gelu(x)
    if name == "gelu_tanh":
        return F.gelu(x, approximate="tanh")
    return F.relu(x) if name == "relu" else F.silu(x)


class Attention(nn.Module):
    """Multi-head self-attention with one fused projection for queries, keys and values."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        width = config.hidden_size
        self.shape = (3, config.num_attention_heads, config.head_size)
        self.dropout = config.attention_dropout
        self.qkv = Linear(width, 3 * width, bias=config.attention_bias)
        self.output = Linear(width, width, bias=config.attention_bias)

    def forward(self, x: Tensor, view: View) -> Tensor:
        qkv = self.qkv(x).view(-1, *self.shape)  # (N, 3, H, K)
        dropout_p = self.dropout if self.training else 0.0
        kernel = view.backend.kernel_for(dropout_p, x.device.type)
        return self.output(view.layout.attend(qkv, view.rotary, kernel, dropout_p))


class MLP(nn.Module):
    """Plain or gated (GLU, Shazeer 2020); the first half of a gated input is activated."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.is_gated, self.activation = config.mlp == "glu", config.activation
        self.dropout = config.mlp_dropout
        width, inner = config.hidden_size, config.intermediate_size
        self.input = Linear(width, 2 * inner if self.is_gated else inner, bias=config.mlp_bias)
        self.output = Linear(inner, width, bias=config.mlp_bias)

    def forward(self, x: Tensor) -> Tensor:
        if self.is_gated:
            x, gate = self._halves(x)  # (N, I) each
            x = activate(x, self.activation) * gate
        else:
            x = activate(self.input(x), self.activation)
        if self.training and self.dropout:
            x = F.dropout(x, self.dropout)
        return self.output(x)

    def _halves(self, x: Tensor) -> tuple[Tensor, ...]:
        """What is activated, and the gate.

        Two products on a CPU: there GELU on half of each row costs four times as much as on
        contiguous memory.
        """
        if x.device.type != "cpu":
            return self.input(x).chunk(2, dim=-1)
        weights = self.input.weight.chunk(2)
        if self.input.bias is None:
            return F.linear(x, weights[0]), F.linear(x, weights[1])
        biases = self.input.bias.chunk(2)
        return F.linear(x, weights[0], biases[0]), F.linear(x, weights[1], biases[1])


class EncoderLayer(nn.Module):
    """Attention and MLP with their residuals; ModernBERT's first layer has no attention norm.

    Post: norm(x + f(x)); pre: x + f(norm(x)); sandwich: x + output_norm(f(norm(x))), a norm on both
    sides of each block (CogView, Ding et al. 2021, sec. 2.3). Where `shared_layers` shares a part,
    norms included, layers after the first have none of their own (ALBERT, sec. 3.1).
    """

    def __init__(self, config: EncoderConfig, index: int) -> None:
        super().__init__()
        self.norm_position, self.dropout = config.norm_position, config.hidden_dropout
        self.has_attention = index == 0 or not config.shares("attention")
        self.has_mlp = index == 0 or not config.shares("mlp")
        sandwich = config.norm_position == "sandwich"
        if self.has_attention:
            has_norm = index > 0 or config.first_layer_norm
            self.attention_norm = Norm(config) if has_norm else nn.Identity()
            self.attention = Attention(config)
            self.attention_output_norm = Norm(config) if sandwich else None
        if self.has_mlp:
            self.mlp_norm = Norm(config)
            self.mlp = MLP(config)
            self.mlp_output_norm = Norm(config) if sandwich else None

    def forward(self, x: Tensor, view: View, first: EncoderLayer | None = None) -> Tensor:
        """(N, D) -> (N, D); `first` lends the parts that all layers share."""
        lender = self if first is None else first
        x = (self if self.has_attention else lender).attend(x, view)
        return (self if self.has_mlp else lender).feed_forward(x)

    def attend(self, x: Tensor, view: View) -> Tensor:
        """The attention block with its norms and residual."""
        return residual_block(
            x,
            lambda y: self.attention(y, view),
            self.attention_norm,
            self.attention_output_norm,
            self.norm_position,
            self.dropout * self.training,
        )

    def feed_forward(self, x: Tensor) -> Tensor:
        """The MLP block with its norms and residual."""
        return residual_block(
            x,
            self.mlp,
            self.mlp_norm,
            self.mlp_output_norm,
            self.norm_position,
            self.dropout * self.training,
        )


def residual_block(
    x: Tensor,
    block: Callable[[Tensor], Tensor],
    norm: nn.Module,
    output_norm: nn.Module | None,
    norm_position: str,
    dropout: float,
) -> Tensor:
    """x and what `block` adds to it, with the norm where `norm_position` puts it."""
    y = block(x if norm_position == "post" else norm(x))
    if output_norm is not None:
        y = output_norm(y)
    if dropout:
        y = F.dropout(y, dropout)
    return norm(x + y) if norm_position == "post" else x + y
