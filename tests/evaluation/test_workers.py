"""Parts in worker processes: the same bits as here, nothing left behind, no worker outlives us."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch

from ablate import rng
from ablate.encoder.backends import resolve
from ablate.encoder.config import EncoderConfig
from ablate.encoder.heads import MaskedLanguageModel
from ablate.encoder.initialization import initialize
from ablate.evaluation.classification import Classification
from ablate.evaluation.pair_task import MinimalPairs
from ablate.evaluation.protocol import evaluate
from ablate.evaluation.tasks import TaskSpec, from_rows
from ablate.tokens.training import from_morphemes

WORDS = ["red", "green", "blue", "yes", "no"]
SETTINGS = {"num_epochs": 1, "min_steps": 4, "max_steps": 4, "batch_size": 8, "max_length": 16}


def subject(cache):
    tokenizer = from_morphemes(WORDS, cache_dir=cache)
    config = EncoderConfig(
        vocab_size=tokenizer.vocab_size, hidden_size=16, num_hidden_layers=1,
        num_attention_heads=2, intermediate_size=32, max_position_embeddings=16,
    )  # fmt: skip
    backend = resolve("auto", device="cpu", dtype=torch.float32, max_length=16)
    model = MaskedLanguageModel(config, backend)
    initialize(model, config, lambda name: rng.torch_seed(0, "init", name))
    return model, tokenizer


def wanted():
    random = np.random.default_rng(0)
    answers = random.integers(2, size=40).tolist()
    rows = [{"sentence": f"{random.choice(WORDS[:3])} {WORDS[3 + a]}", "label": a} for a in answers]
    found = []
    for name in ("first", "second"):
        spec = TaskSpec.from_dict(
            {"name": name, "fields": ["sentence"], "labels": ["yes", "no"], "metrics": ["accuracy"]}
        )
        found.append(Classification(from_rows(spec, rows[:24], {"validation": rows[24:]})))
    pair = {"sentence_good": "red yes", "sentence_bad": "yes red", "paradigm": "order"}
    return [*found, MinimalPairs("own", "pairs", [pair])]


def run(folder, cache, devices, **options):
    model, tokenizer = subject(cache)
    return evaluate(
        model, tokenizer, measurements=wanted(), seed=0, num_finetune_seeds=2, out_dir=folder,
        devices=devices, **SETTINGS, **options,
    )  # fmt: skip


def test_workers_give_the_bits_of_one_process(tmp_path):
    calls = []
    here = run(tmp_path / "here", tmp_path, ["cpu"])
    there = run(
        tmp_path / "there", tmp_path, ["cpu", "cpu"], on_progress=lambda *call: calls.append(call)
    )
    assert there.details == here.details
    assert there.scores == here.scores
    assert sorted(calls) == [
        ("first", 1, 2), ("first", 2, 2), ("pairs", 1, 1), ("second", 1, 2), ("second", 2, 2),
    ]  # fmt: skip
    for folder in ("here", "there"):
        assert len([*(tmp_path / folder / "fits").iterdir()]) == 5
    for name in ("first", "second", "pairs"):
        both = [tmp_path / f / "predictions" / f"{name}.parquet" for f in ("here", "there")]
        assert both[0].read_bytes() == both[1].read_bytes()


def test_an_error_in_a_worker_is_raised_here(tmp_path):
    unlearnable = {**SETTINGS, "max_length": 32}
    model, tokenizer = subject(tmp_path)
    (first, *_), long = wanted(), " ".join(["red"] * 30)
    rows = [{"sentence": long, "label": 0}, {"sentence": long, "label": 1}]
    data = from_rows(first.data.spec, rows, {"validation": rows})
    with pytest.raises(ValueError, match="positions for 16"):
        evaluate(
            model, tokenizer, measurements=[Classification(data)], seed=0, num_finetune_seeds=2,
            out_dir=tmp_path, devices=["cpu", "cpu"], **unlearnable,
        )  # fmt: skip


ENDLESS = """
import os, sys, time
from pathlib import Path
sys.path.insert(0, {tests!r})
from test_workers import subject, SETTINGS
from ablate.evaluation.protocol import evaluate


class Endless:
    name = "endless"
    def hash(self): return "0"
    def key(self, setup): return {{}}
    def num_parts(self, setup): return 2
    def measure(self, subject, setup, number, on_progress):
        (Path({folder!r}) / str(os.getpid())).touch()
        time.sleep(300)


if __name__ == "__main__":
    model, tokenizer = subject({folder!r})
    evaluate(model, tokenizer, measurements=[Endless()], seed=0, out_dir={folder!r},
             devices=["cpu", "cpu"], **SETTINGS)
"""


@pytest.mark.parametrize("kill", [signal.SIGKILL, signal.SIGINT])
def test_workers_end_with_their_parent(tmp_path, kill):
    script = tmp_path / "endless.py"
    script.write_text(ENDLESS.format(tests=os.path.dirname(__file__), folder=str(tmp_path)))
    parent = subprocess.Popen(
        [sys.executable, str(script)], stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # as at a prompt
    )  # fmt: skip
    deadline = time.monotonic() + 120
    workers = []
    while len(workers) < 2 and time.monotonic() < deadline:
        time.sleep(0.1)
        workers = [int(path.name) for path in tmp_path.iterdir() if path.name.isdigit()]
    assert len(workers) == 2, parent.stderr.read().decode()
    parent.send_signal(kill)
    parent.wait(30)
    while any(map(alive, workers)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not any(map(alive, workers))


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False
