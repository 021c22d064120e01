import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ablate import rng
from ablate.inputs import planning
from ablate.inputs.compiled import compiled
from ablate.inputs.formats import FORMATS, PAIR_FORMATS, SHARED_FORMATS

TWO = [[[5], [6], [7]], [[8], [9], [10]]]
STREAMS = ("full_sentences", "doc_sentences", "single_document")
CORPORA = st.lists(
    st.lists(st.lists(st.integers(5, 19), min_size=1, max_size=30), min_size=1, max_size=6),
    min_size=1,
    max_size=8,
)
FIXTURES = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def same_rows(ours, theirs, *, ids=True):
    return (
        np.array_equal(ours.slice_starts, theirs.slice_starts)
        and np.array_equal(ours.slice_stops, theirs.slice_stops)
        and np.array_equal(ours.row_starts, theirs.row_starts)
        and np.array_equal(ours.pair_labels, theirs.pair_labels)
        and (not ids or np.array_equal(ours.row_ids, theirs.row_ids))
    )


@given(
    CORPORA, st.integers(8, 24), st.sampled_from(STREAMS), st.sampled_from([0.0, 0.5, 1.0]),
    st.integers(0, 2**32),
)  # fmt: skip
@FIXTURES
def test_streams_lose_no_token_and_keep_the_order(
    make_store, plan_of, rows_of, documents, max_length, input_format, short, seed
):
    store = make_store(documents)
    plan = plan_of(
        store, input_format=input_format, max_length=max_length, short_seq_prob=short, seed=seed,
        shuffle=False,
    )  # fmt: skip
    flat = [i for row in rows_of(store, plan) for part in row for i in part]
    assert flat == store.tokens.tolist()
    assert plan.row_lengths.max() <= max_length
    assert plan.row_lengths.min() >= 3
    if input_format != "full_sentences":
        assert np.all(np.diff(plan.row_starts) == 1)
    ends = store.document_starts[1:]
    for start, stop in zip(plan.slice_starts, plan.slice_stops, strict=True):
        assert not ((ends > start) & (ends < stop)).any()  # a slice lies in one document
    owners = np.searchsorted(store.document_starts, plan.slice_starts, side="right")
    counts = plan.statistics
    assert counts["documents_cut"] == (np.bincount(owners) > 1).sum()
    assert (counts["tokens_in_rows"], counts["tokens_dropped"]) == (len(store.tokens), 0)
    assert "rows_without_pair" not in counts


def test_full_sentences_goes_on_with_the_next_document(make_store, plan_of, rows_of):
    store = make_store([[[5, 6], [7]], [[8], [9, 10]]])
    plan = plan_of(store, input_format="full_sentences", max_length=8, shuffle=False)
    assert rows_of(store, plan) == [[[5, 6, 7], [8]], [[9, 10]]]
    assert plan.row_lengths.tolist() == [7, 4]
    assert plan.statistics["documents_cut"] == 1


def test_doc_sentences_ends_the_row_with_the_document(make_store, plan_of, rows_of):
    store = make_store([[[5, 6], [7]], [[8], [9, 10]]])
    plan = plan_of(store, input_format="doc_sentences", max_length=9, shuffle=False)
    assert rows_of(store, plan) == [[[5, 6, 7]], [[8, 9, 10]]]


def test_single_document_cuts_where_the_row_is_full(make_store, plan_of, rows_of):
    store = make_store([[[5, 6, 7, 8], [9, 10, 11, 12, 13]]])
    plan = plan_of(store, input_format="single_document", max_length=8, shuffle=False)
    assert rows_of(store, plan) == [[[5, 6, 7, 8, 9, 10]], [[11, 12, 13]]]


@pytest.mark.parametrize("input_format", ["full_sentences", "single_document"])
def test_short_rows_are_a_share_with_a_uniform_limit(make_store, plan_of, input_format):
    """One-token sentences of one document: a row is as long as its limit, in [8, max_length]."""
    store = make_store([[[5]] * 40_000])
    options = {"input_format": input_format, "max_length": 27, "shuffle": False}
    lengths = plan_of(store, short_seq_prob=1.0, **options).row_lengths[:-1]
    assert (lengths.min(), lengths.max()) == (8, 27)
    error = np.sqrt((20**2 - 1) / 12 / len(lengths))
    assert abs(lengths.mean() - 17.5) < 4.5 * error
    some = plan_of(store, short_seq_prob=0.2, **options).row_lengths[:-1]
    share = 0.2 * 19 / 20  # 1 of 20 limits is the whole length
    assert abs((some < 27).mean() - share) < 4.5 * np.sqrt(share / len(some))
    assert set(plan_of(store, **options).row_lengths[:-1]) == {27}


def test_a_corpus_smaller_than_a_row_gives_one_row(make_store, plan_of):
    """B06: three tokens are a row and not an empty training set."""
    store = make_store([[[5, 6, 7]]])
    for input_format in (*STREAMS, "packed_documents"):
        plan = plan_of(store, input_format=input_format)
        assert plan.row_lengths.tolist() == [5]
        assert plan.counts["tokens_dropped"] == 0


def test_ten_documents_of_three_tokens_are_ten_documents(make_store, plan_of):
    """B06: nothing is dropped and the last row is shorter."""
    store = make_store([[[5, 6, 7]] for _ in range(10)])
    plan = plan_of(store, input_format="full_sentences", max_length=13)
    assert sorted(plan.row_lengths) == [5, 13, 13, 13]
    assert plan.statistics["tokens_in_rows"] == 30


