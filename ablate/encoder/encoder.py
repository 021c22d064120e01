"""Token ids without padding -> hidden states, for every point of `EncoderConfig`.

What attention needs to know about the rows is worked out once a forward pass and shared by all
layers of the same kind: layout and masks by reach, rotation angles by theta. A window that hides
nothing in the rows at hand shares the layout of the full layers. HF counterparts: BertModel without
its pooler, ModernBertModel, AlbertModel (tests/parity).

Legend: R rows, N tokens, D hidden, K head size.
"""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ablate.encoder.attention import Reach, Rotary, alibi_slopes
from ablate.encoder.backends import Backend
from ablate.encoder.config import EncoderConfig
from ablate.encoder.layers import Embedding, EncoderLayer, Linear, Norm, View
from ablate.encoder.layouts import Layout
from ablate.encoder.positions import sinusoids
from ablate.encoder.recurrent import LSTMLayer, TimeMajor


class Embeddings(nn.Module):
    """Sum of token, position and token type vectors, norm, dropout and, if narrow, a projection.

    With `embedding_size` below the hidden size, tables and norm have that width and `projection`
    leads to the layers (ALBERT, Lan et al. 2019, sec. 3.1; tests/parity/test_albert.py).
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        size = config.embedding_width
        self.dropout = config.embedding_dropout
        self.token = Embedding(config.vocab_size, size)
        learned = config.position_embedding == "learned"
        self.position = Embedding(config.max_position_embeddings, size) if learned else None
        self.sinusoid_scale = config.init_std if config.position_embedding == "sinusoidal" else None
        types = config.type_vocab_size
        self.token_type = Embedding(types, size) if types else None
        self.norm = Norm(config, size) if config.embedding_norm else None
        self.projection = Linear(size, config.hidden_size) if config.is_factorised else None

    def forward(
        self, input_ids: Tensor, token_type_ids: Tensor, position_ids: Tensor, max_seqlen: int
    ) -> Tensor:
        """(N,) each -> (N, D); `max_seqlen` bounds the positions."""
        x = self.token(input_ids)
        if self.token_type is not None:
            x = x + self.token_type(token_type_ids)
        if self.position is not None:
            x = x + self.position(position_ids)
        if self.sinusoid_scale is not None:
            table = sinusoids(position_ids, max_seqlen, x.shape[1], x.dtype)
            x = torch.add(x, table, alpha=self.sinusoid_scale)
        if self.norm is not None:
            x = self.norm(x)
        if self.training and self.dropout:
            x = F.dropout(x, self.dropout)
        return x if self.projection is None else self.projection(x)


class Encoder(nn.Module):
    """The encoder of `config`, with attention by `backend`."""

    def __init__(self, config: EncoderConfig, backend: Backend) -> None:
        super().__init__()
        self.config, self.backend = config, backend
        self.embeddings = Embeddings(config)
        layer = EncoderLayer if config.body == "transformer" else LSTMLayer
        self.layers = nn.ModuleList(layer(config, i) for i in range(config.num_hidden_layers))
        self.final_norm = Norm(config) if config.final_norm else None

    def forward(
        self,
        input_ids: Tensor,
        *,
        token_type_ids: Tensor,
        position_ids: Tensor,
        cu_seqlens: Tensor,
        max_seqlen: int,
    ) -> Tensor:
        """Ids, token types and positions (N,), row bounds (R + 1,) -> hidden states (N, D).

        Raises:
            ValueError: rows longer than the table of learned positions.
        """
        limit = self.config.max_position_embeddings
        if self.embeddings.position is not None and max_seqlen > limit:
            raise ValueError(
                f"a row of {max_seqlen} tokens does not fit {limit} learned positions; type "
                f"encoder.max_position_embeddings={max_seqlen} or encoder.position_embedding=rope"
            )
        x = self.embeddings(input_ids, token_type_ids, position_ids, max_seqlen)
        first = self.layers[0]
        if self.config.body == "lstm":
            order = TimeMajor.of(cu_seqlens)
            x = x.index_select(0, order.tokens)
            for layer in self.layers:
                x = layer(x, order, first)
            x = x.index_select(0, order.places)
        else:
            views = self._views(position_ids, cu_seqlens, max_seqlen)
            for layer, kind in zip(self.layers, self.config.layer_types, strict=True):
                x = layer(x, views[kind], first)
        return x if self.final_norm is None else self.final_norm(x)

    def _views(self, position_ids: Tensor, cu_seqlens: Tensor, max_seqlen: int) -> dict[str, View]:
        config = self.config
        dtype = _compute_dtype(position_ids.device.type, self.embeddings.token.weight.dtype)
        slopes = None
        if config.position_embedding == "alibi":
            slopes = alibi_slopes(config.num_attention_heads).to(position_ids.device)
        layouts: dict[int | None, Layout] = {}
        views: dict[str, View] = {}
        for kind in dict.fromkeys(config.layer_types):
            sliding = kind == "sliding_attention"
            half = config.half_window if sliding else None
            reach = Reach(cu_seqlens, max_seqlen, half, config.causal)
            key = half if reach.is_limited else None
            if key not in layouts:
                reach = Reach(cu_seqlens, max_seqlen, key, config.causal, slopes)
                layouts[key] = self.backend.plan(reach, dtype)
            layout, rotary = layouts[key], None
            if config.position_embedding == "rope":
                theta = config.local_rope_theta if sliding else config.global_rope_theta
                angles = rotary_angles(position_ids, max_seqlen, theta, config.head_size, dtype)
                rotary = layout.place(angles)
            views[kind] = View(layout, rotary, self.backend)
        return views


def rotary_angles(
    position_ids: Tensor, max_seqlen: int, theta: float, head_size: int, dtype: torch.dtype
) -> Rotary:
    """cos and sin (N, K / 2) of position x theta^(-2i / K) (Su et al. 2021), angles in float32."""
    length = 1 << max(max_seqlen - 1, 63).bit_length()  # few sizes, so that the cache holds them
    cos, sin = _rotary_table(length, theta, head_size, dtype, position_ids.device)
    return cos.index_select(0, position_ids), sin.index_select(0, position_ids)


@lru_cache(maxsize=32)
def _rotary_table(
    length: int, theta: float, head_size: int, dtype: torch.dtype, device: torch.device
) -> Rotary:
    power = torch.arange(0, head_size, 2, dtype=torch.float32, device=device) / head_size
    position = torch.arange(length, dtype=torch.float32, device=device)
    angle = position[:, None] * (1.0 / theta**power)
    return angle.cos().to(dtype), angle.sin().to(dtype)


def _compute_dtype(device_type: str, parameter_dtype: torch.dtype) -> torch.dtype:
    """The dtype that projections come out in: autocast's where it is on."""
    if torch.is_autocast_enabled(device_type):
        return torch.get_autocast_dtype(device_type)
    return parameter_dtype
