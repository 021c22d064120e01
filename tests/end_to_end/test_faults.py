"""What the whole command line must not get wrong; FAULTS B25, B26, B33, B36, B41."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from ablate.__main__ import main

ROOT = Path(__file__).resolve().parents[2]
TINY = [
    "budget.clock=steps", "budget.amount=3", "trainer.validation_rows=4",
    "trainer.num_validations=1", "trainer.threads=1", "trainer.global_batch_size=8",
    "trainer.progress_bar=false", "trainer.log_every=1", "evaluation=none",
    "evaluation.ngram_baseline=false",
]  # fmt: skip
BUILT_IN = ["corpus.num_documents=60", "corpus.validation_fraction=0.1"]
# every look-up of a name and every connection to another machine ends the process
NO_NETWORK = """
import os, socket
def refuse(*args, **more):
    os.write(2, b"asked the network\\n")
    os._exit(99)
real = socket.socket.connect
def connect(self, address):
    near = self.family == socket.AF_UNIX or address[0] == "127.0.0.1"
    return real(self, address) if near else refuse()
socket.socket.connect = connect
socket.getaddrinfo = socket.gethostbyname = refuse
"""


@pytest.fixture
def ablate(tmp_path, monkeypatch):
    """The command line in a folder of its own; its exit code and its records."""
    monkeypatch.chdir(tmp_path)

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["ablate", *words])
        code = main()
        found = sorted(tmp_path.glob("runs/single/*/record.json"))
        return code, {path.parent: json.loads(path.read_text()) for path in found}

    return run


def test_b33_a_relative_path_is_read_where_the_command_was_given(ablate, tmp_path):
    """By a single run and by two jobs of one command; what they write lies in their own folders."""
    sentences = [f"the cat number {k} ran after dog {k % 7} .\nit was fast .\n" for k in range(80)]
    (tmp_path / "corpus.txt").write_text("\n".join(sentences))
    words = [*TINY, "tracking=none", "corpus=files", "corpus.path=corpus.txt"]
    words += ["corpus.validation_fraction=0.1", "tokenizer.vocab_size=60"]
    code, single = ablate(*words, "seed=0")
    assert code == 0
    code, both = ablate("-m", *words, "seed=1,2")
    assert code == 0
    assert len(single) == 1
    assert len(both) == 3
    assert Path.cwd() == tmp_path
    assert {path.name for path in tmp_path.iterdir()} <= {"corpus.txt", "runs"}
    assert len({record["data"]["corpus_fingerprint"] for record in both.values()}) == 1
    for folder in both:
        text = (folder / "config.yaml").read_text()
        assert "${" not in text
        assert yaml.safe_load(text)["corpus"]["path"] == "corpus.txt"
        assert (folder / "metrics.jsonl").is_file()


def test_b33_a_stored_config_makes_the_same_run_in_a_plain_process(ablate, tmp_path):
    """Without Hydra: the fingerprint of the pretraining is that of the record."""
    words = [*TINY, *BUILT_IN, "tracking=none", "masking=all_mask", "seed=5"]
    code, records = ablate(*words)
    assert code == 0
    ((folder, record),) = records.items()
    plain = (
        "import sys, yaml\n"
        "from omegaconf import OmegaConf\n"
        "from ablate.config.compose import settings_from\n"
        "from ablate.run.arm import prepare\n"
        "stored = yaml.safe_load(open(sys.argv[1]))\n"
        "print(prepare(settings_from(OmegaConf.create(stored))).pretraining)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", plain, str(folder / "config.yaml")], cwd=tmp_path, text=True,
        capture_output=True, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [record["pretraining"]]


def test_b36_a_run_whose_loss_is_no_number_fails_and_says_where(ablate, monkeypatch, capsys):
    from ablate.pretraining.module import PretrainingModule

    real = PretrainingModule.losses

    def broken(self, micro):
        found = real(self, micro)
        if self.step == 1:
            for part in found.values():
                part.loss_sum = part.loss_sum * float("nan")
        return found

    monkeypatch.setattr(PretrainingModule, "losses", broken)
    code, records = ablate(*TINY, *BUILT_IN, "tracking=none")
    assert code == 1
    ((folder, record),) = records.items()
    assert record["status"] == "failed"
    assert "the gradient is not finite at step 2" in record["failure"]
    assert "optimizer.learning_rate" in record["failure"]
    assert "scores" not in record
    monkeypatch.setattr(PretrainingModule, "losses", real)
    code, records = ablate(*TINY, *BUILT_IN, "tracking=none")  # the same command tries again
    assert code == 0
    assert records[folder]["status"] == "complete"


def test_b41_what_cannot_change_a_token_changes_no_key_and_the_rest_does(tmp_path):
    from ablate.config.compose import compose_settings
    from ablate.run.arm import prepare

    def store(*words):
        given = [*TINY, *BUILT_IN, f"paths.cache_dir={tmp_path}", *words]
        return prepare(compose_settings(given), given).store.hash

    first = store()
    folders = set((tmp_path / "stores").iterdir())
    for word in (
        "trainer.micro_batch_size=4", "seed=3", "input_format.max_length=32", "nsp=true",
        "trainer.num_workers=2", "masking=all_mask", "trainer.precision=bf16",
    ):  # fmt: skip
        assert store(word) == first, word
    assert set((tmp_path / "stores").iterdir()) == folders
    assert store("corpus.num_documents=61") != first
    assert store("tokenizer=byte_bpe") != first


@pytest.mark.slow
def test_b26_two_processes_of_one_job_are_one_run_of_wandb(tmp_path):
    words = [*TINY, *BUILT_IN, "trainer.devices=2", "trainer.accelerator=cpu"]
    words += ["trainer.precision=fp32", "tracking.mode=offline"]
    env = {k: v for k, v in os.environ.items() if k not in ("WANDB_MODE", "WANDB_SERVICE")}
    done = subprocess.run(
        [sys.executable, "-m", "ablate", *words], cwd=tmp_path, capture_output=True, text=True,
        env={**env, "PYTHONPATH": str(ROOT)}, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (record,) = tmp_path.glob("runs/single/*/record.json")
    assert json.loads(record.read_text())["machine"]["world_size"] == 2
    assert len(list(tmp_path.rglob("offline-run-*"))) == 1
    assert (
        not list(tmp_path.rglob("run-*-*/run-*.wandb")) or len(list(tmp_path.rglob("*.wandb"))) == 1
    )


@pytest.mark.slow
def test_b25_with_no_network_no_key_and_no_terminal_there_is_a_report(tmp_path):
    """Two points of a sweep and their report, with nothing of W&B's in the environment."""
    (tmp_path / "sitecustomize.py").write_text(NO_NETWORK)
    (tmp_path / "home").mkdir()
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("WANDB_", "HF_"))}
    env = {**kept, "HOME": str(tmp_path / "home"), "PYTHONPATH": f"{tmp_path}:{ROOT}"}
    content = {
        "method": "grid", "metric": {"name": "val/token_mask/loss", "goal": "minimize"},
        "parameters": {"masking.mask_rate": {"values": [0.15, 0.3]}},
        "command": ["${env}", "python", "-m", "ablate", "${args_no_hyphens}"],
    }  # fmt: skip
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(content))
    for command in (
        ["ablate.sweep", "tiny.yaml", *TINY, *BUILT_IN], ["ablate.report", "sweep:tiny"],
    ):  # fmt: skip
        done = subprocess.run(
            [sys.executable, "-m", *command], cwd=tmp_path, env=env, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=600,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        assert "asked the network" not in done.stderr
        assert "choice" not in done.stdout + done.stderr
    for file in tmp_path.glob("runs/single/*/record.json"):
        record = json.loads(file.read_text())
        assert [run["mode"] for run in record["wandb"]] == ["offline"]
        assert {"config.yaml", "metrics.jsonl"} <= {path.name for path in file.parent.iterdir()}
        assert "val/token_mask/loss" in record["scores"]
    assert "points: 2 complete" in (tmp_path / "reports/sweep-tiny/README.md").read_text()
