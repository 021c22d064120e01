"""What `PretrainingData` hands on: counts from training documents only, replicates to their part.

Batches, steps and validation are in test_steps and tests/pretraining.
"""

import itertools

import numpy as np
import pytest

from ablate.inputs.datamodule import PretrainingData
from ablate.inputs.masking import MaskingPolicy


@pytest.fixture
def make_data(make_store, toy_tokenizer, tmp_path):
    """Every third document is held out, so that neither part is a range of documents."""

    def make(documents, policy=None, **more):
        store = make_store(documents)
        store.hash = repr(documents)
        held_out = np.arange(len(documents)) % 3 == 1
        store.split = lambda threshold: (np.flatnonzero(~held_out), np.flatnonzero(held_out))
        return PretrainingData(
            store, toy_tokenizer, policy or MaskingPolicy(), input_format="doc_sentences",
            max_length=16, short_seq_prob=0.0, validation_threshold=0, validation_seed=0,
            validation_rows=4, clock="steps", amount=10, global_batch_size=4, micro_batch_size=4,
            num_workers=0, seed=0, cache_dir=tmp_path, **more,
        )  # fmt: skip

    return make


def documents_with(held_out):
    """20 documents of training with ids 5, 6 (always together) and 7, 8, and 10 others."""
    training = [[[5, 6], [7], [8]], [[8], [5, 6], [5, 6], [7]]]
    return [document for _ in range(10) for document in (training[0], held_out, training[1])]


HELD_OUT = [[9, 10], [7, 8], [9, 10]]


def test_random_tokens_by_frequency_are_counted_in_training_documents_only(make_data):
    """5, 6 three times, 7, 8 twice a round; 9 and 10 stand in held-out documents alone."""
    policy = MaskingPolicy(
        mask_rate=1.0, mask_replace_prob=0.0, random_replace_prob=1.0,
        random_candidates="frequency",
    )  # fmt: skip
    data = make_data(documents_with(HELD_OUT), policy)
    assert data.rows.candidates.ids.tolist() == [5, 6, 7, 8]
    assert data.rows.candidates.cumulative == pytest.approx([0.3, 0.6, 0.8, 1.0])
    seen = {
        i
        for item in data.train_dataloader()
        for batch in item.micro_batches
        for i in batch.input_ids[batch.predict_positions].tolist()
    }
    assert seen == {5, 6, 7, 8}


def pairs_listed(data):
    return {e.text for e in data.rows.ngrams.examples(data.store, tuple, 2, 100)}


def test_collocations_are_counted_in_training_documents_only(make_data):
    """9 10 occurs 20 times and 7 8 ten times, none of it in a document of training."""
    policy = MaskingPolicy("pmi", pmi_num_ngrams=100, pmi_max_words=2, pmi_min_count=5)
    data = make_data(documents_with(HELD_OUT), policy)
    assert pairs_listed(data) == {(5, 6)}
    other = make_data(documents_with([[11, 12, 13]]), policy)
    assert pairs_listed(other) == {(5, 6)}
    assert data.rows.ngrams.hash == other.rows.ngrams.hash


def rows_and_places(data):
    """Rows as they were before masking, and where they were masked, in the order of training."""
    rows, places = [], []
    for item in data.train_dataloader():
        for batch in item.micro_batches:
            ids = batch.input_ids.clone()
            ids[batch.predict_positions] = batch.labels
            bounds = batch.cu_seqlens.tolist()
            rows += [tuple(ids[a:b].tolist()) for a, b in itertools.pairwise(bounds)]
            places.append(batch.predict_positions.tolist())
    return rows, places


@pytest.fixture
def sixty():
    """Documents of one sentence of 10 random ids."""
    random = np.random.default_rng(0)
    return [[random.integers(5, 20, 10).tolist()] for _ in range(60)]


def test_a_replicate_of_the_masks_changes_the_masks_and_no_row(make_data, sixty):
    rows, places = rows_and_places(make_data(sixty))
    same_rows, other_places = rows_and_places(make_data(sixty, replicate_masks=1))
    assert same_rows == rows
    assert all(ours != theirs for ours, theirs in zip(places, other_places, strict=True))


def test_a_replicate_of_the_data_changes_the_rows_and_no_random_number_of_a_mask(make_data, sixty):
    """All rows have 12 tokens: the first one is masked at the same places, whatever its text."""
    rows, places = rows_and_places(make_data(sixty))
    other_rows, same_places = rows_and_places(make_data(sixty, replicate_data=1))
    assert sorted(rows) == sorted(other_rows)  # one epoch of the same documents
    assert rows != other_rows
    assert places == same_places
