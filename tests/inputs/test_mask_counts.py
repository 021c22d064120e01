"""Counts of a hand-made row, and that they add up."""

import numpy as np

from ablate.inputs import mask_counts
from ablate.inputs.mask_counts import MaskCounts, count_selected

#   [CLS] un ##b ##le cat ##s [SEP] dog ran [SEP]
WORDS = np.array([0, 1, 0, 0, 1, 0, 0, 1, 1, 0], bool)
HEADS = np.array([-1, 1, 1, 1, 4, 4, -1, 7, 7, -1])  # units: un..le | cat..s | dog ran


def count(selected, heads=HEADS):
    chosen = np.zeros(10, bool)
    chosen[selected] = True
    return counted(chosen, heads, WORDS)


def counted(chosen, heads, words):
    """All selected tokens show [MASK]."""
    places = np.flatnonzero(chosen)
    masked = np.ones(len(places), bool)
    return count_selected(chosen, places, masked, ~masked, heads, words)


def test_whole_units_by_hand():
    found = count([1, 2, 3, 7, 8])
    assert found.eligible == 7
    assert (found.words_touched, found.words_whole) == (3, 3)
    assert found.histograms() == {"span_tokens": {"2": 1, "3": 1}, "unit_words": {"1": 1, "2": 1}}
    assert (found.units, found.units_selected, found.units_masked, found.units_random) == (
        3,
        2,
        2,
        0,
    )


def test_single_tokens_break_words():
    alone = np.where(HEADS >= 0, np.arange(10), -1)
    found = count([2, 3, 4, 8], alone)
    assert (found.words_touched, found.words_whole) == (3, 1)
    assert found.histograms() == {"span_tokens": {"1": 1, "3": 1}, "unit_words": {"1": 4}}
    assert found.shares()["whole_word_integrity"] == 1 / 3


def test_runs_stop_at_special_tokens_and_at_the_end():
    alone = np.array([0, -1, 2])
    chosen = np.array([True, False, True])
    found = counted(chosen, alone, alone >= 0)
    assert found.histograms()["span_tokens"] == {"1": 2}


def test_long_runs_fall_into_the_last_bin():
    heads = np.arange(100)
    found = counted(np.ones(100, bool), heads, np.ones(100, bool))
    assert found.histograms()["span_tokens"] == {"32+": 1}


def test_nothing_selected_has_no_share():
    shares = count([]).shares()
    assert set(shares.values()) == {0.0}
    assert MaskCounts().shares()["mask_rate"] == 0.0


def test_counts_add_up():
    total = MaskCounts()
    for selected in ([1, 2, 3], [4, 5], []):
        total += count(selected)
    assert (total.eligible, total.units) == (21, 9)
    assert total.words_whole == 2
    assert total.span_tokens[2:4] == [1, 1]
    assert count([]).span_tokens == [0] * mask_counts.SPAN_BINS  # no shared list


def test_compiled_loop_equals_plain_python():
    random = np.random.default_rng(0)
    inside = random.random(400) < 0.9
    words = (random.random(400) < 0.5) & inside
    heads = np.where(inside, np.maximum.accumulate(np.where(words, np.arange(400), 0)), -1)
    chosen = (random.random(400) < 0.5) & inside
    places = np.flatnonzero(chosen)
    masked = random.random(len(places)) < 0.5
    arguments = (chosen, places, masked, ~masked, heads, words, 33, 17)
    slow = mask_counts.selected_loop(*arguments)
    fast = mask_counts.compiled(mask_counts.selected_loop)(*arguments)
    for one, other in zip(slow, fast, strict=True):
        assert np.array_equal(one, other)
    assert mask_counts.compiled(mask_counts.text_loop)(heads) == mask_counts.text_loop(heads)
