"""How often a pair is random, swapped or true: BERT's draws, and equal classes."""

import math

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from scipy.stats import binom

from ablate.inputs.formats import PAIR_FORMATS
from ablate.inputs.pairs import NO_PAIR, PAIRINGS, SWAPPED

TWO = [[[5], [6], [7]], [[8], [9], [10]]]
CORPORA = st.lists(
    st.lists(st.lists(st.integers(5, 19), min_size=1, max_size=30), min_size=1, max_size=6),
    min_size=2,
    max_size=8,
)
FIXTURES = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def uniform_store(make_store, num_documents, num_sentences, num_tokens):
    return make_store([[[5] * num_tokens] * num_sentences] * num_documents)


def kinds_of(plan):
    kinds = np.array([*PAIRINGS[plan.pairing], NO_PAIR])
    return kinds[np.where(plan.pair_labels == NO_PAIR, -1, plan.pair_labels)]


def test_half_of_the_order_pairs_stand_the_other_way_round(make_store, plan_of):
    store = uniform_store(make_store, 50, 40, 3)
    plan = plan_of(store, pairing="ordered_or_swapped")
    a, b = plan.slice_starts.reshape(-1, 2).T
    assert np.array_equal(b < a, plan.pair_labels == 1)
    share = plan.statistics["swapped_pair_share"]
    assert share == (plan.pair_labels == 1).mean()
    assert abs(share - 0.5) < 4.5 * np.sqrt(0.25 / plan.num_rows)


