"""Pair logits -> summed next-sentence loss and count (Devlin et al. 2019, sec. 3.1).

Label 0 = B follows A, 1 = B is random: BERT's polarity, kept in exported heads. -100 = no label.
"""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from ablate.objectives.mlm import SumCount


def sentence_pair_loss(logits: Tensor, labels: Tensor) -> SumCount:
    """Cross-entropy in nats, float32. logits (R, 2), labels (R,)."""
    loss = F.cross_entropy(logits.float(), labels, reduction="sum", ignore_index=-100)
    counted = labels != -100
    correct = ((logits.detach().argmax(-1) == labels) & counted).sum()
    return SumCount(loss, int(counted.sum()), correct)
