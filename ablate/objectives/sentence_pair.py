"""Pair logits -> summed sentence-pair loss and count: next-sentence, sentence order, or both.

Next-sentence (Devlin et al. 2019, sec. 3.1): 0 = B follows A, 1 = B is random, BERT's polarity,
kept in exported heads. Sentence order (Lan et al. 2019, sec. 3.1): 0 = in order, 1 = swapped. Both
are one loss of three classes: follows, random, swapped. -100 = no label.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from ablate.inputs.pairs import NO_PAIR
from ablate.objectives.mlm import SumCount


def pair_targets(labels: Tensor, classes: Sequence[int]) -> Tensor:
    """Labels of the rows -> classes of the loss, -100 where it reads none (`pairs.loss_classes`).

    labels (R,); `classes` holds the class of label 0, 1, ...
    """
    targets = torch.full_like(labels, NO_PAIR)
    for label, target in enumerate(classes):
        targets = targets.masked_fill(labels == label, target)
    return targets


def sentence_pair_loss(logits: Tensor, labels: Tensor) -> SumCount:
    """Cross-entropy in nats, float32. logits (R, C), labels (R,)."""
    loss = F.cross_entropy(logits.float(), labels, reduction="sum", ignore_index=NO_PAIR)
    counted = labels != NO_PAIR
    correct = ((logits.detach().argmax(-1) == labels) & counted).sum()
    return SumCount(loss, int(counted.sum()), correct)
