"""Tokens laid end to end -> dense groups that a kernel can take, and back.

Four ways to lay rows out, chosen from the lengths alone: rows of equal length are a view; ragged
rows are padded into a few groups of similar length, in every attention layer but nowhere else;
sliding windows shorter than the rows go by blocks of tokens, each seeing itself and its two
neighbours, so that their cost is O(N x window); the reference goes row by row. A layout is made
once a forward pass and shared by all layers of the same reach.

Legend: R rows, N tokens, H heads, K head size, G rows of a group, L their length, B block length.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from ablate.encoder.attention import (
    KERNELS,
    Reach,
    Rotary,
    SplitHeads,
    additive,
    attend_reference,
    rotate_reference,
)

Kernel = Callable[[Tensor, Tensor, Tensor, Tensor | None, float], Tensor]

MIN_BLOCK = 64  # tokens; smaller blocks spend their time on call overhead
ONE_GROUP_LENGTH = 128  # up to here one padded group beats several (overhead against waste)
GROUP_RATIO = 0.75  # a group holds rows of at least this share of its longest row
# Blocks of a window, forward + backward of 8192 tokens in float32, two cores: matmul 39 ms, torch's
# fused kernel 53; in half precision the products win at every length (`backends.MATMUL_UP_TO`).
BLOCK_KERNELS = {"flash": "matmul"}  # CPU
BLOCKS_FROM = 2.0  # blocks pay where rows are longer than this many times their keys (3 B)


class Layout(Protocol):
    """How one forward pass lays its tokens out for attention."""

    def place(self, rotary: Rotary) -> Rotary:
        """cos and sin (N, K / 2) in the order and shape this layout multiplies with."""

    def attend(self, qkv: Tensor, rotary: Rotary | None, kernel: str, dropout_p: float) -> Tensor:
        """(N, 3, H, K) -> (N, H * K); `rotary` comes from `place`."""


def layout_for(reach: Reach, *, eager: bool, dtype: torch.dtype) -> Layout:
    """The layout of `reach`; `dtype` is that of the scores. Reads `cu_seqlens` once."""
    bounds: list[int] = reach.cu_seqlens.tolist()
    lengths = [end - begin for begin, end in itertools.pairwise(bounds)]
    if eager:
        return RowByRow(reach, bounds)
    if reach.is_limited and reach.max_seqlen >= BLOCKS_FROM * 3 * block_length(reach):
        return WindowBlocks(reach, lengths, dtype)
    if min(lengths, default=0) == max(lengths, default=0):
        return EqualRows(reach, len(lengths), lengths[0] if lengths else 0, dtype)
    return PaddedGroups(reach, lengths, dtype)


class RowByRow:
    """The reference: each row alone, in float32, with the textbook rotation."""

    def __init__(self, reach: Reach, bounds: list[int]) -> None:
        self.reach, self.bounds = reach, bounds

    def place(self, rotary: Rotary) -> Rotary:
        return rotary[0].unsqueeze(1), rotary[1].unsqueeze(1)  # (N, 1, K / 2)

    def attend(self, qkv: Tensor, rotary: Rotary | None, kernel: str, dropout_p: float) -> Tensor:
        q, k, v = qkv.unbind(1)
        if rotary is not None:
            q, k = rotate_reference(q, rotary).to(v.dtype), rotate_reference(k, rotary).to(v.dtype)
        out = [qkv.new_empty(0, *qkv.shape[2:])]
        for begin, end in itertools.pairwise(self.bounds):
            position = torch.arange(end - begin, device=qkv.device)
            allowed = self.reach.allowed(position[:, None], position[None, :])
            bias = self.reach.bias(position[:, None], position[None, :])
            query, key, value = (t[begin:end].transpose(0, 1) for t in (q, k, v))  # (H, L, K)
            row = attend_reference(query, key, value, allowed, dropout_p, bias)
            out.append(row.transpose(0, 1))
        return torch.cat(out).flatten(1)


class EqualRows:
    """`num_rows` rows of `length` tokens as one dense call; `key_bias` hides padded keys."""

    def __init__(
        self,
        reach: Reach,
        num_rows: int,
        length: int,
        dtype: torch.dtype,
        padded: Tensor | None = None,
    ) -> None:
        self.num_rows, self.length = num_rows, length
        position = torch.arange(length, device=reach.cu_seqlens.device)
        seen = reach.allowed(position[:, None], position[None, :])
        allowed = None if seen is None else seen[None, None]  # (1, 1, L, L)
        if padded is not None:  # (G,) lengths, none 0
            real = (position < padded[:, None])[:, None, None, :]  # (G, 1, 1, L)
            if allowed is None:
                allowed = real
            else:  # a padded query may have no real key within its window: it sees itself
                allowed = (real | torch.eye(length, dtype=torch.bool, device=real.device)) & allowed
        slanted = reach.bias(position[:, None], position[None, :])  # (H, L, L)
        if allowed is not None:
            self.bias: Tensor | None = additive(allowed, dtype, slanted)
        else:
            self.bias = None if slanted is None else slanted.to(dtype)[None]

    def place(self, rotary: Rotary) -> Rotary:
        cos, sin = (t.view(self.num_rows, 1, self.length, t.shape[-1]) for t in rotary)
        return cos, sin

    def attend(self, qkv: Tensor, rotary: Rotary | None, kernel: str, dropout_p: float) -> Tensor:
        heads, size = qkv.shape[2:]
        rows = qkv.view(self.num_rows, self.length, 3, heads, size)
        q, k, v = SplitHeads.apply(rows.permute(2, 0, 3, 1, 4), *(rotary or (None, None)))
        out = KERNELS[kernel](q, k, v, self.bias, dropout_p)  # (G, H, L, K)
        return out.transpose(1, 2).reshape(qkv.shape[0], heads * size)


class PaddedGroups:
    """Ragged rows, padded to the longest of their group for the attention product only."""

    def __init__(self, reach: Reach, lengths: list[int], dtype: torch.dtype) -> None:
        device = reach.cu_seqlens.device
        self.groups: list[tuple[EqualRows, int]] = []
        starts = [0] * len(lengths)
        self.size = 0
        for rows in length_groups(lengths):
            longest = max(lengths[r] for r in rows)
            group_lengths = torch.tensor([lengths[r] for r in rows], device=device)
            for r in rows:
                starts[r] = self.size
                self.size += longest
            layout = EqualRows(reach, len(rows), longest, dtype, group_lengths)
            self.groups.append((layout, len(rows) * longest))
        offset = torch.tensor(starts, device=device) - reach.cu_seqlens[:-1]
        repeats = torch.tensor(lengths, device=device)
        total = sum(lengths)
        self.slots = torch.arange(total, device=device) + offset.repeat_interleave(
            repeats, output_size=total
        )

    def place(self, rotary: Rotary) -> Rotary:
        cos, sin = (_scatter(t, self.slots, self.size) for t in rotary)
        return cos.unsqueeze(1), sin.unsqueeze(1)

    def attend(self, qkv: Tensor, rotary: Rotary | None, kernel: str, dropout_p: float) -> Tensor:
        padded = Pad.apply(qkv.flatten(1), self.slots, self.size).view(-1, *qkv.shape[1:])
        out, begin = [], 0
        for layout, size in self.groups:
            end = begin + size
            part = None
            if rotary is not None:
                part = layout.place((rotary[0][begin:end], rotary[1][begin:end]))
            out.append(layout.attend(padded[begin:end], part, kernel, dropout_p))
            begin = end
        return Unpad.apply(torch.cat(out) if len(out) > 1 else out[0], self.slots)


class WindowBlocks:
    """Sliding window over all rows at once: block i of tokens against blocks i - 1, i, i + 1."""

    def __init__(self, reach: Reach, lengths: list[int], dtype: torch.dtype) -> None:
        self.num_tokens, self.block = sum(lengths), block_length(reach)
        self.num_blocks = -(-self.num_tokens // self.block)
        device = reach.cu_seqlens.device
        row = torch.arange(len(lengths), device=device).repeat_interleave(
            torch.tensor(lengths, device=device), output_size=self.num_tokens
        )
        margin = self.num_blocks * self.block - self.num_tokens
        row = F.pad(row, (self.block, margin + self.block), value=-1)  # padding sees padding
        token = torch.arange(row.numel(), device=device)
        span = 3 * self.block
        query_row, key_row = row[self.block : -self.block], row.unfold(0, span, self.block)
        query, key = token[self.block : -self.block], token.unfold(0, span, self.block)
        shape = (self.num_blocks, self.block, 1)
        allowed = query_row.view(shape) == key_row[:, None, :]
        within = reach.allowed(query.view(shape), key[:, None, :])
        assert within is not None
        at = torch.arange(span, device=device)
        slanted = reach.bias(at[self.block : -self.block, None], at[None])  # (H, B, 3 B)
        # (blocks, 1, B, 3 B), with ALiBi (blocks, H, B, 3 B): of the size of the scores
        self.bias = additive((allowed & within).unsqueeze(1), dtype, slanted)

    def _blocks(self, x: Tensor) -> Tensor:
        margin = self.num_blocks * self.block - self.num_tokens
        if margin:
            x = F.pad(x, (0, 0) * (x.dim() - 1) + (0, margin))
        return x.view(self.num_blocks, self.block, *x.shape[1:])

    def place(self, rotary: Rotary) -> Rotary:
        return self._blocks(rotary[0]).unsqueeze(1), self._blocks(rotary[1]).unsqueeze(1)

    def attend(self, qkv: Tensor, rotary: Rotary | None, kernel: str, dropout_p: float) -> Tensor:
        heads, size = qkv.shape[2:]
        blocks = self._blocks(qkv).permute(2, 0, 3, 1, 4)  # (3, blocks, H, B, K)
        q, k, v = SplitHeads.apply(blocks, *(rotary or (None, None)))
        k, v = Neighbours.apply(k), Neighbours.apply(v)
        if qkv.device.type == "cpu":
            kernel = BLOCK_KERNELS.get(kernel, kernel)
        out = KERNELS[kernel](q, k, v, self.bias, dropout_p)
        return out.transpose(1, 2).reshape(-1, heads * size)[: self.num_tokens]


def block_length(reach: Reach) -> int:
    """Tokens in a block: the half window, so that a neighbour on each side is enough."""
    return max(reach.half_window or 0, MIN_BLOCK)


def length_groups(lengths: list[int]) -> list[list[int]]:
    """Numbers of the rows that hold a token, by similar length, longest first."""
    filled = [r for r, length in enumerate(lengths) if length]
    order = sorted(filled, key=lambda r: (-lengths[r], r))
    if max(lengths) <= ONE_GROUP_LENGTH:
        return [filled]
    groups: list[list[int]] = []
    for row in order:
        if not groups or lengths[row] < GROUP_RATIO * lengths[groups[-1][0]]:
            groups.append([])
        groups[-1].append(row)
    return groups


def _scatter(x: Tensor, slots: Tensor, size: int) -> Tensor:
    return x.new_zeros(size, *x.shape[1:]).index_add_(0, slots, x)


class Pad(torch.autograd.Function):
    """x (N, W) -> (size, W) with x[i] at slots[i] and 0 elsewhere; the inverse of `Unpad`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, slots: Tensor, size: int) -> Tensor:
        ctx.save_for_backward(slots)
        return _scatter(x, slots, size)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        return grads[0].index_select(0, ctx.saved_tensors[0]), None, None


class Unpad(torch.autograd.Function):
    """x (size, W) -> (N, W): x[slots], where no slot is named twice."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, slots: Tensor) -> Tensor:
        ctx.save_for_backward(slots)
        ctx.size = x.shape[0]
        return x.index_select(0, slots)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        return _scatter(grads[0], ctx.saved_tensors[0], ctx.size), None


class Neighbours(torch.autograd.Function):
    """x (blocks, H, B, K) -> (blocks, H, 3 B, K): the block before, itself, the block after."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        size = x.shape[2]
        out = x.new_empty(x.shape[0], x.shape[1], 3 * size, x.shape[3])
        out[:, :, size : 2 * size] = x
        out[1:, :, :size] = x[:-1]
        out[:-1, :, 2 * size :] = x[1:]
        out[0, :, :size] = 0
        out[-1, :, 2 * size :] = 0
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        grad = grads[0]
        size = grad.shape[2] // 3
        out = grad[:, :, size : 2 * size].clone()
        out[:-1] += grad[1:, :, :size]
        out[1:] += grad[:-1, :, 2 * size :]
        return out
