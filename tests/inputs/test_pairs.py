import itertools

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ablate import rng
from ablate.inputs import planning
from ablate.inputs.compiled import compiled
from ablate.inputs.pairs import (
    LOSSES,
    NEXT,
    NO_PAIR,
    PAIRINGS,
    RANDOM,
    SAMPLINGS,
    SWAPPED,
    loss_classes,
    loss_name,
    resolve_pairing,
)

TWO = [[[5], [6], [7]], [[8], [9], [10]]]
FORMATS = ("segment_pair", "sentence_pair")
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


def documents_of(store, plan):
    """(S,) the document of each slice."""
    return np.searchsorted(store.document_starts, plan.slice_starts, side="right") - 1


@pytest.mark.parametrize(
    ("nsp", "sop", "loss", "pairing"),
    [
        (False, False, None, "next_or_random"),
        (True, False, "nsp", "next_or_random"),
        (False, True, "sop", "ordered_or_swapped"),
        (True, True, "nsp_sop", "next_random_or_swapped"),
    ],
)
def test_the_losses_choose_the_pairing_unless_it_is_given(nsp, sop, loss, pairing):
    assert loss_name(nsp=nsp, sop=sop) == loss
    assert resolve_pairing("auto", nsp=nsp, sop=sop) == pairing
    for given_one in PAIRINGS:
        assert resolve_pairing(given_one, nsp=nsp, sop=sop) == given_one


def test_a_loss_passes_over_the_kinds_it_is_not_defined_on():
    assert loss_classes("next_or_random", "nsp") == (0, 1)
    assert loss_classes("ordered_or_swapped", "sop") == (0, 1)
    assert loss_classes("next_random_or_swapped", "nsp_sop") == (0, 1, 2)
    assert loss_classes("next_random_or_swapped", "nsp") == (0, 1, -100)
    assert loss_classes("next_random_or_swapped", "sop") == (0, -100, 1)
    assert loss_classes("auto", None) == ()
    assert {name: len(kinds) for name, kinds in LOSSES.items()} == {
        "nsp": 2,
        "sop": 2,
        "nsp_sop": 3,
    }


@pytest.mark.parametrize("input_format", FORMATS)
@pytest.mark.parametrize("pairing", PAIRINGS)
@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_labels_say_what_b_is(make_store, plan_of, rows_of, input_format, pairing, sampling):
    """Ids count up, so next = A's last + 1 begins B, swapped = the other way round (B07, B08)."""
    store = make_store(TWO)
    seen, rows = set(), 0
    options = {"pairing": pairing, "pair_sampling": sampling, "max_length": 8}
    for epoch in itertools.count():
        plan = plan_of(store, input_format=input_format, epoch=epoch, **options)
        for sides, label in zip(rows_of(store, plan), plan.pair_labels.tolist(), strict=True):
            seen.add(label)
            rows += 1
            if label == NO_PAIR:
                assert len(sides) == 1
                continue
            a, b = sides
            kind = PAIRINGS[pairing][label]
            assert ((a[0] < 8) == (b[0] < 8)) == (kind != RANDOM)
            if kind == NEXT:
                assert (label, b[0]) == (0, a[-1] + 1)
            if kind == SWAPPED:
                assert a[0] == b[-1] + 1
        if rows >= 10_000:
            break
    lone = (
        {NO_PAIR} if RANDOM not in PAIRINGS[pairing] and input_format == "sentence_pair" else set()
    )
    assert seen == set(range(len(PAIRINGS[pairing]))) | lone


def test_two_long_documents_give_half_random_and_never_themselves(make_store, plan_of):
    store = uniform_store(make_store, 2, 5000, 1)
    plan = plan_of(store, max_length=8, pair_sampling="exact")
    assert plan.statistics["random_pair_share"] == pytest.approx(0.5, abs=0.02)
    pairs = documents_of(store, plan).reshape(-1, 2)
    assert np.array_equal(pairs[:, 0] != pairs[:, 1], plan.pair_labels == 1)


@pytest.mark.parametrize("pairing", ["next_or_random", "next_random_or_swapped"])
def test_one_document_has_no_random_partner(make_store, plan_of, pairing):
    with pytest.raises(ValueError, match="at least 2 training documents") as caught:
        plan_of(make_store(TWO[:1]), pairing=pairing)
    assert "input_format.pairing=ordered_or_swapped" in str(caught.value)


def test_one_document_is_enough_for_order(make_store, plan_of):
    assert plan_of(make_store(TWO[:1]), pairing="ordered_or_swapped").num_rows == 1


