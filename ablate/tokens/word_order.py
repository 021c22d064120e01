"""A token store -> the same store with the words of every training sentence in a random order.

What a model still learns from text without word order (Sinha et al. 2021, "Masked language modeling
and the distributional hypothesis"). The pieces of a word stay together, every sentence keeps its
words, and held-out documents are as they were. One order for all epochs, runs and seeds: it is a
property of the text.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from ablate import rng
from ablate.corpus.cache import key_of, must_build, seal, stage
from ablate.tokens.store import ARRAYS, FILES, TokenStore

FORMAT_VERSION = 1
_MOVED = ("tokens", "word_starts")


def shuffled(
    store: TokenStore, threshold: int, *, seed: int, cache_dir: str | Path, chunk: int = 1 << 20
) -> TokenStore:
    """Opened if the cache has it, else written beside the store.

    Args:
        threshold: documents whose hash is below it are held out and stay as they are.
        chunk: tokens that are held in memory at a time, about; the result does not depend on it.
    """
    name = key_of("word_order", FORMAT_VERSION, store.hash, threshold, seed)
    folder = Path(cache_dir) / "stores" / name
    if must_build(folder, FILES):
        with stage(folder) as temporary:
            temporary.mkdir()
            _write(temporary, store, threshold, seed, chunk)
            meta = {**store.meta, "word_order": "shuffled", "natural_store": store.hash}
            seal(temporary, meta)
    return TokenStore(folder)


def _write(folder: Path, store: TokenStore, threshold: int, seed: int, chunk: int) -> None:
    for name in set(ARRAYS) - set(_MOVED):
        source = store.folder / f"{name}.npy"
        try:
            os.link(source, folder / source.name)
        except OSError:  # a file system without links
            (folder / source.name).write_bytes(source.read_bytes())
    out = {
        name: np.lib.format.open_memmap(
            folder / f"{name}.npy", mode="w+", dtype=getattr(store, name).dtype,
            shape=getattr(store, name).shape,
        )
        for name in _MOVED
    }  # fmt: skip
    held_out = np.asarray(store.document_hashes) < np.uint64(threshold)
    random = rng.generator(seed, "word_order")
    begin = 0
    while begin < len(held_out):
        wanted = store.document_starts[begin] + chunk
        end = max(begin + 1, int(np.searchsorted(store.document_starts, wanted)))
        end = min(end, len(held_out))
        low, high = int(store.document_starts[begin]), int(store.document_starts[end])
        order, word_starts = _order(store, low, high, held_out[begin:end], begin, random)
        out["tokens"][low:high] = store.tokens[low:high][order]
        out["word_starts"][low:high] = word_starts
        begin = end
    for array in out.values():
        array.flush()


def _order(
    store: TokenStore, low: int, high: int, held_out: np.ndarray, first: int,
    random: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """(which token of [low, high) stands at each place, where words begin then), both (T,)."""
    word_starts = np.array(store.word_starts[low:high])
    sentences = store.sentence_starts
    of_chunk = sentences[np.searchsorted(sentences, low) : np.searchsorted(sentences, high)] - low
    begins = word_starts.copy()
    begins[of_chunk] = True  # a unit does not reach over a sentence's edge
    starts = np.flatnonzero(begins)
    lengths = np.diff(np.append(starts, high - low))
    sentence = np.searchsorted(of_chunk, starts, side="right")
    documents = np.asarray(store.document_starts[first : first + len(held_out) + 1]) - low
    fixed = held_out[np.searchsorted(documents, starts, side="right") - 1]
    keys = random.random(len(starts))
    keys[fixed] = np.arange(fixed.sum()) / len(starts)
    order = np.lexsort((keys, sentence))
    lengths, starts = lengths[order], starts[order]
    ends = np.cumsum(lengths)
    offset = np.arange(high - low) - np.repeat(ends - lengths, lengths)
    tokens = np.repeat(starts, lengths) + offset
    return tokens, word_starts[tokens]
