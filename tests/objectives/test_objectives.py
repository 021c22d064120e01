import pytest
import torch
from torch.nn import functional as F

from ablate.objectives.mlm import masked_lm_loss, num_correct
from ablate.objectives.sentence_pair import pair_targets, sentence_pair_loss


def test_sum_and_count_are_divided_once():
    """Micro-batches with losses [1, 2, 3] and [10]: the mean is 4, the mean of means would be 6."""
    losses = torch.tensor([1.0, 2.0, 3.0, 10.0])
    # two classes, label 0: logits (0, x) cost log(1 + e^x)
    logits = torch.stack([torch.zeros(4), torch.log(torch.expm1(losses))], 1)
    labels = torch.zeros(4, dtype=torch.int64)
    parts = [masked_lm_loss(logits[:3], labels[:3]), masked_lm_loss(logits[3:], labels[3:])]
    total = sum(float(part.loss_sum) for part in parts) / sum(part.count for part in parts)
    assert total == pytest.approx(4.0, abs=1e-5)


def test_nothing_to_predict_is_zero_loss_with_zero_gradient():
    part = masked_lm_loss(torch.zeros(0, 7), torch.zeros(0, dtype=torch.int64))
    assert (float(part.loss_sum), part.count) == (0.0, 0)
    weight = torch.ones(7, requires_grad=True)
    part = masked_lm_loss(torch.zeros(0, 7) * weight, torch.zeros(0, dtype=torch.int64))
    part.loss_sum.backward()
    assert torch.equal(weight.grad, torch.zeros(7))


def test_loss_is_float32_whatever_the_logits():
    logits = torch.randn(50, 30, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(50) % 30
    part = masked_lm_loss(logits.bfloat16(), labels)
    assert part.loss_sum.dtype == torch.float32
    expected = F.cross_entropy(logits.bfloat16().float(), labels, reduction="sum")
    assert torch.equal(part.loss_sum, expected)


def test_pair_loss_ignores_rows_without_a_label():
    logits = torch.tensor([[3.0, 0.0], [0.0, 3.0], [5.0, -5.0]])
    part = sentence_pair_loss(logits, torch.tensor([0, 0, -100]))
    assert part.count == 2
    assert int(part.correct) == 1
    expected = F.cross_entropy(logits[:2], torch.tensor([0, 0]), reduction="sum")
    assert float(part.loss_sum) == pytest.approx(float(expected))


def test_pair_loss_of_three_classes():
    logits = torch.tensor([[9.0, 0.0, 0.0], [0.0, 0.0, 9.0], [0.0, 9.0, 0.0], [1.0, 2.0, 3.0]])
    part = sentence_pair_loss(logits, torch.tensor([0, 2, 2, -100]))
    assert (part.count, int(part.correct)) == (3, 2)
    expected = F.cross_entropy(logits[:3], torch.tensor([0, 2, 2]), reduction="sum")
    assert float(part.loss_sum) == pytest.approx(float(expected))


def test_labels_become_the_classes_that_the_loss_reads():
    """Rows next, random, swapped: order reads 0 and 2, next-sentence 0 and 1."""
    labels = torch.tensor([0, 1, 2, -100, 2])
    assert pair_targets(labels, (0, -100, 1)).tolist() == [0, -100, 1, -100, 1]
    assert pair_targets(labels, (0, 1, -100)).tolist() == [0, 1, -100, -100, -100]
    assert pair_targets(labels, (0, 1, 2)).tolist() == labels.tolist()


def test_a_batch_without_a_label_has_no_pair_loss():
    logits = torch.randn(3, 2, requires_grad=True)
    part = sentence_pair_loss(logits, torch.full((3,), -100))
    part.loss_sum.backward()
    assert (part.loss_sum.item(), part.count, int(part.correct)) == (0.0, 0, 0)
    assert not logits.grad.any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_right_predictions_are_those_of_argmax_with_ties_and_without(dtype):
    generator = torch.Generator().manual_seed(0)
    for spread in (0.0, 0.3, 5.0):  # all equal, many ties in coarse values, few
        logits = (torch.randn(200, 7, generator=generator) * spread).round(decimals=1).to(dtype)
        labels = torch.randint(7, (200,), generator=generator)
        assert num_correct(logits, labels) == (logits.argmax(-1) == labels).sum()
    assert num_correct(logits[:0], labels[:0]) == 0