@given(
    CORPORA,
    st.integers(8, 24),
    st.sampled_from(FORMATS),
    st.sampled_from(list(PAIRINGS)),
    st.sampled_from(SAMPLINGS),
    st.sampled_from([0.0, 0.5, 1.0]),
    st.integers(0, 2**32),
)
@FIXTURES
def test_each_token_is_once_at_its_own_place_or_counted(
    make_store, plan_of, documents, max_length, input_format, pairing, sampling, short, seed
):
    """Shown at their own place + dropped = all tokens; random partners are extra and counted."""
    store = make_store(documents)
    plan = plan_of(
        store, input_format=input_format, max_length=max_length, pairing=pairing,
        pair_sampling=sampling, short_seq_prob=short, seed=seed,
    )  # fmt: skip
    kinds = kinds_of(plan)
    shown = np.zeros(len(store.tokens), dtype=int)
    partner_tokens = 0
    owners = documents_of(store, plan)
    for row, kind in enumerate(kinds):
        slices = range(plan.row_starts[row], plan.row_starts[row + 1])
        assert len(slices) == (1 if kind == NO_PAIR else 2)
        own = slices[:1] if kind == RANDOM else slices
        for s in own:
            shown[plan.slice_starts[s] : plan.slice_stops[s]] += 1
        if kind == RANDOM:
            partner_tokens += plan.slice_stops[slices[1]] - plan.slice_starts[slices[1]]
        assert len({owners[s] for s in slices}) == (2 if kind == RANDOM else 1)
    if input_format == "sentence_pair":
        sentences = store.sentence_starts
        ends = sentences[np.searchsorted(sentences, plan.slice_starts, side="right")]
        assert (plan.slice_stops <= ends).all()
    counts = plan.statistics
    assert shown.max() <= 1
    assert shown.sum() + counts["tokens_dropped"] == len(store.tokens)
    assert counts["tokens_dropped"] == counts["tokens_dropped_truncation"]
    assert counts["tokens_in_rows"] == shown.sum() + partner_tokens
    assert counts["partner_tokens"] == partner_tokens
    assert (plan.slice_stops > plan.slice_starts).all()
    assert plan.row_lengths.max() <= max_length
    assert counts["rows_without_pair"] == (kinds == NO_PAIR).sum()
    if RANDOM in PAIRINGS[pairing]:
        assert counts["rows_without_pair"] == 0
    elif input_format == "sentence_pair":  # only an odd last sentence has no partner
        odd = sum(len(document) % 2 for document in documents)
        assert counts["rows_without_pair"] == odd


def test_a_random_partner_fills_the_row_or_ends_its_document(make_store, plan_of):
    """One-token sentences: B runs to the target, from any sentence of the other document."""
    store = uniform_store(make_store, 400, 50, 1)
    plan = plan_of(store, max_length=16)
    starts, stops = plan.slice_starts[1::2], plan.slice_stops[1::2]
    random = plan.pair_labels == 1
    at_end = np.isin(stops, store.document_starts)
    assert (plan.row_lengths[random & ~at_end] == 16).all()
    assert (plan.row_lengths[random & at_end] <= 16).all()
    assert set(starts[random] % 50) == set(range(50))


def test_sentences_displaced_by_a_random_partner_are_put_back(make_store, plan_of, rows_of):
    """Every sentence of every document stands in a row in its own place (as A, or as a true B)."""
    store = make_store([[[5 + i] for i in range(6)], [[12 + i] for i in range(6)]])
    for epoch in range(30):
        plan = plan_of(store, epoch=epoch, max_length=10)
        told = []
        for (a, b), label in zip(rows_of(store, plan), plan.pair_labels, strict=True):
            told += a + (b if label == 0 else [])
        assert plan.counts["tokens_dropped"] == 0
        assert sorted(told) == sorted(store.tokens.tolist())


def test_a_random_pair_of_sentences_uses_up_a_alone(make_store, plan_of, rows_of):
    """SENTENCE-PAIR walks on by two sentences after a true pair, by one after a random one."""
    store = make_store([[[5], [6], [7], [8]], [[15, 15]]])
    for epoch in range(50):
        plan = plan_of(store, input_format="sentence_pair", epoch=epoch, short_seq_prob=0.0)
        rows = zip(rows_of(store, plan), plan.pair_labels.tolist(), strict=True)
        ours = sorted((sides, label) for sides, label in rows if sides[0][0] < 15)
        position = 5
        for (a, b), label in ours:
            assert a == [position]
            assert b == ([position + 1] if label == 0 else [15, 15])
            position += 2 if label == 0 else 1
        assert position == 9
        assert ours[-1][0][0] != [8] or ours[-1][1] == 1  # a last sentence has no next


