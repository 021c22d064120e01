"""W&B down, slow, out of order, or without a disk: the run goes on, the record stays whole.

Most runs here are short loops of `MetricsFile` and `Mirror` in a process of their own; the whole
command line is met in `test_online` and, marked slow, below.
"""

import json
import math
import shutil
import subprocess
import sys
import time

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

BUSY = 120  # seconds that a busy machine may add; with W&B's own settings there is no end
LOOP = """
import json, sys, time
from pathlib import Path
from ablate.tracking.loggers import Mirror
from ablate.tracking.record import MetricsFile
mode, timeout, folder, rest = sys.argv[1], float(sys.argv[2]), Path("run"), sys.argv[3:]
def seconds():
    return time.monotonic() - begun
begun = time.monotonic()
mirror = Mirror(mode=mode, project="p", entity=None, run_id="abc", name="n", group="g", tags=[],
                folder=folder, config={"seed": 1}, axes={"seed": 1}, timeout=timeout)
took = {"init": seconds()}
file = MetricsFile(folder / "metrics.jsonl")
mirror.replay(file.rows())
for step in range(len(file.rows()) + 1, 41):
    row = {"tokens": 10.0 * step, "train/loss": 1 / step}
    file.append(step, row)
    mirror.log(row, step)
    if step == 20:
        Path("middle").touch()
        while rest == ["wait"] and not Path("go").exists():
            time.sleep(0.01)
begun = time.monotonic()
mirror.tables({"scores": (("score", "value"), [["a", "1"]])})
mirror.summary({"a": 1.0})
mirror.finish(0)
took["finish"] = seconds()
Path("took").write_text(json.dumps({**took, "mode": mirror.mode}))
"""


def slow(fault):
    return pytest.param(fault, marks=pytest.mark.slow)


def begin(shell, *words, mode="online", timeout=8, **more):
    return shell.start("-c", LOOP, mode, str(timeout), *words, **more)


