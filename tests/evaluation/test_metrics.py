"""Scores against hand-computed answers and scikit-learn / scipy; FAULTS B21, B22, B23, B39."""

import numpy as np
import pytest

from ablate.evaluation import metrics


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
        if name in metrics.REGRESSION_METRICS:
            gold = random.integers(0, 6, n).astype(float)
            found = gold + random.normal(0, 2, n)
        else:
            classes = 3 if name in ("accuracy", "mcc") else 2
            gold, found = random.integers(0, classes, n), random.integers(0, classes, n)
        assert metrics.score(name, found, gold).value == pytest.approx(
            references[name](gold, found), abs=1e-6
        )


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


B39 = {
    "glue/cola/mcc": 50,
    "glue/sst2/accuracy": 90,
    "glue/mrpc/f1": 86,
    "glue/mrpc/accuracy": 80,
    "glue/stsb/pearson": 85,
    "glue/stsb/spearman": 83,
    "glue/qqp/accuracy": 90,
    "glue/qqp/f1": 87,
    "glue/mnli/matched_accuracy": 84,
    "glue/mnli/mismatched_accuracy": 85,
    "glue/qnli/accuracy": 91,
    "glue/rte/accuracy": 66,
    "glue/wnli/accuracy": 56.3,
}


def test_mean8_averages_inside_the_task_first_and_leaves_wnli_out():
    found = metrics.average("mean8", B39)
    assert found["value"] == 79.625
    assert found["missing"] == []
    assert "mnli matched_accuracy/mismatched_accuracy" in found["formula"]


@pytest.mark.parametrize("gone", ["glue/rte/accuracy", "glue/mnli/mismatched_accuracy"])
def test_a_missing_score_means_no_average(gone):
    scores = {name: value for name, value in B39.items() if name != gone}
    found = metrics.average("mean8", scores)
    assert found["value"] is None
    assert found["missing"] == [gone]
