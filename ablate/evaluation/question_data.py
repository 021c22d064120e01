"""A question answering task's definition and files -> questions on paragraphs, with answers.

Both layouts of SQuAD are read: one object a line (id, title, context, question, answers{text,
answer_start}), as `datasets` has it, and the published nested JSON. Answers stay what the file
says, characters of the original paragraph. A file with no training part can be cut in two by title
or by paragraph (`split_by`), so that no text is on both sides; the cut is named in the facts, and
the scores on it are no one else's. Rajpurkar et al. 2016 (SQuAD 1.1), 2018 (2.0: unanswerable).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np

from ablate import rng
from ablate.evaluation.split_rows import SplitRows

QUESTION_METRICS = ("exact_match", "f1")
SPLIT_BY = ("title", "context")


@dataclass(frozen=True)
class QuestionSpec:
    """One task. `files` are other names of a split's file; `split_by` cuts the first split in two.

    Lengths are in tokens: `doc_stride` the step from window to window, `max_answer_length` the
    longest answer, `max_question_length` what is kept of a question; BERT's values.
    """

    name: str
    suite: str = "qa"
    metrics: tuple[str, ...] = QUESTION_METRICS
    unanswerable: bool = False
    splits: tuple[str, ...] = ("validation",)
    files: Mapping[str, str] = field(default_factory=dict)
    split_by: str | None = None
    held_out_share: float = 0.25
    split_seed: int = 0
    doc_stride: int = 128
    max_answer_length: int = 30
    max_question_length: int = 64
    hub_name: str | None = None
    hub_config: str | None = None

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> QuestionSpec:
        """The spec of a YAML file's mapping.

        Raises:
            ValueError: an unknown key, no name, or a value out of range.
        """
        allowed = [f.name for f in fields(cls)]
        where = f"task {values.get('name', '(no name)')!r}: "
        unknown = sorted(set(values) - set(allowed))
        if unknown or not values.get("name"):
            raise ValueError(f"{where}unknown keys {unknown}, or no name; allowed are {allowed}")
        given = {key: value for key, value in values.items() if value is not None}
        for key in ("metrics", "splits"):
            if isinstance(given.get(key, ()), str):
                raise ValueError(f"{where}{key}={given[key]!r} must be a list: [{given[key]}]")
            if key in given:
                given[key] = tuple(map(str, given[key]))
        spec = cls(**given)
        rules = {
            "metrics": bool(spec.metrics) and set(spec.metrics) <= set(QUESTION_METRICS),
            "splits": bool(spec.splits) and "train" not in spec.splits,
            "split_by": spec.split_by is None or spec.split_by in SPLIT_BY,
            "held_out_share": 0 < spec.held_out_share < 1,
            "doc_stride": spec.doc_stride >= 1,
            "max_answer_length": spec.max_answer_length >= 1,
            "max_question_length": spec.max_question_length >= 1,
        }
        wrong = [f"{key}={getattr(spec, key)}" for key, good in rules.items() if not good]
        if wrong:
            raise ValueError(
                f"{where}{', '.join(wrong)} is not possible. metrics: some of "
                f"{list(QUESTION_METRICS)}; split_by: {' or '.join(SPLIT_BY)}; held_out_share "
                "between 0 and 1; splits: those that are scored; lengths 1 or more"
            )
        return spec


@dataclass(frozen=True)
class Question:
    """`starts[i]` is the character of `context` where `answers[i]` begins; none = unanswerable."""

    id: str
    title: str
    context: str
    question: str
    answers: tuple[str, ...]
    starts: tuple[int, ...]


@dataclass(frozen=True)
class QuestionData:
    """A task with its questions. `notes` says how training and scored parts were cut, if so."""

    spec: QuestionSpec
    train: list[Question]
    scored: dict[str, list[Question]]
    notes: dict[str, str] = field(default_factory=dict)

    def hash(self) -> str:
        """Identity of spec and contents: part of the key of cached results."""
        digest = hashlib.blake2b(repr(self.spec).encode(), digest_size=8)
        for split, part in {"train": self.train, **self.scored}.items():
            digest.update(split.encode())
            for question in part:
                digest.update(repr(question).encode())
        return digest.hexdigest()

    def median_answer_words(self) -> int:
        """Of the first answers of training questions that have one; at least 1."""
        lengths = [len(q.answers[0].split()) for q in self.train if q.answers]
        return max(round(float(np.median(lengths))), 1) if lengths else 1


def load_questions(
    spec: QuestionSpec, *, path: str | Path | None = None, cache_dir: str | Path | None = None
) -> QuestionData:
    """Read training and scored splits, or cut the first scored one in two.

    Raises:
        ValueError: a missing file, or rows that are no questions; says what to type.
    """
    files = SplitRows(
        spec.name,
        spec.suite,
        path=path,
        hub_name=spec.hub_name,
        hub_config=spec.hub_config,
        cache_dir=cache_dir,
        files=spec.files,
        readers={"json": nested_rows},
    )
    rows = {split: files.needed(split) for split in spec.splits}
    if spec.split_by is None:
        return from_rows(spec, rows, train=files.needed("train"))
    return from_rows(spec, rows)


Found = tuple[Sequence[Mapping[str, Any]], str]  # rows and where they come from


def from_rows(
    spec: QuestionSpec, scored: Mapping[str, Found], train: Found | None = None
) -> QuestionData:
    """Flat rows of each split -> checked data; without training rows, cut by `split_by`."""
    parts = {split: _questions(spec, *found) for split, found in scored.items()}
    if train is not None:
        return QuestionData(spec, _questions(spec, *train), parts)
    first = spec.splits[0]
    kept, held_out, note = _cut(spec, parts[first], first)
    return QuestionData(spec, kept, {**parts, first: held_out}, {"train": note})


def nested_rows(file: Path) -> list[dict[str, Any]]:
    """SQuAD's published JSON (data > paragraphs > qas) -> flat rows.

    Raises:
        ValueError: not that layout; names the file.
    """
    try:
        articles = json.loads(file.read_text(encoding="utf-8"))["data"]
        return [
            {
                "id": asked["id"],
                "title": article.get("title", ""),
                "context": paragraph["context"],
                "question": asked["question"],
                "answers": {
                    "text": [answer["text"] for answer in asked["answers"]],
                    "answer_start": [answer["answer_start"] for answer in asked["answers"]],
                },
            }
            for article in articles
            for paragraph in article["paragraphs"]
            for asked in paragraph["qas"]
        ]
    except (OSError, UnicodeDecodeError, json.JSONDecodeError, KeyError, TypeError) as error:
        raise ValueError(
            f"{file} is not SQuAD's JSON (data > paragraphs > qas): {type(error).__name__} {error}"
        ) from error


def _questions(
    spec: QuestionSpec, rows: Sequence[Mapping[str, Any]], source: str
) -> list[Question]:
    found = []
    for number, row in enumerate(rows):
        where = f"task {spec.name!r}: {source} row {number}"
        answers = row.get("answers")
        texts = answers.get("text") if isinstance(answers, Mapping) else None
        begins = answers.get("answer_start") if isinstance(answers, Mapping) else None
        plain = all(isinstance(row.get(key), str) for key in ("context", "question"))
        if not plain or texts is None or begins is None or len(texts) != len(begins):
            raise ValueError(
                f"{where} has columns {sorted(row)}; wanted context, question and "
                "answers: {text: [...], answer_start: [...]}"
            )
        if not len(texts) and not spec.unanswerable:
            raise ValueError(
                f"{where} has no answer; where that means that there is none in the paragraph "
                "(SQuAD 2.0), give unanswerable: true in the task's file"
            )
        found.append(
            Question(
                str(row.get("id", number)),
                str(row.get("title", "")),
                row["context"],
                row["question"],
                tuple(map(str, texts)),
                tuple(map(int, begins)),
            )
        )
    if not found:
        raise ValueError(f"task {spec.name!r}: {source} holds no questions")
    return found


def _cut(
    spec: QuestionSpec, questions: list[Question], split: str
) -> tuple[list[Question], list[Question], str]:
    """Training and held-out questions, each group of a title or paragraph on one side."""
    assert spec.split_by is not None
    groups = list(dict.fromkeys(getattr(question, spec.split_by) for question in questions))
    number = round(spec.held_out_share * len(groups))
    if not 0 < number < len(groups):
        raise ValueError(
            f"task {spec.name!r}: split {split!r} has {len(groups)} groups by {spec.split_by}; a "
            f"held_out_share of {spec.held_out_share} leaves one side empty. Take another share, "
            f"or split_by: {SPLIT_BY[spec.split_by == SPLIT_BY[0]]}"
        )
    order = rng.generator(spec.split_seed, "held_out", spec.name).permutation(len(groups))
    held = {groups[i] for i in order[:number]}
    sides: tuple[list[Question], list[Question]] = ([], [])
    for question in questions:
        sides[getattr(question, spec.split_by) in held].append(question)
    note = (
        f"cut from {split}: {number} of {len(groups)} groups by {spec.split_by} are held out and "
        f"scored (split_seed {spec.split_seed}): {len(sides[0])} / {len(sides[1])} questions"
    )
    return *sides, note
