"""Lock and states: what counts as an edit after the lock, and what does not."""

import json

import pytest

from ablate.study.design import from_dict
from ablate.study.guard import compose_arms
from ablate.study.states import State, StudyFolder

STUDY = {
    "question": "Does a rate of 30% matter?",
    "baseline": "bert",
    "arms": {"bert": [], "rate_30": ["masking.mask_rate=0.3"]},
    "moves": ["masking.mask_rate"],
    "seeds": 3,
    "primary": "synthetic/minimal_pairs/accuracy",
    "margin": 0.01,
}


@pytest.fixture
def locked(tmp_path):
    """(study, composed, folder) with a lock that `edit` may change as another version would."""
    study = from_dict(STUDY, name="mine")
    composed = compose_arms(study)
    folder = StudyFolder(tmp_path, study)
    folder.take_lock(study, composed, "2026-01-01")

    def changes(edit=None):
        file = folder.path / "lock.json"
        content = json.loads(file.read_text())
        if edit is not None:
            edit(content)
            file.write_text(json.dumps(content))
        return folder.changes(study, composed)

    changes.folder = folder
    return changes


def test_nothing_changed_is_no_change(locked):
    assert locked() == []


def test_a_setting_that_a_later_version_adds_at_its_default_is_no_change(locked):
    def older(lock):
        for arm in lock["arms"].values():
            del arm["schedule.warmup_fraction"]

    assert locked(older) == []


@pytest.mark.parametrize("part", ["tune", "gates"])
def test_a_part_of_the_rule_that_a_later_version_adds_is_no_change(locked, part):
    def older(lock):
        del lock["rule"][part]

    assert locked(older) == []


def test_a_setting_that_a_later_version_adds_otherwise_than_its_default_is_one(locked):
    def older(lock):
        for arm in lock["arms"].values():
            del arm["masking.mask_rate"]

    assert locked(older) == ["arms.rate_30.masking.mask_rate: null when locked, 0.3 now"]


def test_a_changed_setting_is_a_change(locked):
    def other(lock):
        lock["arms"]["bert"]["schedule.warmup_fraction"] = 0.5

    assert locked(other) == ["arms.bert.schedule.warmup_fraction: 0.5 when locked, 0.1 now"]


def test_a_removed_setting_is_a_change(locked):
    def more(lock):
        lock["arms"]["bert"]["masking.gone"] = "all"

    assert locked(more) == ['arms.bert.masking.gone: "all" when locked, null now']


def test_how_many_threads_a_run_may_use_is_no_change(locked):
    def by_joblib(lock):
        for arm in lock["arms"].values():
            arm["trainer.threads"] = 1

    assert locked(by_joblib) == []


def test_an_arm_that_came_or_went_is_a_change(locked):
    def other(lock):
        lock["arms"]["old"] = lock["arms"].pop("rate_30")

    assert locked(other) == ["arms.old is gone", "arms.rate_30 is new"]


def test_a_changed_rule_is_a_change(locked):
    def other(lock):
        lock["rule"]["margin"] = 0.5
        del lock["rule"]["tune"]  # of a version that knew none

    assert locked(other) == ["rule.margin: 0.5 when locked, 0.01 now"]


def test_the_lock_is_taken_once(locked):
    study = from_dict({**STUDY, "margin": 0.5}, name="mine")
    locked.folder.take_lock(study, compose_arms(study), "2026-02-02")
    assert locked.folder.lock["locked"] == "2026-01-01"
    assert locked.folder.lock["rule"]["margin"] == 0.01


def run(folder, arm, seed, data, *, note=True):
    """A complete run of this data, noted as the runner does."""
    name = f"{arm}-s{seed}"
    file = folder.runs_dir / "single" / name / "record.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"status": "complete", "scores": {}, "data": data}))
    if note:
        folder.note(arm, seed, State("complete", name))


def test_the_same_data_at_every_seed_is_no_change(locked):
    for seed in range(3):
        run(locked.folder, "bert", seed, {"corpus_fingerprint": "aa", "tokenizer": "t"})
    run(locked.folder, "rate_30", 0, {"corpus_fingerprint": "bb", "tokenizer": "t"})
    assert locked() == []  # of another arm it is a factor, and the guard sees to it


def test_other_data_at_a_later_seed_is_a_change(locked):
    run(locked.folder, "bert", 0, {"corpus_fingerprint": "aa", "tokenizer": "t"})
    run(locked.folder, "bert", 1, {"corpus_fingerprint": "bb", "tokenizer": "u"})
    run(locked.folder, "bert", 2, {"corpus_fingerprint": "aa", "tokenizer": "t"})
    assert locked() == [
        "arms.bert.data.corpus_fingerprint: aa when first run, bb at seed 1",
        "arms.bert.data.tokenizer: t when first run, u at seed 1",
    ]


def test_the_first_data_is_remembered_when_every_run_was_made_again(locked):
    for data in ("aa", "bb"):
        for seed in range(2):
            run(locked.folder, "bert", seed, {"corpus_fingerprint": data})
    assert locked() == [
        f"arms.bert.data.corpus_fingerprint: aa when first run, bb at seed {s}" for s in (0, 1)
    ]


def test_a_study_that_was_run_before_data_was_noted_compares_its_seeds(locked):
    run(locked.folder, "bert", 0, {"corpus_fingerprint": "aa"})
    (locked.folder.path / "data.json").unlink()
    run(locked.folder, "bert", 1, {"corpus_fingerprint": "aa"}, note=False)
    states = json.loads((locked.folder.path / "states.json").read_text())
    states["bert"]["1"] = {"status": "complete", "run": "bert-s1"}
    (locked.folder.path / "states.json").write_text(json.dumps(states))
    assert locked() == []
    run(locked.folder, "bert", 1, {"corpus_fingerprint": "bb"}, note=False)
    assert locked() == ["arms.bert.data.corpus_fingerprint: aa when first run, bb at seed 1"]


def test_runs_that_did_not_end_and_records_without_hashes_are_no_change(locked):
    run(locked.folder, "bert", 0, {"corpus_fingerprint": "aa"})
    run(locked.folder, "bert", 1, {})
    locked.folder.note("bert", 2, State("failed", None, error="ValueError: x"))
    assert locked() == []


@pytest.mark.parametrize("content", [None, '{"st', "[1]", '{"status": "complete"}', "{}"])
def test_a_run_whose_record_is_lost_or_damaged_is_missing_and_said(locked, capsys, content):
    """Else a study would take a look without it, and spend of its error rate."""
    folder = locked.folder
    record = folder.runs_dir / "single" / "bert-s0" / "record.json"
    record.parent.mkdir(parents=True)
    record.write_text('{"status": "complete", "scores": {}}')
    folder.note("bert", 0, State("complete", "bert-s0"))
    assert folder.state("bert", 0).status == "complete"
    record.unlink() if content is None else record.write_text(content)
    assert folder.state("bert", 0) == folder.state("bert", 0) == State("missing")
    assert capsys.readouterr().err.count("counts as missing") == 1
