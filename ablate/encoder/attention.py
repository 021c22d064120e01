"""Queries, keys, values and a description of who sees whom -> attention outputs.

`Reach` is the one description (row boundaries, window, causal, ALiBi) that every backend works
from. The reference computes it in the plainest way, one row at a time; the kernels are what the
layouts of `layouts.py` call on dense groups. A query that may see nothing gives 0 (`torch`'s own
kernels give 0 or NaN, depending on the kernel). True in an `allowed` mask means "may be seen".

Legend: R rows, N tokens, H heads, K head size, L queries and S keys of one group, G rows of it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

Rotary = tuple[Tensor, Tensor]  # cos and sin of the angles, the first half of a head each


@dataclass(frozen=True)
class Reach:
    """Who sees whom: tokens of the same row, at most `half_window` away, not after if causal."""

    cu_seqlens: Tensor  # (R + 1,) int32
    max_seqlen: int
    half_window: int | None = None  # None: the whole row
    causal: bool = False
    slopes: Tensor | None = None  # (H,) float32: ALiBi, see `alibi_slopes`

    @property
    def is_limited(self) -> bool:
        """Whether the window hides anything in rows of this length."""
        return self.half_window is not None and self.half_window < self.max_seqlen - 1

    def allowed(self, query: Tensor, key: Tensor) -> Tensor | None:
        """Whether `query` positions may see `key` positions of the same row; None: all may."""
        if not (self.is_limited or self.causal):
            return None
        distance = query - key
        seen = torch.ones_like(distance, dtype=torch.bool)
        if self.half_window is not None:
            seen &= distance.abs() <= self.half_window
        return seen & (distance >= 0) if self.causal else seen

    def bias(self, query: Tensor, key: Tensor) -> Tensor | None:
        """What ALiBi adds to the scores, (H, L, S) from positions (L, 1) and (1, S); or None."""
        if self.slopes is None:
            return None
        return self.slopes[:, None, None] * -(query - key).abs()


def alibi_slopes(num_heads: int) -> Tensor:
    """One slope a head for ALiBi (Press et al. 2022, sec. 3): 2^(-8 i / H) for heads i of 1 to H.

    For a number of heads that is no power of two: the slopes of the next lower power, then every
    second one of the next higher, as in the authors' code. The bias is -slope * distance to either
    side (symmetric, since an encoder sees both); the paper has the causal half of it.
    """
    lower = 1 << (num_heads.bit_length() - 1)
    exponents = [8 * (i + 1) / lower for i in range(lower)]
    exponents += [8 * (2 * i + 1) / (2 * lower) for i in range(num_heads - lower)]
    return torch.tensor([2.0**-e for e in exponents])


def additive(allowed: Tensor, dtype: torch.dtype, bias: Tensor | None = None) -> Tensor:
    """Boolean mask -> what is added to the scores: `bias` or 0 where True, -inf elsewhere."""
    if bias is not None:
        return bias.to(dtype).masked_fill(~allowed, -math.inf)
    return torch.zeros(allowed.shape, dtype=dtype, device=allowed.device).masked_fill_(
        ~allowed, -math.inf
    )


def rotate_reference(x: Tensor, rotary: Rotary) -> Tensor:
    """RoPE (Su et al. 2021) in the two-halves form that Hugging Face uses; x (..., K)."""
    cos, sin = (torch.cat([t, t], dim=-1) for t in rotary)
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-second, first], dim=-1) * sin


def attend_reference(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    allowed: Tensor | None,
    dropout_p: float,
    bias: Tensor | None = None,
) -> Tensor:
    """Softmax attention in float32; q (..., L, K), k and v (..., S, K), allowed (..., L, S)."""
    scores = (q.float() @ k.float().transpose(-1, -2)) * q.shape[-1] ** -0.5
    if bias is not None:
        scores = scores + bias
    if allowed is not None:
        blind = ~allowed.any(dim=-1, keepdim=True)
        scores = scores.masked_fill(~(allowed | blind), -math.inf)
    probabilities = scores.softmax(dim=-1)
    if allowed is not None:
        probabilities = probabilities.masked_fill(~allowed, 0.0)
    return (F.dropout(probabilities, dropout_p) @ v.float()).to(q.dtype)


def attend_matmul(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, dropout_p: float) -> Tensor:
    """Two batched matrix products and a softmax in the dtype of q; keeps G x H x L x S scores."""
    groups, heads, queries, size = q.shape
    keys = k.shape[2]
    flat = groups * heads
    scores = torch.baddbmm(
        q.new_empty(1, 1, 1).expand(flat, queries, keys),  # not read: beta is 0
        q.reshape(flat, queries, size),
        k.reshape(flat, keys, size).transpose(1, 2),
        beta=0,
        alpha=size**-0.5,
    )
    if bias is not None:
        scores = scores.view(groups, heads, queries, keys).add_(bias).view(flat, queries, keys)
    probabilities = scores.softmax(dim=-1)
    if dropout_p:
        probabilities = F.dropout(probabilities, dropout_p)
    out = torch.bmm(probabilities, v.reshape(flat, keys, size))
    return out.view(groups, heads, queries, size)


def attend_flash(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, dropout_p: float) -> Tensor:
    """Torch's fused kernel, and an error rather than another kernel where it cannot run."""
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=bias, dropout_p=dropout_p)


