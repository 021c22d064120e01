"""Jobs of submitit: on this machine, and through a stand-in of Slurm's commands."""

import contextlib
import os
import pickle
import signal
import sys
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from ablate.pretraining.interrupted import Interrupted
from ablate.study import cluster
from ablate.study.compute import answered, run_all
from ablate.study.computes import Compute
from ablate.study.states import State

pytest.importorskip("submitit")
KINDS = ("submitit_local", "submitit_slurm")


@dataclass(frozen=True)
class Task:
    """`what` is done at the first start, a plain end at every later one."""

    name: str
    folder: str
    what: str = "end"


def work(task):
    """Notes each start; raises what a signal raises, as a run does."""
    folder = Path(task.folder)
    with open(folder / f"{task.name}.starts", "a") as file:
        file.write(f"{os.getpid()} {os.environ.get('OMP_NUM_THREADS')}\n")
    first = len((folder / f"{task.name}.starts").read_text().splitlines()) == 1
    if not first or task.what == "end":
        return State("complete", task.name)
    if task.what == "raise":
        raise RuntimeError("the disk is on fire")
    if task.what == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    (folder / f"{task.name}.waits").touch()
    for _ in range(1200):
        time.sleep(0.05)
    raise AssertionError("nobody stopped it")


def stopped_run(task):
    """`work` under the name of a run: a signal is an answer."""
    return answered(work, task)


@pytest.fixture(autouse=True)
def by_value():
    """Functions of this file reach other processes, which cannot import it."""
    cloudpickle = pytest.importorskip("cloudpickle")
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    yield
    cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


@pytest.fixture
def slurm(slurm_stand_in, monkeypatch):
    """The stand-in, asked often."""
    monkeypatch.setattr(cluster, "ASK_SECONDS", 1.0)
    monkeypatch.setattr(cluster, "ANSWER_SECONDS", 1.5)
    return slurm_stand_in


@pytest.fixture(params=KINDS)
def compute(request):
    if request.param == "submitit_slurm":
        request.getfixturevalue("slurm")
    return Compute(request.param, jobs=2, cpus=1, timeout_min=30, requeues=3)


def wait_for(file):
    for _ in range(600):
        if file.exists():
            return
        time.sleep(0.05)
    raise AssertionError(f"{file} did not come")


def starts(tmp_path, name):
    return (tmp_path / f"{name}.starts").read_text().splitlines()


def test_states_come_back_and_jobs_have_their_threads(compute, tmp_path):
    tasks = [Task(name, str(tmp_path)) for name in "abc"]
    found = dict(run_all(work, tasks, compute, tmp_path / "study"))
    assert found == {task: State("complete", task.name) for task in tasks}
    assert [line.split()[1] for name in "abc" for line in starts(tmp_path, name)] == ["1"] * 3


def test_one_that_fails_or_is_killed_costs_no_other(compute, tmp_path):
    tasks = [Task("a", str(tmp_path), "raise"), Task("b", str(tmp_path), "die")]
    tasks.append(Task("c", str(tmp_path)))
    found = {task.name: state for task, state in run_all(work, tasks, compute, tmp_path / "study")}
    assert found["c"].status == "complete"
    assert found["a"].status == found["b"].status == "failed"
    assert "the disk is on fire" in found["a"].error
    for name in "ab":
        assert Path(found[name].error.split("its log is ")[1]).is_file()


@pytest.mark.parametrize("signum", [signal.SIGUSR2, signal.SIGTERM])
def test_a_job_that_is_warned_or_stopped_from_outside_goes_on(compute, tmp_path, signum):
    """SIGUSR2 is the scheduler's, before the time limit; SIGTERM takes the node away."""
    found = run_all(stopped_run, [Task("a", str(tmp_path), "wait")], compute, tmp_path / "study")

    def interrupt():
        wait_for(tmp_path / "a.waits")
        os.kill(int(starts(tmp_path, "a")[0].split()[0]), signum)

    thread = threading.Thread(target=interrupt)
    thread.start()
    assert [state for _, state in found] == [State("complete", "a")]
    thread.join()
    assert len(starts(tmp_path, "a")) == 2


