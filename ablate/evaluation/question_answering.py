"""Extractive question answering (SQuAD) as a measurement: one fit a fine-tuning seed.

Two outputs a token, softmax over all tokens of a row, half the sum of two cross entropies (Devlin
et al. 2019, sec. 4.2). With `unanswerable` (SQuAD 2.0) the empty answer is given where [CLS] scores
above the best span; otherwise a span is always given. Exact match and F1 stand beside an answer
that reads nothing: the first words of the paragraph, as many as the median training answer has, or
"no answer" where a task has such. Causal encoders are allowed: a token then decides on an answer
without what follows it, and [CLS], which sees nothing, scores every question alike.
"""

from __future__ import annotations

import dataclasses
import functools
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
from ablate.evaluation.question_data import Question, QuestionData, QuestionSpec, load_questions
from ablate.evaluation.question_scores import by_question
from ablate.evaluation.question_windows import Windows, best_answers, encode_questions
from ablate.evaluation.ratio_error import ratio_error
from ablate.evaluation.scoring import score_name
from ablate.evaluation.settings import FinetuneSettings
from ablate.evaluation.token_fitting import finetune_tokens, used_settings

if TYPE_CHECKING:
    from ablate.tokens.tokenizer import Tokenizer


@dataclass(frozen=True)
class QuestionAnswering(Fitted):
    """A task with its questions, fitted once a fine-tuning seed."""

    data: QuestionData

    def key(self, setup: Setup) -> dict[str, Any]:
        return {"data": self.hash(), "seed": setup.seed, "settings": used_settings(setup.settings)}

    def measure(
        self, subject: Subject, setup: Setup, number: int, on_progress: Callable[[int, int], None]
    ) -> Part:
        task = _encoded(self, subject, setup)
        fit = finetune_tokens(
            subject.model, task.train.asked, {k: v.asked for k, v in task.scored.items()},
            task.loss, setup.settings, name=self.name, num_outputs=2, seed=setup.seed,
            finetune_seed=number, groups=task.paragraphs, on_step=on_progress,
        )  # fmt: skip
        words = self.data.median_answer_words()
        columns = [
            _columns(self.data.spec, split, task, fit.outputs[split], number, words)
            for split in task.scored
        ]
        table = {name: [value for part in columns for value in part[name]] for name in columns[0]}
        nothing = f"the first {words} words of the paragraph"
        return Part(
            table,
            {
                "task": dataclasses.asdict(self.data.spec),
                "nothing": "no answer" if self.data.spec.unanswerable else nothing,
                "notes": dict(self.data.notes),
                **fit.facts(),
                "num_train_examples": task.train.facts["questions"],
                "num_train_available": len(self.data.train),
                "num_scored_available": {s: len(part) for s, part in self.data.scored.items()},
                "encoded": {s: w.facts for s, w in {"train": task.train, **task.scored}.items()},
                "outputs_not_finite": {
                    split: int((~np.isfinite(outputs)).any(axis=1).sum())
                    for split, outputs in fit.outputs.items()
                },
                "reads_to_the_left_only": is_causal(subject.model),
            },
        )

    def add_to(self, result: EvaluationResult, parts: Sequence[Part], setup: Setup) -> None:
        add_questions(result, parts, setup)


@dataclass(frozen=True)
class _Encoded:
    train: Windows
    paragraphs: np.ndarray  # (n,) number of the paragraph of each training row
    scored: dict[str, Windows]
    examples: dict[str, list[Question]]  # of the scored splits, all or a sample

    def loss(self, outputs: Tensor, lengths: np.ndarray, which: np.ndarray) -> tuple[Tensor, int]:
        """Half the sum of the cross entropies of begin and end over the rows, and their number."""
        spans = torch.from_numpy(self.train.spans[which]).to(outputs.device)
        return span_loss(outputs, torch.from_numpy(lengths).to(outputs.device), spans), len(which)


def span_loss(outputs: Tensor, lengths: Tensor, spans: Tensor) -> Tensor:
    """Outputs (N, 2) of R rows end to end, their lengths (R,), targets (R, 2) -> loss sum."""
    rows = torch.arange(len(lengths), device=outputs.device).repeat_interleave(lengths)
    places = torch.arange(len(outputs), device=outputs.device)
    places = places - (lengths.cumsum(0) - lengths)[rows]
    padded = outputs.new_full((len(lengths), int(lengths.max()), 2), -torch.inf)
    padded = padded.index_put((rows, places), outputs)
    begin, end = (F.cross_entropy(padded[..., i], spans[:, i], reduction="sum") for i in (0, 1))
    return (begin + end) / 2


_last: tuple[Any, _Encoded] | None = None  # the fits of one task share its encoded rows


def _encoded(task: QuestionAnswering, subject: Subject, setup: Setup) -> _Encoded:
    global _last
    options = {
        name: getattr(setup.settings, name)
        for name in ("max_length", "max_train_examples", "max_scored_examples", "sample_seed")
    }
    key = (task.hash(), subject.tokenizer.hash, options)
    if _last is None or _last[0] != key:
        _last = key, _encode(task.data, subject.tokenizer, setup.settings)
    return _last[1]


