import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ablate import rng
from ablate.inputs import planning
from ablate.inputs.formats import plan_epoch

TWO = [[[5], [6], [7]], [[8], [9], [10]]]


def rows_of(store, plan):
    """Each row as the list of its slices' ids."""
    return [
        [
            store.tokens[plan.slice_starts[s] : plan.slice_stops[s]].tolist()
            for s in range(plan.row_starts[r], plan.row_starts[r + 1])
        ]
        for r in range(plan.num_rows)
    ]


def plan_of(store, *, input_format="segment_pair", max_length=16, seed=0, epoch=0, **more):
    documents = np.arange(len(store.document_starts) - 1)
    return plan_epoch(
        store, documents, input_format=input_format, max_length=max_length, seed=seed, epoch=epoch,
        **more,
    )  # fmt: skip


def test_random_partner_is_never_from_the_same_document(make_store):
    store = make_store(TWO)
    pairs = [
        (*sides, label)
        for epoch in range(500)
        for plan in [plan_of(store, epoch=epoch, max_length=8)]
        for sides, label in zip(rows_of(store, plan), plan.pair_labels, strict=True)
    ]
    assert {label for *_, label in pairs} == {0, 1}
    for a, b, label in pairs:
        same_document = (a[0] < 8) == (b[0] < 8)
        assert same_document == (label == 0)
        if label == 0:
            assert b[0] == a[-1] + 1  # B directly follows A


def test_one_document_is_refused_and_says_what_to_type(make_store):
    with pytest.raises(ValueError, match="at least 2 training documents"):
        plan_of(make_store(TWO[:1]))


def test_sentences_displaced_by_a_random_partner_are_put_back(make_store):
    """Every sentence of every document stands in a row in its own place (as A, or as a true B)."""
    store = make_store([[[5 + i] for i in range(6)], [[12 + i] for i in range(6)]])
    for epoch in range(30):
        plan = plan_of(store, epoch=epoch, max_length=10)
        told = []
        for (a, b), label in zip(rows_of(store, plan), plan.pair_labels, strict=True):
            told += a + (b if label == 0 else [])
        assert plan.counts["tokens_dropped"] == 0
        assert sorted(told) == sorted(store.tokens.tolist())


def test_share_of_random_pairs_follows_the_rule(make_store):
    """1/2, and always where a chunk has one sentence: documents of two, rows that hold both."""
    store = make_store([[[5], [6]]] * 2000)
    plan = plan_of(store, max_length=16, short_seq_prob=0.0)
    # chunk of 2: 1/2 true. Else A = 1 sentence with random B, then the other one alone: random.
    truths = int((plan.pair_labels == 0).sum())
    assert abs(truths - 1000) < 4.5 * np.sqrt(2000 / 4)
    assert plan.num_rows == truths + 2 * (2000 - truths)


def test_tokens_in_are_tokens_in_rows_plus_tokens_dropped(make_store):
    random = np.random.default_rng(0)
    documents = [
        [random.integers(5, 20, random.integers(1, 12)).tolist() for _ in range(5)]
        for _ in range(50)
    ]
    store = make_store(documents)
    plan = plan_of(store, max_length=16)
    in_place = sum(
        len(a) + (len(b) if label == 0 else 0)
        for (a, b), label in zip(rows_of(store, plan), plan.pair_labels, strict=True)
    )
    assert plan.counts["tokens_dropped"] > 0
    assert in_place + plan.counts["tokens_dropped"] == len(store.tokens)


def test_too_long_pairs_lose_tokens_from_the_longer_side_and_are_counted(make_store):
    store = make_store([[list(range(5, 20)) * 2, [5, 6]], [[7, 8], [9, 10]]])
    plan = plan_of(store, max_length=16, short_seq_prob=0.0)
    assert plan.row_lengths.max() <= 16
    assert plan.counts["tokens_dropped"] > 0
    for a, b in rows_of(store, plan):
        assert min(len(a), len(b)) >= 1


