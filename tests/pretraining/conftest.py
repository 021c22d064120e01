"""A tiny model and the pieces of a fit over the built-in data."""

import functools
import os

import pytest

from ablate import rng
from ablate.encoder import backends
from ablate.encoder.config import EncoderConfig
from ablate.encoder.heads import MaskedLanguageModel
from ablate.encoder.initialization import initialize
from ablate.inputs.datamodule import PretrainingData
from ablate.inputs.masking import MaskingPolicy
from ablate.pretraining import pretrain as fits
from ablate.pretraining.checkpoints import newest_checkpoint
from ablate.pretraining.module import PretrainingModule
from ablate.run.stages import forget_after, lines_before
from ablate.tracking.lightning import RecordLogger
from ablate.tracking.record import MetricsFile


@pytest.fixture
def make_model(built_in):
    import torch

    def make(*, nsp=True, dropout=0.0, seed=0):
        _, tokenizer, _ = built_in
        config = EncoderConfig(
            vocab_size=tokenizer.vocab_size, hidden_size=16, num_hidden_layers=2,
            num_attention_heads=2, intermediate_size=32, max_position_embeddings=64,
            hidden_dropout=dropout, embedding_dropout=dropout, init_std=0.1,
        )  # fmt: skip
        backend = backends.resolve("sdpa", device="cpu", dtype=torch.float32, max_length=64)
        model = MaskedLanguageModel(config, backend, pair_classes=2 if nsp else 0)
        initialize(model, config, lambda name: rng.torch_seed(seed, "init", name))
        return model

    return make


@pytest.fixture
def make_data(built_in):
    corpus, tokenizer, store = built_in

    def make(*, clock="steps", amount=12, batch=8, micro=8, workers=0, policy=None, seed=0):
        return PretrainingData(
            store, tokenizer, policy or MaskingPolicy(), input_format="segment_pair",
            max_length=64, short_seq_prob=0.1, validation_threshold=corpus.validation_threshold,
            validation_seed=0, validation_rows=20, clock=clock, amount=amount,
            global_batch_size=batch, micro_batch_size=micro, num_workers=workers, seed=seed,
            cache_dir=os.environ["ABLATE_CACHE"],
        )  # fmt: skip

    return make


@pytest.fixture
def make_module():
    def make(model, data, *, log_every=4, seed=0, learning_rate=0.01, warmup=0.25):
        return PretrainingModule(
            model, learning_rate=learning_rate, weight_decay=0.01, betas=(0.9, 0.98), eps=1e-6,
            gradient_clip=1.0, schedule="linear", warmup_fraction=warmup, final_fraction=0.0,
            seed=seed, log_every=log_every, validation_names=data.validation_names,
            bytes_per_token=data.validation_bytes_per_token,
        )  # fmt: skip

    return make


@pytest.fixture
def fit(make_model, make_data, make_module, tmp_path):
    """One whole fit in a folder of that name, continued where one was begun there."""

    def run(name, *, model=None, every=4, validations=2, module_options=None, **data_options):
        model = model or make_model()
        data = make_data(**data_options)
        module = make_module(model, data, **(module_options or {}))
        metrics = MetricsFile(tmp_path / name / "metrics.jsonl")
        total = len(data.steps)
        lines = functools.partial(lines_before, metrics, total=total)
        newest = newest_checkpoint(tmp_path / name / "checkpoints", num_lines=lines)
        forget_after(metrics, newest[1] if newest else 0, total=total)
        result = fits.pretrain(
            module, data, folder=tmp_path / name / "checkpoints", resume_from=newest,
            loggers=[RecordLogger(metrics)],
            accelerator="cpu", devices=1, precision="fp32", num_validations=validations,
            checkpoint_every=every, show_progress=False,
        )  # fmt: skip
        return model, result, metrics

    return run
