"""A definition and local files -> documents, queries and relevance, for training and for testing.

Three sources. `pairs`: a task of two texts and a label (QNLI: question, sentence), whose rows with
one of `relevant` say what answers what and whose split is the collection. `squad`: questions on
paragraphs; a question's document is its paragraph. `files`: documents.jsonl (id, text),
queries.jsonl (id, text, split) and relevance.jsonl (query, document, grade).

Training and test share no query and no document: a text that is in the test part (up to case and
blanks) is taken out of the training part, and counted. Where a source has one file only, its
`group` (SQuAD: the article, whose paragraphs are about one thing) goes to one side or the other.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ablate import rng
from ablate.evaluation.example_files import FORMATS, class_reader, read_rows, task_folder
from ablate.evaluation.texts import plain_text

SOURCES = ("pairs", "squad", "files")


@dataclass(frozen=True)
class DataSpec:
    """Where a collection comes from. `train` and `test` are names of splits; without `train`, a
    share `test_fraction` of the groups of `test` is the test part and the rest is for training."""

    source: str
    folder: str
    suite: str = "glue"
    train: str | None = "train"
    test: str = "validation"
    query: str = "question"
    document: str = "context"
    label: str = "label"
    labels: tuple[str, ...] = ()
    relevant: tuple[str, ...] = ()
    group: str = "title"
    test_fraction: float = 0.5
    split_seed: int = 0


@dataclass(frozen=True)
class Collection:
    """Different documents, different queries; `relevance[i]` = document number -> grade above 0."""

    document_ids: list[str]
    documents: list[str]
    query_ids: list[str]
    queries: list[str]
    relevance: list[dict[int, float]]

    def without(self, query_texts: set[str], document_texts: set[str]) -> Collection:
        """The rest, and without queries that lose their last relevant document."""
        keep = [i for i, t in enumerate(self.documents) if plain_text(t) not in document_texts]
        number = {old: new for new, old in enumerate(keep)}
        relevance = [
            {number[i]: grade for i, grade in found.items() if i in number}
            for found in self.relevance
        ]
        asked = [
            i
            for i, text in enumerate(self.queries)
            if relevance[i] and plain_text(text) not in query_texts
        ]
        return Collection(
            [self.document_ids[i] for i in keep],
            [self.documents[i] for i in keep],
            [self.query_ids[i] for i in asked],
            [self.queries[i] for i in asked],
            [relevance[i] for i in asked],
        )

    def texts(self) -> tuple[set[str], set[str]]:
        """Of queries and of documents, without case and blanks."""
        return set(map(plain_text, self.queries)), set(map(plain_text, self.documents))


@dataclass(frozen=True)
class RetrievalData:
    """Parts that share no text. `notes` counts what had to go for that."""

    train: Collection
    test: Collection
    notes: dict[str, int]

    def hash(self) -> str:
        content = json.dumps([vars(self.train), vars(self.test)], default=str)
        return hashlib.blake2b(content.encode(), digest_size=8).hexdigest()


_Parts = tuple[Collection, Collection, dict[str, int]]  # training, test, what was counted


class Builder:
    """Rows added one by one -> a `Collection`: copies of a text are one text. Queries are told
    apart by their ids from here on, so that two of one id are refused."""

    def __init__(self, source: Path) -> None:
        self._source = source
        self._texts: dict[str, str] = {}  # id of a query -> its plain text
        self._documents: dict[str, tuple[str, str]] = {}  # plain text -> (id, text)
        self._queries: dict[str, tuple[str, str]] = {}
        self._grades: dict[str, dict[str, float]] = {}

    def document(self, text: str, name: str | None = None) -> str:
        """Add a document; its key."""
        key = plain_text(text)
        self._documents.setdefault(key, (name or f"d{len(self._documents)}", text))
        return key

    def relevant(self, query: str, name: str, document: str, grade: float) -> None:
        """A query and a document (by its key) that answers it; the best grade counts.

        Raises:
            ValueError: another query has this id.
        """
        key = plain_text(query)
        if self._texts.setdefault(name, key) != key:
            raise ValueError(
                f"{self._source}: two queries have the id {name!r}: {self._texts[name]!r} and "
                f"{key!r}; give each query an id of its own (column idx of pairs, id of squad and "
                "files), or leave the column out of pairs and squad"
            )
        self._queries.setdefault(key, (name, query))
        grades = self._grades.setdefault(key, {})
        grades[document] = max(grade, grades.get(document, 0.0))

    def build(self) -> Collection:
        number = {key: i for i, key in enumerate(self._documents)}
        return Collection(
            [name for name, _ in self._documents.values()],
            [text for _, text in self._documents.values()],
            [name for name, _ in self._queries.values()],
            [text for _, text in self._queries.values()],
            [{number[d]: g for d, g in self._grades[key].items()} for key in self._queries],
        )


def load_data(spec: DataSpec, *, name: str, path: str | Path | None) -> RetrievalData:
    """Read both parts and keep them apart.

    Raises:
        ValueError: missing files or columns, or nothing to train on or to test.
    """
    if spec.source not in SOURCES:
        raise ValueError(
            f"task {name!r}: source={spec.source} is unknown; allowed: {', '.join(SOURCES)}"
        )
    if path is None:
        raise ValueError(
            f"task {name!r}: its collection is read from files; give evaluation.path=FOLDER with "
            f"FOLDER/{spec.folder} or FOLDER/{spec.suite}/{spec.folder}"
        )
    folder = task_folder(path, spec.suite, spec.folder)
    train, test, counted = {"pairs": _pairs, "squad": _squad, "files": _files}[spec.source](
        spec, folder
    )
    own = train.without(*test.texts())
    notes = {
        **counted,
        "train_queries_dropped": len(train.queries) - len(own.queries),
        "train_documents_dropped": len(train.documents) - len(own.documents),
    }
    for what, part in (("training", own), ("test", test)):
        if not part.queries or len(part.documents) < 2:
            raise ValueError(
                f"task {name!r}: {folder} leaves {len(part.queries)} {what} queries on "
                f"{len(part.documents)} documents; both parts need a query and two documents"
            )
    return RetrievalData(own, test, notes)


def _pairs(spec: DataSpec, folder: Path) -> _Parts:
    if not spec.relevant or not set(spec.relevant) <= set(spec.labels):
        raise ValueError(
            f"{folder}: relevant={list(spec.relevant)} must name some of labels={list(spec.labels)}"
        )
    read = class_reader(spec.labels)
    right = {spec.labels.index(label) for label in spec.relevant}

    def one(split: str) -> Collection:
        found = Builder(folder / split)
        for number, row in enumerate(_rows(folder, split, (spec.query, spec.document, spec.label))):
            key = found.document(str(row[spec.document]))
            if read(row[spec.label]) in right:
                found.relevant(str(row[spec.query]), _query_id(row, "idx", number), key, 1.0)
        return found.build()

    if spec.train is None:
        raise ValueError(f"{folder}: source: pairs needs train: the name of a split")
    return one(spec.train), one(spec.test), {}


def _squad(spec: DataSpec, folder: Path) -> _Parts:
    columns = (spec.query, spec.document)

    def build(rows: Sequence[Mapping[str, Any]]) -> Collection:
        found = Builder(folder)
        for number, row in enumerate(rows):
            key = found.document(str(row[spec.document]))
            found.relevant(str(row[spec.query]), _query_id(row, "id", number), key, 1.0)
        return found.build()

    if spec.train is not None:
        train, test = (_rows(folder, split, columns) for split in (spec.train, spec.test))
        return build(train), build(test), {}
    rows = _rows(folder, spec.test, (*columns, spec.group))
    groups = sorted({str(row[spec.group]) for row in rows})
    order = rng.generator(spec.split_seed, "retrieval_split", spec.folder).permutation(len(groups))
    chosen = {groups[i] for i in order[: round(spec.test_fraction * len(groups))]}
    train = [row for row in rows if str(row[spec.group]) not in chosen]
    return build(train), build([row for row in rows if str(row[spec.group]) in chosen]), {}


def _files(spec: DataSpec, folder: Path) -> _Parts:
    """Documents that answer training queries alone are for training, all others for the test."""
    if spec.train is None:
        raise ValueError(f"{folder}: source: files needs train: the name of a split of queries")
    found = _by_id(folder, "documents", ("id", "text"))
    documents = {name: str(row["text"]) for name, row in found.items()}
    queries = _by_id(folder, "queries", ("id", "text", "split"))
    sides = {spec.train: Builder(folder), spec.test: Builder(folder)}
    graded = [
        (str(row["query"]), str(row["document"]), float(row.get("grade", 1.0)))
        for row in _rows(folder, "relevance", ("query", "document"))
    ]
    for query, document, _ in graded:
        if query not in queries or document not in documents:
            raise ValueError(
                f"{folder}/relevance names query {query!r} and document {document!r}; one of them "
                "is not in queries or documents"
            )
    split_of = {query: str(row["split"]) for query, row in queries.items()}
    graded = [row for row in graded if row[2] > 0]
    tested = {document for query, document, _ in graded if split_of[query] == spec.test}
    trained = {document for query, document, _ in graded if split_of[query] == spec.train}
    for name, text in documents.items():
        if name in trained:
            sides[spec.train].document(text, name)
        if name in tested or name not in trained:
            sides[spec.test].document(text, name)
    for query, document, grade in graded:
        side = sides.get(split_of[query])
        if side is not None:
            key = plain_text(documents[document])
            side.relevant(str(queries[query]["text"]), query, key, grade)
    counted = {
        "queries_without_relevant_document": len(set(queries) - {query for query, _, _ in graded}),
        "queries_of_other_splits": sum(split not in sides for split in split_of.values()),
    }
    return sides[spec.train].build(), sides[spec.test].build(), counted


def _query_id(row: Mapping[str, Any], column: str, number: int) -> str:
    """The row's own id; its number in the file where there is none."""
    own = row.get(column)
    return str(number if own is None else own)


def _by_id(folder: Path, name: str, columns: Sequence[str]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for row in _rows(folder, name, columns):
        if found.setdefault(str(row["id"]), row) is not row:
            raise ValueError(
                f"{folder}/{name}: two rows have the id {row['id']!r}; give each an id of its own"
            )
    return found


def _rows(folder: Path, name: str, columns: Sequence[str]) -> list[dict[str, Any]]:
    """Rows of a file, each with all columns.

    Raises:
        ValueError: no such file, or a row without one of them.
    """
    for suffix in FORMATS:
        file = folder / f"{name}.{suffix}"
        if file.is_file():
            rows = read_rows(file)
            for number, row in enumerate(rows):
                missing = [column for column in columns if row.get(column) is None]
                if missing:
                    raise ValueError(f"{file} row {number} has no {missing}; it has {sorted(row)}")
            return rows
    wanted = ", ".join(f"{name}.{suffix}" for suffix in FORMATS)
    raise ValueError(
        f"no file {wanted} in {folder}; evaluation.path=FOLDER holds one folder a task"
    )
