"""A corpus and a tokenizer -> a folder of flat arrays that all arms map into memory.

    tokens (T,) uint16, uint32 above 65,536 entries; no special tokens
    word_starts (T,) bool
    sentence_starts (S + 1,), document_starts (D + 1,) int64, in tokens; the last is T
    document_hashes (D,) uint64; document_bytes (D,) int64, utf-8 bytes of the text

The folder's name hashes document contents, tokenizer and format, nothing else: batch sizes, seeds
and devices do not move it. Sentences are encoded one by one, so neither how many go to the
tokenizer at a time nor how many processes encode them can change the result. Memory stays bounded:
arrays grow on disk. Sentences and documents without a token are left out and counted. meta.json has
the size and hash of every array; a store whose files are no longer those is built again.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import IO, Any

import numpy as np

from ablate.corpus.cache import key_of, must_build, seal, sealed_meta, stage
from ablate.corpus.sources import Corpus, fingerprint_of
from ablate.tokens.encoders import encode_here, encode_in_workers
from ablate.tokens.encoding import EncodedDocuments, group, token_dtype
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
FILES = tuple(f"{name}.npy" for name in ARRAYS)
SMALL_BYTES, MOST_JOBS = 25_000_000, 16


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
        meta = sealed_meta(self.folder)
        if meta is None:
            raise ValueError(f"{self.folder / 'meta.json'} is missing or damaged: build it again")
        self.meta: dict[str, Any] = meta
        for name in ARRAYS:
            setattr(self, name, _map(self.folder / f"{name}.npy"))

    def split(self, threshold: int) -> tuple[np.ndarray, np.ndarray]:
        """(training, validation) document numbers, int64, ascending."""
        held_out = np.asarray(self.document_hashes) < np.uint64(threshold)
        return np.flatnonzero(~held_out), np.flatnonzero(held_out)


def resolve_jobs(jobs: int | None, *, text_bytes: int, cores: int) -> int:
    """Worker processes for a corpus. None -> 1 for a small one, whose seconds the start of workers
    would eat; else the cores, up to the number that one reading process keeps busy.
    """
    if jobs is not None:
        return jobs
    return 1 if text_bytes < SMALL_BYTES else min(cores, MOST_JOBS)


def build(
    corpus: Corpus,
    tokenizer: Tokenizer,
    *,
    cache_dir: str | Path,
    progress: Callable[[int], None] | None = None,
    jobs: int = 1,
    chunk_characters: int = 1 << 20,
) -> TokenStore:
    """The store of `corpus` under `tokenizer`: opened if the cache has it, else written.

    Args:
        progress: called with the number of documents just finished.
        jobs: 1 = encode in this process, with the tokenizer's threads; more = that many worker
            processes of one thread each. This process reads and writes either way.
        chunk_characters: about what is encoded at a time, in each process.
        Neither of the last two changes the result.

    Raises:
        ValueError: the corpus has changed since it was scanned, or gives no tokens.
        RuntimeError: a worker was killed.
    """
    name = key_of(FORMAT_VERSION, corpus.fingerprint, tokenizer.hash)
    folder = Path(cache_dir) / "stores" / name
    if must_build(folder, FILES):
        chunks = group(corpus.open(), chunk_characters)
        if jobs == 1:
            encoded = encode_here(chunks, tokenizer)
        else:
            encoded = encode_in_workers(chunks, tokenizer, jobs)
        with stage(folder) as temporary, contextlib.closing(encoded):
            temporary.mkdir()
            seal(temporary, _write(temporary, corpus, tokenizer, encoded, progress))
    return TokenStore(folder)


def _map(path: Path) -> np.ndarray:
    """A read-only map; a plain array where a file is too short to be mapped."""
    return np.load(path, mmap_mode="r")


def _write(
    folder: Path,
    corpus: Corpus,
    tokenizer: Tokenizer,
    encoded: Iterable[EncodedDocuments],
    progress: Callable[[int], None] | None,
) -> dict[str, Any]:
    """Append every group to the arrays; the counts and identities, as plain JSON values."""
    kinds = [token_dtype(tokenizer.vocab_size), *map(np.dtype, ("?", "i8", "i8", "u8", "i8"))]
    writers = {
        name: _Growing(folder / f"{name}.npy", kind)
        for name, kind in zip(ARRAYS, kinds, strict=True)
    }
    counts: Counter[str] = Counter()
    seen = [np.empty(0, np.uint64)]
    try:
        for documents in encoded:
            before = writers["tokens"].length
            for name, writer in writers.items():
                shift = before if name in ("sentence_starts", "document_starts") else 0
                values = getattr(documents, name)
                writer.append(values + shift if shift else values)
            counts.update(documents.counts)
            seen.append(documents.seen)
            if progress is not None:
                progress(len(documents.seen))
        end = np.array([writers["tokens"].length])
        writers["sentence_starts"].append(end)
        writers["document_starts"].append(end)
    finally:
        for writer in writers.values():
            writer.close()
    if fingerprint_of(np.concatenate(seen)) != corpus.fingerprint:
        raise ValueError(
            f"{corpus.name} changed while it was read: its texts are not those of the first pass; "
            "run the command again when nothing writes to it any more"
        )
    if not writers["tokens"].length:
        raise ValueError(f"{corpus.name} gives no token at all; check corpus.* and tokenizer.*")
    return {
        "format_version": FORMAT_VERSION,
        "corpus_fingerprint": corpus.fingerprint,
        "tokenizer_hash": tokenizer.hash,
        "tokens": writers["tokens"].length,
        "words": counts["words"],
        "sentences": writers["sentence_starts"].length - 1,
        "documents": writers["document_starts"].length - 1,
        **{
            name: counts[name]
            for name in ("characters", "unk_tokens", "unk_characters", "special_in_text")
        },
        "dropped": {
            name: counts[name] for name in ("sentences_without_tokens", "documents_without_tokens")
        },
    }


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
