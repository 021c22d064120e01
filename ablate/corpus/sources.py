"""Files, a hub dataset or the built-in language -> a `Corpus` of distinct documents.

One pass finds the hash of every document, drops empty ones and exact repeats, and counts; its
result is kept in the cache under a key of what was asked and of the files' sizes and times, so a
second run reads nothing. Whether a document is held out depends on its own hash alone: copies never
straddle the split, and order, number of files and format do not matter. Two different documents
share a 64-bit hash with probability n^2 / 2^65 (3e-6 for ten million): one would be dropped.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ablate.corpus import files, hub
from ablate.corpus.cache import key_of, read_memo, read_texts, write_memo, write_texts

FORMAT_VERSION = 1
_SIZE = 2**64


@dataclass(frozen=True)
class Corpus:
    """Documents to pretrain on; `open` begins again at each call.

    `fingerprint` hashes the kept documents in order. A document is held out if and only if
    `document_hash(text) < validation_threshold`. `counts`: documents, duplicates_dropped,
    empty_dropped, files_ignored, text_bytes (utf-8), validation_documents. `morphemes`: the
    vocabulary of a built-in language, else None.
    """

    name: str
    fingerprint: str
    open: Callable[[], Iterator[str]]
    validation_threshold: int
    counts: dict[str, int]
    morphemes: list[str] | None = None


@dataclass(frozen=True)
class TrainingDocuments:
    """The documents of a corpus that are not held out; may be read again and again."""

    corpus: Corpus

    def __iter__(self) -> Iterator[str]:
        threshold = self.corpus.validation_threshold
        return (text for text in self.corpus.open() if document_hash(text) >= threshold)


def document_hash(text: str) -> int:
    """A 64-bit hash of the text, the same on every machine."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def fingerprint_of(hashes: np.ndarray) -> str:
    """16 hexadecimal digits from document hashes (D,) uint64 in order."""
    little = np.ascontiguousarray(hashes, dtype="<u8")
    return hashlib.blake2b(little.tobytes(), digest_size=8).hexdigest()


def load_files(
    path: str | Path,
    *,
    text_field: str = "text",
    validation_fraction: float,
    max_documents: int | None = None,
    cache_dir: str | Path,
) -> Corpus:
    """Text, JSON, CSV or Parquet files: a file, a folder or a glob (see `files.py`).

    Raises:
        ValueError: nothing to read, unreadable, no such field, or fewer than two documents.
    """
    cache = Path(cache_dir)
    found, ignored = files.find_files(path)
    return _assemble(
        lambda: files.read_texts(found, text_field=text_field, cache_dir=cache),
        name=str(path),
        spec=["files", files.signature(found), text_field],
        validation_fraction=validation_fraction,
        max_documents=max_documents,
        cache_dir=cache,
        more_counts={"files": len(found), "files_ignored": ignored},
    )


def load_hub(
    name: str,
    *,
    config: str | None = None,
    split: str = "train",
    revision: str | None = None,
    text_field: str = "text",
    streaming: bool = False,
    max_documents: int | None = None,
    document_rule: str = "rows",
    validation_fraction: float,
    cache_dir: str | Path,
) -> Corpus:
    """A dataset of the hub, or a local folder in hub layout.

    `document_rule` says what a document is: a row of the dataset, or in WikiText, whose rows are
    lines, an article. With `streaming` only `max_documents` are fetched, once.

    Raises:
        ValueError: no such dataset, config, split or field; not reachable and not cached.
    """
    if document_rule not in hub.DOCUMENT_RULES:
        allowed = " | ".join(hub.DOCUMENT_RULES)
        raise files.CorpusError(f"corpus.document_rule={document_rule}; allowed: {allowed}")
    cache = Path(cache_dir)
    builder, identity = hub.find(name, config=config, revision=revision, cache_dir=cache)

    def read() -> Iterator[str | None]:
        texts = hub.rows(
            builder,
            name=name,
            split=split,
            text_field=text_field,
            streaming=streaming,
            cache_dir=cache,
        )
        return hub.articles(texts) if document_rule == "wikitext_headings" else texts

    return _assemble(
        read,
        name="/".join(part for part in (name, config, split) if part),
        spec=["hub", identity, revision, split, text_field, document_rule],
        validation_fraction=validation_fraction,
        max_documents=max_documents,
        cache_dir=cache,
        keep_copy=streaming,
    )


