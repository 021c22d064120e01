"""A study is driven: what is missing runs, finished runs do not, a failure stops nothing else."""

import json

import pytest
import yaml

from ablate.study import runner
from ablate.study.computes import Compute
from ablate.study.options import Options, asks_for_study, parse
from ablate.study.plan import status_lines
from ablate.study.states import State

COMMON = [
    "budget.clock=steps", "budget.amount=2", "evaluation=none", "tracking=none",
    "corpus.num_documents=200", "corpus.validation_fraction=0.1", "trainer.threads=1",
    "trainer.progress_bar=false", "trainer.validation_rows=20", "trainer.num_validations=1",
]  # fmt: skip
STUDY = {
    "question": "Does a rate of 30% matter?",
    "baseline": "bert",
    "arms": {"bert": [], "rate_30": ["masking.mask_rate=0.3"]},
    "moves": ["masking.mask_rate"],
    "seeds": 2,
    "primary": "val/token_mask/accuracy",
    "margin": 0.01,
    "common": COMMON,
}


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def driven(tmp_path, monkeypatch, cache):
    """Drives the study of a mapping in a folder of its own; returns what `drive` does."""
    monkeypatch.setenv("ABLATE_CACHE", str(cache))
    monkeypatch.chdir(tmp_path)

    def drive(*words, **changes):
        (tmp_path / "mine.yaml").write_text(yaml.safe_dump({**STUDY, **changes}, sort_keys=False))
        said = []
        options = parse(["study=mine.yaml", *words])
        return runner.drive(options, today="2026-01-01", say=said.append), said

    return drive


def statuses(found):
    return {
        (arm, seed): found.folder.state(arm, seed).status
        for arm, seeds in found.seeds.items()
        for seed in seeds
    }


def test_a_study_runs_what_it_lacks_and_nothing_twice(driven, monkeypatch):
    found, said = driven()
    assert set(statuses(found).values()) == {"complete"}
    assert len(statuses(found)) == 4
    assert found.failed == 0
    assert said[0] == "study mine: 4 runs, 0 of them complete"
    order = [line.split(": ")[1].split(" complete")[0] for line in said[1:5]]
    assert order == ["bert seed 0", "rate_30 seed 0", "bert seed 1", "rate_30 seed 1"]
    result = found.result()
    assert result.decisions["rate_30"].n == 2
    assert result.arms["rate_30"].moved == {
        "masking.mask_rate": (0.15, 0.3),
    }  # fmt: skip
    assert len(found.folder.looks) == 1

    def refuse(job):
        raise AssertionError("run again")

    monkeypatch.setattr(runner, "run_job", refuse)
    again, said = driven()
    assert said == ["study mine: 4 runs, 4 of them complete"]
    assert len(again.folder.looks) == 1
    assert again.result() == result


def test_a_failed_arm_stops_no_other_and_is_tried_once_more(driven, monkeypatch):
    right, tried = runner.run_job, []

    def run_job(job):
        tried.append((job.arm, job.seed))
        if job.arm == "rate_30":
            return State("failed", None, "x", "OSError: no space left")
        return right(job)

    monkeypatch.setattr(runner, "run_job", run_job)
    found, _ = driven()
    assert found.failed == 2
    assert tried.count(("rate_30", 0)) == 2
    assert tried.count(("bert", 0)) == 1
    assert [s for a, s in tried if a == "bert"] == [0, 1]
    lines, counts = status_lines(found.study, found.folder, found.seeds)
    assert counts["failed"] == 2
    assert "seed 0 failed (OSError: no space left)" in "".join(lines)
    assert found.result().decisions["rate_30"].n == 0
    monkeypatch.setattr(runner, "run_job", right)
    assert set(statuses(driven()[0]).values()) == {"complete"}


def test_a_study_edited_after_its_lock_says_so(driven):
    found, _ = driven()
    assert found.folder.changes(found.study, found.composed) == []
    edited, _ = driven(margin=0.02)
    changes = edited.folder.changes(edited.study, edited.composed)
    assert changes == ["rule.margin: 0.01 when locked, 0.02 now"]
    assert edited.folder.lock["locked"] == "2026-01-01"


def test_more_seeds_go_to_the_undecided_arms_and_the_baseline(driven, monkeypatch):
    driven()
    asked = []

    def note(job):
        asked.append((job.arm, job.seed))
        return State("failed", None, "x", "not run")

    monkeypatch.setattr(runner, "run_job", note)
    found, _ = driven("study.more_seeds=2")
    assert set(asked) == {(arm, seed) for arm in ("bert", "rate_30") for seed in (2, 3)}
    assert found.seeds["bert"] == [0, 1, 2, 3]


def test_more_seeds_before_the_first_run_are_refused(driven):
    with pytest.raises(ValueError, match="without it first"):
        driven("study.more_seeds=2")


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (
            {"arms": {"bert": [], "two": ["masking.mask_rate=0.3", "optimizer.weight_decay=0.1"]}},
            r"arm two also moves optimizer.weight_decay from 0.01 to 0.1.*moves: \{two",
        ),
        (
            {"arms": {"bert": [], "same": ["masking=bert_80_10_10"]}},
            "arm same sets nothing otherwise than the baseline",
        ),
        (
            {
                "arms": {
                    "bert": [], "one": ["masking.mask_rate=0.3"],
                    "other": ["masking=bert_80_10_10", "masking.mask_rate=0.3"],
                }
            },
            "one and other are one and the same run",
        ),
        ({"arms": {"bert": [], "odd": ["masking=half"]}}, "arm odd: masking=half is not possible"),
    ],
)  # fmt: skip
def test_the_guard_refuses_before_anything_runs(driven, tmp_path, changes, says):
    with pytest.raises(ValueError, match=says):
        driven(**changes)
    assert not (tmp_path / "runs").exists()


def test_words_of_a_command_line():
    words = ["study=x", "scale=smoke", "compute=joblib", "compute.jobs=2", "size=tiny"]
    assert parse(words) == Options("x", "smoke", 0, Compute("joblib", jobs=2), ["size=tiny"])
    assert asks_for_study(words)
    assert not asks_for_study(["masking=all_mask"])
    for word, says in (
        ("seed=3", "study.more_seeds"), ("-m", "no place here"),
        ("compute=slurm", "serial, joblib"), ("study.more_seeds=x", "at least 0"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=says):
            parse(["study=x", word])


def test_the_states_survive_as_plain_json(driven, tmp_path):
    driven()
    states = json.loads((tmp_path / "runs/studies/mine/states.json").read_text())
    assert states["bert"]["0"]["run"].startswith("bert-s0-")
    assert (tmp_path / "runs/single" / states["bert"]["0"]["run"] / "record.json").is_file()


def test_a_metric_that_no_run_has_stops_after_the_first(driven, monkeypatch):
    ran, right = [], runner.run_job

    def run_job(job):
        ran.append(job)
        return right(job)

    monkeypatch.setattr(runner, "run_job", run_job)
    with pytest.raises(ValueError, match="primary: val/tokn/accuracy is no score of the runs") as e:
        driven(primary="val/tokn/accuracy")
    assert "val/token_mask/accuracy" in str(e.value)
    assert len(ran) == 1


def test_two_arms_that_come_to_one_run_are_found_when_it_has_run(driven):
    """How many workers load the data decides nothing, so it is in no fingerprint."""
    arms = {"bert": [], "workers": ["trainer.num_workers=1"]}
    found, said = driven(arms=arms, moves=["trainer.num_workers"])
    assert found.failed == 2
    assert found.result().decisions["workers"].n == 0
    assert any("it is the same run as arm bert" in line for line in said)
