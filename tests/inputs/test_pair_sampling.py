"""How often a pair is random, swapped or true: BERT's draws, and equal classes."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ablate.inputs.formats import PAIR_FORMATS
from ablate.inputs.pairs import NO_PAIR, PAIRINGS, RANDOM

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


@given(
    CORPORA, st.sampled_from(PAIR_FORMATS), st.sampled_from(list(PAIRINGS)), st.integers(0, 2**32)
)
@FIXTURES
def test_exact_sampling_takes_a_kind_with_fewest_rows_unless_forced(
    make_store, plan_of, documents, input_format, pairing, seed
):
    """Only one-sentence chunks add to an excess: the last sentence, or one that fills the row."""
    store = make_store(documents)
    plan = plan_of(
        store, input_format=input_format, max_length=24, pairing=pairing, pair_sampling="exact",
        seed=seed, shuffle=False,
    )  # fmt: skip
    made = dict.fromkeys(PAIRINGS[pairing], 0)
    ends = store.sentence_starts
    for kind, first in zip(kinds_of(plan), plan.row_starts[:-1], strict=True):
        if kind == NO_PAIR:
            continue
        if made[kind] > min(made.values()):
            assert kind == RANDOM
            start, stop = plan.slice_starts[first], plan.slice_stops[first]
            sentence = np.searchsorted(ends, start, side="right") - 1
            assert stop <= ends[sentence + 1]
            size = ends[sentence + 1] - ends[sentence]
            is_last = ends[sentence + 1] in store.document_starts
            assert is_last or (input_format == "segment_pair" and size >= 21)
        made[kind] += 1


@pytest.mark.parametrize("pairing", PAIRINGS)
@pytest.mark.parametrize("input_format", PAIR_FORMATS)
@pytest.mark.parametrize("num_sentences", [40, 6])
def test_exact_sampling_gives_equal_classes(
    make_store, plan_of, pairing, input_format, num_sentences
):
    """To one where every chunk can choose; a corpus may end in one-sentence chunks."""
    store = uniform_store(make_store, 300, num_sentences, 5)
    for seed in range(5):
        plan = plan_of(
            store, input_format=input_format, max_length=33, pairing=pairing,
            pair_sampling="exact", seed=seed,
        )  # fmt: skip
        counts = np.bincount(plan.pair_labels, minlength=len(PAIRINGS[pairing]))
        assert counts.max() - counts.min() <= (2 if RANDOM in PAIRINGS[pairing] else 1), counts


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
