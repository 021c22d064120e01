"""The command line in processes of its own, against the stand-in of the W&B server."""

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
COMMON = [
    "budget.clock=steps", "corpus.num_documents=200", "corpus.validation_fraction=0.1",
    "trainer.validation_rows=16", "trainer.num_validations=2", "trainer.threads=1",
    "trainer.progress_bar=false", "trainer.log_every=1", "trainer.checkpoint_every=20",
    "evaluation=none",
]  # fmt: skip


class Shell:
    """A folder, and the commands begun in it.

    Everything that a command starts carries its mark in the environment, so that nothing is left.
    """

    common = COMMON

    def __init__(self, folder, server=None, **env):
        self.folder, self.server, self.mark = folder, server, uuid.uuid4().hex
        kept = {k: v for k, v in os.environ.items() if not k.startswith("WANDB_")}
        home = folder / "home"
        home.mkdir()
        self.env = {
            **kept, "HOME": str(home), "ABLATE_TEST": self.mark,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "WANDB_X_FILE_STREAM_TRANSMIT_INTERVAL": "0.2", **env,
        }  # fmt: skip
        if server is not None:
            self.env |= {"WANDB_BASE_URL": server.url, "WANDB_API_KEY": "k" * 40}

    def start(self, *words, cwd=None, before=(), **env):
        """A command, begun; its output goes to the file `said`."""
        with open(self.folder / "said", "a") as said:
            return subprocess.Popen(
                [*before, sys.executable, *words], cwd=cwd or self.folder, stdout=said,
                stderr=said, stdin=subprocess.DEVNULL, env={**self.env, **env},
            )  # fmt: skip

    def ablate(self, *words, steps, **more):
        """`python -m ablate`, small, begun."""
        return self.start("-m", "ablate", *COMMON, f"budget.amount={steps}", *words, **more)

    def run(self, *words, steps, **more):
        """The same to its end; its exit code."""
        return self.ablate(*words, steps=steps, **more).wait(timeout=900)

    @property
    def said(self):
        return (self.folder / "said").read_text()

    @property
    def warnings(self):
        return [line for line in self.said.splitlines() if line.startswith("warning: ")]

    def rows(self, kind="single"):
        """Whole lines of the only `metrics.jsonl` so far."""
        lines = [line for path in self.folder.glob(f"runs/{kind}/*/metrics.jsonl")
                 for line in path.read_text().split("\n")[:-1]]  # fmt: skip
        return [json.loads(line) for line in lines]

    def records(self):
        found = sorted(self.folder.glob("runs/single/*/record.json"))
        return [json.loads(path.read_text()) for path in found]

    @property
    def record(self):
        (record,) = self.records()
        return record

    def wait_for_rows(self, number, process):
        """Until so many steps are logged, or the process has ended."""
        while len(self.rows("pretrained")) < number and process.poll() is None:
            time.sleep(0.01)

    def processes(self):
        """Process ids of all that was started here and runs (Linux)."""
        found = []
        for path in Path("/proc").glob("[0-9]*/environ"):
            try:
                marked = f"ABLATE_TEST={self.mark}".encode() in path.read_bytes()
                state = (path.parent / "stat").read_text().rpartition(")")[2].split()[0]
            except (OSError, ProcessLookupError):
                continue
            if marked and state != "Z":
                found.append(int(path.parent.name))
        return found

    def close(self):
        """Wait for what is ending, kill the rest and say so."""
        end = time.monotonic() + 20
        while self.processes() and time.monotonic() < end:
            time.sleep(0.1)
        left = self.processes()
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        assert not left, f"still running: {left}"


@pytest.fixture
def shell(tmp_path, wandb_server):
    """A `Shell` that knows the server."""
    made = Shell(tmp_path, wandb_server)
    yield made
    made.close()


@pytest.fixture(scope="module")
def offline(tmp_path_factory):
    """A finished offline run: what all others are compared with. `offline.steps` long."""
    made = Shell(tmp_path_factory.mktemp("offline"))
    made.steps = 60
    assert made.run("tracking.group=made", steps=made.steps) == 0, made.said
    yield made
    made.close()


def _same(row, line):
    """A row on the server and a line of metrics.jsonl, but for what no two processes share."""
    ours = {k: v for k, v in line.items() if not k.startswith("perf/")}
    theirs = {k: v for k, v in row.items() if k[0] != "_" and not k.startswith("perf/")}
    return theirs == pytest.approx(ours, rel=1e-8, nan_ok=True)


@pytest.fixture(scope="session")
def is_whole():
    """Whether a run on the server has the rows of metrics.jsonl: each, once, in order."""

    def check(run, lines):
        history = run.history
        assert [row["_step"] for row in history] == list(range(len(lines)))
        assert [row["tokens"] for row in history] == sorted(row["tokens"] for row in history)
        return all(_same(*pair) for pair in zip(history, lines, strict=True))

    return check
