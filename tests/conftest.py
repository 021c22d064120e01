"""Keeps every test off the network, off W&B's home folders, and on one thread."""

import importlib.util
import os
import sys
import tempfile
from pathlib import Path

_HOME = tempfile.mkdtemp(prefix="ablate-tests-")
for _name in ("WANDB_API_KEY", "WANDB_BASE_URL", "WANDB_RUN_ID", "WANDB_SWEEP_ID"):
    os.environ.pop(_name, None)
os.environ["WANDB_MODE"] = "disabled"
os.environ["WANDB_ERROR_REPORTING"] = "false"
os.environ["WANDB_SILENT"] = "true"
for _name in ("WANDB_DIR", "WANDB_CACHE_DIR", "WANDB_DATA_DIR", "WANDB_CONFIG_DIR"):
    os.environ[_name] = _HOME
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_DATASETS_OFFLINE"] = "1"
os.environ["ABLATE_CACHE"] = str(Path(_HOME) / "cache")
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["COLUMNS"] = "120"
# hundreds of processes are started: what one has compiled saves the next half of its start
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

import hypothesis
import pytest
import torch

torch.set_num_threads(1)
hypothesis.settings.register_profile("ablate", deadline=None)  # a first call compiles
hypothesis.settings.load_profile("ablate")


@pytest.fixture(scope="session")
def built_in(tmp_path_factory):
    """(corpus, tokenizer, store) of a small piece of the built-in language, built once."""
    from ablate.corpus import sources
    from ablate.tokens import store, training

    cache = Path(os.environ["ABLATE_CACHE"])
    corpus = sources.load_synthetic(
        seed=0, num_documents=300, validation_fraction=0.1, cache_dir=cache
    )
    tokenizer = training.from_morphemes(corpus.morphemes, cache_dir=cache)
    return corpus, tokenizer, store.build(corpus, tokenizer, cache_dir=cache)


@pytest.fixture(scope="session")
def tokenizer():
    """The built-in language's morphemes in a bare WordPiece, independent of `ablate.tokens`."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    from ablate.corpus.synthetic import morphemes

    entries = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *morphemes()]
    vocabulary = {entry: i for i, entry in enumerate(entries)}
    made = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return made


def _load(name):
    """A file beside this one as a module: test folders are no packages."""
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


@pytest.fixture
def slurm_stand_in(tmp_path, monkeypatch):
    """The module of Slurm's commands, which are first on PATH of whatever is started."""
    module = _load("slurm_stand_in")
    (tmp_path / "slurm").mkdir()
    monkeypatch.setenv("SLURM_STAND_IN", str(tmp_path / "slurm"))
    monkeypatch.setenv("PATH", f"{module.install(tmp_path)}{os.pathsep}{os.environ['PATH']}")
    return module


@pytest.fixture
def wandb_server():
    """A running stand-in of the W&B server, see `wandb_server.py`."""
    _load("wandb_answers")
    server = _load("wandb_server").Server()
    yield server
    server.stop()
