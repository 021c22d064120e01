"""Training documents of a store -> the n-grams whose words go together, counted once and cached.

PMI masking (Levine et al. 2021) hides collocations whole. For n words it ranks by

    PMI_n = min over segmentations of  log p(w1..wn) - sum of log p(part)

over every way to cut the n-gram into two parts or more; p of k words is their count over the places
where k words fit in a sentence. The minimum keeps out a strong pair with any word beside it. The
published lists square p(w1..wn), which the paper does not. The paper keeps 800,000 n-grams of 2-5
words, half of them pairs, which cover about half of its tokens; here a length that has fewer than
its share with a PMI over 0 keeps those and no other length is given the rest, so a small corpus
with a large `num_ngrams` covers more (0.67 of 16 million tokens of English with the default, 0.39
with 100,000). `meta["covered_share"]` says how much.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ablate.corpus.cache import key_of, must_build, seal, sealed_meta, stage
from ablate.corpus.sources import fingerprint_of
from ablate.inputs.collocations import HashIndex, collocation_units, unit_heads
from ablate.inputs.ngram_counts import (
    CHUNK_TOKENS,
    Level,
    Sentences,
    frequent_ngrams,
    parts_of,
    sentences_of,
)
from ablate.tokens.store import TokenStore

FORMAT_VERSION = 1
MAX_WORDS = 5
SHARES = {2: 0.5, 3: 0.25, 4: 0.125, 5: 0.125}
ARRAYS = ("sizes", "hashes", "counts", "pmi", "starts", "lengths")


class Example(NamedTuple):
    """A listed n-gram as a person reads it."""

    text: str
    pmi: float
    num_occurrences: int


class NgramList:
    """A finished list, G n-grams in the order of (number of words, hash), (G,) each.

    `sizes` uint8 words, `hashes` uint64, `counts`, `pmi` (natural log), and the first occurrence of
    each in the store's tokens: `starts`, `lengths`. `indexes[n - 2]` looks up those of n words.
    `hash` names the set of n-grams, for fingerprints: the same set under another name of the same
    corpus hides the same units.
    """

    sizes: np.ndarray
    hashes: np.ndarray
    counts: np.ndarray
    pmi: np.ndarray
    starts: np.ndarray
    lengths: np.ndarray

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        meta = sealed_meta(self.folder)
        assert meta is not None, "build_list makes the folder and looks whether it is whole"
        self.meta: dict[str, Any] = meta
        for name in ARRAYS:
            setattr(self, name, np.load(self.folder / f"{name}.npy"))
        self.max_words = int(self.meta["max_words"])
        self.indexes = tuple(
            HashIndex(self.hashes[self._of(n)]) for n in range(2, self.max_words + 1)
        )
        content = self.sizes.tobytes() + np.ascontiguousarray(self.hashes, dtype="<u8").tobytes()
        self.hash = hashlib.blake2b(content, digest_size=8).hexdigest()

    def __len__(self) -> int:
        return len(self.hashes)

    def _of(self, n: int) -> slice:
        begin, end = np.searchsorted(self.sizes, [n, n + 1])
        return slice(int(begin), int(end))

    def units(
        self,
        input_ids: np.ndarray,
        word_begins: np.ndarray,
        eligible: np.ndarray,
        uniforms: np.ndarray,
    ) -> np.ndarray:
        """`collocation_units` of a batch under this list: (N,) heads, -1 where not eligible."""
        return collocation_units(input_ids, word_begins, eligible, uniforms, self.indexes)

    def examples(
        self, store: TokenStore, decode: Callable[[list[int]], str], n: int, count: int
    ) -> list[Example]:
        """The `count` n-grams of n words that rank first, best first; `decode`: ids -> text."""
        begin = self._of(n).start
        pmi, counts, hashes = (part[self._of(n)] for part in (self.pmi, self.counts, self.hashes))
        found = []
        for i in begin + _best(pmi, counts, hashes)[:count]:
            ids = store.tokens[self.starts[i] : self.starts[i] + self.lengths[i]]
            found.append(Example(decode(ids.tolist()), float(self.pmi[i]), int(self.counts[i])))
        return found


def build_list(
    store: TokenStore,
    documents: np.ndarray,
    *,
    num_ngrams: int,
    max_words: int,
    min_count: int,
    cache_dir: str | Path,
    max_tokens: int = 200_000_000,
    special_ids: Sequence[int] | np.ndarray = (),
) -> NgramList:
    """The list of `documents` (numbers of training documents): opened if cached, else counted.

    Args:
        num_ngrams: how many to keep: 50% pairs, 25% of three words, 12.5% each of four and five;
            with fewer `max_words` the shares left are scaled up to 1.
        min_count: the least number of occurrences, itself enough ("over 10" in the paper).
        max_tokens: only whole sentences up to this many tokens are counted, in the store's order.
        special_ids: tokens that no n-gram may hold; the tokenizer's, as rows are built.

    Raises:
        ValueError: no n-gram is left.
    """
    in_range = num_ngrams > 0 and 2 <= max_words <= MAX_WORDS and min_count > 0
    assert in_range, "MaskingPolicy refuses such settings"
    documents = np.unique(np.asarray(documents, dtype=np.int64))
    special = np.unique(np.asarray(special_ids, dtype=np.int64))
    settings = {
        "num_ngrams": int(num_ngrams),
        "max_words": int(max_words),
        "min_count": int(min_count),
        "max_tokens": int(max_tokens),
    }
    chosen = fingerprint_of(documents.astype(np.uint64))
    name = key_of(FORMAT_VERSION, store.hash, chosen, special.tolist(), settings)
    folder = Path(cache_dir) / "pmi" / name
    if must_build(folder, (f"{array_name}.npy" for array_name in ARRAYS)):
        sentences = sentences_of(store, documents, max_tokens=max_tokens, special_ids=special)
        arrays, facts = _rank(sentences, num_ngrams, max_words, min_count)
        with stage(folder) as temporary:
            temporary.mkdir()
            for array_name, values in zip(ARRAYS, arrays, strict=True):
                np.save(temporary / f"{array_name}.npy", values)
            meta = {"format_version": FORMAT_VERSION, "store": store.hash, **settings, **facts}
            seal(temporary, meta)
    return NgramList(folder)


def _rank(
    sentences: Sentences, num_ngrams: int, max_words: int, min_count: int
) -> tuple[list[np.ndarray], dict[str, Any]]:
    """The arrays of a list, in the order of `ARRAYS`, and what `meta.json` says about them."""
    levels = frequent_ngrams(sentences, max_words=max_words, min_count=min_count)
    quotas = quotas_of(num_ngrams, max_words)
    scores = pmi_scores(sentences.store, levels)
    columns = []
    for n, level, pmi in zip(quotas, levels[1:], scores, strict=True):
        best = _best(pmi, level.counts, level.index.hashes)
        kept = np.sort(best[pmi[best] > 0.0][: quotas[n]])
        sizes = np.full(len(kept), n, dtype=np.uint8)
        values = (level.index.hashes, level.counts, pmi, level.starts, level.lengths)
        columns.append([sizes, *(column[kept] for column in values)])
    arrays = [np.concatenate(column) for column in zip(*columns, strict=True)]
    if not len(arrays[0]):
        advice = "masking.pmi_min_count=2" if min_count > 2 else "a larger corpus"
        raise ValueError(
            f"masking.pmi_min_count={min_count}: no 2 to {max_words} words that go together occur "
            f"that often in the {sentences.num_tokens:,} training tokens; it may be 1 or more and "
            f"suits the size of the corpus; type for example {advice}, or masking=whole_word"
        )
    facts = {
        "tokens_available": sentences.available,
        "tokens_counted": sentences.num_tokens,
        "words_counted": levels[0].places,
        "candidates": {str(n): len(levels[n - 1].counts) for n in quotas},
        "with_positive_pmi": {
            str(n): int((pmi > 0.0).sum()) for n, pmi in zip(quotas, scores, strict=True)
        },
        "kept": {str(n): len(column[0]) for n, column in zip(quotas, columns, strict=True)},
        "covered_share": covered_share(sentences, [HashIndex(column[1]) for column in columns]),
    }
    return arrays, facts


def quotas_of(num_ngrams: int, max_words: int) -> dict[int, int]:
    """How many n-grams of each n; what rounding down leaves over goes to the pairs."""
    total = sum(SHARES[n] for n in range(2, max_words + 1))
    quotas = {n: int(num_ngrams * SHARES[n] / total) for n in range(2, max_words + 1)}
    quotas[2] += num_ngrams - sum(quotas.values())
    return quotas


def pmi_scores(store: TokenStore, levels: list[Level]) -> list[np.ndarray]:
    """PMI_n of every n-gram of levels 2, 3, ..., (G_n,) each.

    The likeliest cut has some first part and after it the likeliest way to cut the rest, or not to:
    `best`. So no segmentation needs to be listed.
    """
    log_p = {n: np.log(level.counts / max(level.places, 1)) for n, level in enumerate(levels, 1)}
    best = {1: log_p[1]}
    fronts: dict[int, np.ndarray] = {}
    backs: dict[int, np.ndarray] = {}
    scores = []
    for n in range(2, len(levels) + 1):
        fronts[n], backs[n] = parts_of(store, levels[n - 1], levels[n - 2], n)
        cuts = [
            log_p[k][_walk(fronts, n, k)] + best[n - k][_walk(backs, n, n - k)] for k in range(1, n)
        ]
        likeliest = np.max(cuts, axis=0)
        best[n] = np.maximum(log_p[n], likeliest)
        # equal counts must tie whatever order their logarithms were added in
        scores.append(np.round(log_p[n] - likeliest, 9))
    return scores


def _walk(steps: dict[int, np.ndarray], n: int, k: int) -> np.ndarray:
    """The places, in level k, of the first (or last) k words of level n, one word less a step."""
    places = steps[n]
    for longer in range(n - 1, k, -1):
        places = steps[longer][places]
    return places


def covered_share(sentences: Sentences, indexes: Sequence[HashIndex]) -> float:
    """Share of the tokens of `sentences` in units of two words or more.

    Of overlapping n-grams of one length the earlier one wins, so that the share has one value.
    """
    covered = tokens = 0
    for words in sentences.chunks(CHUNK_TOKENS):
        heads = unit_heads(words, np.zeros(len(words.hashes)), indexes)
        joined = np.bincount(heads, minlength=len(heads))[heads] > 1
        covered += int(words.lengths[joined].sum())
        tokens += int(words.lengths.sum())
    return covered / max(tokens, 1)


def _best(pmi: np.ndarray, counts: np.ndarray, hashes: np.ndarray) -> np.ndarray:
    """Places from the first to the last: by PMI, then count, then hash."""
    return np.lexsort((hashes, -counts, -pmi))
