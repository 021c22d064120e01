"""A corpus and a tokenizer -> a folder of flat arrays that all arms map into memory.

    tokens (T,) uint16, uint32 above 65,536 entries; no special tokens
    word_starts (T,) bool
    sentence_starts (S + 1,), document_starts (D + 1,) int64, in tokens; the last is T
    document_hashes (D,) uint64; document_bytes (D,) int64, utf-8 bytes of the text

The folder's name hashes document contents, tokenizer and format, nothing else: batch sizes, seeds
and devices do not move it. Sentences are encoded one by one, so how many go to the tokenizer at a
time cannot change the result. Memory stays bounded: arrays grow on disk. Sentences and documents
without a token are left out and counted.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np

from ablate.corpus.cache import key_of, stage
from ablate.corpus.sentences import split_sentences
from ablate.corpus.sources import Corpus, document_hash, fingerprint_of
from ablate.tokens.tokenizer import Tokenizer

FORMAT_VERSION = 1
ARRAYS = (
    "tokens",
    "word_starts",
    "sentence_starts",
    "document_starts",
    "document_hashes",
    "document_bytes",
)
_BLANKS = "".join(chr(code) for code in range(0x110000) if chr(code).isspace())
_ASCII_BLANKS = "".join(character for character in _BLANKS if character.isascii())


class TokenStore:
    """Arrays of a finished folder, mapped read-only; `hash` is the folder's name."""

    tokens: np.ndarray
    word_starts: np.ndarray
    sentence_starts: np.ndarray
    document_starts: np.ndarray
    document_hashes: np.ndarray
    document_bytes: np.ndarray

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.hash = self.folder.name
        self.meta: dict[str, Any] = json.loads((self.folder / "meta.json").read_text())
        for name in ARRAYS:
            setattr(self, name, _map(self.folder / f"{name}.npy"))

    def split(self, threshold: int) -> tuple[np.ndarray, np.ndarray]:
        """(training, validation) document numbers, int64, ascending."""
        held_out = np.asarray(self.document_hashes) < np.uint64(threshold)
        return np.flatnonzero(~held_out), np.flatnonzero(held_out)


def build(
    corpus: Corpus,
    tokenizer: Tokenizer,
    *,
    cache_dir: str | Path,
    progress: Callable[[int], None] | None = None,
    chunk_characters: int = 1 << 20,
) -> TokenStore:
    """The store of `corpus` under `tokenizer`: opened if the cache has it, else written.

    `progress` is called with the number of documents just finished. `chunk_characters` bounds what
    is encoded at a time; the result does not depend on it.

    Raises:
        ValueError: the corpus has changed since it was scanned, or gives no tokens.
    """
    name = key_of(FORMAT_VERSION, corpus.fingerprint, tokenizer.hash)
    folder = Path(cache_dir) / "stores" / name
    if not (folder / "meta.json").is_file():
        with stage(folder) as temporary:
            temporary.mkdir()
            meta = _write(temporary, corpus, tokenizer, progress, chunk_characters)
            (temporary / "meta.json").write_text(json.dumps(meta, indent=1))
    return TokenStore(folder)


def _map(path: Path) -> np.ndarray:
    """A read-only map; a plain array where a file is too short to be mapped."""
    return np.load(path, mmap_mode="r")


def _write(
    folder: Path,
    corpus: Corpus,
    tokenizer: Tokenizer,
    progress: Callable[[int], None] | None,
    chunk_characters: int,
) -> dict[str, Any]:
    wide = tokenizer.vocab_size > 1 << 16
    kinds = [np.uint32 if wide else np.uint16, np.bool_, np.int64, np.int64, np.uint64, np.int64]
    writers = {
        name: _Growing(folder / f"{name}.npy", np.dtype(kind))
        for name, kind in zip(ARRAYS, kinds, strict=True)
    }
    counts = _Counts()
    try:
        for chunk in _chunks(corpus.open(), chunk_characters):
            _add(chunk, tokenizer, writers, counts)
            if progress is not None:
                progress(len(chunk.documents))
        end = np.array([writers["tokens"].length])
        writers["sentence_starts"].append(end)
        writers["document_starts"].append(end)
    finally:
        for writer in writers.values():
            writer.close()
    if (
        fingerprint_of(np.concatenate(counts.seen or [np.empty(0, np.uint64)]))
        != corpus.fingerprint
    ):
        raise ValueError(
            f"{corpus.name} changed while it was read: its texts are not those of the first pass; "
            "run the command again when nothing writes to it any more"
        )
    if not writers["tokens"].length:
        raise ValueError(f"{corpus.name} gives no token at all; check corpus.* and tokenizer.*")
    return counts.meta(writers, corpus, tokenizer)


