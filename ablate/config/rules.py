"""Composed settings -> checked and completed settings: what no single group can know.

`check` refuses bad values and combinations before anything runs; `resolve` replaces each null by
the number it stands for. Both need no data and no torch, so that every arm of a study or point of a
sweep is judged before the first one runs.
"""

from __future__ import annotations

import copy
import re
from typing import Any

from ablate.config.corpus_rules import check_corpus_and_tokenizer
from ablate.config.encoder_hf import adopt_hf, check_hf
from ablate.config.encoder_rules import (
    check_encoder,
    check_unread,
    embedding_size,
    intermediate_size,
)
from ablate.config.encoder_source import check_source
from ablate.config.evaluation_rules import check_evaluation, resolve_evaluation
from ablate.config.input_rules import check_input_format
from ablate.config.limits import in_range, one_of
from ablate.config.masking_rules import check_masking
from ablate.config.objective_rules import check_objective
from ablate.config.schema import Settings
from ablate.encoder.config import EncoderConfig
from ablate.inputs.formats import PAIR_FORMATS
from ablate.inputs.pairs import resolve_pairing
from ablate.pretraining.machine import ACCELERATORS, PRECISIONS, STRATEGIES
from ablate.pretraining.schedules import SCHEDULES
from ablate.tracking.loggers import MODES

BACKENDS = ("auto", "eager", "sdpa", "flash", "flex")
CLOCKS = ("tokens", "steps")
TRACKING_KINDS = ("wandb", "csv", "tensorboard", "none")
_PLACEHOLDER_VOCABULARY = 1000
_PUBLISHED_STD, _PUBLISHED_WIDTH = 0.02, 768
_RATE_TIMES_WIDTH = {"pre": 0.32, "sandwich": 0.32, "post": 0.19}  # post: plateau at more


def check(settings: Settings) -> None:
    """Refuse what cannot run or would not mean what it says.

    Raises:
        ValueError: naming the setting, what was given, what is allowed and what to type.
    """
    for name, size in vars(settings.size).items():
        in_range(f"size.{name}", size, 1, 2**24, 64)
    check_source(settings)
    check_corpus_and_tokenizer(settings, resolve(settings).tokenizer.vocabulary)
    check_input_format(settings)
    _check_training(settings)
    check_evaluation(settings, resolve(settings))
    check_masking(settings)
    check_objective(settings)
    check_hf(settings)
    resolved = resolve(settings)
    if settings.encoder.kind != "hf":
        check_unread(settings)
        EncoderConfig(**encoder_arguments(resolved, _PLACEHOLDER_VOCABULARY, pad_token_id=0))


