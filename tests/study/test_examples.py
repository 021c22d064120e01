"""Intervals over seeds and examples: by hand, how often they cover, and what is refused."""

import dataclasses
import runpy
import shutil
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from ablate import rng
from ablate.evaluation import predictions
from ablate.evaluation.measurement import Part
from ablate.study import stats
from ablate.study.examples import Interval, intervals

MADE = SimpleNamespace(**runpy.run_path(str(Path(__file__).with_name("predicted_runs.py"))))


def test_the_interval_of_accuracy_is_that_of_resampled_runs_and_examples_by_hand(tmp_path):
    result = MADE.glue_study(tmp_path, "glue/sst2/accuracy", tasks=["sst2"], n=50)
    here = intervals(result, tmp_path, num_resamples=200)["other"]
    right = {
        arm: np.array(
            [
                np.mean(
                    [
                        np.array(t["prediction"]) == np.array(t["label"])
                        for t in (MADE.fit_of("sst2", arm, seed, f, 50) for f in range(2))
                    ],
                    axis=0,
                )
                for seed in range(3)
            ]
        )
        for arm in ("base", "other")
    }
    difference = right["other"] - right["base"]
    draw = rng.generator(0, "bootstrap", "made", "other")
    same = stats.bootstrap_interval(difference, rng=draw, num_resamples=200)
    assert (here.low, here.high) == pytest.approx(same, abs=1e-12)
    assert (here.n, here.examples) == (3, 50)
    assert here.difference == pytest.approx(result.decisions["other"].difference, abs=1e-12)
    draw = rng.generator(0, "bootstrap", "made", "other")
    seeds = draw.multinomial(3, [1 / 3] * 3, size=200)
    chosen = draw.integers(50, size=(200, 50))
    own = difference.mean(axis=1)
    wide = difference + (1.5**0.5 - 1) * (own - own.mean())[:, None]
    means = [
        np.mean([wide[seed][which] for seed in np.repeat(range(3), often)])
        for often, which in zip(seeds, chosen, strict=True)
    ]
    assert (here.low, here.high) == pytest.approx(tuple(np.quantile(means, [0.025, 0.975])))


def test_lower_is_better_turns_the_interval(tmp_path):
    up = MADE.glue_study(tmp_path, "glue/sst2/accuracy", tasks=["sst2"])
    down = MADE.study_of(
        tmp_path,
        {a: dict(r.records) for a, r in up.arms.items()},
        "glue/sst2/accuracy",
        higher=False,
    )
    one, two = (intervals(result, tmp_path)["other"] for result in (up, down))
    assert two.difference == -one.difference
    assert (two.low, two.high) == pytest.approx((-one.high, -one.low), abs=1e-3)


def test_an_average_has_an_interval_around_its_difference(tmp_path):
    result = MADE.glue_study(tmp_path, "glue/mean8", n=30)
    here = intervals(result, tmp_path)["other"]
    assert here.examples == 9 * 30
    assert here.difference == pytest.approx(result.decisions["other"].difference, abs=1e-9)
    assert here.low < here.difference < here.high
    assert intervals(result, tmp_path)["other"] == here


def test_rows_in_another_order_change_nothing(tmp_path):
    result = MADE.glue_study(tmp_path, "glue/cola/mcc", tasks=["cola"])
    before = intervals(result, tmp_path)
    file = tmp_path / "single" / "other-s1" / "predictions" / "cola.parquet"
    part = predictions.read(file)
    order = MADE.generator("order").permutation(len(part.table["label"]))
    shuffled = {name: [column[i] for i in order] for name, column in part.table.items()}
    predictions.write(file, Part(shuffled, part.facts), key={})
    after = intervals(result, tmp_path)["other"]
    assert dataclasses.astuple(after) == pytest.approx(dataclasses.astuple(before["other"]))


@pytest.mark.parametrize(
    ("column", "change", "reason"),
    [
        ("example_id", lambda ids: [i + 1000 for i in ids], "other examples of glue/sst2/accuracy"),
        ("example_id", lambda ids: [0 for _ in ids], "several stored predictions have one"),
        ("prediction", lambda p: [1 - p[0], *p[1:]], "one of them was changed"),
    ],
)
def test_predictions_that_do_not_fit_are_refused_with_a_reason(tmp_path, column, change, reason):
    result = MADE.glue_study(tmp_path, "glue/sst2/accuracy", tasks=["sst2"], fits=1)
    file = tmp_path / "single" / "other-s1" / "predictions" / "sst2.parquet"
    part = predictions.read(file)
    part.table[column] = change(part.table[column])
    predictions.write(file, part, key={})
    assert reason in intervals(result, tmp_path)["other"]


