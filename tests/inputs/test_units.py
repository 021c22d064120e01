"""Units tile the text: hand-made rows, and laws of the lengths."""

import numpy as np
from scipy.stats import binom

from ablate.inputs import units
from ablate.inputs.masking import MaskingPolicy

#      [CLS] un ##b ##le cat ##s [SEP] dog ran [SEP]
ELIGIBLE = np.array([0, 1, 1, 1, 1, 1, 0, 1, 1, 0], bool)
STARTS = np.array([0, 1, 0, 0, 1, 0, 0, 1, 1, 0], bool)


def test_words_and_their_heads_by_hand():
    words = units.word_begins(STARTS, ELIGIBLE)
    assert np.flatnonzero(words).tolist() == [1, 4, 7, 8]
    assert units.heads_of(words, ELIGIBLE).tolist() == [-1, 1, 1, 1, 4, 4, -1, 7, 8, -1]


def test_a_word_cut_by_a_special_token_begins_after_it():
    words = units.word_begins(np.zeros(10, bool), ELIGIBLE)
    assert np.flatnonzero(words).tolist() == [1, 7]


def test_fixed_bigrams_take_two_words_and_end_at_special_tokens():
    words = units.word_begins(STARTS, ELIGIBLE)
    places = np.flatnonzero(words)
    begins = units.tile(places, ELIGIBLE, np.zeros(4), np.array([0.0, 1.0]))
    assert np.flatnonzero(begins).tolist() == [1, 7]
    single = units.tile(places, ELIGIBLE, np.full(4, 0.999), np.array([1.0]))
    assert np.array_equal(single, words)


def test_the_uniform_at_a_head_draws_the_length():
    eligible = np.ones(6, bool)
    draws = np.array([0.7, 0.1, 0.1, 0.1, 0.1, 0.1])  # .7 -> two words, .1 -> one
    begins = units.tile(np.arange(6), eligible, draws, np.array([0.5, 0.5]))
    assert np.flatnonzero(begins).tolist() == [0, 2, 3, 4, 5]


def test_lengths_follow_the_law():
    random = np.random.default_rng(0)
    law = MaskingPolicy("span").length_distribution()
    everywhere = np.ones(200_000, bool)
    begins = units.tile(np.arange(200_000), everywhere, random.random(200_000), law)
    lengths = np.bincount(np.diff(np.flatnonzero(begins)), minlength=11)[1:]
    for count, share in zip(lengths, law, strict=True):
        low, high = binom.ppf([5e-7, 1 - 5e-7], lengths.sum(), share)
        assert low <= count <= high


def test_compiled_loop_equals_plain_python():
    random = np.random.default_rng(1)
    eligible = random.random(500) < 0.9
    words = units.word_begins(random.random(500) < 0.6, eligible)
    places = np.flatnonzero(words)
    draws = random.random(len(places))
    law = np.array([0.2, 0.3, 0.5])
    least = np.ones(256, dtype=np.int64)  # the table only saves steps
    slow = units.tile_loop(places, eligible, draws, np.cumsum(law), least)
    assert np.array_equal(units.tile(places, eligible, draws, law), slow)
    assert np.array_equal(units.heads_of(words, eligible), units.heads_loop(words, eligible))
