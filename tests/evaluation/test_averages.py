"""Rules of averaging against published rows and averages; FAULTS B39."""

import pytest

from ablate.evaluation import averages, uncertainty
from ablate.evaluation.averages import RULES, Rule, average
from ablate.evaluation.measurement import EvaluationResult

B39 = {
    "cola/mcc": 50,
    "sst2/accuracy": 90,
    "mrpc/f1": 86,
    "mrpc/accuracy": 80,
    "stsb/pearson": 85,
    "stsb/spearman": 83,
    "qqp/accuracy": 90,
    "qqp/f1": 87,
    "mnli/matched_accuracy": 84,
    "mnli/mismatched_accuracy": 85,
    "qnli/accuracy": 91,
    "rte/accuracy": 66,
    "wnli/accuracy": 56.3,
}


def glue(scores):
    return {f"glue/{name}": value for name, value in scores.items()}


def value(rule, scores):
    found = average(rule, glue(scores))
    assert found["missing"] == []
    return found["value"]


def test_b39_by_rule():
    assert value("mean8", B39) == 79.625
    assert value("official", B39) == pytest.approx(77.03, abs=0.005)  # with WNLI
    twice = Rule(
        {**RULES["mean8"].columns, "mnli_mm": ["glue/mnli/mismatched_accuracy"]}
        | {"mnli": ["glue/mnli/matched_accuracy"]},
        "MNLI counted twice",
    )
    assert average(twice, glue(B39))["value"] == pytest.approx(80.17, abs=0.005)
    assert average("mean8", glue(B39))["columns"] == {
        **{"cola": 50, "sst2": 90, "mrpc": 83, "stsb": 84},
        **{"qqp": 88.5, "mnli": 84.5, "qnli": 91, "rte": 66},
    }


def test_a_formula_names_the_metric_of_each_column():
    formula = average("bert9", glue(B39))["formula"]
    assert formula.startswith("mean over 9 columns of: ")
    for column in ("mnli_m matched_accuracy", "mnli_mm mismatched_accuracy", "stsb spearman"):
        assert column in formula
    assert average("cramming9_harmonic", glue(B39))["formula"].startswith("harmonic mean over 9")
    assert "mnli matched_accuracy/mismatched_accuracy" in average("mean8", glue(B39))["formula"]


@pytest.mark.parametrize("gone", ["rte/accuracy", "mnli/mismatched_accuracy"])
@pytest.mark.parametrize("rule", ["official", "mean8", "bert9", "cramming9", "mosaic8"])
def test_a_missing_score_means_no_average(rule, gone):
    found = average(rule, glue({name: v for name, v in B39.items() if name != gone}))
    assert found["value"] is None
    assert found["missing"] == [f"glue/{gone}"]


# PEERS: the same fine-tuning outputs by five published rules
PLAIN = {
    "mnli/matched_accuracy": 84.2,
    "mnli/mismatched_accuracy": 84.5,
    "qqp/accuracy": 91.0,
    "qqp/f1": 88.0,
    "qnli/accuracy": 90.9,
    "sst2/accuracy": 93.3,
    "cola/mcc": 57.0,
    "stsb/pearson": 88.5,
    "stsb/spearman": 88.2,
    "mrpc/accuracy": 86.5,
    "mrpc/f1": 90.5,
    "rte/accuracy": 66.0,
}
FROM_MNLI = {
    **PLAIN,
    "rte/accuracy": 80.0,
    "mrpc/accuracy": 88.5,
    "mrpc/f1": 91.8,
    "stsb/spearman": 89.8,
}


@pytest.mark.parametrize(
    ("rule", "scores", "wanted"),
    [
        ("cramming9", PLAIN, 82.54),
        ("cramming9_harmonic", PLAIN, 80.47),
        ("electra8", PLAIN, 82.14),
        ("hf", PLAIN, 82.22),
        ("mosaic8", FROM_MNLI, 84.38),
        ("modernbert8", FROM_MNLI, 84.39),
    ],
)
def test_the_same_outputs_by_published_rules(rule, scores, wanted):
    assert round(value(rule, scores) + 1e-9, 2) == wanted


def row(text):
    """`m mm qqp qnli sst2 cola stsb mrpc rte` as printed: one number stands for both metrics."""
    names = ["m", "mm", "qqp", "qnli", "sst2", "cola", "stsb", "mrpc", "rte"]
    cells = dict(zip(names, map(float, text.split()), strict=True))
    out = {
        "mnli/matched_accuracy": cells["m"],
        "mnli/mismatched_accuracy": cells["mm"],
        "cola/mcc": cells["cola"],
    }
    for task in ("qnli", "sst2", "rte", "qqp", "mrpc"):
        out[f"{task}/accuracy"] = cells[task]
    for task in ("qqp", "mrpc"):
        out[f"{task}/f1"] = cells[task]
    return {**out, "stsb/pearson": cells["stsb"], "stsb/spearman": cells["stsb"]}