def attend_torch(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, dropout_p: float) -> Tensor:
    """Torch's own choice of kernel (CUDA, where masks and float32 exclude some of them)."""
    return F.scaled_dot_product_attention(q, k, v, attn_mask=bias, dropout_p=dropout_p)


KERNELS = {"matmul": attend_matmul, "flash": attend_flash, "torch": attend_torch}


def attend(
    kernel: str, q: Tensor, k: Tensor, v: Tensor, allowed: Tensor, *, dropout_p: float = 0.0
) -> Tensor:
    """Attention under any boolean mask (broadcast to G, H, L, S); blind queries give 0.

    The layouts do not need this: in each of them every query sees at least itself.
    """
    if kernel == "eager":
        return attend_reference(q, k, v, allowed, dropout_p)
    alive = allowed.any(dim=-1, keepdim=True)
    bias = additive(allowed | ~alive, q.dtype)
    return KERNELS[kernel](q, k, v, bias, dropout_p) * alive.to(q.dtype)


class SplitHeads(torch.autograd.Function):
    """A view of the fused projection (3, ..., K) -> q, k, v, each contiguous, q and k rotated.

    One pass where autograd would need a rotation (two halves concatenated), a copy for each of the
    three, and a stack on the way back. Rotations are undone by the opposite angle, so nothing but
    cos and sin is kept for the backward pass. Tested against `rotate_reference`.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, cos: Tensor | None, sin: Tensor | None) -> Any:
        ctx.save_for_backward(cos, sin)
        ctx.layout = (x.shape, x.stride())
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        if cos is None or sin is None:
            out.copy_(x)
        else:
            _rotate_into(out[:2], x[:2], cos, sin, sign=1)
            out[2].copy_(x[2])
        return out[0], out[1], out[2]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        cos, sin = ctx.saved_tensors
        shape, stride = ctx.layout
        out = torch.empty_strided(shape, stride, dtype=grads[0].dtype, device=grads[0].device)
        for part, grad in enumerate(grads):
            if cos is None or part == 2:
                out[part].copy_(grad)
            else:
                turned = torch.empty(grad.shape, dtype=grad.dtype, device=grad.device)
                _rotate_into(turned, grad, cos, sin, sign=-1)
                out[part].copy_(turned)
        return out, None, None


def _rotate_into(out: Tensor, x: Tensor, cos: Tensor, sin: Tensor, *, sign: int) -> None:
    half = x.shape[-1] // 2
    first, second = x[..., :half], x[..., half:]
    torch.mul(first, cos, out=out[..., :half]).addcmul_(second, sin, value=-sign)
    torch.mul(second, cos, out=out[..., half:]).addcmul_(first, sin, value=sign)