def share_by_the_rule(num_documents, num_sentences, room):
    """Share of random pairs where sentences have 24 tokens, by BERT's rule in plain Python."""
    random = np.random.default_rng(0)
    labels = []
    for _ in range(num_documents):
        target = random.integers(2, room + 1) if random.random() < 0.1 else room
        waiting = num_sentences
        while waiting:
            chunk = min(waiting, -(-target // 24))  # the last one reaches the target
            a = 1 if chunk == 1 else random.integers(1, chunk)
            labels.append(chunk == 1 or random.random() < 0.5)
            waiting -= a if labels[-1] else chunk
    return np.mean(labels)


@pytest.mark.parametrize(("num_sentences", "share"), [(80, 0.542), (20, 0.567), (6, 0.597)])
def test_berts_share_of_random_pairs_is_above_one_half(make_store, plan_of, num_sentences, share):
    num_documents = 60_000 // num_sentences
    again = share_by_the_rule(num_documents, num_sentences, 125)
    assert again == pytest.approx(share, abs=0.015)
    store = uniform_store(make_store, num_documents, num_sentences, 24)
    plan = plan_of(store, max_length=128, short_seq_prob=0.1)
    assert plan.statistics["random_pair_share"] == pytest.approx(share, abs=0.015)


def test_share_of_random_pairs_follows_the_rule(make_store, plan_of):
    """1/2, and always where a chunk has one sentence: documents of two, rows that hold both."""
    store = make_store([[[5], [6]]] * 2000)
    plan = plan_of(store)
    # chunk of 2: 1/2 true. Else A = 1 sentence with random B, then the other one alone: random.
    truths = int((plan.pair_labels == 0).sum())
    assert abs(truths - 1000) < 4.5 * np.sqrt(2000 / 4)
    assert plan.num_rows == truths + 2 * (2000 - truths)


@pytest.mark.parametrize("pairing", PAIRINGS)
@pytest.mark.parametrize("input_format", PAIR_FORMATS)
@pytest.mark.parametrize("num_sentences", [40, 6])
def test_exact_sampling_gives_equal_classes(
    make_store, plan_of, pairing, input_format, num_sentences
):
    """The difference of two classes wanders with an s.d. of about 10 rows, never more."""
    store = uniform_store(make_store, 300, num_sentences, 5)
    for seed in range(5):
        plan = plan_of(
            store, input_format=input_format, max_length=33, pairing=pairing,
            pair_sampling="exact", seed=seed,
        )  # fmt: skip
        counts = np.bincount(plan.pair_labels[plan.pair_labels >= 0])
        assert len(counts) == len(PAIRINGS[pairing])
        assert counts.max() - counts.min() <= 60, counts


@pytest.mark.parametrize("pairing", ["next_or_random", "next_random_or_swapped"])
def test_exact_sampling_gives_no_hint_by_the_place_in_a_document(make_store, plan_of, pairing):
    """Last sentences are always random; what makes up for them must not fall on the next rows.

    Sentence pairs of documents of 8 to 30 sentences: a constant chance that gives equal shares has
    P(next) of .51 to .53 (.36 for three kinds) where A begins a document; taking the kind that has
    fewest rows had .69.
    """
    random = np.random.default_rng(0)
    store = make_store([[[5, 6]] * int(n) for n in random.integers(8, 31, 2000)])
    plan = plan_of(
        store, input_format="sentence_pair", max_length=32, pairing=pairing, pair_sampling="exact",
        shuffle=False,
    )  # fmt: skip
    begins = np.isin(plan.slice_starts[plan.row_starts[:-1]], store.document_starts)
    begins &= kinds_of(plan) != SWAPPED
    share = float((plan.pair_labels[begins] == 0).mean())
    expected = 0.526 if pairing == "next_or_random" else 0.553
    assert abs(share - expected) < 4.5 * (0.25 / begins.sum()) ** 0.5, share


def test_exact_sampling_leaves_the_excess_that_single_sentences_force(make_store, plan_of):
    """100 documents of one sentence, 30 of two: every chunk that can choose is a true pair."""
    store = make_store([[[5]]] * 100 + [[[6], [7]]] * 30)
    plan = plan_of(store, pair_sampling="exact", shuffle=False)
    assert np.bincount(plan.pair_labels).tolist() == [30, 100]


def test_exact_sampling_draws_among_equals(make_store, plan_of):
    """The first pair of a corpus may be of either kind."""
    store = make_store(TWO)
    for pairing in PAIRINGS:
        first = {
            int(plan_of(store, pairing=pairing, pair_sampling="exact", epoch=e).pair_labels[0])
            for e in range(60)
        }
        assert first >= set(range(len(PAIRINGS[pairing])))


def within(count, n, p):
    """Exact two-sided limits that a correct program passes all but once in a million tries."""
    low, high = binom.ppf([5e-7, 1 - 5e-7], n, p)
    return low <= count <= high


@pytest.fixture
def partners(make_store, plan_of):
    """(document of A, document of B, sentence of B's first token, sizes) of the random pairs."""
    sizes = np.array([9000, 3000, 20_000, 5000, 12_000])  # sentences of one token
    store = make_store([[[5]] * n for n in sizes])
    plan = plan_of(store, max_length=11)
    starts = plan.slice_starts.reshape(-1, 2)[plan.pair_labels == 1]
    own, other = np.searchsorted(store.document_starts, starts, side="right").T - 1
    return own, other, starts[:, 1] - store.document_starts[other], sizes


def test_a_random_partner_is_any_other_document_with_the_same_chance(partners):
    """A quarter each, long or short, neighbour in the training order or not."""
    own, other, _, sizes = partners
    for document in range(5):
        found = np.bincount(other[own == document], minlength=5)
        assert found[document] == 0
        for partner in set(range(5)) - {document}:
            assert within(found[partner], found.sum(), 1 / 4), (document, found, sizes)


def test_a_random_partner_begins_at_any_sentence_with_the_same_chance(partners):
    _, other, sentence, sizes = partners
    quarter = sentence * 4 // sizes[other]
    for part in range(4):
        assert within((quarter == part).sum(), len(quarter), 1 / 4)


def test_a_random_partner_fills_the_short_target_of_the_document_and_not_the_row(
    make_store, plan_of
):
    """Sentences of one token: A and B together have the target of A's document, true or random."""
    store = uniform_store(make_store, 200, 60, 1)
    plan = plan_of(store, max_length=23, short_seq_prob=1.0)
    a_starts, b_starts = plan.slice_starts.reshape(-1, 2).T
    assert np.isin(plan.pair_labels, [0, 1]).all()
    reached = ~np.isin(plan.slice_stops[1::2], store.document_starts)  # B was not cut by its end
    sizes = plan.row_lengths - 3
    targets = set()
    for document in range(200):
        own = reached & (a_starts // 60 == document)
        assert len(set(sizes[own])) <= 1, document
        targets |= set(sizes[own & (plan.pair_labels == 1)])
    assert targets == set(range(2, 21))
    assert (a_starts // 60 != b_starts // 60).sum() == (plan.pair_labels == 1).sum()


def true_pairs(make_store, plan_of, a, b, num_documents):
    """(begin, end) of A and of B, counted from their sentences' begins; rows of 5 text tokens."""
    store = make_store([[[5] * a, [6] * b]] * num_documents)
    plan = plan_of(store, input_format="sentence_pair", pairing="ordered_or_swapped", max_length=8)
    true = plan.pair_labels == 0
    whole = np.array([0, a])
    starts, stops = (
        side.reshape(-1, 2)[true] % (a + b) - whole
        for side in (plan.slice_starts, plan.slice_stops - 1)
    )
    return starts, stops + 1


@pytest.mark.parametrize(("a", "b", "longer"), [(9, 1, 0), (1, 9, 1)])
def test_truncation_takes_each_token_from_either_end_with_probability_one_half(
    make_store, plan_of, a, b, longer
):
    """9 + 1 in 5: five tokens go, k of them at the front in C(5, k) of 32 rows."""
    starts, stops = true_pairs(make_store, plan_of, a, b, 8000)
    front, rest = starts[:, longer], (stops - starts)[:, longer]
    assert set(rest) == {4}
    assert set((stops - starts)[:, 1 - longer]) == {1}
    for k in range(6):
        assert within((front == k).sum(), len(front), math.comb(5, k) / 32), k


@pytest.mark.parametrize(
    ("a", "b", "left"),
    [(4, 6, (3, 2)), (6, 4, (3, 2)), (3, 3, (3, 2)), (9, 1, (4, 1)), (2, 9, (2, 3))],
)
def test_truncation_takes_from_the_longer_side_and_on_a_tie_from_the_second(
    make_store, plan_of, a, b, left
):
    """4 + 6 in 5: 4 4 after two, then B, A, B (Devlin et al. 2019, `truncate_seq_pair`)."""
    starts, stops = true_pairs(make_store, plan_of, a, b, 40)
    assert len(starts) > 5
    assert (stops - starts == left).all()
