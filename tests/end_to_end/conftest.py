"""A tiny study driven by the real command line, and runs forked from a process that has imported
all they need (`warm`), both in processes that can be killed."""

import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
import yaml

STEPS = 40
COMMON = [
    "budget.clock=steps", f"budget.amount={STEPS}", "evaluation=none", "tracking=none",
    "corpus.num_documents=300", "corpus.validation_fraction=0.1", "trainer.threads=1",
    "trainer.progress_bar=false", "trainer.validation_rows=16", "trainer.num_validations=2",
    "trainer.log_every=1", "trainer.checkpoint_every=3", "optimizer.learning_rate=0.005",
]  # fmt: skip
STUDY = {
    "question": "Does a larger learning rate help?",
    "baseline": "plain",
    "arms": {"plain": [], "fast": ["optimizer.learning_rate=0.01"]},
    "moves": ["optimizer.learning_rate"],
    "seeds": 2,
    "primary": "val/token_mask/loss",
    "higher_is_better": False,
    "margin": 0.1,
    "common": COMMON,
}


def _plainly():
    """Two cores at most, so that two jobs have one thread each on every machine; and Ctrl-C does
    what it does at a prompt (a shell's background jobs ignore it, and hand that on)."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])


class Shell:
    """A folder with a study in it, and the command that drives it."""

    steps = STEPS

    def __init__(self, folder: Path, **changes):
        self.folder, self.started = folder, []
        folder.mkdir(exist_ok=True)
        content = yaml.safe_dump({**STUDY, **changes}, sort_keys=False)
        (folder / "tiny.yaml").write_text(content)

    def start(self, *words):
        """The command, begun; its output goes to the file `said`."""
        command = [sys.executable, "-m", "ablate", "study=tiny.yaml", *words]
        with open(self.folder / "said", "a") as said:
            process = subprocess.Popen(
                command, cwd=self.folder, stdout=said, stderr=said, preexec_fn=_plainly
            )
        self.started.append(process)
        return process

    def finish(self, *words):
        """The same to its end; its exit code."""
        return self.start(*words).wait(timeout=900)

    @property
    def said(self):
        return (self.folder / "said").read_text()

    def steps_seen(self):
        """Steps logged so far, over all runs."""
        files = self.folder.glob("runs/pretrained/*/metrics.jsonl")
        return sum(file.read_text().count('"train/loss"') for file in files)

    def wait_for(self, steps, process):
        """Until so many steps are logged, or the process has ended."""
        while self.steps_seen() < steps and process.poll() is None:
            time.sleep(0.01)

    def records(self, kind="pretrained"):
        """folder's name -> record"""
        found = self.folder.glob(f"runs/{kind}/*/record.json")
        return {path.parent.name: json.loads(path.read_text()) for path in sorted(found)}

    def complete(self):
        """Files of what is complete -> what changes where one is written again."""
        return {
            path: (path.stat().st_ino, path.stat().st_mtime_ns)
            for path in self.folder.glob("runs/*/*/record.json")
            if json.loads(path.read_text())["status"] == "complete"
        }

    def kept_step(self):
        """Step of the newest checkpoint of each run that has one."""
        found = sorted(self.folder.glob("runs/pretrained/*/checkpoints/step-*.ckpt"))
        return {path.parent.parent.name: int(path.stem.split("-")[1]) for path in found}

    @staticmethod
    def workers(process):
        """Process ids of the workers that a study has started (Linux)."""
        path = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        pids = [int(word) for word in path.read_text().split()]
        return [pid for pid in pids if b"popen_loky" in Path(f"/proc/{pid}/cmdline").read_bytes()]

    @staticmethod
    def alive(pid):
        """Whether a process runs; one that has ended and is not yet fetched does not (Linux)."""
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
        except FileNotFoundError:
            return False


@pytest.fixture(scope="module")
def shell(tmp_path_factory):
    """Makes a `Shell` in a folder of its own; whatever it started is dead afterwards."""
    made = []

    def make(**changes):
        made.append(Shell(tmp_path_factory.mktemp("study"), **changes))
        return made[-1]

    make.common = lambda *words: [*COMMON, *words]
    yield make
    for one in made:
        for process in one.started:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
                process.wait()


class Forked:
    """One command in a process of its own; `said` is what it printed so far."""

    def __init__(self, warm, folder, words, faults, env):
        self.warm, self.code, self.heard = warm, None, b""
        fifo = Path(warm.place.name) / str(next(warm.numbers))
        os.mkfifo(fifo)
        self._pipe = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
        request = {"folder": str(folder), "words": words, "faults": faults, "env": env}
        self.pid = warm.ask({**request, "said": str(fifo)})

    @property
    def said(self):
        with contextlib.suppress(BlockingIOError):
            while more := os.read(self._pipe, 1 << 16):
                self.heard += more
        return self.heard.decode()

    def poll(self):
        if self.code is None:
            self.code = self.warm.ask({"wait": self.pid})
        return self.code

    def wait(self, timeout=300):
        end = time.monotonic() + timeout
        while self.said is not None and self.poll() is None:
            assert time.monotonic() < end, self.said
            time.sleep(0.01)
        return self.code

    def close(self):
        """Kill it, and what it has started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.wait()
        os.close(self._pipe)


class Warm:
    """Starts `python -m ablate` by forking a process that has done its imports."""

    def __init__(self):
        self.numbers, self.runs = itertools.count(), []
        self.place = tempfile.TemporaryDirectory()
        self._server = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("warm.py"))],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def ask(self, request):
        print(json.dumps(request), file=self._server.stdin, flush=True)
        return json.loads(self._server.stdout.readline())

    def start(self, folder, *words, faults=(), **env):
        """`python -m ablate`, begun in a folder; `faults` are (moment, action), see `moments`."""
        self.runs.append(Forked(self, folder, words, faults, env))
        return self.runs[-1]

    def run(self, folder, *words, **more):
        """The same to its end: (exit code, what it said)."""
        run = self.start(folder, *words, **more)
        return run.wait(), run.said

    def forget(self):
        while self.runs:
            self.runs.pop().close()

    def close(self):
        self.forget()
        self._server.stdin.close()
        self._server.wait()
        self._server.stdout.close()
        self.place.cleanup()


@pytest.fixture(scope="session")
def warm_process():
    made = Warm()
    yield made
    made.close()


@pytest.fixture
def warm(warm_process):
    """A `Warm`; what it started is dead afterwards."""
    yield warm_process
    warm_process.forget()
