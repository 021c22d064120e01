"""Which units of a row are taken: counts, nesting, and the same chance for every position."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from ablate.inputs import selection, units
from ablate.inputs.masking import MaskingPolicy
from ablate.inputs.selection import select


def rows_of_words(seed, rows=40, length=24, longest=4):
    """Heads of random words, rows end to end, [CLS] and [SEP] at the edges of each."""
    random = np.random.default_rng(seed)
    eligible = np.ones((rows, length), bool)
    eligible[:, [0, -1]] = False
    eligible[:, 1:-1] &= random.random((rows, length - 2)) < 0.95
    eligible = eligible.reshape(-1)
    words = units.word_begins(random.random(rows * length) < 1.5 / longest, eligible)
    return units.heads_of(words, eligible), np.arange(rows + 1) * length


def draw(policy, rate, heads, row_starts, seed):
    random = np.random.default_rng(seed)
    uniforms, row_uniforms = random.random(len(heads)), random.random((2, len(row_starts) - 1))
    return select(policy, rate, heads, uniforms, row_starts, row_uniforms)


def exact(**settings):
    return MaskingPolicy("whole_word", budget_rule="exact", **settings)


POLICIES = [
    MaskingPolicy("whole_word"),
    exact(),
    exact(budget_base="row"),
    exact(budget_rounding="stochastic"),
]
LIMITED = [
    MaskingPolicy(max_predictions_per_row=5),
    MaskingPolicy(budget_rule="exact", max_predictions_per_row=5),
    MaskingPolicy(budget_rule="exact", budget_base="row", max_predictions_per_row=7),
]
SKIP = exact(overshoot="skip")


@given(
    st.sampled_from([*POLICIES, SKIP]), st.floats(0.01, 1.0), st.integers(0, 2**31), st.integers(1)
)
def test_units_are_whole_and_special_tokens_never_selected(policy, rate, seed, longest):
    heads, row_starts = rows_of_words(seed, longest=1 + longest % 6)
    chosen = draw(policy, rate, heads, row_starts, seed)
    assert not chosen[heads < 0].any()
    inside = heads >= 0
    assert np.array_equal(chosen[inside], chosen[heads[inside]])


@given(st.sampled_from(POLICIES), st.floats(0.01, 1.0), st.floats(0.01, 1.0), st.integers(0, 2**31))
def test_a_lower_rate_selects_a_subset(policy, one, other, seed):
    heads, row_starts = rows_of_words(seed)
    few = draw(policy, min(one, other), heads, row_starts, seed)
    many = draw(policy, max(one, other), heads, row_starts, seed)
    assert not (few & ~many).any()


def test_skipping_is_not_nested_as_said():
    heads, row_starts = rows_of_words(0)
    few = draw(SKIP, 0.15, heads, row_starts, 0)
    assert (few & ~draw(SKIP, 0.4, heads, row_starts, 0)).any()


@given(st.floats(0.01, 1.0), st.integers(0, 2**31), st.sampled_from(["eligible", "row"]))
def test_exact_counts_of_single_tokens(rate, seed, base):
    heads, row_starts = rows_of_words(seed, longest=1)
    heads = np.where(heads >= 0, np.arange(len(heads)), -1)
    counted = np.add.reduceat(heads >= 0, row_starts[:-1], dtype=int)
    whole = np.diff(row_starts) if base == "row" else counted
    policy = MaskingPolicy(budget_rule="exact", budget_base=base)
    found = np.add.reduceat(draw(policy, rate, heads, row_starts, seed), row_starts[:-1], dtype=int)
    wanted = [
        min(max(1, math.floor(rate * w + 0.5)), n) for w, n in zip(whole, counted, strict=True)
    ]
    assert found.tolist() == wanted


@given(st.floats(0.01, 1.0), st.integers(0, 2**31))
def test_exact_counts_of_words_miss_by_less_than_a_word(rate, seed):
    heads, row_starts = rows_of_words(seed)
    found = np.add.reduceat(
        draw(exact(), rate, heads, row_starts, seed), row_starts[:-1], dtype=int
    )
    counted = np.add.reduceat(heads >= 0, row_starts[:-1], dtype=int)
    longest = np.bincount(heads[heads >= 0]).max()
    budget = np.minimum(np.maximum(np.floor(rate * counted + 0.5), 1), counted)
    assert (np.abs(found - budget) < longest).all()
    skipped = np.add.reduceat(draw(SKIP, rate, heads, row_starts, seed), row_starts[:-1], dtype=int)
    assert (skipped <= budget).all()


@given(st.sampled_from(POLICIES), st.integers(0, 2**31))
def test_rate_one_takes_everything(policy, seed):
    heads, row_starts = rows_of_words(seed)
    chosen = draw(policy, 1.0, heads, row_starts, seed)
    assert np.array_equal(chosen, heads >= 0)


@given(st.sampled_from(LIMITED), st.floats(0.01, 0.5), st.floats(0, 0.5), st.integers(0, 2**31))
def test_a_limit_cuts_and_keeps_rates_nested(policy, rate, more, seed):
    heads, row_starts = rows_of_words(seed)
    heads = np.where(heads >= 0, np.arange(len(heads)), -1)
    few = draw(policy, rate, heads, row_starts, seed)
    many = draw(policy, rate + more, heads, row_starts, seed)
    assert not (few & ~many).any()
    assert np.add.reduceat(many, row_starts[:-1], dtype=int).max() <= policy.max_predictions_per_row


def test_bert_counts_special_tokens_and_obeys_its_limit():
    """Length 128: round(.15 * 128) = 19 of 125 candidates; 20 predictions at 512 are 4%."""
    for length, limit, expected in ((128, 20, 19), (512, 20, 20), (512, 77, 77), (512, None, 77)):
        heads = np.arange(length)
        heads[[0, 60, length - 1]] = -1
        policy = MaskingPolicy(
            budget_rule="exact", budget_base="row", max_predictions_per_row=limit
        )
        assert draw(policy, 0.15, heads, np.array([0, length]), 3).sum() == expected


@pytest.mark.parametrize("rate", [0.15, 0.4, 0.6])
@pytest.mark.parametrize("rule", ["bernoulli", "exact"])
@pytest.mark.parametrize("kind", ["token", "whole_word", "span", "ngram"])
def test_every_position_has_the_same_chance_row_edges_included(kind, rule, rate):
    """20,000 rows; each position is a binomial draw over rows, bounds at one in 10^7 a position."""
    rows, length = 20_000, 20
    random = np.random.default_rng(5)
    eligible = np.ones((rows, length), bool)
    eligible[:, [0, 8, -1]] = False
    eligible = eligible.reshape(-1)
    words = units.word_begins(np.tile(random.random(length) < 0.6, rows), eligible)
    policy = MaskingPolicy(kind, budget_rule=rule)
    begins = {"token": eligible, "whole_word": words}.get(kind)
    if begins is None:
        places = np.flatnonzero(words)
        begins = units.tile(
            places, eligible, random.random(len(places)), policy.length_distribution()
        )
    row_starts = np.arange(rows + 1) * length
    heads = units.heads_of(begins, eligible)
    chosen = draw(policy, rate, heads, row_starts, 11).reshape(rows, length)
    share = rate if rule == "bernoulli" else math.floor(rate * 17 + 0.5) / 17
    low, high = binom.ppf([5e-8, 1 - 5e-8], rows, share)
    found = chosen.sum(0)[eligible[:length]]
    assert low <= found.min() <= found.max() <= high
    # the longest unit is 10 words: each row misses its count by less, in the mean by nothing
    assert abs(chosen.sum() / rows - share * 17) < 17 * math.sqrt(2 * math.log(2e7) / rows)


def test_stochastic_rounding_keeps_the_rate_of_short_rows():
    heads = np.tile([-1, 1, 2, 3, 4, -1], 30_000)
    heads = np.where(heads >= 0, np.arange(len(heads)), -1)
    row_starts = np.arange(30_001) * 6
    nearest = MaskingPolicy(budget_rule="exact")
    assert draw(nearest, 0.15, heads, row_starts, 0).sum() == 30_000  # 1 of 4: 25%
    fair = MaskingPolicy(budget_rule="exact", budget_rounding="stochastic")
    low, high = binom.ppf([5e-7, 1 - 5e-7], 30_000, 0.6)  # .6 tokens a row
    assert low <= draw(fair, 0.15, heads, row_starts, 0).sum() <= high


def test_skipping_favours_short_units_and_the_window_does_not():
    """Why `stop` is the default: words of 1 and of 4 tokens, 15%."""
    pattern = np.array([-1, *[1, 2, 3, 4], *[5] * 4, *[9] * 4, *[13] * 4, -1])
    heads = np.concatenate([np.where(pattern >= 0, pattern + 18 * r, -1) for r in range(20_000)])
    row_starts = np.arange(20_001) * 18
    window = draw(exact(), 0.15, heads, row_starts, 1).reshape(-1, 18).mean(0)
    skipped = draw(SKIP, 0.15, heads, row_starts, 1).reshape(-1, 18).mean(0)
    assert abs(window[1:5].mean() - window[5:17].mean()) < 0.01
    assert skipped[1:5].mean() > 2 * skipped[5:17].mean()


def test_a_row_without_text_takes_nothing():
    heads = np.array([-1, -1, -1, 3, -1])
    for policy in [*POLICIES, SKIP]:
        assert draw(policy, 1.0, heads, np.array([0, 2, 5]), 0).tolist() == [0, 0, 0, 1, 0]


def test_compiled_loop_equals_plain_python():
    heads, row_starts = rows_of_words(7)
    random = np.random.default_rng(2)
    uniforms, offsets = random.random(len(heads)), random.random(len(row_starts) - 1)
    budgets = np.full(len(row_starts) - 1, 6)
    for mode in (selection.BELOW, selection.WINDOW, selection.FITTING):
        arguments = (heads, uniforms, row_starts, budgets, offsets, 0.4, mode)
        fast = selection.compiled(selection.take)(*arguments)
        assert np.array_equal(fast, selection.take(*arguments))
