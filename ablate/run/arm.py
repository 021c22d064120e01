"""Settings -> an `Arm`: everything that decides its numbers is known, nothing is trained yet.

Every null and `auto` is resolved here, once; the corpus is scanned, the tokenizer trained or found,
the tasks read, so that bad data is refused before a step is taken.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ablate.config.encoder_hf import check_hf
from ablate.config.encoder_rules import check_unread, window_hides_nothing
from ablate.config.encoder_source import named_settings, with_source
from ablate.config.fingerprint import fingerprint, pretraining_identity
from ablate.config.rules import check, resolve
from ablate.config.schema import Settings
from ablate.corpus import sources
from ablate.inputs.formats import check_partners
from ablate.inputs.masking import MaskingPolicy
from ablate.inputs.pairs import loss_name
from ablate.interop import pretrained
from ablate.interop.checkpoint import Source
from ablate.pretraining import machine
from ablate.pretraining.disk import make_folder, writing
from ablate.run.encoders import describe_encoder, resolve_backend
from ablate.run.progress import Stage


@dataclass
class Arm:
    """An arm after everything that decides its numbers is known, before anything is trained."""

    settings: Settings  # resolved
    corpus: sources.Corpus
    tokenizer: Any
    encoder: Any  # EncoderConfig, or the HFEncoderConfig of a transformers class
    backend: Any
    machine: dict[str, Any]
    identity: dict[str, Any]  # of the pretraining
    cache: Path
    source: Source | None = None  # the folder of encoder=pretrained

    @functools.cached_property
    def store(self) -> Any:
        from ablate.tokens import store

        total = self.corpus.counts["documents"]
        shown = self.settings.trainer.progress_bar
        progress = Stage("token store", total).advance if shown else None
        jobs = store.resolve_jobs(
            self.settings.corpus.jobs,
            text_bytes=self.corpus.counts["text_bytes"],
            cores=machine.available_cores(),
        )
        with writing(self.cache / "stores"):
            found = store.build(
                self.corpus, self.tokenizer, cache_dir=self.cache, progress=progress, jobs=jobs
            )
            if self.settings.corpus.word_order == "natural":
                return found
            from ablate.tokens.word_order import shuffled

            threshold, seed = self.corpus.validation_threshold, self.settings.corpus.seed
            return shuffled(found, threshold, seed=seed, cache_dir=self.cache)

    @functools.cached_property
    def data(self) -> Any:
        """Training steps and validation batches; the validation is drawn once for all its uses."""
        from ablate.inputs.datamodule import PretrainingData

        settings = self.settings
        return PretrainingData(
            self.store,
            self.tokenizer,
            MaskingPolicy(**vars(settings.masking)),
            input_format=settings.input_format.name,
            max_length=settings.input_format.max_length,
            short_seq_prob=settings.input_format.short_seq_prob,
            pairing=settings.input_format.pairing,
            pair_sampling=settings.input_format.pair_sampling,
            document_boundary=settings.input_format.document_boundary,
            copies=settings.input_format.copies,
            validation_threshold=self.corpus.validation_threshold,
            validation_seed=settings.corpus.seed,
            validation_rows=settings.trainer.validation_rows,
            clock=settings.budget.clock,
            amount=settings.budget.amount,
            global_batch_size=settings.trainer.global_batch_size,
            micro_batch_size=settings.trainer.micro_batch_size
            or settings.trainer.global_batch_size,
            num_workers=settings.trainer.num_workers,
            seed=settings.seed,
            cache_dir=self.cache,
            replicate_data=settings.replicate.data,
            replicate_masks=settings.replicate.masks,
            objective=settings.objective.name,
        )

    @functools.cached_property
    def pretraining(self) -> str:
        """Fingerprint of the pretraining."""
        return fingerprint(self.identity)


def prepare(given: Settings, overrides: Sequence[str] = ()) -> Arm:
    """Resolve every null and auto, open the corpus and the tokenizer, name the pretraining.

    `overrides` made the settings: what they name and the encoder's source decides is refused.
    """
    named = named_settings(overrides)
    if given.encoder.kind == "native":
        check_unread(given, named)
    check_hf(given, named)
    given, source = with_source(given, named)
    if source is not None:
        check(given)
    settings = resolve(given)
    machine.keep_freed_memory()
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    threads = machine.resolve_threads(
        settings.trainer.threads,
        hidden_size=settings.size.hidden_size,
        devices=settings.trainer.devices,
    )
    settings.trainer.threads = threads
    machine.set_threads(threads)
    import torch

    from ablate.inputs.masked_rows import check_words

    device = machine.resolve_device(settings.trainer.accelerator)
    precision = machine.resolve_precision(
        settings.trainer.precision, device=device, hidden_size=settings.size.hidden_size
    )
    strategy = machine.resolve_strategy(
        settings.trainer.strategy,
        device=device,
        devices=settings.trainer.devices,
        threads=threads,
    )
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    backend = resolve_backend(settings, device, dtype)
    cache = Path(settings.paths.cache_dir).expanduser()
    make_folder("paths.cache_dir", cache)
    if settings.trainer.progress_bar and settings.corpus.kind != "synthetic":
        print("corpus: reading, the first time", file=sys.stderr, flush=True)
    with writing(cache):
        corpus = open_corpus(settings, cache)
        tokenizer = open_tokenizer(settings, corpus, cache)
    encoder, arguments = describe_encoder(settings, tokenizer, backend, source)
    facts = {
        "device": device,
        "precision": precision,
        "threads": threads,
        "attention_backend": backend.name,
        "kernel": backend.kernel_for(settings.encoder.dropout, device),
    }
    if strategy == "fsdp":  # adds up gradients in another order
        facts["strategy"] = strategy
    identity = pretraining_identity(
        settings,
        encoder=arguments,
        data={
            "corpus": corpus.fingerprint,
            "validation_threshold": corpus.validation_threshold,
            "validation_seed": settings.corpus.seed,
            "tokenizer": tokenizer.hash,
            **_word_order(settings, tokenizer),
        },
        machine=facts,
    )
    if source is not None:
        pair_loss = loss_name(nsp=settings.nsp, sop=settings.sop)
        identity["source"] = pretrained.identity(source, pair_loss)
    check_words(settings.masking.selection, tokenizer)
    training = corpus.counts["documents"] - corpus.counts["validation_documents"]
    check_partners(settings.input_format.name, training, settings.input_format.pairing)
    facts = {**facts, "backend_reason": backend.reason}
    if strategy is not None:  # how ddp starts ranks changes no number; how many is in the identity
        facts |= {"world_size": settings.trainer.devices, "strategy": strategy}
    if settings.encoder.kind != "hf" and window_hides_nothing(settings):
        facts["window"] = (
            f"encoder.local_attention={settings.encoder.local_attention} hides nothing in rows of "
            f"{settings.input_format.max_length} tokens"
        )
    return Arm(settings, corpus, tokenizer, encoder, backend, facts, identity, cache, source)


def _word_order(settings: Settings, tokenizer: Any) -> dict[str, str]:
    """What word order adds to the identity: nothing where it is the text's own.

    Raises:
        ValueError: words are to be shuffled that the tokenizer cannot tell apart.
    """
    order = settings.corpus.word_order
    if order == "natural":
        return {}
    if not tokenizer.knows_words:
        raise ValueError(
            f"corpus.word_order={order} needs a tokenizer with a pre-tokenizer that tells words "
            f"apart, {tokenizer.file} has none; type corpus.word_order=natural"
        )
    return {"word_order": order}


def open_corpus(settings: Settings, cache: Path) -> sources.Corpus:
    """The corpus of the group `corpus`, scanned once and remembered in the cache."""
    corpus = settings.corpus
    common: dict[str, Any] = {
        "validation_fraction": corpus.validation_fraction,
        "cache_dir": cache,
    }
    if corpus.kind == "synthetic":
        return sources.load_synthetic(
            seed=corpus.seed, num_documents=corpus.num_documents, **common
        )
    common |= {"text_field": corpus.text_field, "max_documents": corpus.max_documents}
    if corpus.kind == "files":
        return sources.load_files(corpus.path or "", **common)
    return sources.load_hub(
        corpus.name or "",
        config=corpus.config,
        split=corpus.split,
        revision=corpus.revision,
        streaming=corpus.streaming,
        document_rule=corpus.document_rule,
        **common,
    )


def open_tokenizer(settings: Settings, corpus: sources.Corpus, cache: Path) -> Any:
    """Load, build or train the tokenizer; training sees the training documents only."""
    from ablate.tokens import tokenizer, training

    wanted = settings.tokenizer
    if wanted.kind == "pretrained":
        return tokenizer.load(wanted.path)
    if wanted.vocabulary == "morphemes":
        return training.from_morphemes(corpus.morphemes or [], cache_dir=cache)
    if settings.trainer.progress_bar and corpus.counts["text_bytes"] > 5_000_000:
        print(f"tokenizer: {wanted.kind}, trained once and kept", file=sys.stderr, flush=True)
    return training.train(
        wanted.kind,
        sources.TrainingDocuments(corpus),
        vocab_size=wanted.vocab_size or 0,
        lowercase=wanted.lowercase,
        cache_dir=cache,
        documents_key=f"{corpus.fingerprint}-{corpus.validation_threshold}",
    )