def test_a_signal_to_the_command_stops_its_jobs(compute, tmp_path):
    pool = cluster.Cluster(compute, tmp_path / "study")
    running = pool.give(stopped_run, Task("a", str(tmp_path), "wait"))
    wait_for(tmp_path / "a.waits")
    pool.ask_to_stop(running)
    assert pool.wait([running]) == [running]
    assert pool.state(running) == State("interrupted", error="stopped by SIGTERM outside training")
    assert len(starts(tmp_path, "a")) == 1


def test_no_more_jobs_at_once_than_asked_for(slurm, tmp_path):
    (tmp_path / "slurm" / "hold").touch()
    compute = Compute("submitit_slurm", jobs=2, cpus=1)
    tasks = [Task(name, str(tmp_path)) for name in "abc"]
    found = run_all(work, tasks, compute, tmp_path / "study")
    original = cluster.time.sleep

    def sleep(seconds):
        looks = seconds == cluster.LOOK_SECONDS  # submitit sleeps too
        if looks and (tmp_path / "slurm" / "hold").exists():
            assert len(slurm.numbers()) == 2
            (tmp_path / "slurm" / "hold").unlink()
        original(seconds)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cluster.time, "sleep", sleep)
        assert len(list(found)) == 3
    assert len(slurm.numbers()) == 3


def test_a_full_queue_is_waited_for(slurm, tmp_path, capsys):
    """Sites limit how many jobs one user may submit; the study goes on with as many."""
    (tmp_path / "slurm" / "most").write_text("1")
    compute = Compute("submitit_slurm", jobs=3, cpus=1)
    tasks = [Task(name, str(tmp_path)) for name in "abc"]
    found = dict(run_all(work, tasks, compute, tmp_path / "study"))
    assert {state.status for state in found.values()} == {"complete"}
    assert capsys.readouterr().err.count("QOSMaxSubmitJobPerUserLimit") >= 1


@pytest.mark.parametrize("state", ["PREEMPTED", "NODE_FAIL"])
def test_a_job_that_the_cluster_has_taken_away_is_started_again(slurm, tmp_path, state):
    compute = Compute("submitit_slurm", jobs=1, cpus=1)

    def take():
        wait_for(tmp_path / "a.waits")
        os.kill(int(starts(tmp_path, "a")[0].split()[0]), signal.SIGKILL)
        slurm.write(slurm.numbers()[0], state=state, step=None)

    thread = threading.Thread(target=take)
    thread.start()
    tasks = [Task("a", str(tmp_path), "wait")]
    ((_, found),) = run_all(stopped_run, tasks, compute, tmp_path / "study")
    thread.join()
    assert found == State("complete", "a")


def test_a_job_that_is_always_stopped_is_given_up(slurm, tmp_path, monkeypatch):
    monkeypatch.setattr(cluster, "STARTS", 2)

    def stopped(task):
        with open(Path(task.folder) / "a.starts", "a") as file:
            file.write("x\n")
        return State("interrupted", error="again")

    compute = Compute("submitit_slurm", jobs=1, cpus=1)
    ((_, state),) = run_all(stopped, [Task("a", str(tmp_path))], compute, tmp_path / "study")
    assert state.status == "interrupted"
    assert len(starts(tmp_path, "a")) == 2


def test_while_slurm_is_silent_or_suspends_a_job_nothing_is_given_up(slurm, tmp_path):
    (tmp_path / "slurm" / "hold").touch()
    (tmp_path / "slurm" / "silent").touch()
    compute = Compute("submitit_slurm", jobs=1, cpus=1)
    task = Task("a", str(tmp_path))
    cluster.Cluster(compute, tmp_path / "study").give(work, task)  # and this command is killed
    pool = cluster.Cluster(compute, tmp_path / "study")
    running = pool.give(work, task)
    pool._queue.ask(every=0)
    assert not pool._is_over(running)
    (tmp_path / "slurm" / "silent").unlink()
    slurm.write(slurm.numbers()[0], state="SUSPENDED")
    pool._queue.ask(every=0)
    assert not pool._is_over(running)
    (tmp_path / "slurm" / "hold").unlink()
    assert pool.wait([running]) == [running]
    assert len(slurm.numbers()) == 1