def resolve(settings: Settings) -> Settings:
    """A copy in which nulls that need neither data nor hardware are numbers.

    The width-scaled values meet the published ones at the published width: init_std is BERT's 0.02
    at 768, and grows as 1 / sqrt(width) below; the peak rate falls as 1 / width.
    """
    out = copy.deepcopy(settings)
    adopt_hf(out)
    width = out.size.hidden_size
    out.encoder.embedding_size = embedding_size(out)
    if out.encoder.init_std is None:
        out.encoder.init_std = round(_PUBLISHED_STD * (_PUBLISHED_WIDTH / width) ** 0.5, 6)
    if out.optimizer.learning_rate is None:
        peak = _RATE_TIMES_WIDTH.get(out.encoder.norm_position, 0.0) / width
        out.optimizer.learning_rate = round(peak, 8)
    if out.encoder.max_position_embeddings is None:
        out.encoder.max_position_embeddings = out.input_format.max_length
    rows = out.input_format
    if rows.name in PAIR_FORMATS:
        rows.pairing = resolve_pairing(rows.pairing, nsp=out.nsp, sop=out.sop)
    whole = max(out.trainer.global_batch_size // max(out.trainer.devices, 1), 1)  # of one rank
    out.trainer.micro_batch_size = min(out.trainer.micro_batch_size or whole, whole)
    resolve_evaluation(out)
    if out.tokenizer.vocabulary == "auto":
        morphemes = (
            out.corpus.kind == "synthetic"
            and out.tokenizer.kind == "wordpiece"
            and out.tokenizer.vocab_size is None
        )
        out.tokenizer.vocabulary = "morphemes" if morphemes else "trained"
    trains = out.tokenizer.vocabulary == "trained" and out.tokenizer.kind != "pretrained"
    if out.tokenizer.vocab_size is None and trains:
        out.tokenizer.vocab_size = 512 if out.corpus.kind == "synthetic" else 8192
    return out


def encoder_arguments(settings: Settings, vocab_size: int, pad_token_id: int) -> dict[str, Any]:
    """Keyword arguments of `EncoderConfig` from the groups `encoder`, `size`, `input_format`.

    What takes two settings to know (widths that follow from a rule) is in `encoder_rules`.
    """
    check_encoder(settings)
    given = dict(vars(settings.encoder))
    dropout = given.pop("dropout")
    for rule in ("glu_width", "embedding_rule"):
        given.pop(rule)
    for name in ("kind", "path", "hf_config"):  # where the encoder comes from, not what it is
        given.pop(name)
    sizes = dict(vars(settings.size))
    sizes["intermediate_size"] = intermediate_size(settings)
    return {
        **given,
        **sizes,
        "embedding_size": embedding_size(settings),
        "vocab_size": vocab_size,
        "pad_token_id": pad_token_id,
        "attention_dropout": dropout,
        "hidden_dropout": dropout,
        "embedding_dropout": dropout,
    }


def _check_training(settings: Settings) -> None:
    infinite = float("inf")
    in_range("seed", settings.seed, 0, 2**63 - 1, 0)
    one_of("attention_backend", settings.attention_backend, BACKENDS)
    in_range("encoder.dropout", settings.encoder.dropout, 0, 0.99, 0.1)
    in_range("size.intermediate_size", settings.size.intermediate_size, 8, 2**24, 256)
    for name, number in vars(settings.replicate).items():
        in_range(f"replicate.{name}", number, 0, 2**63 - 1, 1)
    one_of("trainer.precision", settings.trainer.precision, PRECISIONS)
    one_of("trainer.accelerator", settings.trainer.accelerator, ACCELERATORS)
    if settings.arm is not None and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", settings.arm):
        raise ValueError(
            f"arm={settings.arm!r} becomes a folder's name: letters, digits, '.', '_' and '-'. "
            "For example arm=all_mask"
        )
    for name, folder in vars(settings.paths).items():
        if not folder:
            raise ValueError(f"paths.{name} is empty; type for example paths.{name}=runs")
    one_of("optimizer.name", settings.optimizer.name, ("adamw",))
    rate = settings.optimizer.learning_rate
    if rate is not None:
        in_range("optimizer.learning_rate", rate, 1e-9, 10.0, 1e-3)
    in_range("optimizer.weight_decay", settings.optimizer.weight_decay, 0, 10, 0.01)
    in_range("optimizer.eps", settings.optimizer.eps, 1e-20, 1, 1e-6)
    in_range("optimizer.gradient_clip", settings.optimizer.gradient_clip, 1e-6, infinite, 1.0)
    betas = settings.optimizer.betas
    if len(betas) != 2 or not all(0 <= beta < 1 for beta in betas):
        raise ValueError(
            f"optimizer.betas={betas} must be two numbers in [0, 1); "
            "type 'optimizer.betas=[0.9,0.98]'"
        )
    one_of("schedule.name", settings.schedule.name, SCHEDULES)
    in_range("schedule.warmup_fraction", settings.schedule.warmup_fraction, 0, 0.999, 0.1)
    in_range("schedule.final_fraction", settings.schedule.final_fraction, 0, 1, 0.0)
    one_of("budget.clock", settings.budget.clock, CLOCKS)
    in_range("budget.amount", settings.budget.amount, 0, infinite, 3_000_000)
    trainer = settings.trainer
    for name in ("global_batch_size", "log_every", "checkpoint_every", "validation_rows"):
        in_range(f"trainer.{name}", getattr(trainer, name), 1, infinite, 16)
    for name in ("micro_batch_size", "threads"):
        if getattr(trainer, name) is not None:
            in_range(f"trainer.{name}", getattr(trainer, name), 1, infinite, 1)
    in_range("trainer.num_workers", trainer.num_workers, 0, 256, 0)
    in_range("trainer.num_validations", trainer.num_validations, 0, infinite, 4)
    _check_devices(settings)
    one_of("tracking.kind", settings.tracking.kind, TRACKING_KINDS)
    one_of("tracking.mode", settings.tracking.mode, MODES)
    in_range("tracking.timeout", settings.tracking.timeout, 1, 3600, 25)


def _check_devices(settings: Settings) -> None:
    """What the machine decides besides is in `pretraining.machine.resolve_strategy`."""
    trainer = settings.trainer
    devices, rows = trainer.devices, trainer.global_batch_size
    in_range("trainer.devices", devices, 1, 4096, 2)
    if trainer.strategy == "fsdp" and settings.encoder.shared_layers != "none":
        raise ValueError(
            f"trainer.strategy=fsdp with encoder.shared_layers={settings.encoder.shared_layers}: "
            "weights that layers share cannot be spread, and are few; type trainer.strategy=auto"
        )
    if trainer.strategy == "fsdp" and settings.encoder.kind == "hf":
        raise ValueError(
            "trainer.strategy=fsdp spreads the layers of our own encoder, and encoder=hf is one of "
            "transformers' classes; type trainer.strategy=auto"
        )
    one_of("trainer.strategy", trainer.strategy, STRATEGIES)
    if devices == 1 and trainer.strategy != "auto":
        raise ValueError(
            f"trainer.strategy={trainer.strategy} has no effect with trainer.devices=1; leave it "
            "out, or type trainer.devices=2"
        )
    if rows % devices:
        more = -(-rows // devices) * devices
        raise ValueError(
            f"trainer.global_batch_size={rows} cannot be dealt out evenly to trainer.devices="
            f"{devices}; type trainer.global_batch_size={more}"
        )
