"""Norms, MLPs and attention blocks -> one encoder layer in any of the configured forms.

Names do not depend on the form: a layer has `attention_norm` and `mlp_norm` whether they stand
before the block (pre) or after the residual sum (post), so that two arms that differ in
`norm_position` share every initial value. Parameters are NaN until `initialize` or `load_weights`
has filled them: torch's own initialisation would draw from the global generator, and a forgotten
one must not go unnoticed. HF counterparts: BertLayer, ModernBertEncoderLayer.

Legend: N tokens, D hidden, I intermediate, H heads, K head size.
"""

from __future__ import annotations

import math
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

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        size = config.hidden_size
        self.is_rms, self.eps, self.shape = config.norm_type == "rms", config.norm_eps, (size,)
        self.weight = nn.Parameter(torch.full((size,), math.nan))
        self.bias = nn.Parameter(torch.full((size,), math.nan)) if config.norm_bias else None

    def forward(self, x: Tensor) -> Tensor:
        if not self.is_rms:
            return F.layer_norm(x, self.shape, self.weight, self.bias, self.eps)
        x = F.rms_norm(x, self.shape, self.weight, self.eps)
        return x if self.bias is None else x + self.bias


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
        x = self.input(x)
        if self.is_gated:
            x, gate = x.chunk(2, dim=-1)  # (N, I) each
            x = activate(x, self.activation) * gate
        else:
            x = activate(x, self.activation)
        if self.training and self.dropout:
            x = F.dropout(x, self.dropout)
        return self.output(x)


class EncoderLayer(nn.Module):
    """Attention and MLP with their residuals; ModernBERT's first layer has no attention norm."""

    def __init__(self, config: EncoderConfig, *, has_attention_norm: bool) -> None:
        super().__init__()
        self.is_pre, self.dropout = config.norm_position == "pre", config.hidden_dropout
        self.attention_norm = Norm(config) if has_attention_norm else nn.Identity()
        self.attention = Attention(config)
        self.mlp_norm = Norm(config)
        self.mlp = MLP(config)

    def _drop(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.dropout) if self.training and self.dropout else x

    def forward(self, x: Tensor, view: View) -> Tensor:
        if self.is_pre:
            x = x + self._drop(self.attention(self.attention_norm(x), view))
            return x + self._drop(self.mlp(self.mlp_norm(x)))
        x = self.attention_norm(x + self._drop(self.attention(x, view)))
        return self.mlp_norm(x + self._drop(self.mlp(x)))
