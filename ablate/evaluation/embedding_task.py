"""Sentence similarity as a measurement: cosines of an encoder's mean vectors against gold scores.

Each part is one fit: a copy of the encoder, trained on pairs that belong together (`contrastive`),
scores every pair of the scored task by the cosine of the two vectors. Beside it stands the same
cosine before any step (zero-shot) and the share of common words, which needs no encoder at all.
STS-B: Cer et al. 2017; the rule of scoring: Reimers and Gurevych 2019.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ablate.evaluation import contrastive, similarity_scores
from ablate.evaluation.bm25 import words
from ablate.evaluation.contrastive import ContrastiveSettings
from ablate.evaluation.encoding import Rows, encode
from ablate.evaluation.fitting import fit
from ablate.evaluation.measurement import EvaluationResult, Part, Setup, Subject
from ablate.evaluation.tasks import TaskData, TaskSpec, load_task
from ablate.evaluation.texts import plain_text, sampled, text_numbers

KEYS = ("name", "suite", "scored", "train", "positive_from", "positive_labels")


@dataclass(frozen=True)
class SentenceSimilarity:
    """`scored` has gold similarities, `pairs` are the texts that belong together, from training
    files, without those that are also scored (`num_repeats` of them)."""

    suite: str
    name: str
    scored: TaskData
    pairs: list[tuple[str, ...]]
    num_repeats: int
    settings: ContrastiveSettings

    def hash(self) -> str:
        return self._hash

    @functools.cached_property
    def _hash(self) -> str:
        content = [self.scored.hash(), self.pairs, dataclasses.asdict(self.settings), self.name]
        return hashlib.blake2b(json.dumps(content).encode(), digest_size=8).hexdigest()

    def key(self, setup: Setup) -> dict[str, Any]:
        return {
            "data": self.hash(),
            "seed": setup.seed,
            "settings": dataclasses.asdict(setup.settings),
        }

    def num_parts(self, setup: Setup) -> int:
        return setup.num_seeds

    def measure(
        self, subject: Subject, setup: Setup, number: int, on_progress: Callable[[int, int], None]
    ) -> Part:
        settings = setup.settings
        chosen = sampled(
            len(self.pairs), settings.max_train_examples, settings.sample_seed, self.name
        )
        texts, numbers = text_numbers([text for i in chosen for text in self.pairs[i]])
        pairs = numbers.reshape(-1, 2)
        right = contrastive.right_in_one_space(pairs)
        train = encode(
            subject.tokenizer, [(text,) for text in texts], max_length=settings.max_length
        )
        splits = {split: self._encoded(subject, setup, split) for split in self.scored.scored}
        rows = {"train": train, **splits}
        with torch.random.fork_rng(devices=_cuda(subject)):
            bi_encoder = contrastive.new_bi_encoder(
                subject.model, settings, self.settings.pooling,
                longest=max(int(part.lengths.max()) for part in rows.values()), task=self.name,
            )  # fmt: skip
            zero_shot = {split: _cosines(bi_encoder.embed(part)) for split, part in splits.items()}
            steps, loss = fit(
                bi_encoder.encoder, bi_encoder.projection,
                lambda which: contrastive.contrastive_loss(
                    bi_encoder, (train, train), pairs[which], right, self.settings
                ),
                settings, num_rows=len(pairs),
                stream=(setup.seed, "finetune", self.name, number), on_step=on_progress,
            )  # fmt: skip
            found = {split: _cosines(bi_encoder.embed(part)) for split, part in splits.items()}
        columns = [self._columns(split, found[split], zero_shot[split], number) for split in splits]
        table = {name: [value for part in columns for value in part[name]] for name in columns[0]}
        return Part(
            table,
            {
                "name": self.name,
                "suite": self.suite,
                "contrastive": dataclasses.asdict(self.settings),
                "unused_settings": contrastive.unused_settings(settings, "head", "pooling"),
                "steps": steps,
                "new_weights": list(bi_encoder.new_weights),
                "num_train_examples": len(chosen),
                "num_train_available": len(self.pairs),
                "num_repeats_dropped": self.num_repeats,
                "train_tokens": bi_encoder.tokens_seen,
                "truncated_tokens": {split: part.truncated_tokens for split, part in rows.items()},
                "train_loss": loss,
            },
        )

    def _encoded(self, subject: Subject, setup: Setup, split: str) -> Rows:
        """Both sides of the pairs of a split, first and second text in turn."""
        texts = [(text,) for pair in self.scored.scored[split].texts for text in pair]
        return encode(subject.tokenizer, texts, max_length=setup.settings.max_length)

    def _columns(
        self, split: str, found: np.ndarray, zero_shot: np.ndarray, number: int
    ) -> dict[str, list[Any]]:
        examples = self.scored.scored[split]
        return {
            "example_id": list(examples.ids),
            "label": examples.labels.tolist(),
            "prediction": found.tolist(),
            "split": [split] * len(examples),
            "finetune_seed": [number] * len(examples),
            "zero_shot": zero_shot.tolist(),
            "word_overlap": [_overlap(*pair) for pair in examples.texts],
        }

    def add_to(self, result: EvaluationResult, parts: Sequence[Part], setup: Setup) -> None:
        similarity_scores.add(result, parts, dataclasses.asdict(setup.settings))


def _cosines(vectors: np.ndarray) -> np.ndarray:
    """Of rows 0 and 1, 2 and 3, ... (unit vectors), float64."""
    return (vectors[0::2].astype(np.float64) * vectors[1::2]).sum(1)


def _overlap(first: str, second: str) -> float:
    """Jaccard's share of common words."""
    one, other = set(words(first)), set(words(second))
    return len(one & other) / max(len(one | other), 1)


