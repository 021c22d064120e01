"""Which weights are the best where some scores are no numbers; FAULTS B36."""

import math

import pytest
import torch

from ablate.evaluation.early_stopping import BestWeights

NAN = math.nan


def watched(scores):
    """Scores of steps 1, 2, ... of weights that carry their step; larger is better."""
    module = torch.nn.Linear(1, 1)
    left = iter(scores)
    watch = BestWeights([module], lambda: next(left), every=1, patience=len(scores))
    for step in range(1, len(scores) + 1):
        module.weight.data.fill_(step)
        watch(step)
    watch.restore()
    return watch, module.weight.item()


@pytest.mark.parametrize(
    ("scores", "step", "best"),
    [
        ([1.0, 2.0, 3.0, 4.0], 4, 4.0),  # the value is that of the weights it was measured on
        ([NAN, 0.3, 0.2, NAN], 2, 0.3),
        ([NAN, -3.0, -2.0, NAN], 3, -2.0),  # a loss, turned round
        ([0.2, math.inf, NAN, 0.1], 1, 0.2),
        ([0.5, 0.5, 0.4], 1, 0.5),
    ],
)
def test_b36_the_best_is_a_number_and_its_weights_are_its_own(scores, step, best):
    watch, carried = watched(scores)
    assert (watch.best_step, watch.best_score, carried) == (step, best, step)


def test_b36_of_no_number_at_all_none_is_called_best():
    watch, _ = watched([NAN, NAN, NAN])
    assert watch.best_score == -math.inf
    assert all(score == -math.inf for _, score in watch.history)
