"""Shuffled words: the words of each training sentence, and nothing else, move."""

import numpy as np
import pytest

from ablate.corpus import sources
from ablate.tokens import store, training
from ablate.tokens.store import ARRAYS
from ablate.tokens.word_order import shuffled

THRESHOLD = 2**62  # about a quarter of the documents is held out


@pytest.fixture(scope="module")
def natural(tmp_path_factory):
    cache = tmp_path_factory.mktemp("cache")
    corpus = sources.load_synthetic(
        seed=3, num_documents=60, validation_fraction=0.25, cache_dir=cache
    )
    tokenizer = training.from_morphemes(corpus.morphemes, cache_dir=cache)
    return store.build(corpus, tokenizer, cache_dir=cache)


def words_of(made, sentence):
    low, high = (int(made.sentence_starts[sentence + i]) for i in (0, 1))
    begins = np.flatnonzero(made.word_starts[low:high])
    return [tuple(w) for w in np.split(made.tokens[low:high], begins[1:].tolist())]


def in_document(made, sentence):
    place = np.searchsorted(made.document_starts, made.sentence_starts[sentence], side="right")
    return int(place) - 1


def test_training_sentences_keep_their_words_and_held_out_ones_their_order(natural, tmp_path):
    made = shuffled(natural, THRESHOLD, seed=0, cache_dir=tmp_path)
    training_documents = set(natural.split(THRESHOLD)[0].tolist())
    moved = 0
    for sentence in range(len(natural.sentence_starts) - 1):
        before, after = words_of(natural, sentence), words_of(made, sentence)
        if in_document(natural, sentence) in training_documents:
            assert sorted(before) == sorted(after)
            moved += before != after
        else:
            assert before == after
    assert moved > 0.9 * len(training_documents)
    for name in set(ARRAYS) - {"tokens", "word_starts"}:
        assert np.array_equal(getattr(natural, name), getattr(made, name))


def test_every_place_of_a_sentence_is_as_likely(natural, tmp_path):
    """Where the first word of sentences of 6 words goes, over 200 orders: each place a sixth."""
    lengths = np.array([len(words_of(natural, s)) for s in range(len(natural.sentence_starts) - 1)])
    training_documents = set(natural.split(THRESHOLD)[0].tolist())
    sentence = next(
        s for s in np.flatnonzero(lengths == 6)
        if in_document(natural, s) in training_documents and len(set(words_of(natural, s))) == 6
    )  # fmt: skip
    first = words_of(natural, sentence)[0]
    places = [
        words_of(shuffled(natural, THRESHOLD, seed=seed, cache_dir=tmp_path), sentence).index(first)
        for seed in range(200)
    ]
    counts = np.bincount(places, minlength=6)
    assert counts.min() > 10  # a binomial of 200 and 1/6: 33, deviation 5.3
    assert counts.max() < 60


def test_the_order_does_not_depend_on_the_chunk_and_depends_on_the_seed(natural, tmp_path):
    made = [
        shuffled(natural, THRESHOLD, seed=seed, cache_dir=tmp_path / str(chunk), chunk=chunk)
        for seed, chunk in ((0, 1), (0, 500), (0, 1 << 20), (1, 1 << 20))
    ]
    assert np.array_equal(made[0].tokens, made[1].tokens)
    assert np.array_equal(made[0].tokens, made[2].tokens)
    assert np.array_equal(made[0].word_starts, made[2].word_starts)
    assert not np.array_equal(made[0].tokens, made[3].tokens)
    assert made[0].hash == made[2].hash != natural.hash