BERT = row("84.6 83.4 71.2 90.5 93.5 52.1 85.8 88.9 66.4")  # Devlin et al. 2019, table 1, BASE
CRAMMED = row("83.9 84.1 87.3 89.5 92.2 44.5 84.6 87.5 53.8")  # model card crammed-bert-legacy
ANKNER = row("84.3 84.71 88.31 90.38 92.91 55.89 89.38 91.94 76.65")  # table 1, base fixed .15


@pytest.mark.parametrize(
    ("rule", "scores", "wanted", "digits"),
    [
        ("bert9", BERT, 79.6, 1),
        ("mean8", BERT, 79.05, 2),
        # the same, LARGE
        ("bert9", row("86.7 85.9 72.1 92.7 94.9 60.5 86.5 89.3 70.1"), 82.1, 1),
        ("cramming9", CRAMMED, 78.6, 1),
        ("mean8", CRAMMED, 77.9, 1),
        # Cramming, BERT-Base fully trained
        ("cramming9", row("83.2 83.4 87.7 90.6 91.9 56.5 86.7 89.3 59.2"), 80.9, 1),
        ("bert9", ANKNER, 83.83, 2),
        ("mean8", ANKNER, 83.75, 2),
        # ELECTRA, Clark et al. 2020, table 2: RoBERTa-100K and ELECTRA-400K, one MNLI
        ("electra8", row("89.3 0 92.0 94.0 95.6 66.1 92.2 91.4 82.7"), 87.9, 1),
        ("electra8", row("90.5 0 92.4 94.5 96.0 69.3 92.1 90.6 86.8"), 89.0, 1),
        # MosaicBERT-Base, model card: MNLI m/mm averaged
        ("mosaic8", row("84.95 84.95 90.29 90.74 92.46 55.11 89.27 90.03 81.36"), 84.28, 2),
        # ModernBERT, table 5, base: ModernBERT 88.45 before rounding, DeBERTaV3 88.26
        ("modernbert8", row("89.1 89.1 92.1 93.9 96.0 65.1 91.8 92.2 87.4"), 88.45, 2),
        ("modernbert8", row("90.0 90.0 92.4 94.0 95.6 69.2 91.6 89.5 83.8"), 88.26, 2),
        # NeoBERT, table 3: two-metric tasks and MNLI averaged first
        ("mean8", row("88.9 88.9 90.7 93.9 95.8 64.8 92.1 93.4 91.0"), 88.8, 1),
        ("mean8", row("89.0 89.0 90.7 93.7 95.6 66.2 91.8 93.4 91.3"), 89.0, 1),
    ],
)
def test_published_averages_follow_from_published_rows(rule, scores, wanted, digits):
    assert value(rule, scores) == pytest.approx(wanted, abs=0.51 * 10.0**-digits)


def spanbert(cola, sst2, mrpc, stsb, qqp, mnli, qnli, rte):
    """SpanBERT, Joshi et al. 2020, table 5 (test): two numbers where a task has two."""
    return {
        "cola/mcc": cola,
        "sst2/accuracy": sst2,
        **dict(zip(("mrpc/f1", "mrpc/accuracy"), mrpc, strict=True)),
        **dict(zip(("stsb/pearson", "stsb/spearman"), stsb, strict=True)),
        **dict(zip(("qqp/f1", "qqp/accuracy"), qqp, strict=True)),
        **dict(zip(("mnli/matched_accuracy", "mnli/mismatched_accuracy"), mnli, strict=True)),
        "qnli/accuracy": qnli,
        "rte/accuracy": rte,
        "wnli/accuracy": 65.1,
    }


@pytest.mark.parametrize(
    ("scores", "wanted"),
    [
        (
            spanbert(
                59.3, 95.2, (88.5, 84.3), (86.4, 88.0), (71.2, 89.0), (86.1, 85.7), 93.0, 71.1
            ),
            80.4,
        ),
        (
            spanbert(
                64.3, 94.8, (90.9, 87.9), (89.9, 89.1), (71.9, 89.5), (88.1, 87.7), 94.3, 79.0
            ),
            82.8,
        ),
    ],
)
def test_the_official_score_averages_two_metric_tasks_first_and_holds_wnli(scores, wanted):
    assert value("official", scores) == pytest.approx(wanted, abs=0.051)


