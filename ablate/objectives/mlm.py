"""Logits at predicted positions -> summed masked-LM loss, count, hits.

Devlin et al. 2019, sec. 3.1. Next-token prediction (`objective=clm`) is the same sum: which token a
position is asked for is in the batch (`inputs.causal_rows`). Sums, never means: they are divided
once, by the count over all micro-batches and ranks. Count 0 gives loss 0 with zero gradients.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor
from torch.nn import functional as F


@dataclass
class SumCount:
    """A summed loss, how many terms it has, and how many of them were predicted right."""

    loss_sum: Tensor  # () float32, with gradient
    count: int
    correct: Tensor  # () int64


def masked_lm_loss(logits: Tensor, labels: Tensor) -> SumCount:
    """Cross-entropy in nats, float32 whatever the logits' type. logits (M, V), labels (M,)."""
    logits = logits.float()
    loss = F.cross_entropy(logits, labels, reduction="sum")
    return SumCount(loss, labels.numel(), num_correct(logits.detach(), labels))


def num_correct(logits: Tensor, labels: Tensor) -> Tensor:
    """Rows whose first largest value is at the label, () int64; logits (M, V), labels (M,).

    On a CPU the place of the largest value costs nine times the value itself, so it is looked for
    only where the label has that value.
    """
    if logits.device.type != "cpu" or not len(labels):
        return (logits.argmax(-1) == labels).sum()
    at_label = logits.gather(1, labels[:, None]).squeeze(1)
    rows = (at_label == logits.amax(-1)).nonzero().squeeze(1)
    return (logits[rows].argmax(-1) == labels[rows]).sum()
