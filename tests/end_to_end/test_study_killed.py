"""A study that is killed or stopped: the same command ends in the same bits, no run is trained
twice, and nothing of it works on alone."""

import json
import os
import random
import signal
import sys
import time

import pytest

JOBLIB = ("compute=joblib", "compute.jobs=2")
linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
EVALUATED = [
    "evaluation=synthetic", "evaluation.tasks=[acceptability]", "evaluation.num_train_examples=64",
    "evaluation.num_validation_examples=32", "evaluation.pairs_per_paradigm=2",
    "evaluation.finetune.min_steps=20", "evaluation.finetune.num_epochs=1", "evaluation.jobs=1",
]  # fmt: skip


def kill_and_go_on(found, moments, *words, kill):
    """Start, `kill(process, moment)` and start again; runs that are complete stay untouched, and
    one that has a checkpoint goes on from there."""
    complete, kept = {}, {}
    for moment in moments:
        process = found.start(*words)
        kill(process, moment)
        process.wait()
        assert process.returncode in (-signal.SIGKILL, 0), found.said
        for file, mark in complete.items():
            assert found.complete()[file] == mark, f"{file} was written again"
        complete, kept = found.complete(), {**kept, **found.kept_step()}
    assert found.finish(*words) == 0, found.said
    for file, mark in complete.items():
        assert found.complete()[file] == mark, f"{file} was written again"
    records = found.records()
    for name, step in kept.items():
        assert records[name]["timings"]["resumed_from_step"] >= step, name
    return kept


def test_killed_at_five_moments_it_ends_in_the_same_bits(shell, undisturbed):
    """The moments are drawn in steps of training, over all runs, plus some milliseconds."""
    found = shell()
    draw = random.Random(20261130)
    moments = sorted(draw.randrange(1, found.runs * found.steps) for _ in range(5))

    def kill(process, moment):
        found.wait_for(moment, process)
        time.sleep(draw.random() / 20)
        process.kill()

    kept = kill_and_go_on(found, moments, kill=kill)
    assert kept  # of five, one at least fell into training
    found.assert_same_as(undisturbed)
    found.assert_trained_once()


@linux
@pytest.mark.slow
def test_workers_whose_parent_is_killed_end_and_the_next_command_takes_over(shell, undisturbed):
    found = shell()
    process = found.start(*JOBLIB)
    found.wait_for(found.steps // 2, process)
    workers = found.workers(process)
    assert len(workers) == 2
    process.kill()
    process.wait()
    begun, kept = time.monotonic(), found.kept_step()
    again = found.start(*JOBLIB)  # while they are still there
    while any(map(found.alive, workers)):
        assert time.monotonic() < begun + 60, "a worker works on alone"
        time.sleep(0.05)
    assert again.wait(timeout=900) == 0, found.said
    for name, step in kept.items():
        assert found.records()[name]["timings"]["resumed_from_step"] >= step
    found.assert_same_as(undisturbed, but=("overrides", "config.yaml"))  # which name the jobs
    found.assert_trained_once()


@linux
@pytest.mark.slow
@pytest.mark.parametrize(("signum", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_stopped_workers_keep_a_checkpoint_and_say_so(shell, signum, code):
    found = shell()
    process = found.start(*JOBLIB)
    found.wait_for(found.steps // 2, process)
    workers = found.workers(process)
    process.send_signal(signum)
    assert process.wait(timeout=300) == code, found.said
    assert not any(map(found.alive, workers))
    records = found.records("single").values()
    assert {record["status"] for record in records} <= {"interrupted", "complete"}
    reached = {
        record["pretraining"]: int(record["failure"].rpartition(" ")[2])
        for record in records
        if "after step" in record.get("failure", "")
    }
    assert reached  # both, unless one had not begun or was at its end
    for name, step in reached.items():
        assert found.records()[name]["status"] == "interrupted"
        rows = (found.folder / "runs/pretrained" / name / "metrics.jsonl").read_text()
        assert json.loads(rows.splitlines()[-1])["step"] == step  # and no step after it
        assert found.kept_step()[name] == step
    noted = json.loads((found.folder / "runs/studies/tiny/states.json").read_text())
    assert "interrupted" in {state["status"] for arm in noted.values() for state in arm.values()}


def test_two_shells_drive_one_study_and_share_its_runs(shell, undisturbed):
    found = shell()
    both = [found.start(), found.start()]
    assert [process.wait(timeout=900) for process in both] == [0, 0], found.said
    found.assert_same_as(undisturbed)
    found.assert_trained_once()
    looks = json.loads((found.folder / "runs/studies/tiny/looks.json").read_text())
    assert len(looks) == 1
    assert "another process works in" in found.said


@pytest.mark.slow
@pytest.mark.parametrize("words", [(), JOBLIB], ids=["serial", "joblib"])
def test_killed_at_any_time_of_its_duration_with_an_evaluation(shell, words):
    """Moments in seconds: also before the first run, between runs, in evaluation and report."""
    reference, found = (shell(common=shell.common(*EVALUATED)) for _ in range(2))
    begun = time.monotonic()
    assert reference.finish(*words) == 0, reference.said
    duration = time.monotonic() - begun
    draw = random.Random(1)

    def kill(process, moment):
        time.sleep(moment)
        process.kill()

    moments = [duration * draw.random() for _ in range(5)]
    kill_and_go_on(found, moments, *words, kill=kill)
    found.assert_same_as(reference)
    found.assert_trained_once()


def test_a_stopped_serial_study_has_the_code_of_its_signal(shell):
    found = shell()
    process = found.start()
    found.wait_for(3, process)
    os.kill(process.pid, signal.SIGTERM)
    assert process.wait(timeout=300) == 143, found.said
    assert {record["status"] for record in found.records("single").values()} == {"interrupted"}