@given(
    st.lists(
        st.lists(st.lists(st.integers(5, 19), min_size=1, max_size=30), min_size=1, max_size=6),
        min_size=1,
        max_size=8,
    ),
    st.integers(8, 24),
    st.sampled_from(["full_sentences", "doc_sentences", "single_document"]),
)
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_streams_lose_no_token_and_keep_the_order(make_store, documents, max_length, input_format):
    store = make_store(documents)
    plan = plan_of(store, input_format=input_format, max_length=max_length, shuffle=False)
    flat = [i for row in rows_of(store, plan) for part in row for i in part]
    assert flat == store.tokens.tolist()
    assert plan.row_lengths.max() <= max_length
    assert plan.row_lengths.min() >= 3
    if input_format != "full_sentences":
        assert np.all(np.diff(plan.row_starts) == 1)
    ends = store.document_starts[1:]
    for start, stop in zip(plan.slice_starts, plan.slice_stops, strict=True):
        assert not ((ends > start) & (ends < stop)).any()  # a slice lies in one document


def test_full_sentences_goes_on_with_the_next_document(make_store):
    store = make_store([[[5, 6], [7]], [[8], [9, 10]]])
    plan = plan_of(store, input_format="full_sentences", max_length=8, shuffle=False)
    assert rows_of(store, plan) == [[[5, 6, 7], [8]], [[9, 10]]]
    assert plan.row_lengths.tolist() == [7, 4]


def test_doc_sentences_ends_the_row_with_the_document(make_store):
    store = make_store([[[5, 6], [7]], [[8], [9, 10]]])
    plan = plan_of(store, input_format="doc_sentences", max_length=9, shuffle=False)
    assert rows_of(store, plan) == [[[5, 6, 7]], [[8, 9, 10]]]


def test_single_document_cuts_where_the_row_is_full(make_store):
    store = make_store([[[5, 6, 7, 8], [9, 10, 11, 12, 13]]])
    plan = plan_of(store, input_format="single_document", max_length=8, shuffle=False)
    assert rows_of(store, plan) == [[[5, 6, 7, 8, 9, 10]], [[11, 12, 13]]]


def test_plan_is_a_function_of_seed_and_epoch(make_store):
    store = make_store([[[5 + (i + j) % 15] for j in range(4)] for i in range(30)])
    first, again = plan_of(store), plan_of(store)
    assert np.array_equal(first.slice_starts, again.slice_starts)
    assert not np.array_equal(first.slice_starts, plan_of(store, epoch=1).slice_starts)
    assert not np.array_equal(first.slice_starts, plan_of(store, seed=1).slice_starts)
    assert not np.array_equal(first.slice_starts, plan_of(store, replicate=1).slice_starts)


def test_compiled_loop_equals_plain_python(make_store):
    random = np.random.default_rng(0)
    documents = [
        [random.integers(5, 20, random.integers(1, 9)).tolist() for _ in range(1 + i % 7)]
        for i in range(40)
    ]
    store = make_store(documents)
    first = np.searchsorted(store.sentence_starts, store.document_starts[:-1])
    last = np.searchsorted(store.sentence_starts, store.document_starts[1:])
    slow = planning.segment_pairs(
        rng.generator(3, "x"), store.sentence_starts, first, last, 13, 0.1
    )
    from ablate.inputs.compiled import compiled

    fast = compiled(planning.segment_pairs)(
        rng.generator(3, "x"), store.sentence_starts, first, last, 13, 0.1
    )
    for ours, theirs in zip(slow, fast, strict=True):
        assert np.array_equal(ours, theirs)


def test_rows_and_their_statistics(make_store):
    plan = plan_of(make_store(TWO), max_length=8)
    assert plan.statistics["rows"] == plan.num_rows
    assert plan.statistics["row_fill"] == pytest.approx(plan.row_lengths.mean() / 8)
    assert plan.statistics["random_pair_share"] == (plan.pair_labels == 1).mean()


@pytest.mark.parametrize(
    ("more", "named"),
    [({"input_format": "pairs"}, "input_format"), ({"max_length": 4}, "at least 8")],
)
def test_bad_settings_are_refused(make_store, more, named):
    with pytest.raises(ValueError, match=named):
        plan_of(make_store(TWO), **more)