@dataclass
class _Chunk:
    """Some whole documents and their sentences."""

    documents: list[str] = field(default_factory=list)
    sentences: list[str] = field(default_factory=list)
    num_sentences: list[int] = field(default_factory=list)


def _chunks(documents: Iterator[str], characters: int) -> Iterator[_Chunk]:
    chunk, length = _Chunk(), 0
    for document in documents:
        sentences = split_sentences(document)
        chunk.documents.append(document)
        chunk.sentences.extend(sentences)
        chunk.num_sentences.append(len(sentences))
        length += len(document)
        if length >= characters:
            yield chunk
            chunk, length = _Chunk(), 0
    if chunk.documents:
        yield chunk


@dataclass
class _Counts:
    unk_tokens: int = 0
    unk_characters: int = 0
    characters: int = 0
    special_in_text: int = 0
    words: int = 0
    sentences_dropped: int = 0
    documents_dropped: int = 0
    seen: list[np.ndarray] = field(default_factory=list)

    def meta(
        self, writers: dict[str, _Growing], corpus: Corpus, tokenizer: Tokenizer
    ) -> dict[str, Any]:
        """Counts and identities, as plain JSON values."""
        return {
            "format_version": FORMAT_VERSION,
            "corpus_fingerprint": corpus.fingerprint,
            "tokenizer_hash": tokenizer.hash,
            "tokens": writers["tokens"].length,
            "words": self.words,
            "sentences": writers["sentence_starts"].length - 1,
            "documents": writers["document_starts"].length - 1,
            "characters": self.characters,
            "unk_tokens": self.unk_tokens,
            "unk_characters": self.unk_characters,
            "special_in_text": self.special_in_text,
            "dropped": {
                "sentences_without_tokens": self.sentences_dropped,
                "documents_without_tokens": self.documents_dropped,
            },
        }


def _add(
    chunk: _Chunk, tokenizer: Tokenizer, writers: dict[str, _Growing], counts: _Counts
) -> None:
    """Encode one chunk and append it to every array."""
    encoded = tokenizer.encode_texts(chunk.sentences)
    ends = np.cumsum(encoded.lengths)
    base = writers["tokens"].length
    full = encoded.lengths > 0
    last = np.cumsum(np.array(chunk.num_sentences, dtype=np.int64))  # sentences up to a document
    tokens_before = np.concatenate([[0], ends])
    document_ends = tokens_before[last]
    document_starts = np.concatenate([[0], document_ends[:-1]])
    kept = document_ends > document_starts
    hashes = np.array([document_hash(text) for text in chunk.documents], dtype=np.uint64)
    num_bytes = np.array([len(text.encode()) for text in chunk.documents], dtype=np.int64)
    writers["tokens"].append(encoded.ids)
    writers["word_starts"].append(encoded.word_starts)
    writers["sentence_starts"].append(base + (ends - encoded.lengths)[full])
    writers["document_starts"].append(base + document_starts[kept])
    writers["document_hashes"].append(hashes[kept])
    writers["document_bytes"].append(num_bytes[kept])
    counts.seen.append(hashes)
    counts.unk_tokens += int(encoded.unk_tokens.sum())
    counts.unk_characters += int(encoded.unk_characters.sum())
    counts.special_in_text += int(encoded.special_in_text.sum())
    counts.words += int(encoded.word_starts.sum())
    counts.sentences_dropped += int((~full).sum())
    counts.documents_dropped += int((~kept).sum())
    counts.characters += sum(map(visible_characters, chunk.documents))


def visible_characters(text: str) -> int:
    """Characters that are not blanks; counting each kind of blank is quicker than splitting."""
    blanks = _ASCII_BLANKS if text.isascii() else _BLANKS
    return len(text) - sum(map(text.count, blanks))


class _Growing:
    """A .npy file of unknown length: its header is written again when the length is known."""

    def __init__(self, path: Path, dtype: np.dtype) -> None:
        self.dtype = dtype
        self.length = 0
        self._file: IO[bytes] = path.open("wb")
        self._header()
        self._begin = self._file.tell()

    def _header(self) -> None:
        """numpy leaves room in it for the first axis to grow."""
        head = {"descr": self.dtype.str, "fortran_order": False, "shape": (self.length,)}
        np.lib.format.write_array_header_1_0(self._file, head)

    def append(self, values: np.ndarray) -> None:
        self._file.write(np.ascontiguousarray(values, dtype=self.dtype).data)
        self.length += len(values)

    def close(self) -> None:
        self._file.seek(0)
        self._header()
        assert self._file.tell() == self._begin, "the header outgrew its room"
        self._file.close()
