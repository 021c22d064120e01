"""Numbers that must not know of one another: counts, windows, lengths, fates, orders.

All of it is read off finished batches and plans, so that no two of them can share a draw unseen.
"""

import numpy as np
import pytest
from scipy.stats import binom

from ablate.inputs.masked_rows import MaskedRows
from ablate.inputs.masking import MaskingPolicy


def within(count, n, p):
    """Exact two-sided limits that a correct program passes all but once in a million tries."""
    low, high = binom.ppf([5e-7, 1 - 5e-7], n, p)
    return low <= count <= high


def batch_of(store, tokenizer, plan_of, policy, *, length):
    plan = plan_of(store, input_format="doc_sentences", max_length=16, shuffle=False)
    assert set(plan.row_lengths) == {length}
    source = MaskedRows(store, tokenizer, policy, max_length=16, seed=0)
    return source.batch(plan, np.arange(plan.num_rows), epoch=0)[0]


def selected(batch, length):
    """(R, length) bool."""
    chosen = np.zeros(len(batch.input_ids), bool)
    chosen[batch.predict_positions.numpy()] = True
    return chosen.reshape(-1, length)


@pytest.mark.parametrize("rate", [0.15, 0.4, 0.7])
def test_rounding_a_count_knows_nothing_of_where_the_window_starts(
    make_store, toy_tokenizer, plan_of, rate
):
    """A row is one word of 4 tokens, taken if its begin lies in the window.

    At 15% the count is 1 in 6 of 10 rows and else 0; a window of 1 meets the begin in 1 of 4 rows:
    .6 / 4 = .15. Were one number behind both, the windows from there would all have count 0.
    """
    store = make_store([[[5, 6, 7, 8]]] * 20_000, word_starts=[1, 0, 0, 0] * 20_000)
    policy = MaskingPolicy(
        "whole_word", mask_rate=rate, budget_rule="exact", budget_rounding="stochastic"
    )
    chosen = selected(batch_of(store, toy_tokenizer, plan_of, policy, length=6), 6)
    assert within(chosen[:, 1].sum(), 20_000, rate)


def test_rounding_a_count_knows_nothing_of_the_fate_of_a_token(make_store, toy_tokenizer, plan_of):
    """10 tokens at 15%: half of the rows have 1 and half have 2; of either, 80% show [MASK]."""
    store = make_store([[[5] * 10]] * 30_000)
    policy = MaskingPolicy(
        budget_rule="exact", budget_rounding="stochastic", random_replace_prob=0.0
    )
    batch = batch_of(store, toy_tokenizer, plan_of, policy, length=12)
    chosen = selected(batch, 12)
    shown = batch.input_ids.numpy().reshape(-1, 12) == 4
    counts = chosen.sum(1)
    assert set(counts) == {1, 2}
    assert within((counts == 2).sum(), 30_000, 0.5)
    for count in (1, 2):
        rows = counts == count
        for place in range(1, 11):
            taken = chosen[rows, place].sum()
            assert within(taken, rows.sum(), count / 10)
            assert within(shown[rows, place].sum(), taken, 0.8)


@pytest.mark.parametrize("rule", ["exact", "bernoulli"])
@pytest.mark.parametrize("selection", ["token", "whole_word", "span"])
def test_each_position_of_a_finished_row_has_the_same_chance(
    make_store, toy_tokenizer, plan_of, selection, rule
):
    """10 tokens in words of 2, 1, 4 and 3, 30%: each is taken in 3 of 10 rows, the first as well.

    A window that started where the first token's number says would meet that token more often.
    """
    begins = [1, 0, 1, 1, 0, 0, 0, 1, 0, 0]
    store = make_store([[[5] * 10]] * 20_000, word_starts=begins * 20_000)
    policy = MaskingPolicy(selection, mask_rate=0.3, budget_rule=rule)
    found = selected(batch_of(store, toy_tokenizer, plan_of, policy, length=12), 12).sum(0)
    assert found[[0, 11]].tolist() == [0, 0]
    for place in range(1, 11):
        assert within(found[place], 20_000, 0.3), (place, found)


@pytest.fixture
def one_span(make_store, toy_tokenizer, plan_of):
    """(words of the span, id shown at its first token), (M,) each.

    Rows of 12 words of one token; an exact count of 1 takes the span that begins at one place, or
    none. So a row has at most one span and its selected tokens are the words of it.
    """

    def draw(**shares):
        store = make_store([[[5] * 12]] * 60_000)
        policy = MaskingPolicy(
            "span", mask_rate=0.01, budget_rule="exact", corruption_unit="unit", **shares
        )
        batch = batch_of(store, toy_tokenizer, plan_of, policy, length=14)
        positions = batch.predict_positions.numpy()
        _, first, words = np.unique(positions // 14, return_index=True, return_counts=True)
        assert np.array_equal(positions[first] + words - 1, positions[first + words - 1])
        assert set(words) == set(range(1, 11))
        return words, batch.input_ids.numpy()[positions[first]]

    return draw


def test_the_fate_of_a_span_does_not_depend_on_its_length(one_span):
    """80% [MASK] and 10% random, 1 in 15 of these the original id, at each number of words."""
    words, shown = one_span(mask_replace_prob=0.8, random_replace_prob=0.1)
    for length in range(1, 11):
        ids = shown[words == length]
        assert len(ids) > 100
        assert within((ids == 4).sum(), len(ids), 0.8), length
        assert within((ids > 5).sum(), len(ids), 0.1 * 14 / 15), length


def test_a_random_token_does_not_depend_on_the_length_of_its_span(one_span):
    words, shown = one_span(mask_replace_prob=0.0, random_replace_prob=1.0)
    for length in range(1, 11):
        ids = shown[words == length]
        for low in (5, 10, 15):
            assert within(((ids >= low) & (ids < low + 5)).sum(), len(ids), 1 / 3), length


@pytest.mark.parametrize("before", [0.0, 0.3, 0.7])
def test_a_random_token_does_not_depend_on_the_fate_that_made_it_one(one_span, before):
    """Whichever 30% of the fates mean "random", all ids are as frequent."""
    _, shown = one_span(mask_replace_prob=before, random_replace_prob=0.3)
    drawn = shown[shown > 5]
    for token in range(6, 20):
        assert within((drawn == token).sum(), len(drawn), 1 / 14), token


def numbered(make_store):
    """30 documents of one sentence, which an id and a length tell apart."""
    return make_store([[[5 + i % 15] * (3 + i // 15)] for i in range(30)])


@pytest.mark.parametrize("copies", [1, 2])
def test_a_replicate_of_the_data_has_its_own_order_in_every_pass(make_store, plan_of, copies):
    """`row_ids` are places in the first pass: the permutation alone, whatever the rows are."""
    store = numbered(make_store)
    orders = [
        tuple(
            plan_of(
                store, input_format="doc_sentences", copies=copies, epoch=epoch, replicate=replicate
            ).row_ids
        )
        for replicate in range(3)
        for epoch in range(copies, copies + 3)
    ]
    assert len({*orders, tuple(range(30))}) == 10


def test_an_epoch_of_one_replicate_is_no_epoch_of_another(make_store, plan_of):
    """Epoch 1 of replicate 0 is not epoch 0 of replicate 1, nor seed 1."""
    store = numbered(make_store)
    rows = {
        tuple(
            plan_of(
                store, input_format="doc_sentences", seed=seed, epoch=epoch, replicate=replicate
            ).slice_starts
        )
        for seed in range(3)
        for epoch in range(3)
        for replicate in range(3)
    }
    assert len(rows) == 27
