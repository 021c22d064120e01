import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from ablate.inputs.formats import plan_epoch
from ablate.inputs.masked_rows import MaskedRows
from ablate.inputs.masking import MaskingPolicy, corrupt, select

BERT = MaskingPolicy()
ALL_MASK = MaskingPolicy(mask_replace_prob=1.0, random_replace_prob=0.0)


def bounds(n, p):
    """Exact two-sided limits that a correct program passes all but once in 100,000 tries."""
    return binom.ppf(5e-6, n, p), binom.ppf(1 - 5e-6, n, p)


def within(count, n, p):
    low, high = bounds(n, p)
    return low <= count <= high


def masked(store, tokenizer, policy, *, rows=None, seed=0, epoch=0, length=12):
    plan = plan_epoch(
        store, np.arange(len(store.document_starts) - 1), input_format="doc_sentences",
        max_length=length, seed=0, epoch=0, shuffle=False,
    )  # fmt: skip
    rows = np.arange(plan.num_rows) if rows is None else rows
    source = MaskedRows(store, tokenizer, policy, max_length=length, seed=seed)
    return source.batch(plan, rows, epoch=epoch)


@pytest.fixture
def fives(make_store):
    """100,000 content tokens, all id 5, in rows of 10."""
    return make_store([[[5] * 10]] * 10_000)


def test_80_10_10_shares_are_exact(fives, toy_tokenizer):
    batch, counts = masked(fives, toy_tokenizer, BERT)
    assert counts.eligible == 100_000
    assert within(counts.selected, 100_000, 0.15)
    assert within(counts.masked, counts.selected, 0.8)
    assert within(counts.random, counts.selected, 0.1)
    assert within(counts.kept, counts.selected, 0.1)
    assert counts.masked + counts.random + counts.kept == counts.selected
    seen = batch.input_ids[batch.predict_positions].numpy()
    unchanged = int((seen == 5).sum())  # a draw may equal the original: 0.1 + 0.1 / 15
    assert within(unchanged, counts.selected, 0.1 + 0.1 / 15)
    drawn = seen[(seen != 4) & (seen != 5)]
    assert set(drawn.tolist()) == set(range(6, 20))
    assert np.all(batch.labels.numpy() == 5)


def test_random_draws_are_uniform_over_ordinary_ids_and_never_special(fives, toy_tokenizer):
    policy = MaskingPolicy(mask_rate=1.0, mask_replace_prob=0.0, random_replace_prob=1.0)
    batch, counts = masked(fives, toy_tokenizer, policy)
    seen = batch.input_ids[batch.predict_positions].numpy()
    found = np.bincount(seen, minlength=20)
    assert found[:5].sum() == 0
    assert all(within(count, counts.selected, 1 / 15) for count in found[5:])


def test_all_mask_hides_every_selected_token(fives, toy_tokenizer):
    batch, counts = masked(fives, toy_tokenizer, ALL_MASK)
    assert counts.masked == counts.selected
    assert np.all(batch.input_ids[batch.predict_positions].numpy() == 4)


def test_80_10_10_and_all_mask_select_the_same_positions(fives, toy_tokenizer):
    ours, _ = masked(fives, toy_tokenizer, BERT)
    theirs, _ = masked(fives, toy_tokenizer, ALL_MASK)
    assert np.array_equal(ours.predict_positions, theirs.predict_positions)
    assert np.array_equal(ours.labels, theirs.labels)


def test_row_without_a_selection_is_as_frequent_as_independence_says(make_store, toy_tokenizer):
    store = make_store([[[5, 6, 7, 8]]] * 20_000)
    _, counts = masked(store, toy_tokenizer, BERT, length=8)
    assert within(counts.rows_without_prediction, 20_000, 0.85**4)


def test_same_rows_never_repeat_their_mask_within_or_across_epochs(make_store, toy_tokenizer):
    store = make_store([[[5, 6, 7, 8, 9, 5, 6, 7, 8, 9]]] * 8)
    policy = MaskingPolicy(mask_rate=0.5)
    patterns = set()
    for epoch in range(2):
        for first in range(0, 8, 2):
            batch, _ = masked(
                store, toy_tokenizer, policy, rows=np.arange(first, first + 2), epoch=epoch
            )
            patterns.add(tuple(batch.predict_positions.tolist()))
            assert 4 not in store.tokens
    assert len(patterns) == 8