def load_synthetic(
    *,
    seed: int,
    num_documents: int,
    validation_fraction: float,
    cache_dir: str | Path | None = None,
) -> Corpus:
    """The built-in language; the same documents for the same seed (scanned anew without a cache).

    Raises:
        ValueError: fewer than two documents asked for.
    """
    from ablate.corpus import synthetic

    if num_documents < 2:
        raise files.CorpusError(f"corpus.num_documents={num_documents}; at least 2 are needed")
    code = [path.read_text() for path in sorted(Path(synthetic.__file__).parent.glob("*.py"))]
    return _assemble(
        lambda: synthetic.documents(seed, num_documents),
        name=f"synthetic-{seed}-{num_documents}",
        spec=["synthetic", seed, num_documents, key_of(code)],
        validation_fraction=validation_fraction,
        max_documents=None,
        cache_dir=None if cache_dir is None else Path(cache_dir),
        morphemes=synthetic.morphemes(),
    )


def _assemble(
    read: Callable[[], Iterable[str | None]],
    *,
    name: str,
    spec: list[Any],
    validation_fraction: float,
    max_documents: int | None,
    cache_dir: Path | None,
    keep_copy: bool = False,
    more_counts: dict[str, int] | None = None,
    morphemes: list[str] | None = None,
) -> Corpus:
    """Scan `read()` unless the cache knows the result; with `keep_copy`, cache the texts too."""
    if not 0 < validation_fraction < 1:
        raise files.CorpusError(
            f"corpus.validation_fraction={validation_fraction}; it must lie between 0 and 1"
        )
    if max_documents is not None and max_documents < 2:
        raise files.CorpusError(f"corpus.max_documents={max_documents}; at least 2 are needed")
    key = key_of(FORMAT_VERSION, spec, validation_fraction, max_documents, keep_copy)
    memo = None if cache_dir is None else cache_dir / "corpora" / f"{key}.json"
    copy = memo.with_suffix(".parquet") if memo is not None and keep_copy else None
    found = None if memo is None else read_memo(memo, copy)
    if found is None:
        found = _scan(read(), name, validation_fraction, max_documents, copy)
        if memo is not None:
            write_memo(memo, found, copy)

    def again() -> Iterator[str]:
        if copy is not None:
            return read_texts(copy)
        return _kept(read(), found["dropped"], found["counts"]["documents"])

    return Corpus(
        name=name,
        fingerprint=found["fingerprint"],
        open=again,
        validation_threshold=found["validation_threshold"],
        counts={**found["counts"], **(more_counts or {})},
        morphemes=morphemes,
    )


def _scan(
    texts: Iterable[str | None],
    name: str,
    validation_fraction: float,
    max_documents: int | None,
    copy: Path | None,
) -> dict[str, Any]:
    """Hashes, repeats and counts of all documents, as plain JSON values."""
    dropped: list[int] = []
    hashes: dict[int, None] = {}  # keeps the order
    num_bytes = num_empty = 0

    def distinct() -> Iterator[str]:
        nonlocal num_bytes, num_empty
        for number, text in enumerate(texts):
            empty = not text or text.isspace()
            encoded = b"" if empty else text.encode()  # type: ignore[union-attr]
            value = int.from_bytes(hashlib.blake2b(encoded, digest_size=8).digest(), "little")
            if empty or value in hashes:
                num_empty += empty
                dropped.append(number)
                continue
            hashes[value] = None
            num_bytes += len(encoded)
            yield text  # type: ignore[misc]
            if max_documents is not None and len(hashes) == max_documents:
                return

    if copy is None:
        for _ in distinct():
            pass
    else:
        write_texts(copy, distinct())
    kept = np.fromiter(hashes, dtype=np.uint64, count=len(hashes))
    threshold = _threshold(kept, validation_fraction, name)
    counts = {
        "documents": len(kept),
        "duplicates_dropped": len(dropped) - num_empty,
        "empty_dropped": num_empty,
        "text_bytes": num_bytes,
        "validation_documents": int((kept < np.uint64(threshold)).sum()),
    }
    return {
        "fingerprint": fingerprint_of(kept),
        "validation_threshold": threshold,
        "counts": counts,
        "dropped": dropped,
    }


def _threshold(hashes: np.ndarray, fraction: float, name: str) -> int:
    """At least one document on either side, and about `fraction` of them below."""
    if len(hashes) < 2:
        raise files.CorpusError(
            f"{name} holds {len(hashes) or 'no'} document{'s' * (len(hashes) != 1)} with text; "
            "at least two different ones are needed, one to train on and one held out"
            " (in a .txt file a blank line begins a new document)"
        )
    smallest, largest = int(hashes.min()), int(hashes.max())
    return min(max(int(fraction * _SIZE), smallest + 1), largest)


def _kept(texts: Iterable[str | None], dropped: list[int], num_documents: int) -> Iterator[str]:
    skip = set(dropped)
    left = num_documents
    for number, text in enumerate(texts):
        if number in skip:
            continue
        assert text is not None
        yield text
        left -= 1
        if left == 0:  # what stands behind the last one is not even read
            return