def _encode(data: QuestionData, tokenizer: Tokenizer, settings: FinetuneSettings) -> _Encoded:
    name, seed, length = data.spec.name, settings.sample_seed, settings.max_length
    chosen = sample(len(data.train), settings.max_train_examples, (seed, "finetune_sample", name))
    train = [data.train[i] for i in chosen]
    examples = {
        split: [part[i] for i in sample(
            len(part), settings.max_scored_examples, (seed, "scored_sample", name, split)
        )]
        for split, part in data.scored.items()
    }  # fmt: skip
    windows = encode_questions(tokenizer, train, data.spec, max_length=length, train=True)
    numbers = _paragraphs([train[i] for i in windows.question])
    scored = {
        split: encode_questions(tokenizer, part, data.spec, max_length=length, train=False)
        for split, part in examples.items()
    }
    return _Encoded(windows, np.array(numbers), scored, examples)


def _paragraphs(questions: Sequence[Question]) -> list[int]:
    """Number of the paragraph of each, in the order of appearance."""
    seen: dict[str, int] = {}
    return [seen.setdefault(question.context, len(seen)) for question in questions]


def _columns(
    spec: QuestionSpec, split: str, task: _Encoded, outputs: np.ndarray, number: int, words: int
) -> Table:
    """A line for each question, in the order of the file; NaN outputs count as 0."""
    questions = task.examples[split]
    found = best_answers(
        task.scored[split],
        np.nan_to_num(outputs, nan=0.0),
        questions,
        max_answer_length=spec.max_answer_length,
    )
    refused = spec.unanswerable & (found["none"] > found["best"])
    return {
        "example_id": [question.id for question in questions],
        "paragraph": _paragraphs(questions),
        "label": [list(question.answers) for question in questions],
        "prediction": ["" if no else t for no, t in zip(refused, found["text"], strict=True)],
        "baseline": [
            "" if spec.unanswerable else " ".join(question.context.split()[:words])
            for question in questions
        ],
        "split": [split] * len(questions),
        "finetune_seed": [number] * len(questions),
        "score_answer": found["best"].tolist(),
        "score_no_answer": found["none"].tolist(),
    }


def add_questions(result: EvaluationResult, parts: Sequence[Part], setup: Setup) -> None:
    """Scores of every split and metric from the stored answers, beside the baseline's."""
    facts = dict(parts[0].facts)
    spec = facts.pop("task")
    entry: dict[str, Any] = {"metrics": {}, "n": {}, "collapsed": {}}
    for split in dict.fromkeys(parts[0].table["split"]):
        tables = [_of_split(part, split) for part in parts]
        gold, paragraph = tables[0]["label"], np.array(tables[0]["paragraph"])
        entry["n"][split] = len(gold)
        entry["collapsed"][split] = [len(set(table["prediction"])) < 2 for table in tables]
        for metric in spec["metrics"]:
            score = functools.partial(
                by_question, metric, answers=gold, unanswerable=spec["unanswerable"]
            )
            values = [score(table["prediction"]) for table in tables]
            sums = [
                np.stack([np.bincount(paragraph, v), np.bincount(paragraph)], axis=1)
                for v in values
            ]
            name = score_name(spec["suite"], spec["name"], split, metric)
            entry["metrics"][name] = {
                "metric": metric,
                "n": len(gold),
                "majority": float(score(tables[0]["baseline"]).mean()),
                "majority_flag": None,
                "by_seed": [float(v.mean()) for v in values],
                "flags": [
                    "not_finite" if part.facts["outputs_not_finite"].get(split) else None
                    for part in parts
                ],
                "standard_error": ratio_error(sums),
                "standard_error_method": "paragraphs",
            }
            result.scores[name] = float(np.mean(entry["metrics"][name]["by_seed"]))
            if spec["unanswerable"]:
                entry.setdefault("by_kind", {})[name] = _by_kind(values, gold)
    per_seed = [n for n in ("train_loss", "outputs_not_finite", "early_stopping") if n in facts]
    result.details[spec["name"]] = {
        **entry,
        **{name: value for name, value in facts.items() if name not in per_seed},
        **{f"{name}_by_seed": [part.facts[name] for part in parts] for name in per_seed},
        "hyper_parameters": used_settings(setup.settings),
    }


def _by_kind(values: list[np.ndarray], gold: Sequence[Sequence[str]]) -> dict[str, Any]:
    """Means over questions with and without an answer, and how many there are of each."""
    has = np.array([bool(len(answers)) for answers in gold])
    mean = np.mean(values, axis=0)
    return {
        kind: {"n": int(here.sum()), "value": float(mean[here].mean()) if here.any() else 0.0}
        for kind, here in (("answer", has), ("no_answer", ~has))
    }


def _of_split(part: Part, split: str) -> Table:
    here = [number for number, name in enumerate(part.table["split"]) if name == split]
    return {name: [values[i] for i in here] for name, values in part.table.items()}


def load(
    definition: Mapping[str, Any], *, path: str | Path | None, cache_dir: str | Path | None
) -> QuestionAnswering:
    """The measurement of a definition with `kind: question_answering` (see `QuestionSpec`)."""
    spec = QuestionSpec.from_dict(definition)
    return QuestionAnswering(load_questions(spec, path=path, cache_dir=cache_dir))
