"""Scores from weights of examples: as recorded, and as of examples that are there so often."""

import dataclasses
import runpy
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from ablate.evaluation import metrics, similarity_scores
from ablate.evaluation.averages import RULES, average
from ablate.evaluation.measurement import Part
from ablate.study.examples import intervals, read
from ablate.study.resampled import Scored

MADE = SimpleNamespace(**runpy.run_path(str(Path(__file__).with_name("predicted_runs.py"))))
SCORES = (
    *("glue/cola/mcc", "glue/sst2/accuracy", "glue/mrpc/f1", "glue/stsb/pearson"),
    *("glue/stsb/spearman", "glue/mnli/matched_accuracy", "glue/mnli/mismatched_accuracy"),
    *("glue/mean8", "glue/bert9", "glue/hf"),
)


def test_unit_weights_give_the_recorded_score(tmp_path):
    record = MADE.glue_run(tmp_path, "a", 0)
    wanted = [score for score in SCORES if score in record["scores"]]
    assert {"glue/mean8", "glue/hf", "glue/stsb/spearman"} <= set(wanted)
    for score in wanted:
        found = read(tmp_path, record, score)
        value = found.values(np.ones((1, sum(found.sizes))))[0]
        assert value == pytest.approx(record["scores"][score], abs=1e-9), score


def test_a_harmonic_average_is_that_of_its_rule(tmp_path):
    record = MADE.glue_run(tmp_path, "a", 0)
    plain = read(tmp_path, record, "glue/mean8")
    rule = dataclasses.replace(RULES["mean8"], harmonic=True)
    value = Scored(plain.terms, rule).values(np.ones((1, sum(plain.sizes))))[0]
    assert value == pytest.approx(average(rule, record["scores"])["value"], abs=1e-9)


@pytest.mark.parametrize("score", [s for s in SCORES if s.count("/") == 2])
def test_weights_are_the_score_of_examples_that_are_there_so_often(tmp_path, score):
    record = MADE.glue_run(tmp_path, "a", 0, n=40)
    (term,) = read(tmp_path, record, score).terms.values()
    weights = MADE.generator("weights").multinomial(40, np.full(40, 1 / 40), size=20).astype(float)
    for counts, value in zip(weights, term.values(weights), strict=True):
        often = np.repeat(np.arange(40), counts.astype(int))
        wanted = [
            metrics.score(term.metric, fit[often], term.labels[often]).value for fit in term.fits
        ]
        assert value == pytest.approx(np.mean(wanted), abs=1e-9)


def test_merged_labels_are_scored_as_recorded(tmp_path):
    facts = MADE.facts_of("mnli", {"validation_matched": {"yes": ["0"], "no": ["1", "2"]}})
    table = MADE.fit_of("mnli", "a", 0, 0, 50)
    here = np.array(table["split"]) == "validation_matched"
    table["label"] = np.where(here, np.minimum(table["label"], 1), table["label"]).tolist()
    record = MADE.write_run(tmp_path, {"mnli": [Part(table, facts)]}, MADE.add_classes)
    found = read(tmp_path, record, "glue/mnli/matched_accuracy")
    value = found.values(np.ones((1, 50)))[0]
    assert value == pytest.approx(record["scores"]["glue/mnli/matched_accuracy"], abs=1e-9)


def test_minimal_pairs_are_resampled_within_their_paradigm(tmp_path):
    record = MADE.pairs_run(tmp_path, "a", 0)
    found = read(tmp_path, record, "blimp/accuracy")
    assert found.sizes == (10, 30)
    assert found.values(np.ones((1, 40)))[0] == pytest.approx(record["scores"]["blimp/accuracy"])
    only = np.zeros((1, 40))
    only[0, 0], only[0, 10:] = 10, 1
    (term,) = found.terms.values()
    by_hand = (term.fits[0][0] + term.fits[0][10:].mean()) / 2
    assert found.values(only)[0] == pytest.approx(by_hand)
    records = {
        arm: {s: MADE.pairs_run(tmp_path / "single" / f"{arm}-s{s}", arm, s) for s in range(3)}
        for arm in ("base", "other")
    }
    result = MADE.study_of(tmp_path, records, "blimp/accuracy")
    here = intervals(result, tmp_path)["other"]
    assert here.low < here.difference < here.high
    part = intervals(MADE.study_of(tmp_path, records, "blimp/p/accuracy"), tmp_path)["other"]
    assert part == "blimp/p/accuracy is of a kind that is not resampled by examples"


@pytest.mark.parametrize("score", ["spearman", "pearson", "zero_shot_pearson"])
def test_similarity_is_scored_as_recorded(tmp_path, score):
    parts = []
    for number in range(2):
        table = MADE.fit_of("stsb", "a", 0, number, 40)
        table["zero_shot"] = MADE.generator("zero").random(40).tolist()
        table["word_overlap"] = MADE.generator("overlap").random(40).tolist()
        facts = {
            "suite": "sts", "name": "own", "contrastive": {}, "train_loss": 0.1,
            "num_repeats_dropped": 0,
        }  # fmt: skip
        parts.append(Part(table, facts))
    record = MADE.write_run(
        tmp_path,
        {"own": parts},
        lambda result, task, parts: similarity_scores.add(result, parts, {}),
    )
    found = read(tmp_path, record, f"sts/own/{score}")
    value = found.values(np.ones((1, 40)))[0]
    assert value == pytest.approx(record["scores"][f"sts/own/{score}"], abs=1e-9)
