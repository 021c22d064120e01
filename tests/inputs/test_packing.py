import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from ablate import rng
from ablate.inputs import packing
from ablate.inputs.compiled import compiled

CORPORA = st.lists(
    st.lists(st.lists(st.integers(5, 19), min_size=1, max_size=30), min_size=1, max_size=6),
    min_size=1,
    max_size=12,
)
FIXTURES = settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def document(length, sentence=1):
    return [[5] * min(sentence, length - i) for i in range(0, length, sentence)]


def pack(loop, sizes, max_length, short_seq_prob=0.0, seed=0):
    sizes = np.array(sizes)
    order = np.argsort(-sizes, kind="stable")
    return loop(rng.generator(seed, "x"), sizes, order, max_length, short_seq_prob, 8)


def plain_best_fit(sizes, max_length):
    """Look at every row for each piece, longest piece first."""
    spaces, row_of = [], [0] * len(sizes)
    for piece in sorted(range(len(sizes)), key=lambda i: -sizes[i]):
        fitting = [row for row, space in enumerate(spaces) if space >= sizes[piece]]
        if not fitting:
            fitting = [len(spaces)]
            spaces.append(max_length)
        row_of[piece] = min(fitting, key=lambda row: spaces[row])
        spaces[row_of[piece]] -= sizes[piece]
    return row_of, spaces


def test_each_piece_goes_where_least_space_is_left():
    """14 leaves 6, 9 + 7 leave 4: the 4 goes there, where the first row that fits would take it."""
    row_of, rows = pack(packing.best_fit, [4, 7, 9, 14], 20)
    assert (row_of.tolist(), rows) == ([1, 1, 1, 0], 2)


@given(st.lists(st.integers(3, 40), min_size=1, max_size=60), st.integers(40, 70))
@settings(max_examples=100, deadline=None)
def test_the_tree_finds_the_tightest_row(sizes, max_length):
    """Rows with equal spaces are alike, so the spaces left agree and not always the rows."""
    row_of, rows = pack(packing.best_fit, sizes, max_length)
    _, spaces = plain_best_fit(sizes, max_length)
    filled = np.bincount(row_of, weights=sizes, minlength=rows)
    assert sorted(max_length - filled) == sorted(spaces)


@pytest.mark.parametrize("short", [0.0, 0.3])
def test_compiled_loop_equals_plain_python(short):
    sizes = np.random.default_rng(0).integers(3, 65, 500)
    slow = pack(packing.best_fit, sizes, 64, short)
    fast = pack(compiled(packing.best_fit), sizes, 64, short)
    for ours, theirs in zip(slow, fast, strict=True):
        assert np.array_equal(ours, theirs)


@given(CORPORA, st.integers(8, 40), st.sampled_from([0.0, 0.5, 1.0]), st.integers(0, 2**32))
@FIXTURES
def test_no_token_is_lost_and_no_document_cut_that_fits(
    make_store, plan_of, documents, max_length, short, seed
):
    store = make_store(documents)
    plan = plan_of(
        store, input_format="packed_documents", max_length=max_length, short_seq_prob=short,
        seed=seed,
    )  # fmt: skip
    shown = np.zeros(len(store.tokens), dtype=int)
    for start, stop in zip(plan.slice_starts, plan.slice_stops, strict=True):
        shown[start:stop] += 1
    assert (shown == 1).all()
    assert plan.row_lengths.max() <= max_length
    assert (np.diff(plan.row_starts) > 0).all()
    owners = np.searchsorted(store.document_starts, plan.slice_starts, side="right") - 1
    pieces = np.bincount(owners)
    sizes = np.diff(store.document_starts)
    assert np.array_equal(pieces > 1, sizes > max_length - 2)
    assert plan.statistics["documents_cut"] == (pieces > 1).sum()
    # a cut stands at the end of a sentence, or the piece is one full row
    inside = ~np.isin(plan.slice_stops, store.sentence_starts)
    assert (plan.slice_stops - plan.slice_starts)[inside].tolist() == [
        max_length - 2
    ] * inside.sum()
    if not short:  # two rows that fit into one would have been one
        lengths = np.sort(plan.row_lengths)
        assert len(lengths) == 1 or lengths[0] + lengths[1] > max_length


def test_long_documents_are_cut_at_sentence_ends(make_store, plan_of, rows_of):
    """Rows of 10 hold 8 tokens: 3 + 3, then 3; whole where 9 fit; beside the other one at 19."""
    store = make_store([[[5] * 3, [6] * 3, [7] * 3], [[8] * 4]])
    plan = plan_of(store, input_format="packed_documents", max_length=10, shuffle=False)
    assert rows_of(store, plan) == [[[5] * 3 + [6] * 3], [[8] * 4], [[7] * 3]]
    plan = plan_of(store, input_format="packed_documents", max_length=11, shuffle=False)
    assert rows_of(store, plan) == [[[5, 5, 5, 6, 6, 6, 7, 7, 7]], [[8] * 4]]
    plan = plan_of(store, input_format="packed_documents", max_length=19, shuffle=False)
    assert rows_of(store, plan) == [[[5, 5, 5, 6, 6, 6, 7, 7, 7], [8] * 4]]
    assert plan.row_lengths.tolist() == [17]


def test_documents_of_a_row_stand_in_training_order(make_store, plan_of):
    """Longest first is the order of packing, not of reading: position would tell length."""
    store = make_store([document(n) for n in (3, 9, 4, 2, 8, 1)])
    plan = plan_of(store, input_format="packed_documents", max_length=40, shuffle=False)
    assert plan.num_rows == 1
    assert (np.diff(plan.slice_starts) > 0).all()


def test_short_rows_are_a_share_with_a_random_limit(make_store, plan_of):
    """Documents of 1 to 12 tokens fill every row to its limit, nearly."""
    random = np.random.default_rng(0)
    store = make_store([document(int(n)) for n in random.integers(1, 13, 20_000)])
    options = {"input_format": "packed_documents", "max_length": 64}
    assert plan_of(store, **options).statistics["row_fill"] > 0.99
    plan = plan_of(store, short_seq_prob=0.25, **options)
    fewest = plan_of(store, **options).num_rows
    short = (plan.row_lengths < 63).sum()  # limits 63 and 64 do not show
    share = 0.25 * 55 / 57
    assert abs(short - fewest * share) < 4.5 * np.sqrt(fewest * share * (1 - share)) + 2
    assert plan.row_lengths.min() < 12


@pytest.mark.parametrize("size", [8, 9, 10, 11])
def test_random_limits_are_uniform_from_the_shortest_to_the_whole_row(size):
    """Limits 8, 9, 10, 11, and rows of one piece: 4, 3, 2 or 1 of 4 open rows can take it."""
    sizes = [size] * 8000
    row_of, _ = pack(packing.best_fit, sizes, 11, 1.0)
    opened = sum(sizes) // 11 + 1
    low, high = binom.ppf([5e-7, 1 - 5e-7], opened, (12 - size) / 4)
    assert low <= (row_of < opened).sum() <= high
