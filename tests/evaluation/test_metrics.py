"""Scores against hand-computed answers and scikit-learn / scipy; FAULTS B19, B21, B22, B23;
standard errors from the number of examples."""

import subprocess
import sys

import numpy as np
import pytest

from ablate.evaluation import metrics, uncertainty


def ints(*values):
    return np.array(values, dtype=np.int64)


def test_mcc_of_a_constant_prediction_is_zero_and_flagged():
    assert metrics.score("mcc", ints(1, 1, 1, 1), ints(1, 1, 0, 0)) == (0.0, "degenerate")


def test_mcc_of_one_class_everywhere_is_zero_and_flagged():
    assert metrics.score("mcc", ints(1, 1, 1, 1), ints(1, 1, 1, 1)) == (0.0, "degenerate")
    assert metrics.score("mcc", ints(1, 1), ints(0, 0)) == (0.0, "degenerate")


def test_mcc_by_hand():
    found = metrics.score("mcc", ints(1, 1, 0, 0, 1), ints(1, 0, 0, 0, 1))
    assert found.value == pytest.approx(2 / 3, abs=1e-6)
    assert found.flag is None


@pytest.mark.parametrize("name", ["pearson", "spearman"])
def test_correlation_of_a_constant_is_zero_and_undefined(name):
    gold = np.array([1.0, 2.0, 3.0, 4.0])
    assert metrics.score(name, np.full(4, 2.0), gold) == (0.0, "undefined")
    assert metrics.score(name, gold, np.full(4, 2.0)) == (0.0, "undefined")
    almost = 2.0 + 1e-9 * np.arange(4)
    assert metrics.score(name, almost, gold) == (0.0, "undefined")


@pytest.mark.parametrize("name", ["pearson", "spearman"])
def test_correlation_of_nan_is_zero_and_flagged(name):
    assert metrics.score(name, np.array([1, np.nan]), np.array([1.0, 2])) == (0.0, "not_finite")


@pytest.mark.parametrize("scale", [1.0, 1e-6])
def test_pearson_does_not_depend_on_scale(scale):
    found = metrics.score("pearson", np.array([1.0, 2, 3, 5]) * scale, np.array([1.0, 2, 4, 4]))
    assert found.value == pytest.approx(0.8783, abs=1e-4)


def test_f1_is_of_class_one_and_not_micro_or_macro():
    predictions, gold = ints(1, 1, 1, 0, 0, 0), ints(1, 1, 0, 0, 0, 0)
    assert metrics.score("f1", predictions, gold).value == pytest.approx(0.8)
    assert metrics.score("accuracy", predictions, gold).value == pytest.approx(5 / 6)


def test_f1_without_positive_predictions_is_zero():
    assert metrics.score("f1", ints(0, 0, 0, 0), ints(1, 0, 1, 0)) == (0.0, None)
    assert metrics.score("f1", ints(0, 0), ints(0, 0)) == (0.0, "degenerate")


def test_accuracy_is_not_class_averaged():
    assert metrics.score("accuracy", ints(0, 0, 0, 1, 2), ints(0, 0, 0, 0, 2)).value == (
        pytest.approx(0.8)
    )


def test_f1_is_over_all_examples_and_not_a_mean_over_batches():
    assert metrics.score("f1", ints(1, 1, 0, 0), ints(1, 0, 1, 0)).value == pytest.approx(0.5)


def random_task(name, n, random):
    """Predictions and labels of the kind that a metric takes; noise large and small."""
    if name in metrics.REGRESSION_METRICS:
        gold = random.integers(0, 6, n).astype(float)
        return gold + random.normal(0, 2, n), gold
    classes = 3 if name in ("accuracy", "mcc") else 2
    return random.integers(0, classes, n), random.integers(0, classes, n)


@pytest.mark.parametrize("name", list(metrics.METRICS))
def test_metric_equals_scikit_learn_and_scipy(name):
    import scipy.stats
    from sklearn import metrics as theirs

    random = np.random.default_rng(5)
    references = {
        "accuracy": theirs.accuracy_score,
        "f1": theirs.f1_score,
        "mcc": theirs.matthews_corrcoef,
        "pearson": lambda gold, found: scipy.stats.pearsonr(gold, found).statistic,
        "spearman": lambda gold, found: scipy.stats.spearmanr(gold, found).statistic,
    }
    for n in (5, 277, 1500):
        found, gold = random_task(name, n, random)
        assert metrics.score(name, found, gold).value == pytest.approx(
            references[name](gold, found), abs=1e-12
        )


@pytest.mark.parametrize("name", list(metrics.METRICS))
def test_metric_equals_torchmetrics_with_the_averaging_of_its_task(name):
    import torch
    from torchmetrics.functional import classification, pearson_corrcoef, spearman_corrcoef

    references = {
        "accuracy": lambda p, y: classification.multiclass_accuracy(p, y, 3, average="micro"),
        "f1": classification.binary_f1_score,
        "mcc": lambda p, y: classification.multiclass_matthews_corrcoef(p, y, 3),
        "pearson": pearson_corrcoef,
        "spearman": spearman_corrcoef,
    }
    random = np.random.default_rng(6)
    for n in (9, 408, 1043):
        found, gold = random_task(name, n, random)
        theirs = references[name](torch.from_numpy(found), torch.from_numpy(gold))
        assert metrics.score(name, found, gold).value == pytest.approx(float(theirs), abs=1e-5)


