"""A store and a tokenizer over the toy vocabulary: ids 0-4 special, 5-19 ordinary."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from ablate.inputs.formats import plan_epoch


def toy_store(documents, word_starts=None):
    """`documents`: list of documents, each a list of sentences, each a list of ids."""
    sentences = [sentence for document in documents for sentence in document]
    tokens = np.array([i for sentence in sentences for i in sentence], dtype=np.uint16)
    lengths = [len(sentence) for sentence in sentences]
    sizes = [sum(len(sentence) for sentence in document) for document in documents]
    starts = np.ones(len(tokens), bool) if word_starts is None else np.array(word_starts, bool)
    return SimpleNamespace(
        tokens=tokens,
        word_starts=starts,
        sentence_starts=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        document_starts=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        document_bytes=np.array(sizes) * 4,
        split=lambda threshold: (np.arange(len(documents)), np.arange(len(documents))),
    )


@pytest.fixture
def make_store():
    return toy_store


@pytest.fixture
def toy_tokenizer():
    return SimpleNamespace(
        file=Path("toy/tokenizer.json"),
        vocab_size=20,
        cls_token_id=2,
        sep_token_id=3,
        mask_token_id=4,
        special_ids=np.arange(5),
        ordinary_ids=np.arange(5, 20),
        knows_words=True,
    )


def plan_all(store, *, input_format="segment_pair", max_length=16, seed=0, epoch=0, **more):
    documents = np.arange(len(store.document_starts) - 1)
    return plan_epoch(
        store, documents, input_format=input_format, max_length=max_length, seed=seed, epoch=epoch,
        **more,
    )  # fmt: skip


def ids_of_rows(store, plan):
    """Each row as the list of its slices' ids."""
    return [
        [
            store.tokens[plan.slice_starts[s] : plan.slice_stops[s]].tolist()
            for s in range(plan.row_starts[r], plan.row_starts[r + 1])
        ]
        for r in range(plan.num_rows)
    ]


@pytest.fixture
def plan_of():
    """One epoch of all documents of a store."""
    return plan_all


@pytest.fixture
def rows_of():
    return ids_of_rows
