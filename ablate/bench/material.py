"""Text -> the same full rows twice: in a token store with its plan, and as lists of ids.

The two sides are made apart from the same documents: ours by `tokens.store`, `plan_epoch` and
`assemble`, theirs by a `PreTrainedTokenizerFast` on the same tokenizer.json, cut into rows the way
Hugging Face's own scripts group texts. Every row that is measured is looked up among theirs by its
ids, so the comparison cannot run on different text.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ablate.bench.store import beginning
from ablate.corpus import files, sources, synthetic
from ablate.corpus.sentences import split_sentences
from ablate.inputs.formats import plan_epoch
from ablate.inputs.plan import Plan
from ablate.inputs.rows import assemble
from ablate.tokens import store as stores
from ablate.tokens import training
from ablate.tokens.store import TokenStore
from ablate.tokens.tokenizer import Tokenizer

BUILT_IN_VOCAB_SIZE = 300  # few enough that one word in five has several pieces, as in real text
VOCAB_SIZE = 8192
_CHARACTERS_A_TOKEN = 8  # more than any text needs
_MANY_DOCUMENTS = 10**6  # of the built-in language, which is made as it is read


@dataclass(frozen=True)
class Material:
    """Documents, their store, and the same tokenizer for both sides."""

    name: str
    documents: list[str]
    tokenizer: Tokenizer
    store: TokenStore
    cache_dir: Path


@dataclass(frozen=True)
class Rows:
    """R full rows: their places in our plan, and theirs in the same order.

    `examples` are what a dataset that was tokenized with offsets holds: lists, no arrays.
    """

    plan: Plan
    numbers: np.ndarray  # (R,)
    examples: list[dict[str, Any]]


def load(corpus: str | None, *, num_tokens: int, text_field: str, cache_dir: Path) -> Material:
    """At least `num_tokens` from the beginning of a corpus file (as `corpus.path`), or of the
    built-in language; all of a file that has fewer.

    Raises:
        ValueError: the corpus cannot be read.
    """
    if corpus is None:
        texts: Iterator[str | None] = iter(synthetic.documents(0, _MANY_DOCUMENTS))
    else:
        found, _ = files.find_files(corpus)
        texts = files.read_texts(found, text_field=text_field, cache_dir=cache_dir)
    parts = list(beginning(texts, num_tokens * _CHARACTERS_A_TOKEN))
    documents = ["\n".join(parts)]  # one, so that every row but the last is full
    hashes = np.array([sources.document_hash(text) for text in documents], dtype=np.uint64)
    made = sources.Corpus(
        name=corpus or "the built-in language",
        fingerprint=sources.fingerprint_of(hashes),
        open=lambda: iter(documents),
        validation_threshold=0,
        counts={},
    )
    tokenizer = training.train(
        "wordpiece",
        documents,
        vocab_size=BUILT_IN_VOCAB_SIZE if corpus is None else VOCAB_SIZE,
        lowercase=True,
        cache_dir=cache_dir,
    )
    store = stores.build(made, tokenizer, cache_dir=cache_dir)
    return Material(made.name, documents, tokenizer, store, cache_dir)


def full_rows(material: Material, hf_tokenizer: Any, *, max_length: int, count: int) -> Rows:
    """The first `count` full rows of a shuffled plan, as training takes them, and their twins.

    Raises:
        ValueError: too little text, or a row that the other side does not have.
    """
    plan = plan_epoch(
        material.store,
        np.arange(len(material.store.document_starts) - 1),
        input_format="single_document",
        max_length=max_length,
        seed=0,
        epoch=0,
    )
    short = np.flatnonzero(plan.row_lengths < max_length)  # the text's last row, at most
    begin = 0 if not len(short) or short[0] >= count else int(short[0]) + 1
    numbers = np.arange(begin, begin + count)  # in a row, as a training step takes them
    if begin + count > plan.num_rows:
        raise ValueError(
            f"{material.name} gives {plan.num_rows} rows of {max_length} tokens, {count} full ones "
            "are measured; give --corpus a larger file"
        )
    theirs = {tuple(row["input_ids"]): row for row in rows_of(material, hf_tokenizer, max_length)}
    flat = assemble(material.store, material.tokenizer, plan, numbers)
    ours = map(tuple, flat.input_ids.reshape(count, max_length).tolist())
    try:
        examples = [theirs[ids] for ids in ours]
    except KeyError:
        raise ValueError(
            f"{material.name}: a row of ours is not among transformers' rows of the same text; "
            "a comparison would be of different text. Give another --corpus"
        ) from None
    return Rows(plan, numbers, examples)


def rows_of(material: Material, hf_tokenizer: Any, max_length: int) -> Iterator[dict[str, Any]]:
    """Theirs: texts tokenized with offsets, each document cut into full rows."""
    room = max_length - 2
    cls_id, sep_id = hf_tokenizer.cls_token_id, hf_tokenizer.sep_token_id
    for document in material.documents:
        sentences = split_sentences(document)
        encoded = hf_tokenizer(
            sentences, add_special_tokens=False, return_offsets_mapping=True, verbose=False
        )
        ids = list(itertools.chain.from_iterable(encoded["input_ids"]))
        offsets: list[tuple[int, int]] = []
        before = 0  # characters of the sentences before, a blank after each
        for sentence, places in zip(sentences, encoded["offset_mapping"], strict=True):
            offsets += [(before + left, before + right) for left, right in places]
            before += len(sentence) + 1
        for begin in range(0, len(ids) - room + 1, room):
            yield {
                "input_ids": [cls_id, *ids[begin : begin + room], sep_id],
                "offset_mapping": [(0, 0), *offsets[begin : begin + room], (0, 0)],
                "special_tokens_mask": [1, *[0] * room, 1],
            }