def test_other_labels_are_refused_even_where_the_score_is_the_same(tmp_path):
    result = MADE.glue_study(tmp_path, "glue/sst2/accuracy", tasks=["sst2"], fits=1)
    file = tmp_path / "single" / "other-s1" / "predictions" / "sst2.parquet"
    part = predictions.read(file)
    for column in ("label", "prediction"):
        part.table[column] = [1 - value for value in part.table[column]]
    predictions.write(file, part, key={})
    assert "other labels of glue/sst2/accuracy" in intervals(result, tmp_path)["other"]


def test_what_is_not_kept_is_said(tmp_path):
    result = MADE.glue_study(
        tmp_path, "glue/sst2/accuracy", arms=("base", "one", "two"), tasks=["sst2"]
    )
    shutil.rmtree(tmp_path / "single" / "one-s0" / "predictions")
    (tmp_path / "single" / "two-s0" / "predictions" / "sst2.parquet").write_bytes(b"cut")
    found = intervals(result, tmp_path)
    assert set(found.values()) == {"a run has no readable predictions/sst2.parquet"}
    for of_arm in result.arms.values():
        for record in of_arm.records.values():
            record["scores"]["val/token_mask/loss"] = 2.0
    loss = MADE.study_of(
        tmp_path, {a: dict(r.records) for a, r in result.arms.items()}, "val/token_mask/loss"
    )
    assert set(intervals(loss, tmp_path).values()) == {
        "no per-example predictions are kept for val/token_mask/loss"
    }


def test_an_arm_without_a_common_seed_has_none(tmp_path):
    result = MADE.glue_study(tmp_path, "glue/sst2/accuracy", tasks=["sst2"], seeds=1)
    records = {arm: dict(of_arm.records) for arm, of_arm in result.arms.items()}
    records["other"] = {}
    none = MADE.study_of(tmp_path, records, "glue/sst2/accuracy")
    assert intervals(none, tmp_path)["other"] == "no seed in common with the baseline"
    alone = intervals(result, tmp_path)["other"]
    assert isinstance(alone, Interval)
    assert alone.low < alone.high


def test_large_samples_are_resampled_in_blocks_with_the_same_spread(monkeypatch):
    draw = np.random.default_rng(0).normal(size=(4, 300))
    widths = []
    for cells in (1_000_000, 1000):
        monkeypatch.setattr(stats, "_CELLS", cells)
        low, high = stats.bootstrap_interval(draw, rng=MADE.generator("blocks"), num_resamples=4000)
        widths.append(high - low)
    assert widths[0] == pytest.approx(widths[1], rel=0.1)


@pytest.mark.parametrize(("by_seed", "at_least"), [(0.3, 0.7), (0.0, 0.9)])
@pytest.mark.parametrize("seeds", [3, 5, 10])
def test_how_often_it_covers_is_told(seeds, by_seed, at_least, capsys):
    """The truth is 0; a difference varies by `by_seed` over seeds and by .5 over 500 examples."""
    draw = np.random.default_rng(seeds)
    covered = []
    for _ in range(300):
        values = by_seed * draw.normal(size=(seeds, 1)) + 0.3 * draw.normal(size=(1, 500))
        values = values + 0.4 * draw.normal(size=(seeds, 500))
        low, high = stats.bootstrap_interval(values, rng=draw, num_resamples=300)
        covered.append(low <= 0 <= high)
    with capsys.disabled():
        print(f"\n{seeds} seeds that differ by {by_seed}: covers {np.mean(covered):.3f}")
    assert np.mean(covered) > at_least


@pytest.mark.slow
def test_two_hundred_arms_of_a_thousand_examples_take_less_than_half_a_minute(tmp_path):
    arms = ["base", *(f"arm_{i}" for i in range(200))]
    records = {arm: {} for arm in arms}
    for arm in arms:
        for seed in range(5):
            folder = Path(tmp_path) / "single" / f"{arm}-s{seed}"
            records[arm][seed] = MADE.glue_run(folder, arm, seed, tasks=["sst2"], fits=1, n=1000)
    result = MADE.study_of(tmp_path, records, "glue/sst2/accuracy")
    begin = time.perf_counter()
    found = intervals(result, tmp_path)
    took = time.perf_counter() - begin
    assert all(isinstance(here, Interval) for here in found.values())
    print(f"200 arms x 5 seeds x 1000 examples: {took:.1f} s")
    assert took < 30
