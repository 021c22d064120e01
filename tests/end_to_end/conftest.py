"""A tiny study driven by the real command line, in processes that can be killed."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
import yaml

STEPS = 40
# of a record, what no two processes have in common: how long they took, and what they were
NOT_RESULTS = {"timings", "provenance"}
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

    steps, runs = STEPS, 4

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

    def assert_same_as(self, reference, *, but=()):
        """Every file of the runs, the weights among them, and of the report is the same."""
        for kind in ("pretrained", "single"):
            theirs, mine = reference.records(kind), self.records(kind)
            assert set(mine) == set(theirs)
            assert len(mine) == self.runs
            for name, record in mine.items():
                for key in record.keys() | theirs[name].keys():
                    if key not in {*NOT_RESULTS, *but}:
                        assert record.get(key) == theirs[name].get(key), f"{name}: {key}"
        compared = Counter()
        for pattern in ("runs/pretrained/*/*", "runs/single/*/*", "reports/**/*"):
            for path in reference.folder.glob(pattern):
                if path.is_file() and path.name not in ("record.json", ".lock", *but):
                    other = self.folder / path.relative_to(reference.folder)
                    assert text_of(other) == text_of(path), other
                    compared[path.name] += 1
        assert compared["model.safetensors"] == self.runs
        assert compared["metrics.jsonl"] == 2 * self.runs
        assert compared["verdicts.json"] == compared["report.html"] == 1

    def assert_trained_once(self):
        """Each step of each run is logged once."""
        files = list(self.folder.glob("runs/pretrained/*/metrics.jsonl"))
        assert len(files) == self.runs
        for file in files:
            rows = [json.loads(line) for line in file.read_text().splitlines()]
            steps = [row["step"] for row in rows if "train/loss" in row]
            assert steps == list(range(1, max(steps) + 1))
            assert len(steps) == self.steps


def text_of(path):
    """Of a report all but its line on git's state, which may change while a test runs."""
    content = path.read_bytes()
    if path.suffix not in (".md", ".html"):
        return content
    lines = content.splitlines()
    return [x for x in lines if not re.search(rb"commit: |MIXED COMMITS", x)]


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


@pytest.fixture(scope="module")
def undisturbed(shell):
    """The study run once, to its end."""
    found = shell()
    assert found.finish() == 0, found.said
    return found