def test_an_answer_that_a_slow_disk_shows_late_counts(slurm, tmp_path):
    compute = Compute("submitit_slurm", jobs=1, cpus=1)
    pool = cluster.Cluster(compute, tmp_path / "study")
    running = pool.give(work, Task("a", str(tmp_path)))
    answer = running.at.paths.result_pickle
    wait_for(answer)
    hidden = answer.rename(answer.with_suffix(".late"))
    threading.Timer(1.0, lambda: hidden.rename(answer)).start()
    assert pool.wait([running]) == [running]
    assert pool.state(running) == State("complete", "a")


def test_an_answer_of_an_earlier_process_of_that_number_is_gone(tmp_path):
    pool = cluster.Cluster(Compute("submitit_local", jobs=1, cpus=1), tmp_path / "study")
    running = pool.give(work, Task("a", str(tmp_path)))
    pool.wait([running])
    assert pool.state(running).status == "complete"
    assert not running.at.paths.result_pickle.exists()


def test_whoever_stops_reading_stops_the_jobs(compute, tmp_path):
    found = run_all(
        stopped_run, [Task("a", str(tmp_path)), Task("b", str(tmp_path), "wait")],
        compute, tmp_path / "study",
    )  # fmt: skip
    next(found)
    wait_for(tmp_path / "b.waits")
    pid = int(starts(tmp_path, "b")[0].split()[0])
    found.close()
    for _ in range(100):
        if not Path(f"/proc/{pid}").exists():
            return
        time.sleep(0.05)
    raise AssertionError("it works on alone")


def test_a_warning_of_one_that_is_done_queues_nothing(monkeypatch):
    queued = []
    monkeypatch.setattr(signal, "getsignal", lambda number: lambda *given: queued.append(given))

    def late(task):
        with contextlib.suppress(Interrupted):  # its last words were said when the warning came
            os.kill(os.getpid(), signal.SIGUSR2)
        return State("complete", "a")

    before = signal.signal(signal.SIGUSR2, signal.SIG_DFL)
    try:
        cluster.Warned(late, None)()
        os.kill(os.getpid(), signal.SIGUSR2)  # after the work: ignored
    finally:
        signal.signal(signal.SIGUSR2, before)
    assert queued == []


def test_the_batch_file_says_what_was_asked_for(slurm, tmp_path):
    compute = Compute(
        "submitit_slurm", jobs=1, cpus=6, gpus=1, mem_gb=12, timeout_min=90, signal_seconds=200,
        partition="gpu", account="nlp", qos="long", constraint="h100",
        setup=["module load cuda"], sbatch={"nice": 7},
    )  # fmt: skip
    list(run_all(work, [Task("a", str(tmp_path))], compute, tmp_path / "mask_rate"))
    text = (tmp_path / "slurm" / f"{slurm.numbers()[0]}.sh").read_text()
    for line in (
        "--partition=gpu", "--account=nlp", "--qos=long", "--constraint=h100", "--time=90",
        "--cpus-per-task=6", "--gpus-per-node=1", "--mem=12288M", "--signal=USR2@200", "--nice=7",
        "--requeue", "--job-name=ablate-mask_rate", "--ntasks-per-node=1",
    ):  # fmt: skip
        assert f"#SBATCH {line}\n" in text, line
    assert "\nmodule load cuda\n" in text
    assert "export OMP_NUM_THREADS=6" in text
    srun = next(line for line in text.splitlines() if line.startswith("srun"))
    assert "--cpus-per-task=6" in srun
    assert starts(tmp_path, "a")[0].split()[1] == "6"


