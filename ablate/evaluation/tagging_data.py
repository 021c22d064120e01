"""A tagging task's definition and files -> sentences of words with a tag each.

Tags are kept as names throughout: stored tables then say what they mean, and a tag of the scored
split that training lacks can be kept and counted (no model can be right there) where a number would
have to be dropped. Names come from the file, from the source's own ClassLabel, or, where tags are
plain numbers, from `labels` in the definition.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from ablate.evaluation.split_rows import SplitRows
from ablate.evaluation.tagging_scores import TAGGING_METRICS, check_iob


@dataclass(frozen=True)
class TaggingSpec:
    """One task. `labels` are the tags in the order of their numbers; none = the tags of the
    training sentences, sorted."""

    name: str
    tag_column: str
    metrics: tuple[str, ...]
    suite: str = "tagging"
    token_column: str = "tokens"
    id_column: str = "id"
    labels: tuple[str, ...] = ()
    splits: tuple[str, ...] = ("validation",)
    hub_name: str | None = None
    hub_config: str | None = None

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> TaggingSpec:
        """The spec of a YAML file's mapping.

        Raises:
            ValueError: an unknown or missing key, or a metric that does not fit.
        """
        allowed = [f.name for f in fields(cls)]
        where = f"task {values.get('name', '(no name)')!r}: "
        unknown = sorted(set(values) - set(allowed))
        missing = [key for key in ("name", "tag_column", "metrics") if not values.get(key)]
        if unknown or missing:
            raise ValueError(
                f"{where}unknown keys {unknown}, missing keys {missing}; allowed are {allowed}"
            )
        given = {key: value for key, value in values.items() if value is not None}
        for key in ("metrics", "labels", "splits"):
            if isinstance(given.get(key, ()), str):
                raise ValueError(f"{where}{key}={given[key]!r} must be a list: [{given[key]}]")
            if key in given:
                given[key] = tuple(map(str, given[key]))
        wrong = [metric for metric in given["metrics"] if metric not in TAGGING_METRICS]
        if wrong or not given.get("splits", ("validation",)):
            raise ValueError(
                f"{where}metrics {wrong} do not fit tagging; allowed: {list(TAGGING_METRICS)}; "
                "splits needs at least one entry"
            )
        if len(set(given.get("labels", ()))) < len(given.get("labels", ())):
            raise ValueError(f"{where}labels={list(given['labels'])} names a tag twice")
        return cls(**given)


@dataclass(frozen=True)
class Sentences:
    """One split: words and tags of each sentence."""

    ids: list[str]
    words: list[list[str]]
    tags: list[list[str]]

    def __len__(self) -> int:
        return len(self.words)

    def of(self, which: Iterable[int]) -> Sentences:
        """Some of them, by number."""
        which = list(which)
        return Sentences(
            [self.ids[i] for i in which],
            [self.words[i] for i in which],
            [self.tags[i] for i in which],
        )


@dataclass(frozen=True)
class TaggingData:
    """A task with its sentences; `labels` are the tags that the head has an output for."""

    spec: TaggingSpec
    labels: tuple[str, ...]
    train: Sentences
    scored: dict[str, Sentences]

    def hash(self) -> str:
        """Identity of spec and contents: part of the key of cached results."""
        digest = hashlib.blake2b(repr((self.spec, self.labels)).encode(), digest_size=8)
        for split, part in {"train": self.train, **self.scored}.items():
            digest.update(json.dumps([split, part.ids, part.words, part.tags]).encode())
        return digest.hexdigest()

    def commonest_tag(self) -> str:
        """Of the training words; the first in the order of labels on ties."""
        counts = Counter(tag for tags in self.train.tags for tag in tags)
        return max(self.labels, key=lambda tag: counts[tag])


def load_tagging(
    spec: TaggingSpec, *, path: str | Path | None = None, cache_dir: str | Path | None = None
) -> TaggingData:
    """Read training and scored splits.

    Raises:
        ValueError: a missing file, columns that do not fit, tags without names; says what to type.
    """
    files = SplitRows(
        spec.name,
        spec.suite,
        path=path,
        hub_name=spec.hub_name,
        hub_config=spec.hub_config,
        cache_dir=cache_dir,
        label_column=spec.tag_column,
    )
    rows = {split: files.needed(split) for split in ("train", *spec.splits)}
    return from_rows(spec, rows.pop("train"), rows)


def from_rows(
    spec: TaggingSpec,
    train: tuple[Sequence[Mapping[str, Any]], str],
    scored: Mapping[str, tuple[Sequence[Mapping[str, Any]], str]],
) -> TaggingData:
    """Rows and the name of their source, for each split -> checked data."""
    parts = {split: _sentences(spec, *found) for split, found in scored.items()}
    training = _sentences(spec, *train)
    seen = {tag for tags in training.tags for tag in tags}
    labels = spec.labels or tuple(sorted(seen))
    strange = sorted(seen - set(labels))
    if strange:
        raise ValueError(
            f"task {spec.name!r}: {train[1]} has the tags {strange[:5]}, which labels="
            f"{list(labels)} does not name; add them, or leave labels out to take what is there"
        )
    if "entity_f1" in spec.metrics:
        tags = set(labels) | {t for part in parts.values() for row in part.tags for t in row}
        check_iob(sorted(tags), task=spec.name)
    return TaggingData(spec, labels, training, parts)


def _sentences(spec: TaggingSpec, rows: Sequence[Mapping[str, Any]], source: str) -> Sentences:
    where = f"task {spec.name!r}: {source}"
    words, tags = [], []
    for number, row in enumerate(rows):
        found, named = row.get(spec.token_column), row.get(spec.tag_column)
        if not isinstance(found, list) or not isinstance(named, list) or len(found) != len(named):
            raise ValueError(
                f"{where} row {number} has columns {sorted(row)}; wanted lists of equal length in "
                f"{spec.token_column} (words) and {spec.tag_column} (tags)"
            )
        words.append([str(word) for word in found])
        tags.append([_name(spec, tag, f"{where} row {number}") for tag in named])
    if not any(words):
        raise ValueError(f"{where} holds no words")
    ids = [str(row.get(spec.id_column, number)) for number, row in enumerate(rows)]
    return Sentences(ids, words, tags)


def _name(spec: TaggingSpec, tag: Any, where: str) -> str:
    if isinstance(tag, str):
        return tag
    if isinstance(tag, int) and 0 <= tag < len(spec.labels):
        return spec.labels[tag]
    raise ValueError(
        f"{where} has the tag {tag!r}, which is no name, and labels={list(spec.labels)} has no "
        f"such number; give labels: [...] in the order of the numbers in the task's file"
    )
