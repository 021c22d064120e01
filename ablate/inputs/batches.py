"""Rows of token ids -> a `Batch` without padding.

Everything but attention works on N tokens laid end to end, the vocabulary head on the M predicted
ones; `cu_seqlens` says where each of the R rows begins. Fine-tuning and evaluation use the same
class, with M = 0. A row here is what attention sees at once: where it stops at documents
(`document_boundary=block`), a row of the plan is several rows of the batch.

Legend: R rows, N tokens of all rows, M predicted tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from torch import Tensor


@dataclass
class Batch:
    """One micro-batch. All tensors on one device; ids are int64, `cu_seqlens` is int32.

    `predict_positions` index into the N tokens and are sorted; `labels` are the original ids there.
    `pair_labels` are 0 = B follows A, above 0 another kind of the pairing (`pairs.PAIRINGS`; BERT's
    polarity), -100 = no label; None where rows are not pairs.
    """

    input_ids: Tensor  # (N,)
    token_type_ids: Tensor  # (N,)
    position_ids: Tensor  # (N,) counted from 0 in each row
    cu_seqlens: Tensor  # (R + 1,) int32, begins with 0, ends with N
    max_seqlen: int
    predict_positions: Tensor  # (M,)
    labels: Tensor  # (M,)
    pair_labels: Tensor | None = None  # (R,)

    @property
    def num_rows(self) -> int:
        return self.cu_seqlens.numel() - 1

    @property
    def num_tokens(self) -> int:
        return self.input_ids.numel()

    @property
    def num_predictions(self) -> int:
        return self.labels.numel()

    def to(self, device: torch.device | str) -> Batch:
        """The same batch on another device."""
        moved: dict[str, Any] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            moved[field.name] = value.to(device) if isinstance(value, Tensor) else value
        return Batch(**moved)


def ragged_arange(lengths: np.ndarray) -> np.ndarray:
    """[0..l0), [0..l1), ... end to end, (sum of lengths,) int64."""
    ends = np.cumsum(lengths)
    return np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - lengths, lengths)


def collate(
    input_ids: np.ndarray,
    lengths: np.ndarray,
    *,
    token_type_ids: np.ndarray | None = None,
    predict_positions: np.ndarray | None = None,
    labels: np.ndarray | None = None,
    pair_labels: np.ndarray | None = None,
) -> Batch:
    """Flat arrays, rows end to end with `lengths` (R,), -> `Batch` on the CPU."""
    nothing = np.empty(0, dtype=np.int64)
    starts = np.concatenate([[0], np.cumsum(lengths)])

    def tensor(values: np.ndarray) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(values, dtype=np.int64))

    types = np.zeros(len(input_ids), dtype=np.int64) if token_type_ids is None else token_type_ids
    return Batch(
        input_ids=tensor(input_ids),
        token_type_ids=tensor(types),
        position_ids=tensor(ragged_arange(np.asarray(lengths))),
        cu_seqlens=torch.from_numpy(starts.astype(np.int32)),
        max_seqlen=int(max(lengths, default=0)),
        predict_positions=tensor(nothing if predict_positions is None else predict_positions),
        labels=tensor(nothing if labels is None else labels),
        pair_labels=None if pair_labels is None else tensor(pair_labels),
    )


def from_segments(
    segments: Sequence[Sequence[Sequence[int]]],
    *,
    cls_token_id: int,
    sep_token_id: int,
    max_length: int,
) -> tuple[Batch, int]:
    """Texts of one or two token lists -> [CLS] A [SEP] or [CLS] A [SEP] B [SEP], and tokens cut.

    A pair that is too long loses tokens from the end of whichever side is longer at the moment
    (BERT's rule). The second value is the number of tokens cut over all rows: callers record it.
    """
    ids: list[int] = []
    types: list[int] = []
    lengths: list[int] = []
    cut = 0
    for sides in segments:
        room = max_length - 1 - len(sides)
        keep = [len(side) for side in sides]
        while sum(keep) > room:
            longest = max(range(len(keep)), key=lambda i: (keep[i], i))
            keep[longest] -= 1
            cut += 1
        before = len(ids)
        ids.append(cls_token_id)
        types.append(0)
        for kind, (side, count) in enumerate(zip(sides, keep, strict=True)):
            ids.extend(side[:count])
            ids.append(sep_token_id)
            types.extend([kind] * (count + 1))
        lengths.append(len(ids) - before)
    batch = collate(
        np.array(ids, dtype=np.int64),
        np.array(lengths, dtype=np.int64),
        token_type_ids=np.array(types, dtype=np.int64),
    )
    return batch, cut
