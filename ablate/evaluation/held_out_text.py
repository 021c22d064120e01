"""A corpus, or tagged sentences -> rows of words to be predicted, and what is known of each.

Rows, words, their bands of frequency and the draws behind the masks are made before any tokenizer
is asked, so that arms with different tokenizers are asked about the same words in the same text. A
corpus gives whole sentences of its held-out documents, those with the lowest hashes, until a row
has `words_per_row` words; a longer sentence goes on in the next row.
"""

from __future__ import annotations

import hashlib
import heapq
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ablate.corpus.cache import discard, key_of, read_json, stage, write_json
from ablate.corpus.sentences import split_sentences
from ablate.corpus.sources import Corpus, document_hash
from ablate.evaluation.frequency_bands import (
    MAX_COUNTED_WORDS,
    UNSEEN,
    WORD,
    bands_of,
    count_words,
)

FORMAT_VERSION = 1
WORDS_PER_DOCUMENT = 1_000  # at most: the sample is of many documents


class Segment(NamedTuple):
    """A piece of text that is tokenised by itself (a sentence), and its words: characters
    [begins[i], ends[i]), band and tag ("" where there is none)."""

    text: str
    begins: list[int]
    ends: list[int]
    bands: list[str]
    tags: list[str]


@dataclass(frozen=True)
class HeldOutText:
    """Rows of segments; `facts` say where they are from, `seed` draws the masks."""

    rows: list[list[Segment]]
    facts: dict[str, Any]
    seed: int = 0

    def hash(self) -> str:
        content = json.dumps(asdict(self), sort_keys=True)
        return hashlib.blake2b(content.encode(), digest_size=8).hexdigest()

    @property
    def num_words(self) -> int:
        return sum(len(segment.begins) for row in self.rows for segment in row)


def from_corpus(
    corpus: Corpus,
    *,
    num_words: int,
    words_per_row: int,
    seed: int,
    tags: Mapping[str, str] | None = None,
    cache_dir: str | Path | None = None,
) -> HeldOutText:
    """About `num_words` words of the held-out documents; one pass over the corpus, then cached.

    Args:
        seed: the corpus's, so that all arms and seeds share rows and masks.
        tags: lower-case word -> its part of speech, where the language has such a list.
    """
    held_out, bands, counted = _scan_cached(corpus, num_words, cache_dir)
    rows = [row for text in held_out for row in _rows_of(text, words_per_row, bands, tags or {})]
    facts = {
        "text": f"{len(held_out)} held-out documents, at most {WORDS_PER_DOCUMENT} words of each",
        "bands": f"ranks among {counted} words of the training documents",
        "words_per_row": words_per_row,
    }
    return HeldOutText(rows, facts, seed)


def from_sentences(
    sentences: Sequence[Sequence[str]],
    tags: Sequence[Sequence[str]],
    counts: Mapping[str, int],
    *,
    facts: Mapping[str, Any],
) -> HeldOutText:
    """Sentences of tagged words, one a row, set with a blank between words."""
    bands = bands_of((word.lower() for words in sentences for word in words), counts)
    rows = []
    for words, tagged in zip(sentences, tags, strict=True):
        begins, ends, at = [], [], 0
        for word in words:
            begins.append(at)
            ends.append(at + len(word))
            at += len(word) + 1
        of = [bands[word.lower()] for word in words]
        rows.append([Segment(" ".join(words), begins, ends, of, list(tagged))])
    return HeldOutText(rows, dict(facts))


def synthetic_tags() -> dict[str, str]:
    """The parts of speech of the built-in language, inflected forms included."""
    from ablate.corpus.synthetic_lexicon import AFFIXES, CLASSES, FUNCTION_WORDS, lexicon

    words = lexicon()
    stems = {
        "noun": [
            *CLASSES, *(noun.stem for noun in words.nouns), *words.jobs, *words.places,
        ],
        "name": [person.name for person in words.people],
        "verb": [*(s for verb in words.verbs for s in verb.stems), *words.intransitives],
        "adjective": [
            *(quality.stem for quality in words.qualities),
            *(f"un{quality.stem}" for quality in words.qualities),
            *(attribute.word for attribute in words.attributes),
        ],
    }  # fmt: skip
    found = {word: "function word" if word.isalpha() else "sign" for word in FUNCTION_WORDS}
    for kind, entries in stems.items():
        for stem in entries:
            for affix in ("", *AFFIXES):
                found.setdefault(stem + affix.removeprefix("##"), kind)
    return found


def _scan_cached(
    corpus: Corpus, num_words: int, cache_dir: str | Path | None
) -> tuple[list[str], dict[str, str], int]:
    if cache_dir is None:
        return _scan(corpus, num_words)
    key = key_of(
        FORMAT_VERSION, corpus.fingerprint, corpus.validation_threshold, num_words,
        MAX_COUNTED_WORDS, WORDS_PER_DOCUMENT,
    )  # fmt: skip
    file = Path(cache_dir) / "held_out_text" / f"{key}.json"
    was_there = file.exists()
    found = read_json(file)
    if found is None:
        if was_there:
            discard(file)
        texts, bands, counted = _scan(corpus, num_words)
        found = {"texts": texts, "bands": bands, "counted": counted}
        with stage(file) as temporary:
            write_json(temporary, found)
    return found["texts"], found["bands"], found["counted"]


def _scan(corpus: Corpus, num_words: int) -> tuple[list[str], dict[str, str], int]:
    """(held-out texts, band of each of their words, words counted)."""
    lowest: list[tuple[int, str, int]] = []  # a heap with the highest hash first
    kept = 0

    def training() -> Iterator[str]:
        nonlocal kept
        for text in corpus.open():
            number = document_hash(text)
            if number >= corpus.validation_threshold:
                yield text
                continue
            size = min(len(WORD.findall(text)), WORDS_PER_DOCUMENT)
            heapq.heappush(lowest, (-number, text, size))
            kept += size
            while kept - lowest[0][2] >= num_words:
                kept -= heapq.heappop(lowest)[2]

    source = training()
    counts: Counter[str] = count_words(source)
    for _ in source:  # held-out documents behind the last one that is counted
        pass
    texts = [text for _, text, _ in sorted(lowest, reverse=True)]
    words = {word for text in texts for word in WORD.findall(text.lower())}
    return texts, bands_of(words, counts), sum(counts.values())


def _rows_of(
    text: str, words_per_row: int, bands: Mapping[str, str], tags: Mapping[str, str]
) -> Iterator[list[Segment]]:
    row: list[Segment] = []
    in_row = in_document = 0
    for sentence in split_sentences(text):
        for segment in _segments(sentence, words_per_row, bands, tags):
            if row and in_row + len(segment.begins) > words_per_row:
                yield row
                row, in_row = [], 0
            if in_document >= WORDS_PER_DOCUMENT:
                break
            row.append(segment)
            in_row += len(segment.begins)
            in_document += len(segment.begins)
    if row:
        yield row


def _segments(
    sentence: str, most: int, bands: Mapping[str, str], tags: Mapping[str, str]
) -> Iterator[Segment]:
    """The sentence, cut where it has more than `most` words."""
    found = list(WORD.finditer(sentence))
    for first in range(0, len(found), most):
        words = found[first : first + most]
        start = words[0].start()
        lower = [word.group().lower() for word in words]
        yield Segment(
            sentence[start : words[-1].end()],
            [word.start() - start for word in words],
            [word.end() - start for word in words],
            # `lower` of a text and of its word can differ in rare scripts
            [bands.get(word, UNSEEN) for word in lower],
            [tags.get(word, "") for word in lower],
        )
