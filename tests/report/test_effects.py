"""The sections on factors and on resampled examples: the numbers of the study, or why not."""

import dataclasses
import html
import json
import runpy
import shutil
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from ablate.config.compose import conf_dir
from ablate.report import wording
from ablate.report.bootstrap import HEADING
from ablate.report.build import write
from ablate.report.effects import factor_effects
from ablate.study import collect
from ablate.study.design import load
from ablate.study.effects import effects
from ablate.study.examples import Interval, intervals
from ablate.study.states import State, StudyFolder

FACTORS = "Effects of the factors"


RUNS = Path(__file__).parents[1] / "study" / "predicted_runs.py"
MADE = SimpleNamespace(**runpy.run_path(str(RUNS)))


def section(readme, heading):
    return readme.split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]


def cells(text):
    rows = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("|")]
    return [[html.unescape(cell.strip()) for cell in row] for row in rows[2:]]


def factorial(tmp_path, *, seeds=5, missing=(), gates=(), higher=True):
    """The preset with scores of .6, +.05 at r40 and +.05 more where both levels are new."""
    study = load(conf_dir() / "study" / "replacement_by_rate.yaml", scale="laptop")
    study = dataclasses.replace(study, gates=tuple(gates), higher_is_better=higher)
    draw = np.random.default_rng(0)
    arms = {}
    for arm in study.arms:
        mean = 0.6 + 0.05 * arm.endswith("r40") + 0.05 * (arm == "mask-r40")
        records = {
            s: {"status": "complete", "scores": {study.primary: mean + draw.normal(0, 0.005)}}
            for s in range(seeds)
            if (arm, s) not in missing
        }
        states = {s: State("complete", f"{arm}-s{s}") for s in records}
        arms[arm] = collect.ArmResult(
            arm, [], states, records, collect._scores(records),
            ["accuracy above counting: 0.1, not above 0.2"] if arm in gates else [], {}, {},
        )  # fmt: skip
    return collect.decided(dataclasses.replace(study, gates=()), arms, StudyFolder(tmp_path, study))


def test_the_preset_shows_two_main_effects_and_their_interaction(tmp_path):
    result = factorial(tmp_path)
    readme = (write(result, tmp_path / "reports") / "README.md").read_text()
    rows = cells(section(readme, FACTORS))
    assert [row[:2] for row in rows] == [
        ["replacement: mask − bert", "main"],
        ["rate: r40 − r15", "main"],
        ["replacement (mask − bert) × rate (r40 − r15)", "interaction"],
    ]
    scores = {name: arm.scores[result.study.primary] for name, arm in result.arms.items()}
    found, digits = effects(result.study.levels, scores), wording.digits_of(result)
    for row, effect in zip(rows, found.effects, strict=True):
        here = effect.found
        assert row[2].rstrip("*") == digits.signed(here.mean)
        assert row[3] == digits.interval(here.low, here.high)
        assert row[4:] == [wording.probability(p) for p in (here.p, effect.p_adjusted)]
    assert [e.found.mean for e in found.effects] == pytest.approx([0.025, 0.075, 0.05], abs=0.01)
    assert "over 5 seeds that every arm has" in section(readme, FACTORS)


def test_seeds_left_out_and_arms_not_trained_enough_are_named(tmp_path):
    result = factorial(tmp_path, missing=[("mask-r40", 1)], gates=["bert-r40"])
    text = section((write(result, tmp_path / "reports") / "README.md").read_text(), FACTORS)
    assert "Seed 1 is left out: mask-r40 has no score at it" in text
    assert "These effects include 1 arm not trained enough (bert-r40" in text
    assert "over 4 seeds" in text


def test_too_few_runs_give_a_note_and_no_table(tmp_path):
    gone = [("mask-r40", seed) for seed in range(5)]
    text = section(
        (write(factorial(tmp_path, missing=gone), tmp_path / "a") / "README.md").read_text(),
        FACTORS,
    )
    assert "No effect of a factor can be estimated: no seed is complete in every arm." in text
    assert not cells(text)
    text = section(
        (write(factorial(tmp_path, seeds=1), tmp_path / "b") / "README.md").read_text(), FACTORS
    )
    assert "One seed: no interval and no test can be given" in text
    assert [row[3:] for row in cells(text)] == [["–", "–", "–"]] * 3


def test_where_lower_is_better_positive_is_better(tmp_path):
    up, down = factorial(tmp_path), factorial(tmp_path, higher=False)
    (one, *_), (two, *_) = factor_effects(up), factor_effects(down)
    assert [row[2].key for row in two.rows] == pytest.approx([-row[2].key for row in one.rows])
    assert "positive = the level named first is better" in two.caption


def test_other_designs_have_no_such_section(three, tmp_path):
    readme = (write(three, tmp_path / "reports") / "README.md").read_text()
    assert f"## {FACTORS}" not in readme


def test_bootstrap_shows_the_intervals_of_the_study_and_writes_them_down(tmp_path):
    result = MADE.glue_study(
        tmp_path, "glue/sst2/accuracy", arms=("base", "one", "two"), tasks=["sst2"]
    )
    shutil.rmtree(tmp_path / "single" / "two-s0" / "predictions")
    folder = write(result, tmp_path / "reports", tmp_path)
    wanted, digits = intervals(result, tmp_path), wording.digits_of(result)
    here = wanted["one"]
    assert isinstance(here, Interval)
    text = section((folder / "README.md").read_text(), HEADING)
    assert cells(text) == [
        [
            "one", "3", "60", digits.signed(here.difference), digits.interval(here.low, here.high),
            digits.interval(result.decisions["one"].low, result.decisions["one"].high),
        ]
    ]  # fmt: skip
    assert "two: a run has no readable predictions/sst2.parquet" in text
    kept = json.loads((folder / "verdicts.json").read_text())
    assert (kept["one"]["bootstrap_low"], kept["one"]["bootstrap_high"]) == (here.low, here.high)
    assert (kept["two"]["bootstrap_low"], kept["two"]["bootstrap_high"]) == (None, None)
    again = write(result, tmp_path / "again", tmp_path)
    for name in ("README.md", "report.html", "verdicts.json"):
        assert (again / name).read_bytes() == (folder / name).read_bytes()


def test_without_predictions_or_folder_the_reason_is_given(three, make, tmp_path):
    readme = (write(three, tmp_path / "one", make.runs_dir) / "README.md").read_text()
    assert "None: no per-example predictions are kept for" in section(readme, HEADING)
    readme = (write(three, tmp_path / "two") / "README.md").read_text()
    assert "None: the folder of the runs was not given." in section(readme, HEADING)


@pytest.mark.slow
def test_two_hundred_arms_render_within_a_minute(tmp_path):
    arms = ["base", *(f"arm_{i}" for i in range(200))]
    records = {
        arm: {
            s: MADE.glue_run(
                tmp_path / "single" / f"{arm}-s{s}", arm, s, tasks=["sst2"], fits=1, n=1000
            )
            for s in range(5)
        }
        for arm in arms
    }
    result = MADE.study_of(tmp_path, records, "glue/sst2/accuracy")
    begin = time.perf_counter()
    write(result, tmp_path / "reports", tmp_path)
    took = time.perf_counter() - begin
    print(f"report of 200 arms x 5 seeds x 1000 examples: {took:.1f} s")
    assert took < 60
