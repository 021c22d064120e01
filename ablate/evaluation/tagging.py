"""Part-of-speech tagging and named entities as a measurement: one fit a fine-tuning seed.

A word is labelled, and scored, at its first piece (Devlin et al. 2019, sec. 5.3); the loss is the
mean over labelled words. Every word of the data stays in the count: one without a piece in its row
(see `tagging_encoding`) gets the commonest training tag, the answer that reads nothing, and a word
whose tag training lacks is wrong; how many there were of each stands in the facts. Causal encoders
are allowed, and read the words to the left and the first piece itself alone.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from ablate.evaluation.encoding import sample
from ablate.evaluation.measurement import EvaluationResult, Fitted, Part, Setup, Subject, Table
from ablate.evaluation.minimal_pairs import is_causal
from ablate.evaluation.ratio_error import ratio_error
from ablate.evaluation.scoring import score_name
from ablate.evaluation.settings import FinetuneSettings
from ablate.evaluation.tagging_data import Sentences, TaggingData, TaggingSpec, load_tagging
from ablate.evaluation.tagging_encoding import WordRows, encode_words
from ablate.evaluation.tagging_scores import counts, num_entities, score
from ablate.evaluation.token_fitting import finetune_tokens, used_settings

if TYPE_CHECKING:
    from ablate.tokens.tokenizer import Tokenizer


@dataclass(frozen=True)
class Tagging(Fitted):
    """A tagging task with its sentences, fitted once a fine-tuning seed."""

    data: TaggingData

    def key(self, setup: Setup) -> dict[str, Any]:
        return {"data": self.hash(), "seed": setup.seed, "settings": used_settings(setup.settings)}

    def measure(
        self, subject: Subject, setup: Setup, number: int, on_progress: Callable[[int, int], None]
    ) -> Part:
        task = _encoded(self, subject, setup)
        fit = finetune_tokens(
            subject.model, task.train.asked, {k: v.asked for k, v in task.scored.items()},
            task.loss, setup.settings, name=self.name, num_outputs=len(self.data.labels),
            seed=setup.seed, finetune_seed=number, on_step=on_progress,
        )  # fmt: skip
        columns = [
            _columns(self.data, split, task, fit.outputs[split], number) for split in task.scored
        ]
        table = {name: [value for part in columns for value in part[name]] for name in columns[0]}
        rows = {"train": task.train, **task.scored}
        return Part(
            table,
            {
                "task": dataclasses.asdict(self.data.spec),
                "tags": list(self.data.labels),
                "nothing": self.data.commonest_tag(),
                **fit.facts(),
                "num_train_examples": len(task.train.asked),
                "num_train_available": len(self.data.train),
                "num_scored_available": {s: len(part) for s, part in self.data.scored.items()},
                "truncated_tokens": {s: r.asked.rows.truncated_tokens for s, r in rows.items()},
                "words": {split: part.num_words for split, part in rows.items()},
                "words_without_pieces": {split: part.vanished for split, part in rows.items()},
                "words_cut": {split: part.cut for split, part in rows.items()},
                "words_of_unknown_tags": {
                    split: sum(t not in self.data.labels for tags in part.tags for t in tags)
                    for split, part in task.examples.items()
                },
                "words_not_finite": {
                    split: int((~np.isfinite(outputs).all(axis=1)).sum())
                    for split, outputs in fit.outputs.items()
                },
                "reads_to_the_left_only": is_causal(subject.model),
            },
        )

    def add_to(self, result: EvaluationResult, parts: Sequence[Part], setup: Setup) -> None:
        add_tagging(result, parts, setup)


@dataclass(frozen=True)
class _Encoded:
    train: WordRows
    targets: np.ndarray  # (A,) int64 class of each asked token of the training rows
    scored: dict[str, WordRows]
    examples: dict[str, Sentences]  # of the scored splits, all or a sample

    def loss(self, outputs: Tensor, lengths: np.ndarray, which: np.ndarray) -> tuple[Tensor, int]:
        """Cross entropy summed over the labelled pieces of the rows `which`, and their number."""
        targets = torch.from_numpy(self.targets[self.train.asked.numbers(which)])
        total = F.cross_entropy(outputs, targets.to(outputs.device), reduction="sum")
        return total, len(targets)


_last: tuple[Any, _Encoded] | None = None  # the fits of one task share its encoded rows


def _encoded(task: Tagging, subject: Subject, setup: Setup) -> _Encoded:
    global _last
    settings = setup.settings
    options = {
        name: getattr(settings, name)
        for name in ("max_length", "max_train_examples", "max_scored_examples", "sample_seed")
    }
    key = (task.hash(), subject.tokenizer.hash, options)
    if _last is None or _last[0] != key:
        _last = key, _encode(task.data, subject.tokenizer, settings)
    return _last[1]


def _encode(data: TaggingData, tokenizer: Tokenizer, settings: FinetuneSettings) -> _Encoded:
    name, seed = data.spec.name, settings.sample_seed
    train = data.train.of(
        sample(len(data.train), settings.max_train_examples, (seed, "finetune_sample", name))
    )
    examples = {
        split: part.of(
            sample(len(part), settings.max_scored_examples, (seed, "scored_sample", name, split))
        )
        for split, part in data.scored.items()
    }
    words = encode_words(tokenizer, train.words, max_length=settings.max_length)
    if not len(words.word_of_asked):
        raise ValueError(
            f"task {name!r}: no word of the {len(train)} training sentences has a piece; raise "
            "evaluation.finetune.max_train_examples, or take another tokenizer"
        )
    numbers = {tag: number for number, tag in enumerate(data.labels)}
    tags = np.array([numbers[tag] for tags in train.tags for tag in tags], dtype=np.int64)
    scored = {
        split: encode_words(tokenizer, part.words, max_length=settings.max_length)
        for split, part in examples.items()
    }
    return _Encoded(words, tags[words.word_of_asked], scored, examples)


def _columns(
    data: TaggingData, split: str, task: _Encoded, outputs: np.ndarray, number: int
) -> Table:
    """A line for each word, in the order of the file; NaN outputs count as 0."""
    sentences, rows = task.examples[split], task.scored[split]
    predicted = np.full(rows.num_words, data.labels.index(data.commonest_tag()))
    predicted[rows.word_of_asked] = np.nan_to_num(outputs, nan=0.0).argmax(axis=1)
    lengths = [len(words) for words in sentences.words]
    return {
        "example_id": [i for i, n in zip(sentences.ids, lengths, strict=True) for _ in range(n)],
        "word": [place for n in lengths for place in range(n)],
        "label": [tag for tags in sentences.tags for tag in tags],
        "prediction": [data.labels[tag] for tag in predicted.tolist()],
        "split": [split] * rows.num_words,
        "finetune_seed": [number] * rows.num_words,
    }


def add_tagging(result: EvaluationResult, parts: Sequence[Part], setup: Setup) -> None:
    """Scores of every split and metric from the stored words, beside the commonest tag's."""
    facts = dict(parts[0].facts)
    spec, nothing = facts.pop("task"), facts["nothing"]
    entry: dict[str, Any] = {"metrics": {}, "n": {}, "num_scored": {}, "collapsed": {}}
    for split in dict.fromkeys(parts[0].table["split"]):
        gold = _by_sentence(parts[0], split, "label")
        found = [_by_sentence(part, split, "prediction") for part in parts]
        baseline = [[nothing] * len(tags) for tags in gold]
        num_words = sum(map(len, gold))
        entry["n"][split], entry["num_scored"][split] = num_words, len(gold)
        entry["collapsed"][split] = [len({t for row in tags for t in row}) < 2 for tags in found]
        for metric in spec["metrics"]:
            scores = [score(metric, tags, gold) for tags in found]
            majority = score(metric, baseline, gold)
            error = ratio_error([counts(metric, tags, gold) for tags in found])
            name = score_name(spec["suite"], spec["name"], split, metric)
            entry["metrics"][name] = {
                "metric": metric,
                "n": num_words if metric == "accuracy" else num_entities(gold),
                "majority": majority.value,
                "majority_flag": majority.flag,
                "by_seed": [value.value for value in scores],
                "flags": [
                    "not_finite" if part.facts["words_not_finite"].get(split) else value.flag
                    for value, part in zip(scores, parts, strict=True)
                ],
                "standard_error": error,
                "standard_error_method": "sentences",
            }
            result.scores[name] = float(np.mean([value.value for value in scores]))
    per_seed = [n for n in ("train_loss", "words_not_finite", "early_stopping") if n in facts]
    result.details[spec["name"]] = {
        **entry,
        **{name: value for name, value in facts.items() if name not in per_seed},
        **{f"{name}_by_seed": [part.facts[name] for part in parts] for name in per_seed},
        "hyper_parameters": used_settings(setup.settings),
    }


def _by_sentence(part: Part, split: str, column: str) -> list[list[str]]:
    found: list[list[str]] = []
    table = part.table
    for here, place, tag in zip(table["split"], table["word"], table[column], strict=True):
        if here == split:
            if place == 0:
                found.append([])
            found[-1].append(tag)
    return found


def load(
    definition: Mapping[str, Any], *, path: str | Path | None, cache_dir: str | Path | None
) -> Tagging:
    """The measurement of a definition with `kind: tagging` (see `tagging_data.TaggingSpec`)."""
    spec = TaggingSpec.from_dict(definition)
    return Tagging(load_tagging(spec, path=path, cache_dir=cache_dir))