def test_the_next_command_takes_up_what_is_in_the_queue(slurm, tmp_path):
    (tmp_path / "slurm" / "hold").touch()
    compute = Compute("submitit_slurm", jobs=1, cpus=1)
    task = Task("a", str(tmp_path))
    cluster.Cluster(compute, tmp_path / "study").give(work, task)  # and this command is killed
    pool = cluster.Cluster(compute, tmp_path / "study")
    running = pool.give(work, replace(task))
    (tmp_path / "slurm" / "hold").unlink()
    assert pool.wait([running]) == [running]
    assert pool.state(running) == State("complete", "a")
    assert len(slurm.numbers()) == 1
    list(run_all(work, [task], compute, tmp_path / "study"))  # an answer is handed out once
    assert len(slurm.numbers()) == 2


def test_a_job_that_ended_badly_while_nobody_looked_is_not_taken_up(slurm, tmp_path):
    compute = Compute("submitit_slurm", jobs=1, cpus=1)
    task = Task("a", str(tmp_path), "die")
    cluster.Cluster(compute, tmp_path / "study").give(work, task)
    for _ in range(200):
        if slurm.read(slurm.numbers()[0])["state"] == "FAILED":
            break
        time.sleep(0.05)
    assert [state.status for _, state in run_all(work, [task], compute, tmp_path / "study")] == [
        "complete"
    ]
    assert len(slurm.numbers()) == 2


def test_a_failure_that_nobody_saw_is_tried_again(slurm, tmp_path):
    compute = Compute("submitit_slurm", jobs=1, cpus=1)
    task = Task("a", str(tmp_path), "raise")
    running = cluster.Cluster(compute, tmp_path / "study").give(work, task)
    wait_for(running.at.paths.result_pickle)
    ((_, state),) = run_all(work, [task], compute, tmp_path / "study")
    assert state == State("complete", "a")


def test_a_damaged_list_of_jobs_is_as_good_as_none(slurm, tmp_path):
    (tmp_path / "study").mkdir()
    (tmp_path / "study" / "jobs.json").write_text("[")
    compute = Compute("submitit_slurm", jobs=1, cpus=1)
    ((_, state),) = run_all(work, [Task("a", str(tmp_path))], compute, tmp_path / "study")
    assert state.status == "complete"


def test_what_slurm_refuses_is_one_message(slurm, tmp_path):
    compute = Compute("submitit_slurm", jobs=1, cpus=1, partition="nowhere")
    with pytest.raises(ValueError, match=r"invalid partition.*compute\.partition"):
        list(run_all(work, [Task("a", str(tmp_path))], compute, tmp_path / "study"))


def test_without_slurm_one_message_says_where_to_type_it(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ValueError, match=r"sbatch.*login node.*submitit_local"):
        run_all(work, [], Compute("submitit_slurm"), tmp_path)


def test_runs_at_once_on_one_machine_have_different_gpus(tmp_path):
    def show(task):
        Path(task.folder, f"{task.name}.gpus").write_text(os.environ["CUDA_VISIBLE_DEVICES"])
        return State("complete", task.name)

    compute = Compute("submitit_local", jobs=2, cpus=1, gpus=2)
    tasks = [Task(name, str(tmp_path)) for name in "ab"]
    list(run_all(show, tasks, compute, tmp_path / "study"))
    assert {(tmp_path / f"{name}.gpus").read_text() for name in "ab"} == {"0,1", "2,3"}


def test_a_job_is_small_and_plain(tmp_path):
    """It crosses a network and versions: names and words, no settings objects."""
    from ablate.study.compute import Job, run_job

    task = cluster.Warned(run_job, Job("bert", 1, ["seed=1"]))
    assert pickle.loads(pickle.dumps(task)) == task
    assert len(pickle.dumps(task)) < 1000


def test_a_signal_before_the_work_is_an_answer(monkeypatch):
    def early(task):
        raise Interrupted(signal.SIGTERM, "outside training")

    assert cluster.Warned(early, None)().status == "interrupted"
