"""`Reach` -> torch's flex_attention over the tokens laid end to end (CUDA).

Row boundaries, window and causality become a `mask_mod`, ALiBi a `score_mod`, so that one compiled
kernel serves every combination without a mask in memory. The map of the blocks that hold a visible
pair is worked out from the first and last token of each block; `create_block_mask` would visit all
pairs of tokens. On CPU flex_attention has no backward pass in torch 2.13, so there only the forward
pass is tested, uncompiled.

Legend: N tokens, H heads, K head size, B tokens of a block.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor

from ablate.encoder.attention import Reach, Rotary, SplitHeads
from ablate.encoder.refusals import NO_DROPOUT

BLOCK = 128  # tokens; flex_attention's default, and a multiple of every tile of its kernels

RECOMPILE_LIMIT = 64


class FlexTokens:
    """All rows as one sequence of N tokens that a mask keeps apart."""

    def __init__(self, reach: Reach) -> None:
        from torch.nn.attention.flex_attention import BlockMask

        row = row_of_token(reach)
        self.score_mod = score_mod(reach)
        partial, full = (in_order(m) for m in visible_blocks(reach, row, BLOCK))
        self.block_mask: Any = BlockMask.from_kv_blocks(
            *partial,
            *full,
            BLOCK_SIZE=BLOCK,
            mask_mod=mask_mod(reach, row),
            seq_lengths=(row.numel(), row.numel()),
        )

    def place(self, rotary: Rotary) -> Rotary:
        return rotary[0].unsqueeze(0), rotary[1].unsqueeze(0)  # (1, N, K / 2)

    def attend(self, qkv: Tensor, rotary: Rotary | None, kernel: str, dropout_p: float) -> Tensor:
        if dropout_p:  # `resolve` refuses it earlier
            raise ValueError(f"attention_backend=flex cannot run this encoder: {NO_DROPOUT}")
        heads = qkv.permute(1, 2, 0, 3)  # (3, H, N, K)
        q, k, v = (t.unsqueeze(0) for t in SplitHeads.apply(heads, *(rotary or (None, None))))
        flex = attention_function(qkv.device.type)
        out = flex(q, k, v, score_mod=self.score_mod, block_mask=self.block_mask)
        return out[0].transpose(0, 1).flatten(1)


@cache
def attention_function(device_type: str) -> Callable[..., Tensor]:
    """flex_attention, compiled at its first call except on CPU.

    A graph is compiled for each reach, for fixed and for varying N, with and without gradients,
    and for each case of the self-test: more than dynamo's default limit of 8, beyond which it
    would run uncompiled, with all N x N scores in memory. `fullgraph` makes that an error.
    """
    from torch.nn.attention.flex_attention import flex_attention

    function: Callable[..., Tensor] = flex_attention
    if device_type == "cpu":
        return function
    config: Any = torch._dynamo.config
    config.recompile_limit = max(config.recompile_limit, RECOMPILE_LIMIT)
    return torch.compile(function, fullgraph=True)


def row_of_token(reach: Reach) -> Tensor:
    """The number of the row that each of the N tokens belongs to; reads `cu_seqlens` once."""
    lengths = reach.cu_seqlens.diff()
    row = torch.arange(len(lengths), device=lengths.device)
    return row.repeat_interleave(lengths, output_size=int(reach.cu_seqlens[-1]))


def mask_mod(reach: Reach, row: Tensor) -> Callable[..., Tensor]:
    """Whether a token may see another, by their places among all N; equal to `Reach.allowed`.

    Written with captured tensors and integers alone, which is what the compiler takes; held to
    `Reach.allowed` on all pairs by tests/encoder/test_flex.py.
    """
    half_window, causal = reach.half_window, reach.causal

    def seen(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        out = row[query] == row[key]
        if half_window is not None:
            out = out & (query - key <= half_window) & (key - query <= half_window)
        return out & (query >= key) if causal else out

    return seen


def score_mod(reach: Reach) -> Callable[..., Tensor] | None:
    """`Reach.bias` as a change to one score; None without ALiBi."""
    if reach.slopes is None:
        return None
    slopes = reach.slopes

    def slanted(score: Tensor, batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return score - slopes[head] * (query - key).abs()

    return slanted


def visible_blocks(reach: Reach, row: Tensor, block: int) -> tuple[Tensor, Tensor]:
    """(query blocks, key blocks) where some pairs, and where all pairs, of tokens are visible.

    The first is generous (it may name a block without a visible pair, which costs time but changes
    nothing); the second is strict and excluded from the first, as flex_attention wants them.
    """
    num_tokens = row.numel()
    first = torch.arange(0, num_tokens, block, device=row.device)
    last = (first + block).clamp(max=num_tokens) - 1
    q_first, q_last, k_first, k_last = first[:, None], last[:, None], first[None], last[None]
    some = (row[q_first] <= row[k_last]) & (row[k_first] <= row[q_last])
    whole = last - first == block - 1
    every = (row[q_first] == row[k_last]) & (row[k_first] == row[q_last])
    every &= (row[q_first] == row[q_last]) & whole[:, None] & whole[None]
    if reach.half_window is not None:
        some &= torch.maximum(q_first - k_last, k_first - q_last) <= reach.half_window
        every &= torch.maximum(q_last - k_first, k_last - q_first) <= reach.half_window
    if reach.causal:
        some &= k_first <= q_last
        every &= k_last <= q_first
    return some & ~every, every


def in_order(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """(query blocks, key blocks) -> number of key blocks of each query block, and which, first."""
    count = blocks.sum(dim=-1, dtype=torch.int32)
    index = blocks.to(torch.int8).argsort(dim=-1, descending=True, stable=True)
    return count[None, None], index.to(torch.int32)[None, None]
