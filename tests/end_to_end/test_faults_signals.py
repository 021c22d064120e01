"""SIGTERM and Ctrl-C in every phase, once and twice; and two processes on one run."""

import json
import os
import signal
import time

import pytest

SETTINGS = ("bert", 0, 1)
TERM, CTRL_C = 143, 130
TRAINED, EVALUATED = "pretrained", "single"  # whose record there is by then


def slow(*values):
    return pytest.param(*values, marks=pytest.mark.slow)


PHASES = [
    ("corpus scan", "term", ()),
    slow("corpus scan", "interrupt", ()),
    slow("tokenizer", "term", ()),
    slow("tokenizer", "interrupt", ()),
    slow("store", "term", (TRAINED, EVALUATED)),
    ("store", "interrupt twice", (TRAINED, EVALUATED)),
    slow("first step", "term", (TRAINED, EVALUATED)),
    ("step taken", "interrupt", (TRAINED, EVALUATED)),
    slow("step taken", "term twice", (TRAINED, EVALUATED)),
    slow("micro-batch", "interrupt twice", (TRAINED, EVALUATED)),
    slow("before rename", "term", (TRAINED, EVALUATED)),
    slow("validation", "interrupt", (TRAINED, EVALUATED)),
    ("end of the fit", "term", (TRAINED, EVALUATED)),
    slow("before weights", "term", (TRAINED, EVALUATED)),
    slow("before weights", "interrupt", (TRAINED, EVALUATED)),
    slow("fine-tuning", "term", (EVALUATED,)),
    ("second task", "term twice", (EVALUATED,)),
    slow("fine-tuning", "interrupt", (EVALUATED,)),
    slow("last record", "interrupt", (EVALUATED,)),
    slow("summary", "term", ()),
    slow("summary", "interrupt", ()),
]


def statuses(folder):
    """Kind of run -> its status, while there is at most one of a kind."""
    found = folder.glob("runs/*/*/record.json")
    return {path.parts[-3]: json.loads(path.read_text())["status"] for path in found}


@pytest.mark.parametrize(("moment", "action", "stopped"), PHASES)
def test_a_signal_in_any_phase_is_recorded_and_the_command_continues(
    warm, whole, tmp_path, moment, action, stopped
):
    words = whole.words(*SETTINGS)
    code, said = warm.run(tmp_path, *words, faults=[(moment, action)])
    assert code == (TERM if action.startswith("term") else CTRL_C), said
    assert "Traceback" not in said
    assert "the same command continues" in said.splitlines()[-1]
    found = statuses(tmp_path)
    assert {kind for kind, status in found.items() if status == "interrupted"} == set(stopped)
    assert set(found.values()) <= {"interrupted", "complete"}
    assert warm.run(tmp_path, *words)[0] == 0
    assert whole.contents(tmp_path) == whole.undisturbed("bert", 1)


def test_a_second_signal_while_the_first_is_written_down(warm, whole, tmp_path):
    """The record is said to be interrupted, whatever comes meanwhile."""
    words = whole.words(*SETTINGS)
    faults = [("second task", "term"), ("end of record", "interrupt")]
    code, said = warm.run(tmp_path, *words, faults=faults)
    assert code in (TERM, CTRL_C), said
    assert statuses(tmp_path) == {"single": "interrupted", "pretrained": "complete"}


@pytest.mark.parametrize("number", [slow(signal.SIGINT), signal.SIGTERM])
def test_a_signal_to_the_whole_group_is_one_to_the_run(warm, whole, tmp_path, number):
    """A terminal's Ctrl-C and a batch system's SIGTERM reach the workers too; the step is finished
    and kept all the same."""
    words = whole.words("bert", 2, 2)
    process = warm.start(tmp_path, *words, faults=[("micro-batch", "hold")])
    reached(tmp_path, process)
    os.killpg(process.pid, number)
    time.sleep(0.2)
    (tmp_path / "go").touch()
    assert process.wait() == 128 + number, process.said
    assert "stopped by" in process.said.splitlines()[-1]
    assert "after step 3" in process.said.splitlines()[-1]
    assert statuses(tmp_path) == {"single": "interrupted", "pretrained": "interrupted"}
    assert list(tmp_path.glob("runs/pretrained/*/checkpoints/step-00000003.ckpt"))
    code, said = warm.run(tmp_path, *words)
    assert code == 0, said
    assert whole.contents(tmp_path) == whole.undisturbed("bert", 2)


def reached(folder, process):
    while not (folder / "reached").exists():
        assert process.poll() is None, process.said
        time.sleep(0.01)


def waits(process, text):
    while text not in process.said:
        assert process.poll() is None, process.said
        time.sleep(0.01)


def test_who_waits_for_a_killed_owner_takes_over_at_once(warm, whole, tmp_path):
    """Also where workers of the owner, forked from it, outlive it for a while."""
    words = whole.words("bert", 2, 1)
    owner = warm.start(tmp_path, *words, faults=[("micro-batch", "hold")])
    reached(tmp_path, owner)
    waiting = warm.start(tmp_path, *words)
    waits(waiting, f"(pid {owner.pid}); waiting for it")
    workers = children(owner.pid)
    assert len(workers) == 2
    for pid in workers:  # they cannot end by themselves
        os.kill(pid, signal.SIGSTOP)
    os.kill(owner.pid, signal.SIGKILL)
    assert owner.wait() == -signal.SIGKILL
    assert waiting.wait() == 0, waiting.said
    assert whole.contents(tmp_path) == whole.undisturbed("bert", 1)


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return [int(word) for word in file.read().split()]


@pytest.mark.slow
def test_who_waits_for_an_owner_that_ends_finds_its_result(warm, whole, tmp_path):
    words = whole.words(*SETTINGS)
    owner = warm.start(tmp_path, *words, faults=[("micro-batch", "hold")])
    reached(tmp_path, owner)
    waiting = warm.start(tmp_path, *words)
    waits(waiting, f"(pid {owner.pid}); waiting for it")
    (tmp_path / "go").touch()
    assert (owner.wait(), waiting.wait()) == (0, 0), waiting.said
    assert whole.contents(tmp_path) == whole.undisturbed("bert", 1)


def test_who_waits_can_be_stopped(warm, whole, tmp_path):
    words = whole.words(*SETTINGS)
    owner = warm.start(tmp_path, *words, faults=[("first step", "hold")])
    reached(tmp_path, owner)
    waiting = warm.start(tmp_path, *words)
    waits(waiting, "waiting for it")
    os.kill(waiting.pid, signal.SIGTERM)
    assert waiting.wait() == TERM, waiting.said
    assert statuses(tmp_path) == {"single": "running", "pretrained": "running"}