def test_sentences_without_a_partner_are_rows_of_one_segment(make_store, plan_of, rows_of):
    """[CLS] A [SEP] leaves room for one token more than a pair; what is longer is cut."""
    store = make_store([[[5, 6]], [[7] * 20]])
    options = {"pairing": "ordered_or_swapped", "max_length": 10}
    for input_format in FORMATS:
        plan = plan_of(store, input_format=input_format, short_seq_prob=0.0, **options)
        assert sorted(rows_of(store, plan)) == [[[5, 6]], [[7] * 8]]
        assert plan.pair_labels.tolist() == [-100, -100]
        assert sorted(plan.row_lengths) == [4, 10]
        assert plan.statistics["rows_without_pair"] == 2
        assert plan.statistics["tokens_dropped"] == 12
        assert "swapped_pair_share" not in plan.statistics


def test_too_long_pairs_lose_tokens_from_the_longer_side_and_are_counted(
    make_store, plan_of, rows_of
):
    store = make_store([[list(range(5, 20)) * 2, [5, 6]], [[7, 8], [9, 10]]])
    plan = plan_of(store, max_length=16)
    assert plan.row_lengths.max() <= 16
    assert plan.counts["tokens_dropped"] > 0
    for a, b in rows_of(store, plan):
        assert min(len(a), len(b)) >= 1


def test_the_short_target_is_drawn_once_a_document(make_store, plan_of):
    """One-token sentences, no random partners: all chunks of a document have its target's size."""
    store = uniform_store(make_store, 400, 60, 1)
    options = {"pairing": "ordered_or_swapped", "max_length": 23, "shuffle": False}
    plan = plan_of(store, short_seq_prob=1.0, **options)
    owners = documents_of(store, plan)[plan.row_starts[:-1]]
    sizes = plan.row_lengths - np.where(plan.pair_labels == NO_PAIR, 2, 3)
    targets = []
    for document in range(400):
        own = sizes[owners == document]
        assert len(set(own[:-1])) <= 1
        assert own[-1] <= own[0]
        targets.append(own[0])
    assert (min(targets), max(targets)) == (2, 20)  # uniform in [2, room]
    assert np.mean(targets) == pytest.approx(11, abs=4.5 * np.sqrt((19**2 - 1) / 12 / 400))
    assert set(plan_of(store, **options).row_lengths) == {23}
    some = plan_of(store, short_seq_prob=0.25, **options)
    short = np.unique(documents_of(store, some)[some.row_starts[:-1]][some.row_lengths < 23])
    # a short document's target is the whole room in 1 of 19 draws
    share = 0.25 * 18 / 19
    assert abs(len(short) - 400 * share) < 4.5 * np.sqrt(400 * share * (1 - share))


def test_a_short_limit_cuts_pairs_of_sentences(make_store, plan_of):
    store = uniform_store(make_store, 200, 10, 9)
    plan = plan_of(store, input_format="sentence_pair", max_length=21, short_seq_prob=1.0)
    assert plan.row_lengths.min() == 5
    assert plan.row_lengths.max() == 21
    assert plan.counts["tokens_dropped"] > 0
    whole = plan_of(store, input_format="sentence_pair", max_length=21)
    assert set(whole.row_lengths) == {21}


@pytest.mark.parametrize("pairing", PAIRINGS)
@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("by_sentence", [False, True])
def test_compiled_loop_equals_plain_python(make_store, pairing, sampling, by_sentence):
    random = np.random.default_rng(0)
    documents = [
        [random.integers(5, 20, random.integers(1, 9)).tolist() for _ in range(1 + i % 7)]
        for i in range(40)
    ]
    store = make_store(documents)
    first = np.searchsorted(store.sentence_starts, store.document_starts[:-1])
    last = np.searchsorted(store.sentence_starts, store.document_starts[1:])
    outcomes = [
        loop(
            rng.generator(3, "x"), store.sentence_starts, first, last, 16, 0.3,
            np.array(PAIRINGS[pairing]), sampling == "exact", by_sentence,
        )
        for loop in (planning.pair_rows, compiled(planning.pair_rows))
    ]  # fmt: skip
    for ours, theirs in zip(*outcomes, strict=True):
        assert np.array_equal(ours, theirs)
