"""Tuning: equal effort for every arm, the best mean kept, and its runs in no table."""

import copy
import dataclasses
import json
from functools import cache

import pytest
import yaml

from ablate.config.compose import compose_settings
from ablate.report import tuning as shown
from ablate.report.content import Bullets, Paragraph, Table
from ablate.study import guard, runner, tuning
from ablate.study.collect import collect
from ablate.study.design import from_dict
from ablate.study.guard import compose_arms
from ablate.study.options import parse
from ablate.study.plan import Cost, plan_lines, status_lines
from ablate.study.states import State, settings_hash

RATE = "optimizer.learning_rate"
STUDY = {
    "question": "Does a rate of 30% matter?",
    "baseline": "bert",
    "arms": {"bert": [], "rate_30": ["masking.mask_rate=0.3"]},
    "moves": ["masking.mask_rate"],
    "seeds": 3,
    "primary": "val/token_mask/loss",
    "higher_is_better": False,
    "margin": 0.01,
    "common": ["evaluation=none", "tracking=none"],
    "tune": {"grid": {RATE: [0.001, 0.002, 0.004]}, "seeds": [1000, 1001]},
}
# of each arm, the learning rate that has the lowest loss
BEST = {"bert": 0.002, "rate_30": 0.004}


@cache
def composed_once(overrides):
    return compose_settings(overrides)


def composed_of(overrides):
    """As `compose_settings`; what a made-up run adds is set here, so that most are known."""
    plain = tuple(o for o in overrides if not o.startswith(("seed=", "arm=")))
    settings = copy.deepcopy(composed_once(plain))
    settings.seed = next((int(o[5:]) for o in overrides if o.startswith("seed=")), 0)
    return settings


