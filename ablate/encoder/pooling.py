"""Hidden states of the tokens of each row -> one vector a row.

Nothing looks past a row's own bounds. Sums are taken in float32 whatever the hidden states are in:
a mean over a hundred bfloat16 numbers would lose the digits that it is taken for. torch is imported
where it is used, so that the names can be checked without it.

Legend: R rows, N tokens, D hidden.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

POOLINGS = ("cls", "mean", "max", "attention", "cls_mean", "last", "last_mean")
HEADS = ("mlp", "linear")


def pooled_size(hidden_size: int, pooling: str) -> int:
    """Width of a pooled row: two vectors side by side in `cls_mean` and `last_mean`."""
    return 2 * hidden_size if pooling.endswith("_mean") else hidden_size


def pool(
    hidden: Tensor, cu_seqlens: Tensor, pooling: str, *, query: Tensor | None = None
) -> Tensor:
    """(N, D) -> (R, D), or (R, 2 D) for `cls_mean` and `last_mean`.

    Args:
        query: the learned vector (D,) of `attention`: a softmax over each row of its product with
            the tokens weighs them. Zeros weigh all tokens alike, which is `mean`.
    """
    import torch

    place = cu_seqlens[1:] - 1 if pooling.startswith("last") else cu_seqlens[:-1]
    if pooling in ("cls", "last"):
        return hidden.index_select(0, place)
    lengths = cu_seqlens.diff()
    row = torch.arange(lengths.numel(), device=hidden.device)
    row = row.repeat_interleave(lengths, output_size=hidden.shape[0])
    values = hidden.float()
    if pooling == "max":
        return _row_max(values, row, lengths.numel())
    if pooling == "attention":
        assert query is not None, "attention has a learned query"
        scores = (values * query).sum(1, keepdim=True) * hidden.shape[1] ** -0.5  # (N, 1)
        top = _row_max(scores.detach(), row, lengths.numel())
        weights = (scores - top.index_select(0, row)).exp()
        return _row_sum(weights * values, row, lengths) / _row_sum(weights, row, lengths)
    mean = _row_sum(values, row, lengths) / lengths.clamp(min=1).unsqueeze(1)
    if pooling == "mean":
        return mean
    return torch.cat([hidden.index_select(0, place).float(), mean], dim=1)


def _row_sum(values: Tensor, row: Tensor, lengths: Tensor) -> Tensor:
    """(N, W) -> (R, W)."""
    return values.new_zeros(lengths.numel(), values.shape[1]).index_add(0, row, values)


def _row_max(values: Tensor, row: Tensor, num_rows: int) -> Tensor:
    """(N, W) -> (R, W); tokens that share a maximum share its gradient."""
    low = values.new_full((num_rows, values.shape[1]), float("-inf"))
    index = row.unsqueeze(1).expand_as(values)
    return low.scatter_reduce(0, index, values, "amax", include_self=False)
