"""Runs of a few steps on the built-in language, made once, and what they were exported to."""

import contextlib
import io
import json

import pytest

from ablate.config.compose import compose_settings
from ablate.interop.__main__ import main as interop
from ablate.run.single import run

TINY = [
    "corpus.num_documents=200", "corpus.validation_fraction=0.1", "budget.clock=steps",
    "budget.amount=4", "trainer.log_every=2", "trainer.validation_rows=16",
    "trainer.num_validations=1", "trainer.threads=1", "trainer.progress_bar=false",
    "trainer.precision=fp32", "evaluation=none", "tracking=none",
]  # fmt: skip
CORNERS = {
    "bert": ["encoder=bert"],
    "bert_nsp": ["encoder=bert", "nsp=true"],
    "bert_sop": ["encoder=bert", "sop=true"],
    "bert_untied_no_types": [
        "encoder=bert",
        "encoder.tie_word_embeddings=false",
        "encoder.type_vocab_size=0",
        "encoder.attention_bias=false",
        "encoder.norm_bias=false",
        "encoder.head_bias=false",
    ],
    "bert_unigram": [
        "encoder=bert",
        "tokenizer=unigram",
        "tokenizer.vocab_size=120",
        "tokenizer.vocabulary=trained",
    ],
    "modernbert": ["encoder=modernbert", "encoder.local_attention=8"],
    "modernbert_nsp_untied": [
        "encoder=modernbert",
        "nsp=true",
        "encoder.tie_word_embeddings=false",
        "encoder.global_attention_every_n=2",
        "encoder.activation=silu",
    ],
    "modernbert_byte_bpe": [
        "encoder=modernbert",
        "tokenizer=byte_bpe",
        "tokenizer.vocab_size=300",
        "tokenizer.vocabulary=trained",
    ],
}


def train(folder, *overrides):
    """The folder of a finished run; its printed summary is thrown away."""
    paths = [f"paths.runs_dir={folder / 'runs'}"]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        record = run(compose_settings([*TINY, *paths, *overrides]))
    found = folder.glob(f"runs/single/*-{record['fingerprint']}")
    return next(iter(found)), record


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """Name of a corner -> its run's folder."""
    root, made = tmp_path_factory.mktemp("interop"), {}

    def get(name):
        if name not in made:
            made[name] = train(root / name, *CORNERS[name])[0]
        return made[name]

    return get


@pytest.fixture(scope="session")
def exported(trained, tmp_path_factory):
    """Name of a corner -> (its run's folder, the exported folder, what was printed)."""
    root, made = tmp_path_factory.mktemp("exported"), {}

    def get(name):
        if name not in made:
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                words = ["export", str(trained(name)), str(root / name)]
                assert interop(words + ["--pair-head"] * (name == "bert_nsp")) == 0
            made[name] = (trained(name), root / name, out.getvalue())
        return made[name]

    return get


@pytest.fixture
def refused(capsys):
    """Run `ablate.interop`, expect exit code 2 and one message; returns it."""

    def call(*words):
        assert interop([str(word) for word in words]) == 2
        err = capsys.readouterr().err
        assert err.startswith("ablate: ")
        assert err.count("\n") == 1
        return err

    return call


@pytest.fixture
def pretrained_of():
    """A run's folder -> that of its pretraining."""

    def get(single):
        record = json.loads((single / "record.json").read_text())
        return single.parent.parent / "pretrained" / record["pretraining"]

    return get