@pytest.mark.parametrize("input_format", FORMATS)
def test_plan_is_a_function_of_seed_and_epoch(make_store, plan_of, input_format):
    store = make_store([[[5 + (i + j) % 15] for j in range(4)] for i in range(30)])
    options = {"input_format": input_format, "short_seq_prob": 0.3}
    first = plan_of(store, **options)
    assert same_rows(first, plan_of(store, **options))
    assert not same_rows(first, plan_of(store, epoch=1, **options), ids=False)
    assert not same_rows(first, plan_of(store, seed=1, **options), ids=False)
    assert not same_rows(first, plan_of(store, replicate=1, **options), ids=False)
    assert np.array_equal(first.row_ids, np.arange(first.num_rows))


@pytest.mark.parametrize("input_format", FORMATS)
def test_copies_repeat_the_rows_of_the_first_epochs_in_another_order(
    make_store, plan_of, rows_of, input_format
):
    store = make_store([[[5 + (i + j) % 15] for j in range(4)] for i in range(30)])
    options = {"input_format": input_format, "short_seq_prob": 0.3}
    fresh = [plan_of(store, epoch=epoch, **options) for epoch in range(2)]
    seen = []
    for epoch in range(6):
        plan = plan_of(store, epoch=epoch, copies=2, **options)
        first = fresh[epoch % 2]
        if epoch < 2:
            assert same_rows(plan, first)
        else:  # the row keeps its id
            assert not any(same_rows(plan, other, ids=False) for other in seen)
            assert sorted(plan.row_ids) == list(range(first.num_rows))
            named = [rows_of(store, first)[i] for i in plan.row_ids]
            assert named == rows_of(store, plan)
            if plan.pair_labels is not None:
                assert np.array_equal(first.pair_labels[plan.row_ids], plan.pair_labels)
            assert plan.statistics == pytest.approx(first.statistics)
        seen.append(plan)


def test_one_copy_is_one_plan(make_store, plan_of):
    store = make_store([[[5 + (i + j) % 15] for j in range(4)] for i in range(30)])
    plans = [plan_of(store, epoch=epoch, copies=1) for epoch in range(3)]
    rows = [sorted(zip(p.slice_starts[::2], p.slice_starts[1::2], strict=True)) for p in plans]
    assert rows[0] == rows[1] == rows[2]
    assert not same_rows(plans[1], plans[2])


@pytest.mark.parametrize("across", [False, True])
@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize("short", [0.0, 0.4])
def test_compiled_loop_equals_plain_python(make_store, across, cut, short):
    """With more slices than the loop begins with room for."""
    random = np.random.default_rng(0)
    documents = [
        [random.integers(5, 20, random.integers(1, 30)).tolist() for _ in range(1 + i % 5)]
        for i in range(700)
    ]
    store = make_store(documents)
    first = np.searchsorted(store.sentence_starts, store.document_starts[:-1])
    last = np.searchsorted(store.sentence_starts, store.document_starts[1:])
    outcomes = [
        loop(rng.generator(3, "x"), store.sentence_starts, first, last, 16, short, 8, across, cut)
        for loop in (planning.stream_rows, compiled(planning.stream_rows))
    ]
    assert len(outcomes[0][0]) > 2048
    for ours, theirs in zip(*outcomes, strict=True):
        assert np.array_equal(ours, theirs)


def test_rows_and_their_statistics(make_store, plan_of):
    plan = plan_of(make_store(TWO), max_length=8)
    assert plan.statistics["rows"] == plan.num_rows
    assert plan.statistics["row_fill"] == pytest.approx(plan.row_lengths.mean() / 8)
    assert plan.statistics["random_pair_share"] == (plan.pair_labels == 1).mean()
    assert "swapped_pair_share" not in plan.statistics
    plan = plan_of(make_store(TWO), max_length=8, pairing="next_random_or_swapped", seed=3)
    assert plan.statistics["random_pair_share"] == (plan.pair_labels == 1).mean()
    assert plan.statistics["swapped_pair_share"] == (plan.pair_labels == 2).mean()


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ({"input_format": "pairs"}, "input_format='pairs'"),
        ({"max_length": 4}, "at least 8"),
        ({"pairing": "auto"}, "input_format.pairing='auto'"),
        ({"pair_sampling": "even"}, "input_format.pair_sampling='even'"),
        ({"document_boundary": "wall"}, "input_format.document_boundary='wall'"),
        ({"copies": 0}, "input_format.copies=0"),
        ({"document_boundary": "block"}, "would hide B from A"),
        ({"document_boundary": "block", "input_format": "doc_sentences"}, "has no effect"),
    ],
)
def test_bad_settings_are_refused(make_store, plan_of, more, named):
    with pytest.raises(ValueError, match="input_format") as caught:
        plan_of(make_store(TWO), **more)
    assert named in str(caught.value)


def test_block_is_for_rows_of_several_documents(make_store, plan_of):
    for input_format in FORMATS:
        options = {"input_format": input_format, "document_boundary": "block"}
        if input_format in SHARED_FORMATS:
            assert plan_of(make_store(TWO), **options).block
        else:
            with pytest.raises(ValueError, match="full_sentences or packed_documents"):
                plan_of(make_store(TWO), **options)
    assert set(PAIR_FORMATS) | set(SHARED_FORMATS) < set(FORMATS)
