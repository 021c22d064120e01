"""A tiny study driven by the real command line, and runs forked from a process that has imported
all they need (`warm`), both in processes that can be killed."""

import contextlib
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

STEPS = 40
# of a record, what two processes do not share: how long they took, what they were, what was typed
NOT_RESULTS = {"timings", "provenance", "overrides", "notes"}
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


@pytest.fixture(scope="session")
def tiny_study():
    """The content of a study's file."""
    return dict(STUDY)


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


WHOLE = [  # a whole run: a trained tokenizer, 6 steps, two measurements
    "arm=tiny", "size.hidden_size=16", "corpus.num_documents=200", "paths.cache_dir=cache",
    "corpus.validation_fraction=0.1", "tokenizer.vocabulary=trained", "tokenizer.vocab_size=128",
    "budget.clock=steps", "budget.amount=6", "trainer.log_every=1", "trainer.threads=1",
    "trainer.validation_rows=16", "trainer.num_validations=2", "trainer.checkpoint_every=2",
    "trainer.progress_bar=false", "encoder.dropout=0.1", "evaluation=synthetic",
    "evaluation.tasks=[acceptability]", "evaluation.num_train_examples=32",
    "evaluation.num_validation_examples=16", "evaluation.pairs_per_paradigm=2",
    "evaluation.jobs=1", "evaluation.finetune.min_steps=2", "evaluation.finetune.num_epochs=1",
    "tracking=none",
]  # fmt: skip


def words_of(encoder, workers, micro):
    return [
        *WHOLE, f"encoder={encoder}", f"trainer.num_workers={workers}",
        f"trainer.micro_batch_size={16 // micro}",
    ]  # fmt: skip


def contents(folder):
    """All that a run leaves, by path: bytes, of records what does not depend on the process."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        kept = name.startswith("runs/") or (name.startswith("cache/") and "/." not in name)
        if not path.is_file() or not kept or path.name == ".lock":
            continue
        if path.name == "record.json":
            record = json.loads(path.read_text())
            found[name] = {k: v for k, v in record.items() if k not in NOT_RESULTS}
        elif path.name == "config.yaml":
            lines = path.read_text().splitlines()
            found[name] = [line for line in lines if "num_workers" not in line]
        else:
            found[name] = path.read_bytes()
    return found


@pytest.fixture(scope="session")
def whole(warm_process, tmp_path_factory):
    """A whole run: `words(encoder, workers, micro-batches)`, `contents(folder)` that it leaves, and
    what it leaves where nothing disturbs it, `undisturbed(encoder, micro-batches)`, once for all
    tests and without workers, which change no number."""
    known = {}

    def undisturbed(encoder, micro):
        if (encoder, micro) not in known:
            folder = tmp_path_factory.mktemp("undisturbed")
            code, said = warm_process.run(folder, *words_of(encoder, 0, micro))
            assert code == 0, said
            known[encoder, micro] = contents(folder)
        return known[encoder, micro]

    return SimpleNamespace(words=words_of, contents=contents, undisturbed=undisturbed)
