"""Positions -> fixed vectors, added to the embeddings like learned ones.

Vaswani et al. 2017, sec. 3.5: sines and cosines in turn, wavelengths from 2 pi to 10000 x 2 pi.
They multiply the token vectors by sqrt(width), so that vectors of unit variance meet sinusoids of
mean square 1/2. Here token vectors begin at `init_std`, are also the decoder, and stay as they are;
`Embeddings` multiplies the sinusoids by `init_std` instead, which keeps the paper's proportion.

Legend: N tokens, E embedding.
"""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor


def sinusoids(
    position_ids: Tensor, max_seqlen: int, size: int, dtype: torch.dtype = torch.float32
) -> Tensor:
    """(N,) -> (N, E): sin and cos of position / 10000^(2i / size) at 2i and 2i + 1."""
    length = 1 << max(max_seqlen - 1, 63).bit_length()  # few sizes, so that the cache holds them
    table = _table(length, size, dtype, position_ids.device)
    return table.index_select(0, position_ids)


@lru_cache(maxsize=16)
def _table(length: int, size: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    position = torch.arange(length, dtype=torch.float32, device=device)
    power = torch.arange(0, size, 2, dtype=torch.float32, device=device) / size
    angle = position[:, None] / 10_000**power
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1)[:, :size].to(dtype)