WORDS = [1, 0, 0, 1, 0]  # un ##believ ##able cat ##s


def test_whole_word_selects_all_pieces_or_none(make_store, toy_tokenizer):
    store = make_store([[[10, 11, 12, 13, 14]]] * 2000, word_starts=WORDS * 2000)
    policy = MaskingPolicy(selection="whole_word", mask_rate=0.4)
    batch, _ = masked(store, toy_tokenizer, policy, length=8)
    chosen = np.zeros((2000, 7), bool)
    chosen.reshape(-1)[batch.predict_positions.numpy()] = True
    assert not chosen[:, [0, 6]].any()
    assert np.all(chosen[:, 1] == chosen[:, 2])
    assert np.all(chosen[:, 2] == chosen[:, 3])
    assert np.all(chosen[:, 4] == chosen[:, 5])
    assert within(int(chosen[:, 1].sum()), 2000, 0.4)
    assert within(int(chosen[:, 4].sum()), 2000, 0.4)
    assert within(int((chosen[:, 1] & chosen[:, 4]).sum()), 2000, 0.16)


def test_a_word_cut_by_the_edge_of_a_slice_is_a_word_of_its_own(make_store, toy_tokenizer):
    store = make_store([[[10, 11, 12, 13, 14]]], word_starts=[0, 0, 0, 1, 0])
    policy = MaskingPolicy(selection="whole_word", mask_rate=0.5)
    for epoch in range(20):
        batch, _ = masked(store, toy_tokenizer, policy, length=8, epoch=epoch)
        assert set(batch.predict_positions.tolist()) in (set(), {1, 2, 3}, {4, 5}, {1, 2, 3, 4, 5})


def test_whole_word_without_words_is_refused(make_store, toy_tokenizer):
    toy_tokenizer.knows_words = False
    with pytest.raises(ValueError, match="masking.selection=token"):
        MaskedRows(
            make_store([[[5]]]), toy_tokenizer, MaskingPolicy("whole_word"), max_length=8, seed=0
        )


@given(
    st.sampled_from(["token", "whole_word"]),
    st.floats(0.01, 0.6),
    st.floats(0.01, 0.39),
    st.integers(0, 2**32),
)
def test_positions_at_a_lower_rate_are_a_subset(selection, low, more, seed):
    random = np.random.default_rng(seed)
    uniforms, starts = random.random(200), random.random(200) < 0.6
    eligible = random.random(200) < 0.9
    few = select(MaskingPolicy(selection, low), uniforms, eligible, starts)
    many = select(MaskingPolicy(selection, low + more), uniforms, eligible, starts)
    assert not (few & ~many).any()
    assert not (many & ~eligible).any()


@given(
    st.floats(0, 1), st.floats(0, 1), st.integers(0, 2**32), st.integers(0, 60)
)  # fmt: skip
def test_corruption_touches_selected_positions_only(mask_share, rest, seed, selected):
    random = np.random.default_rng(seed)
    policy = MaskingPolicy(
        mask_replace_prob=mask_share, random_replace_prob=(1 - mask_share) * rest
    )
    ids = random.integers(5, 20, 100)
    positions = np.sort(random.choice(100, selected, replace=False))
    out, counts = corrupt(
        policy, ids, positions, random.random(selected), random.random(selected),
        mask_token_id=4, ordinary_ids=np.arange(5, 20),
    )  # fmt: skip
    others = np.setdiff1d(np.arange(100), positions)
    assert np.array_equal(out[others], ids[others])
    assert counts.selected == selected == counts.masked + counts.random + counts.kept
    assert int((out == 4).sum()) == counts.masked
    assert not np.isin(out, [0, 1, 2, 3]).any()


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"selection": "words"}, "masking.selection"),
        ({"mask_rate": 0.0}, "masking.mask_rate"),
        ({"mask_rate": 1.5}, "masking.mask_rate"),
        ({"mask_replace_prob": 0.9, "random_replace_prob": 0.2}, "at most 1"),
        ({"random_replace_prob": -0.1}, "shares"),
    ],
)
def test_impossible_policies_are_refused(settings, named):
    with pytest.raises(ValueError, match=named):
        MaskingPolicy(**settings)