@pytest.fixture
def driven(tmp_path, monkeypatch):
    """Drives a study whose runs are made up: `losses(arm, settings)` is what one scores."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(guard, "compose_settings", composed_of)
    ran = []

    def loss(arm, settings):
        return 2.0 + 100 * abs((settings.optimizer.learning_rate or 0.0) - BEST[arm])

    def drive(*words, losses=loss, **changes):
        (tmp_path / "mine.yaml").write_text(yaml.safe_dump({**STUDY, **changes}, sort_keys=False))

        def run_job(job):
            settings = composed_of(job.overrides)
            ran.append((job.arm, job.seed, settings.optimizer.learning_rate))
            arm = job.arm.partition("-")[0]
            try:
                score = losses(arm, settings)
            except FloatingPointError as error:
                return State(
                    "failed", None, settings_hash(settings), f"FloatingPointError: {error}"
                )
            name = f"{job.arm}-s{job.seed}-{settings_hash(settings)}"
            scores = {} if score is None else {"val/token_mask/loss": score, "other": -score}
            record = {"status": "complete", "scores": scores}
            file = tmp_path / "runs" / "single" / name / "record.json"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(record))
            return State("complete", name, settings_hash(settings))

        monkeypatch.setattr(runner, "run_job", run_job)
        ran.clear()
        said = []
        options = parse(["study=mine.yaml", *words])
        found = runner.drive(options, today="2026-01-01", say=said.append)
        return found, said, list(ran)

    return drive


def kept(found):
    return {arm: tuned.overrides for arm, tuned in tuning.kept(found.folder).items()}


def test_every_arm_keeps_its_own_best_point_after_equal_effort(driven):
    found, said, ran = driven()
    assert kept(found) == {"bert": (f"{RATE}=0.002",), "rate_30": (f"{RATE}=0.004",)}
    tuned = [run for run in ran if run[1] >= 1000]
    assert sorted(tuned) == sorted(
        (f"{arm}-tune{n}", seed, rate)
        for arm in BEST
        for n, rate in enumerate((0.001, 0.002, 0.004), 1)
        for seed in (1000, 1001)
    )
    assert ran[: len(tuned)] == tuned  # before all others
    assert {run[::2] for run in ran[len(tuned) :]} == set(BEST.items())
    assert said[0] == "tuning: 12 runs of seeds that no table shows, 0 of them complete"
    assert found.failed == 0
    assert found.study.overrides("rate_30")[-2:] == ["masking.mask_rate=0.3", f"{RATE}=0.004"]
    assert set(found.result().arms["rate_30"].moved) == {"masking.mask_rate", RATE}


def test_the_choice_is_reused_by_later_commands(driven):
    first, _, _ = driven()
    again, said, ran = driven()
    assert ran == []
    assert said == ["study mine: 6 runs, 6 of them complete"]
    assert again.result() == first.result()
    _, _, ran = driven(losses=lambda arm, settings: 1.0, seeds=4)  # another landscape
    assert sorted(ran) == [("bert", 3, 0.002), ("rate_30", 3, 0.004)]


def test_a_report_made_later_reads_the_choice(driven):
    found, _, _ = driven()
    study = dataclasses.replace(from_dict(STUDY, name="mine"), file=found.study.file)
    result = collect(study, compose_arms(study), found.folder)
    assert result == found.result()
    assert f"{RATE}=0.004" in result.arms["rate_30"].overrides


def test_tuning_runs_are_in_no_result(driven):
    result = driven()[0].result()
    for arm in result.arms.values():
        assert set(arm.states) == set(arm.records) == {0, 1, 2}
        assert all(set(by_seed) == {0, 1, 2} for by_seed in arm.scores.values())


def test_ties_go_to_the_first_point(driven):
    found, _, _ = driven(losses=lambda arm, settings: 1.0)
    assert set(kept(found).values()) == {(f"{RATE}=0.001",)}


def test_the_direction_is_that_of_the_tuning_metric(driven):
    rule = {**STUDY["tune"], "metric": "other", "higher_is_better": False}
    found, _, _ = driven(tune=rule)  # other = -loss: the lowest is the worst loss
    assert kept(found) == {"bert": (f"{RATE}=0.004",), "rate_30": (f"{RATE}=0.001",)}


def test_a_point_that_fails_on_one_seed_cannot_win(driven):
    def losses(arm, settings):
        if (arm, settings.seed, settings.optimizer.learning_rate) == ("bert", 1001, 0.002):
            raise FloatingPointError("loss is nan")
        return 2.0 + 100 * abs(settings.optimizer.learning_rate - BEST[arm])

    found, _, ran = driven(losses=losses)
    assert kept(found)["bert"] == (f"{RATE}=0.001",)
    assert ran.count(("bert-tune2", 1001, 0.002)) == 2  # tried once more
    point = tuning.kept(found.folder)["bert"].points[1]
    assert point.mean is None
    assert point.errors == {1001: "FloatingPointError: loss is nan"}
    assert found.failed == 0


def test_an_arm_whose_points_all_fail_stops_no_other(driven):
    def losses(arm, settings):
        if arm == "rate_30":
            raise FloatingPointError("loss is nan")
        return 2.0

    found, said, ran = driven(losses=losses)
    assert found.failed == 3
    why = (
        "tuning failed: no point ended on all seeds; optimizer.learning_rate=0.001 seed 1000: "
        "FloatingPointError: loss is nan"
    )
    failures = {(arm, seed): state.error for arm, seed, state in found.result().failures}
    assert failures == {("rate_30", seed): why for seed in range(3)}
    assert [run for run in ran if run[0] == "bert"] == [("bert", s, 0.001) for s in range(3)]
    assert "study mine: 6 runs, 0 of them complete" in said
    again, _, ran = driven()  # a failed one is retried, a chosen one is not
    assert {run[0] for run in ran} == {"rate_30", *(f"rate_30-tune{n}" for n in (1, 2, 3))}
    assert again.failed == 0
    assert again.result().failures == []


def test_a_score_that_no_record_has_says_which_there_are(driven):
    rule = {**STUDY["tune"], "metric": "glue/mean", "higher_is_better": True}
    found, _, _ = driven(tune=rule)
    assert found.failed == 6
    assert (
        "no score glue/mean, but other, val/token_mask/loss" in found.result().failures[0][2].error
    )


def test_the_lock_holds_the_rule_and_not_the_chosen_values(driven):
    found, _, _ = driven()
    lock = found.folder.lock
    assert lock["rule"]["tune"]["grid"] == {RATE: ["0.001", "0.002", "0.004"]}
    assert lock["rule"]["tune"]["seeds"] == [1000, 1001]
    assert all(RATE not in arm for arm in lock["arms"].values())
    untuned = from_dict(STUDY, name="mine")
    assert found.folder.changes(found.study, found.composed) == []
    assert found.folder.changes(untuned, compose_arms(untuned)) == []


def test_another_rule_is_tuned_again_and_called_exploratory(driven):
    driven()
    rule = {**STUDY["tune"], "grid": {RATE: [0.002, 0.003]}}
    found, _, ran = driven(tune=rule)
    assert kept(found) == {"bert": (f"{RATE}=0.002",), "rate_30": (f"{RATE}=0.003",)}
    assert {rate for name, _, rate in ran if "tune" in name} == {0.002, 0.003}
    changes = found.result().changes
    assert len(changes) == 1
    assert changes[0].startswith("rule.tune: ")


def test_threads_and_folders_do_not_tune_again(driven):
    driven()
    _, _, ran = driven("trainer.threads=1", "trainer.progress_bar=false")
    assert not [run for run in ran if "tune" in run[0]]
    _, _, ran = driven("budget.amount=1000")
    assert len([run for run in ran if "tune" in run[0]]) == 12


def test_more_seeds_skip_those_of_tuning(driven):
    rule = {**STUDY["tune"], "seeds": [3, 5]}
    driven(tune=rule, losses=lambda arm, settings: 1.0 + settings.seed % 2)
    found, _, ran = driven("study.more_seeds=3", tune=rule, losses=lambda arm, s: 1.0 + s.seed % 2)
    assert {seed for _, seed, _ in ran} == {4, 6, 7}
    assert found.seeds["bert"] == [0, 1, 2, 4, 6, 7]


def test_a_seed_that_was_reported_is_refused_for_tuning(driven):
    driven(tune=None)
    with pytest.raises(ValueError, match=r"tune\.seeds \[2\] are seeds of the study's own runs"):
        driven(seeds=2, tune={**STUDY["tune"], "seeds": [2, 1001]})


def test_several_settings_make_a_full_grid():
    grid = {RATE: [0.001, 0.002], "trainer.global_batch_size": [8, 16]}
    study = from_dict({**STUDY, "tune": {**STUDY["tune"], "grid": grid}}, name="x")
    assert study.tune.points == [
        (f"{RATE}=0.001", "trainer.global_batch_size=8"),
        (f"{RATE}=0.001", "trainer.global_batch_size=16"),
        (f"{RATE}=0.002", "trainer.global_batch_size=8"),
        (f"{RATE}=0.002", "trainer.global_batch_size=16"),
    ]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"seeds": [2, 1000]}, r"tune.seeds: \[2\] are seeds of the study too"),
        ({"seeds": 2}, "must be a list"),
        ({"metric": "other"}, "say true or false, as tune.metric other is not the primary"),
        ({"grid": {}}, "must name settings"),
        ({"grid": {RATE: [0.1]}}, "two or more different values"),
        ({"grid": {RATE: [0.1, 0.1]}}, "two or more different values"),
        ({"grid": {RATE: [0.1, [0.2]]}}, "must be a list of numbers, words, true or false"),
        ({"grid": {RATE: [0.1, float("inf")]}}, "must be a list of numbers"),
        ({"grid": {"masking.mask_rate": [0.2, 0.4]}}, "the arm rate_30 itself sets masking.mask_r"),
        ({"what": 1}, "must have grid and seeds"),
    ],
)
def test_a_rule_that_cannot_be_is_refused_in_the_file(changes, says):
    with pytest.raises(ValueError, match=says):
        from_dict({**STUDY, "tune": {**STUDY["tune"], **changes}}, name="x")


@pytest.mark.parametrize(
    ("words", "grid", "says"),
    [
        ([], {"optimizer.rate": [1, 2]}, "optimizer.rate is no setting that can be tuned"),
        ([], {"size": ["toy", "tiny"]}, "size is no setting that can be tuned"),
        ([], {"seed": [7, 8]}, "seed is no setting that can be tuned"),
        ([f"{RATE}=0.1"], {RATE: [0.1, 0.2]}, f"{RATE}=0.1 has no effect, as every arm's is tuned"),
        ([], {RATE: [0.1, "much"]}, f"arm bert-tune2: {RATE}"),
        ([], {"trainer.global_batch_size": [8, 16]}, "also moves trainer.micro_batch_size"),
        ([], {"masking.mask_replace_prob": [0.8, 0.9]}, r"tune.grid moves masking.mask_replace_pr"),
    ],
)
def test_a_grid_that_cannot_run_is_refused_before_anything_runs(
    driven, tmp_path, words, grid, says
):
    with pytest.raises(ValueError, match=says):
        driven(*words, tune={**STUDY["tune"], "grid": grid})
    assert not (tmp_path / "runs").exists()


def test_plan_and_status_count_tuning_runs(driven):
    study = from_dict(STUDY, name="mine")
    composed = compose_arms(study)
    costs = {arm: Cost(1000, 2.0, 100) for arm in study.arms}
    lines = plan_lines(study, composed, costs, None, 3)
    assert lines[1].startswith("2 arms x 3 seeds = 6 runs")
    assert lines[2].startswith("tuning first: 2 arms x 3 points x 2 seeds = 12 runs more")
    found, _, _ = driven()
    lines, counts = status_lines(found.study, found.folder, found.seeds)
    assert counts["complete"] == 6
    assert lines[-3:] == [
        "  tuning: 12 of 12 runs complete",
        f"    bert: {RATE}=0.002",
        f"    rate_30: {RATE}=0.004",
    ]


def test_the_report_shows_choices_scores_and_edges(driven):
    result = driven()[0].result()
    how, choices, table = shown.blocks(result)
    assert isinstance(how, Paragraph)
    assert "Tuning seeds: 1000 and 1001. They are in no other table" in how.text
    assert isinstance(choices, Bullets)
    assert list(choices.items) == [
        f"bert: {RATE}=0.002",
        f"rate_30: {RATE}=0.004; {RATE}=0.004 is best at the edge of the grid: a wider grid may "
        "change this",
    ]
    assert isinstance(table, Table)
    assert len(table.rows) == 6
    assert [row[0].text for row in table.rows if row[-1].text == "kept"] == ["bert", "rate_30"]
    assert table.rows[1][2].key == pytest.approx(2.0)


def test_the_report_says_what_failed_and_nothing_without_tuning(driven):
    def losses(arm, settings):
        if arm == "rate_30":
            raise FloatingPointError("loss is nan")
        return 2.0

    _, choices, table = shown.blocks(driven(losses=losses)[0].result())
    assert "rate_30: tuning failed: no point ended" in choices.items[1]
    assert "1000: failed (FloatingPointError: loss is nan)" in table.rows[-1][3].text
    assert shown.blocks(driven(tune=None)[0].result()) == []


def test_words_have_no_edge():
    rule = {"grid": {"schedule.name": ["linear", "cosine"], RATE: ["1e-3", "2e-3", "3e-3"]}}
    point = tuning.Point(("schedule.name=linear", f"{RATE}=2e-3"), {1: 0.0}, {})
    assert tuning.Tuned(rule, (), (point,), 0).edges == []
    point = tuning.Point(("schedule.name=linear", f"{RATE}=3e-3"), {1: 0.0}, {})
    assert tuning.Tuned(rule, (), (point,), 0).edges == [f"{RATE}=3e-3"]
