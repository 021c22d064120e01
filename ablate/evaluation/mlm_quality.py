"""How well masked words are predicted, as a measurement: zero-shot, one part.

The text is an arm's held-out corpus (`held_out_text.from_corpus`) or a file of tagged sentences
(`kind: mlm_quality`), which gives parts of speech. Each prediction is stored, so that another
breakdown needs no model.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from ablate.evaluation.example_files import FORMATS, read_rows, task_folder
from ablate.evaluation.frequency_bands import count_words
from ablate.evaluation.held_out_text import HeldOutText, from_sentences
from ablate.evaluation.measurement import EvaluationResult, Part, Setup, Subject
from ablate.evaluation.mlm_predictions import predictions
from ablate.evaluation.mlm_scores import add_quality

NUM_WORDS = 40_000  # of held-out text: 6,000 words are masked


@dataclass(frozen=True)
class MLMQuality:
    """Held-out text that a model is asked about; scores are `<name>/<split>/<metric>`."""

    text: HeldOutText
    name: str = "mlm_quality"

    def hash(self) -> str:
        return self._hash

    @functools.cached_property
    def _hash(self) -> str:
        return self.text.hash()

    def key(self, setup: Setup) -> dict[str, Any]:
        return {
            "data": self.hash(),
            "max_length": setup.settings.max_length,
            "precision": setup.settings.precision,
        }

    def num_parts(self, setup: Setup) -> int:
        return 1

    def measure(
        self, subject: Subject, setup: Setup, number: int, on_progress: Callable[[int, int], None]
    ) -> Part:
        table, facts = predictions(
            subject.model,
            subject.tokenizer,
            self.text,
            max_length=setup.settings.max_length,
            precision=setup.settings.precision,
            on_progress=on_progress,
        )
        if not table or not table["label"]:
            raise ValueError(
                f"{self.name}: no word is masked in {self.text.num_words} words of held-out text; "
                "give more text (corpus.validation_fraction), or evaluation.mlm_quality=false"
            )
        return Part(table, {"name": self.name, **self.text.facts, **facts})

    def add_to(self, result: EvaluationResult, parts: Sequence[Part], setup: Setup) -> None:
        add_quality(result, parts)


@dataclass(frozen=True)
class TaggedTextSpec:
    """A file of tagged sentences: `<path>/<suite>/<folder>/<split>.jsonl` with a list of words and
    one of tags in each row. Bands are ranks in its train file, where there is one."""

    name: str
    suite: str = "pos"
    folder: str | None = None
    split: str = "validation"
    token_column: str = "tokens"
    tag_column: str | None = "upos"

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> TaggedTextSpec:
        """The spec of a YAML file's mapping.

        Raises:
            ValueError: an unknown key, or no name.
        """
        allowed = [f.name for f in fields(cls)]
        unknown = sorted(set(values) - set(allowed))
        if unknown or not values.get("name"):
            problem = f"unknown keys {unknown}" if unknown else "missing key name"
            raise ValueError(
                f"task {values.get('name', '(no name)')!r}: {problem}; allowed are {allowed}"
            )
        return cls(**{k: v for k, v in values.items() if v is not None or k == "tag_column"})


def load(
    definition: Mapping[str, Any], *, path: str | Path | None, cache_dir: str | Path | None
) -> MLMQuality:
    """The measurement of a definition with `kind: mlm_quality`.

    Raises:
        ValueError: bad definition, no file, or columns that do not fit.
    """
    spec = TaggedTextSpec.from_dict(definition)
    if path is None:
        raise ValueError(
            f"task {spec.name!r} is read from files: give evaluation.path=FOLDER with "
            f"FOLDER/{spec.folder or spec.name}/{spec.split}.jsonl"
        )
    folder = task_folder(path, spec.suite, spec.folder or spec.name)
    file, training = _file(folder, spec.split), _file(folder, "train")
    if file is None:
        raise ValueError(
            f"task {spec.name!r}: there is no {spec.split}.jsonl in {folder}; give "
            f"evaluation.path=FOLDER that holds {spec.folder or spec.name}/{spec.split}.jsonl"
        )
    words, tags = _sentences(spec, file)
    known = _sentences(spec, training)[0] if training is not None else []
    counts = count_words(" ".join(sentence) for sentence in known)
    facts = {
        "text": f"{len(words)} sentences of the task's {spec.split} file",
        "bands": f"ranks among {sum(counts.values())} words of the task's train file",
        "definition": asdict(spec),
    }
    return MLMQuality(from_sentences(words, tags, counts, facts=facts), spec.name)


def _file(folder: Path, split: str) -> Path | None:
    found = [folder / f"{split}.{suffix}" for suffix in FORMATS]
    return next((file for file in found if file.is_file()), None)


def _sentences(spec: TaggedTextSpec, file: Path) -> tuple[list[list[str]], list[list[str]]]:
    words, tags = [], []
    for number, row in enumerate(read_rows(file)):
        found = row.get(spec.token_column)
        named = row.get(spec.tag_column) if spec.tag_column else [""] * len(found or [])
        if not isinstance(found, list) or not isinstance(named, list) or len(found) != len(named):
            raise ValueError(
                f"task {spec.name!r}: {file} row {number} has columns {sorted(row)}; wanted lists "
                f"of equal length in {spec.token_column} (words) and {spec.tag_column} (tags)"
            )
        kept = [(str(w), str(t)) for w, t in zip(found, named, strict=True) if str(w).strip()]
        if kept:
            words.append([word for word, _ in kept])
            tags.append([tag for _, tag in kept])
    if not words:
        raise ValueError(f"task {spec.name!r}: {file} holds no words")
    return words, tags