def test_a_rule_is_data_and_need_not_be_of_glue():
    """ALBERT, Lan et al. 2020, table 5, SOP: SQuADs as means of F1 and EM, MNLI, SST-2, RACE."""
    rule = Rule(
        {
            "squad1": ["qa/squad1/f1", "qa/squad1/em"],
            "squad2": ["qa/squad2/f1", "qa/squad2/em"],
            "mnli": ["glue/mnli/accuracy"],
            "sst2": ["glue/sst2/accuracy"],
            "race": ["qa/race/accuracy"],
        },
        "ALBERT",
    )
    scores = dict(zip(rule.needed, [89.3, 82.3, 80.0, 77.1, 82.0, 90.3, 64.0], strict=True))
    assert average(rule, scores)["value"] == pytest.approx(80.1, abs=0.051)


def test_a_harmonic_mean_of_nothing_is_zero():
    assert average("cramming9_harmonic", glue({**B39, "cola/mcc": 0}))["value"] == 0.0
    assert average("cramming9_harmonic", glue({**B39, "cola/mcc": -3}))["value"] == 0.0


@pytest.mark.parametrize("rule", list(RULES))
def test_the_gradient_is_that_of_the_average(rule):
    scores, step = glue(B39), 1e-4
    slopes = averages.gradient(RULES[rule], scores)
    assert set(slopes) == set(RULES[rule].needed)
    for name, slope in slopes.items():
        moved = average(rule, {**scores, name: scores[name] + step})["value"]
        assert slope == pytest.approx((moved - average(rule, scores)["value"]) / step, abs=1e-5)


def test_the_error_bar_is_that_of_the_unweighted_mean():
    """FAULTS B39: .9 of 100 and .5 of 900 examples."""
    errors = {"a": (0.9 * 0.1 / 100) ** 0.5, "b": (0.5 * 0.5 / 900) ** 0.5}
    rule = Rule({"a": ["a"], "b": ["b"]}, "")
    scores = {"a": 0.9, "b": 0.5}
    assert average(rule, scores)["value"] == pytest.approx(0.70)
    found = uncertainty.of_combination(averages.gradient(rule, scores), errors, {})
    assert round(found, 4) == 0.0172
    by_size = uncertainty.of_combination({"a": 0.1, "b": 0.9}, errors, {})
    assert round(by_size, 4) == 0.0153


def test_errors_of_two_metrics_on_the_same_examples_go_together():
    slopes, errors = {"f1": 0.5, "accuracy": 0.5}, {"f1": 0.02, "accuracy": 0.02}
    together = uncertainty.of_combination(slopes, errors, {("f1", "accuracy"): 1.0})
    assert together == pytest.approx(0.02)
    assert uncertainty.of_combination(slopes, errors, {}) == pytest.approx(0.02 / 2**0.5)


def result_of(scores, suite="glue", **changes):
    entry = {"standard_error": 0.01, "flags": [None], **changes}
    named = {f"{suite}/{name}": score / 100 for name, score in scores.items()}
    return EvaluationResult(
        scores=dict(named), details={"all": {"metrics": {name: dict(entry) for name in named}}}
    )


def test_every_complete_rule_becomes_a_score_under_its_name_with_its_error():
    result = result_of(B39)
    averages.add_averages(result)
    assert {name for name in result.scores if name.count("/") == 1} == {f"glue/{r}" for r in RULES}
    found = result.averages["glue/bert9"]
    assert found["standard_error"] == pytest.approx(0.01 * 9**-0.5)
    assert result.scores["glue/bert9"] == found["value"]


def test_rules_that_lack_scores_say_so_and_are_no_scores():
    result = result_of({k: v for k, v in B39.items() if "wnli" not in k and "mismatched" not in k})
    averages.add_averages(result)
    complete = {name for name in result.scores if name.count("/") == 1}
    assert complete == {"glue/electra8", "glue/hf"}
    assert result.averages["glue/official"]["missing"] == [
        "glue/mnli/mismatched_accuracy",
        "glue/wnli/accuracy",
    ]
    assert result.averages["glue/official"]["standard_error"] is None


def test_another_protocol_has_averages_of_its_own():
    result = result_of(B39, "glue-grid", flags=["degenerate"])
    averages.add_averages(result)
    assert result.scores["glue-grid/mean8"] == pytest.approx(0.79625)
    assert "glue/mean8" not in result.averages
    assert result.averages["glue-grid/mean8"]["flagged"]


def test_a_score_without_an_error_leaves_the_average_without_one():
    result = result_of(B39, standard_error=None)
    averages.add_averages(result)
    assert result.averages["glue/mean8"]["standard_error"] is None
    assert result.averages["glue/mean8"]["value"] == pytest.approx(0.79625)


def test_an_average_says_which_file_stood_in_for_a_split():
    result = result_of(B39)
    result.details["mnli"] = {"notes": {"validation_matched": "x.jsonl was taken as matched"}}
    result.details["pos"] = {"notes": {"validation": "y.jsonl was taken as validation"}}
    averages.add_averages(result)
    assert result.averages["glue/mean8"]["notes"] == [
        "mnli validation_matched: x.jsonl was taken as matched"
    ]
