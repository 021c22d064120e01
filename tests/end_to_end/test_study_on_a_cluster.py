"""A study whose runs are submitit jobs: on this machine, and through a stand-in of Slurm whose jobs
are warned of their time limit, lose their node and outlive the command. The same bits every time.
"""

import json
import os
import random
import signal
import sys
import time

import pytest

pytest.importorskip("submitit")
JOBS = ("compute.jobs=2", "compute.cpus=1")
NAMES = ("overrides", "config.yaml")  # which name the jobs
linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def test_jobs_on_this_machine_inside_an_allocation_of_several_tasks(shell, monkeypatch):
    """Lightning would take the number of devices from Slurm's variables, and refuse."""
    monkeypatch.setenv("SLURM_NTASKS", "4")
    monkeypatch.setenv("SLURM_JOB_NAME", "train")
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    found = shell(seeds=1, common=shell.common("budget.amount=3"))
    assert found.finish("compute=submitit_local", *JOBS) == 0, found.said
    assert [r["status"] for r in found.records("single").values()] == ["complete"] * 2


@pytest.mark.slow
def test_jobs_of_submitit_end_in_the_same_bits(shell, undisturbed):
    found = shell()
    assert found.finish("compute=submitit_local", *JOBS) == 0, found.said
    found.assert_same_as(undisturbed, but=NAMES)
    found.assert_trained_once()


@linux
@pytest.mark.slow
def test_slurm_jobs_that_are_warned_and_moved_end_in_the_same_bits(
    shell, undisturbed, slurm_stand_in
):
    """Six signals at seeded moments, each to a job that trains: the time limit's, a node's end."""
    found = shell()
    draw = random.Random(7)
    process = found.start("compute=submitit_slurm", *JOBS)
    signals = [signal.SIGUSR2, signal.SIGTERM] * 3
    for signum, steps in zip(signals, sorted(draw.sample(range(1, 150), 6)), strict=True):
        found.wait_for(steps, process)
        training = [
            n for n in slurm_stand_in.numbers() if slurm_stand_in.read(n)["state"] == "RUNNING"
        ]
        step = training and slurm_stand_in.read(draw.choice(training))["step"]
        if step:
            os.kill(step, signum)
    assert process.wait(timeout=900) == 0, found.said
    found.assert_same_as(undisturbed, but=NAMES)
    found.assert_trained_once()
    resumed = [record["timings"]["resumed_from_step"] for record in found.records().values()]
    assert any(resumed)


@linux
@pytest.mark.slow
def test_slurm_jobs_outlive_the_command_and_the_next_one_takes_them_up(
    shell, undisturbed, slurm_stand_in
):
    found = shell()
    process = found.start("compute=submitit_slurm", *JOBS)
    found.wait_for(5, process)
    process.kill()
    process.wait()
    submitted = slurm_stand_in.numbers()
    assert len(submitted) == 2
    kept = json.loads((found.folder / "runs/studies/tiny/jobs.json").read_text())
    assert {int(entry["id"]) for entry in kept.values()} == set(submitted)
    assert found.finish("compute=submitit_slurm", *JOBS) == 0, found.said
    assert len(slurm_stand_in.numbers()) == found.runs  # none was submitted twice
    found.assert_same_as(undisturbed, but=NAMES)
    found.assert_trained_once()


@linux
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["submitit_local", "submitit_slurm"])
@pytest.mark.parametrize(("signum", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_stopped_command_stops_its_jobs(shell, slurm_stand_in, kind, signum, code):
    found = shell()
    process = found.start(f"compute={kind}", *JOBS)
    found.wait_for(4, process)
    process.send_signal(signum)
    assert process.wait(timeout=300) == code, found.said
    before = found.steps_seen()
    time.sleep(2)
    assert found.steps_seen() == before
    assert "interrupted" in {r["status"] for r in found.records("single").values()}
    assert found.finish(f"compute={kind}", *JOBS) == 0, found.said
    found.assert_trained_once()