def end(shell, process):
    """What the loop says it took, once it has ended well and its file is whole."""
    assert process.wait(300) == 0, shell.said
    lines = (shell.folder / "run/metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == list(range(1, 41))
    return json.loads((shell.folder / "took").read_text())


def in_the_middle(shell, process):
    while not (shell.folder / "middle").exists() and process.poll() is None:
        time.sleep(0.01)


def lines_of(shell):
    text = (shell.folder / "run/metrics.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def sync(shell, *flags):
    """`wandb sync` of what the run left."""
    pieces = [str(path) for path in shell.folder.glob("run/wandb/*run-*") if path.is_dir()]
    done = subprocess.run(
        ["wandb", "sync", *flags, *pieces], env=shell.env, cwd=shell.folder, timeout=300,
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def break_it(server, fault):
    if fault == "down":
        server.stop()
    elif fault == "slow":
        server.delay = 60
    else:
        setattr(server, fault, math.inf)


def mend_it(server, fault):
    server.errors = server.drops = server.delay = 0
    if fault == "down":
        server.start()


@pytest.mark.parametrize("fault", ["down", *map(slow, ("errors", "drops", "slow"))])
def test_a_fault_from_the_start_leaves_an_offline_run(shell, wandb_server, is_whole, fault):
    break_it(wandb_server, fault)
    took = end(shell, begin(shell))
    assert took["mode"] == "offline"
    assert took["init"] < 8 + 60  # W&B's own limit is 90
    assert len(shell.warnings) == 1, shell.said
    assert "it goes on offline: wandb sync" in shell.warnings[0]
    assert "Traceback" not in shell.said
    mend_it(wandb_server, fault)
    sync(shell)
    assert is_whole(wandb_server.runs["abc"], lines_of(shell))


@pytest.mark.parametrize("fault", ["errors", *map(slow, ("down", "drops", "slow"))])
def test_a_fault_in_the_middle_ends_in_one_warning(shell, wandb_server, is_whole, fault):
    process = begin(shell, "wait")
    in_the_middle(shell, process)
    break_it(wandb_server, fault)
    (shell.folder / "go").touch()
    took = end(shell, process)
    assert took["finish"] < 8 + BUSY
    assert len(shell.warnings) == 1, shell.said
    assert "Traceback" not in shell.said
    mend_it(wandb_server, fault)
    sync(shell, "--include-online")
    assert is_whole(wandb_server.runs["abc"], lines_of(shell))


def test_a_short_fault_costs_nothing(shell, wandb_server, is_whole):
    process = begin(shell, "wait", timeout=60)
    in_the_middle(shell, process)
    wandb_server.errors = 3
    (shell.folder / "go").touch()
    end(shell, process)
    assert shell.warnings == []
    assert is_whole(wandb_server.runs["abc"], lines_of(shell))
    assert wandb_server.runs["abc"].summary["a"] == 1.0
    assert wandb_server.runs["abc"].exit_codes == [0]


@pytest.mark.slow
def test_a_slow_server_gets_all(shell, wandb_server, is_whole):
    wandb_server.delay = 1
    end(shell, begin(shell, timeout=60))
    assert shell.warnings == []
    assert is_whole(wandb_server.runs["abc"], lines_of(shell))


def test_a_run_killed_in_the_middle_goes_on_under_its_id(shell, wandb_server, is_whole):
    process = begin(shell, "wait")
    wandb_server.wait_for(lambda s: "abc" in s.runs and len(s.runs["abc"].history) > 10, 200)
    process.kill()
    process.wait()
    (shell.folder / "go").touch()
    end(shell, begin(shell, timeout=60))
    assert is_whole(wandb_server.runs["abc"], lines_of(shell))
    assert wandb_server.runs["abc"].exit_codes[-1] == 0
    assert shell.warnings == []


def test_pieces_of_a_killed_offline_run_are_synced_as_one(shell, wandb_server, is_whole):
    """Online at first, as where the network has gone between two processes."""
    for mode in ("online", "offline"):
        (shell.folder / "middle").unlink(missing_ok=True)
        process = begin(shell, "wait", mode=mode)
        in_the_middle(shell, process)
        process.kill()
        process.wait()
        lines = lines_of(shell)[:15]  # as if the checkpoint that is continued were older
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (shell.folder / "run/metrics.jsonl").write_text(text)
    (shell.folder / "go").touch()
    end(shell, begin(shell, mode="offline"))
    sync(shell)
    assert is_whole(wandb_server.runs["abc"], lines_of(shell))


def test_a_wrong_key_is_one_warning(shell, wandb_server):
    took = end(shell, begin(shell, WANDB_API_KEY="x" * 40))
    assert took["mode"] == "offline"
    assert len(shell.warnings) == 1, shell.said


@pytest.mark.parametrize("mode", ["offline", slow("online")])
@pytest.mark.skipif(shutil.which("unshare") is None, reason="needs unshare")
def test_a_full_disk_under_wandb_is_at_most_one_warning(shell, wandb_server, mode):
    mount = 'mkdir -p run/wandb && mount -t tmpfs -o size=16k tmpfs run/wandb && exec "$@"'
    before = ("unshare", "-rm", "sh", "-c", mount, "sh")
    trial = subprocess.run([*before, "true"], cwd=shell.folder, capture_output=True)
    if trial.returncode:
        pytest.skip("no mounts in a namespace of one's own here")
    took = end(shell, begin(shell, mode=mode, before=before))
    assert took["finish"] < 8 + BUSY
    assert len(shell.warnings) <= 1, shell.said


def weights(shell):
    """The bytes of the only trained model."""
    (file,) = shell.folder.glob("runs/pretrained/*/model.safetensors")
    return file.read_bytes()


def seconds_apart(lines):
    """Rows of metrics.jsonl but for what a clock says."""
    return [{k: v for k, v in row.items() if not k.startswith("perf/")} for row in lines]


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["down", "errors", "slow", "drops"])
@pytest.mark.parametrize("when", ["start", "middle"])
def test_a_run_with_a_fault_is_an_offline_run_bit_for_bit(
    shell, offline, wandb_server, fault, when
):
    """Weights, curves and scores, through the whole command line."""
    if when == "start":
        break_it(wandb_server, fault)
    words = ("tracking.mode=online", "tracking.timeout=8")
    process = shell.ablate(*words, steps=offline.steps)
    shell.wait_for_rows(10, process)
    break_it(wandb_server, fault)
    assert process.wait(900) == 0, shell.said
    assert shell.record["status"] == "complete"
    assert weights(shell) == weights(offline)
    assert seconds_apart(shell.rows()) == seconds_apart(offline.rows())
    assert shell.record["scores"] == offline.record["scores"]
    assert len(shell.warnings) == 1, shell.said