def _cuda(subject: Subject) -> list[torch.device]:
    device = next(subject.model.parameters()).device
    return [device] if device.type == "cuda" else []


def load(
    definition: Mapping[str, Any], *, path: str | Path | None, cache_dir: str | Path | None
) -> SentenceSimilarity:
    """The measurement of a definition: `scored` (a regression task of two texts), `train` (a task
    whose rows with one of `positive_labels` belong together) or, without it, the rows of the scored
    task's own training file with a label of at least `positive_from`.

    Raises:
        ValueError: a bad definition, bad data, or no pair to train on.
    """
    name = str(definition.get("name"))
    own = [field.name for field in dataclasses.fields(ContrastiveSettings)]
    unknown = sorted(set(definition) - {*KEYS, *own})
    if unknown or not definition.get("scored"):
        raise ValueError(
            f"task {name!r}: unknown keys {unknown}, or no `scored`; allowed: {[*KEYS, *own]}"
        )
    settings = ContrastiveSettings(**{key: definition[key] for key in own if key in definition})
    settings.check(name)
    spec = TaskSpec.from_dict({"metrics": list(similarity_scores.METRICS), **definition["scored"]})
    if not spec.is_regression or len(spec.fields) != 2:
        raise ValueError(f"task {name!r}: `scored` needs two fields and no labels (a similarity)")
    scored = load_task(spec, path=path, cache_dir=cache_dir)
    given = definition.get("train")
    source = scored
    if given is not None:
        source = load_task(
            TaskSpec.from_dict({"metrics": ["accuracy"], **given}), path=path, cache_dir=cache_dir
        )
    right = _positive(source, definition, name)
    texts = [texts for texts, good in zip(source.train.texts, right, strict=True) if good]
    known = {
        frozenset(map(plain_text, pair)) for part in scored.scored.values() for pair in part.texts
    }
    pairs = [pair for pair in texts if frozenset(map(plain_text, pair)) not in known]
    if len(pairs) < 2:
        raise ValueError(f"task {name!r}: {len(pairs)} training pairs belong together; give 2 more")
    suite = str(definition.get("suite", "embedding"))
    return SentenceSimilarity(suite, name, scored, pairs, len(texts) - len(pairs), settings)


def _positive(source: TaskData, definition: Mapping[str, Any], name: str) -> np.ndarray:
    """Which training rows are pairs that belong together, (n,) bool."""
    spec, labels = source.spec, source.train.labels
    if len(spec.fields) != 2:
        raise ValueError(f"task {name!r}: `train` needs two fields, it has {list(spec.fields)}")
    wanted = definition.get("positive_from" if spec.is_regression else "positive_labels")
    if wanted is None or (not spec.is_regression and not set(wanted) <= set(spec.labels)):
        allowed = "positive_from: 4.0" if spec.is_regression else f"some of {list(spec.labels)}"
        raise ValueError(
            f"task {name!r}: say which rows belong together, with positive_from (a number) where "
            f"labels are numbers and positive_labels (names) where they are classes: {allowed}"
        )
    if spec.is_regression:
        return labels >= float(wanted)
    return np.isin(labels, [spec.labels.index(label) for label in wanted])