@pytest.mark.parametrize("name", list(metrics.METRICS))
def test_a_weight_is_a_number_of_copies(name):
    """What a bootstrap asks for: the metric of the examples drawn, each as often as it was."""
    random = np.random.default_rng(7)
    found, gold = random_task(name, 40, random)
    if name in metrics.REGRESSION_METRICS:
        found = found.round()  # ties
    weights = random.integers(0, 4, (5, 40)).astype(float)
    ours = metrics.METRICS[name](found, gold, weights)
    for value, times in zip(ours, weights.astype(int), strict=True):
        copies = np.repeat(np.arange(40), times)
        assert value == pytest.approx(
            metrics.score(name, found[copies], gold[copies]).value, abs=1e-12
        )


def test_no_metric_needs_torch():
    code = (
        "import sys, numpy as np; from ablate.evaluation import metrics, scoring, averages, "
        "submission, stored; metrics.score('mcc', np.array([0, 1]), np.array([0, 1])); "
        "assert not {'torch', 'torchmetrics'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_score_far_below_chance_is_flagged():
    """FAULTS B19: the head counts its classes in another order than the data."""
    random = np.random.default_rng(0)
    gold = random.integers(0, 3, 300)
    rotated = (gold + 1) % 3
    assert metrics.score("accuracy", rotated, gold, num_classes=3) == (0.0, "below_chance")
    guessed = random.integers(0, 3, 300)
    assert metrics.score("accuracy", guessed, gold, num_classes=3).flag is None
    assert metrics.score("accuracy", rotated, gold).flag is None  # what chance is was not said
    two = random.integers(0, 2, 300)
    assert metrics.score("mcc", 1 - two, two).flag == "below_chance"
    assert metrics.score("pearson", -gold.astype(float), gold.astype(float)).flag == "below_chance"
    assert metrics.score("accuracy", ints(1, 0), ints(0, 1), num_classes=2).flag is None  # n = 2


def test_the_error_of_an_accuracy_is_binomial():
    gold = ints(*[1] * 277)
    found = ints(*[1] * 183, *[0] * 94)
    errors, together = uncertainty.of_split(["accuracy"], [found], gold)
    share = 183 / 277
    wanted = (share * (1 - share) / 277) ** 0.5
    assert errors["accuracy"] == (pytest.approx(wanted), "binomial")
    assert wanted == pytest.approx(0.028, abs=5e-4)  # RTE at 66: 2.8 points
    assert together == {}


def test_seeds_on_the_same_examples_are_not_more_examples():
    random = np.random.default_rng(1)
    gold = random.integers(0, 2, 500)
    found = np.where(random.random(500) < 0.8, gold, 1 - gold)
    one, _ = uncertainty.of_split(["accuracy", "mcc"], [found], gold)
    three, _ = uncertainty.of_split(["accuracy", "mcc"], [found] * 3, gold)
    assert three["accuracy"].value == pytest.approx(one["accuracy"].value)
    assert three["mcc"].value == pytest.approx(one["mcc"].value)
    assert (three["accuracy"].method, three["mcc"].method) == ("examples", "bootstrap")


@pytest.mark.parametrize("name", ["f1", "mcc", "pearson", "spearman"])
def test_a_bootstrap_error_is_that_of_a_plain_loop(name):
    random = np.random.default_rng(2)
    gold = random.integers(0, 2, 300) if name in ("f1", "mcc") else random.normal(size=300)
    flips = random.random((2, 300)) < 0.2
    if name in ("f1", "mcc"):
        found = [np.where(flip, 1 - gold, gold) for flip in flips]
    else:
        found = [gold + random.normal(0, 1, 300) for _ in flips]
    drawn = []
    for _ in range(600):
        chosen = random.integers(0, 300, 300)
        here = [metrics.score(name, one[chosen], gold[chosen]).value for one in found]
        drawn.append(np.mean(here))
    errors, _ = uncertainty.of_split([name], found, gold)
    assert errors[name].value == pytest.approx(np.std(drawn), rel=0.1)
    assert uncertainty.of_split([name], found, gold)[0] == errors  # and is the same every time


def test_errors_of_two_metrics_of_a_split_go_together():
    random = np.random.default_rng(3)
    gold = random.normal(size=400)
    found = gold + random.normal(0, 1, 400)
    _, together = uncertainty.of_split(["pearson", "spearman"], [found], gold)
    assert 0.8 < together["pearson", "spearman"] < 1.0


@pytest.mark.parametrize("bad", [np.nan, 2.0])
def test_errors_of_undefined_scores_are_numbers(bad):
    gold = np.array([1.0, 2.0, 3.0, 4.0])
    errors, together = uncertainty.of_split(["pearson", "spearman"], [np.full(4, bad)], gold)
    assert all(error.value == 0.0 for error in errors.values())
    assert together == {("pearson", "spearman"): 0.0}


def test_majority_is_of_the_training_labels():
    assert metrics.majority_prediction(ints(1, 0, 1), regression=False) == 1
    assert metrics.majority_prediction(ints(0, 1), regression=False) == 0
    assert metrics.majority_prediction(np.array([1.0, 2.0, 4.5]), regression=True) == 2.5


def test_metrics_that_do_not_fit_the_labels_are_refused():
    metrics.check_metrics(("f1", "accuracy"), regression=False, task="mine")
    with pytest.raises(ValueError, match=r"'mine': metrics \['pearson'\].*allowed: \['accuracy'"):
        metrics.check_metrics(("pearson",), regression=False, task="mine")
    with pytest.raises(ValueError, match="regression"):
        metrics.check_metrics(("accuracy",), regression=True, task="mine")
