import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from ablate.inputs.candidates import Candidates, by_frequency, count_tokens
from ablate.inputs.formats import plan_epoch
from ablate.inputs.masked_rows import MaskedRows
from ablate.inputs.masking import MaskingPolicy, corrupt

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


@given(st.floats(0, 1), st.floats(0, 1), st.integers(0, 2**32), st.integers(0, 60))
def test_corruption_touches_selected_positions_only(mask_share, rest, seed, selected):
    random = np.random.default_rng(seed)
    policy = MaskingPolicy(
        mask_replace_prob=mask_share, random_replace_prob=(1 - mask_share) * rest
    )
    ids = random.integers(5, 20, 100)
    positions = np.sort(random.choice(100, selected, replace=False))
    out, shown_mask, shown_random = corrupt(
        policy, ids, positions, random.random(selected), random.random(selected),
        mask_token_id=4, candidates=Candidates(np.arange(5, 20)),
    )  # fmt: skip
    others = np.setdiff1d(np.arange(100), positions)
    assert np.array_equal(out[others], ids[others])
    assert np.array_equal(np.flatnonzero(out == 4), positions[shown_mask])
    assert not (shown_mask & shown_random).any()
    rest_of = positions[~shown_mask & ~shown_random]
    assert np.array_equal(out[rest_of], ids[rest_of])
    assert not np.isin(out, [0, 1, 2, 3]).any()


def test_one_draw_a_unit_gives_all_its_tokens_the_same_fate(make_store, toy_tokenizer):
    store = make_store([[[10, 11, 12, 13, 14]]] * 3000, word_starts=WORDS * 3000)
    whole = {"selection": "whole_word", "mask_rate": 1.0}
    for unit, low, high in (("unit", 0.0, 0.0), ("token", 0.25, 0.45)):
        policy = MaskingPolicy(corruption_unit=unit, random_replace_prob=0.0, **whole)
        batch, counts = masked(store, toy_tokenizer, policy, length=8)
        shown = (batch.input_ids.numpy() == 4).reshape(3000, 7)[:, 1:6]
        mixed = (shown[:, 0] != shown[:, 1]) | (shown[:, 1] != shown[:, 2])
        # three independent pieces agree with probability .8^3 + .2^3 = .52
        assert low <= mixed.mean() <= high or mixed.mean() == pytest.approx(0.48, abs=0.05)
        assert counts.masked + counts.kept == counts.selected == 15_000
        assert within(int(shown[:, 0].sum()), 3000, 0.8)


def test_candidates_by_frequency_follow_the_corpus_and_skip_special_ids(make_store, toy_tokenizer):
    store = make_store([[[5, 5, 5, 6, 1]]] * 10 + [[[7] * 5]])
    counts = count_tokens(store, np.arange(10), 20)
    assert counts.tolist() == [0, 10, 0, 0, 0, 30, 10] + [0] * 13
    candidates = by_frequency(toy_tokenizer.ordinary_ids, counts)
    assert candidates.ids.tolist() == [5, 6]
    drawn = candidates.draw(np.random.default_rng(0).random(20_000))
    assert within(int((drawn == 5).sum()), 20_000, 0.75)
    assert candidates.draw(np.array([0.0, np.nextafter(1, 0)])).tolist() == [5, 6]


def test_a_number_equal_to_a_running_share_draws_the_next_id(toy_tokenizer):
    """Counts 1, 1, 2 of ids 5, 7, 8 divide [0, 1) into [0, 1/4), [1/4, 1/2), [1/2, 1)."""
    counts = np.zeros(20, int)
    counts[[5, 7, 8]] = 1, 1, 2
    numbers = [0.0, np.nextafter(0.25, 0), 0.25, np.nextafter(0.5, 0), 0.5, np.nextafter(1, 0)]
    drawn = by_frequency(toy_tokenizer.ordinary_ids, counts).draw(np.array(numbers))
    assert drawn.tolist() == [5, 5, 7, 7, 8, 8]
    alike = Candidates(np.array([5, 6, 7, 8])).draw(np.array(numbers))
    assert alike.tolist() == [5, 5, 6, 6, 7, 8]


def test_counting_some_documents_equals_counting_them_one_by_one(make_store):
    random = np.random.default_rng(0)
    store = make_store([[random.integers(5, 20, random.integers(1, 9))] for _ in range(50)])
    chosen = random.permutation(50)[:30]
    one_by_one = sum(count_tokens(store, np.array([d]), 20) for d in chosen)
    assert np.array_equal(count_tokens(store, chosen, 20), one_by_one)


def test_a_corpus_of_unknown_tokens_has_no_candidate(toy_tokenizer):
    with pytest.raises(ValueError, match="random_candidates=frequency"):
        by_frequency(toy_tokenizer.ordinary_ids, np.array([9, 9] + [0] * 18))


def test_prediction_rate_below_and_above_the_mask_rate(fives, toy_tokenizer):
    hidden = {"mask_rate": 0.4, "mask_replace_prob": 1.0, "random_replace_prob": 0.0}
    batch, counts = masked(fives, toy_tokenizer, MaskingPolicy(**hidden))
    reference = set(np.flatnonzero(batch.input_ids.numpy() == 4).tolist())
    for rate in (0.2, 0.4, 0.6):
        batch, counts = masked(fives, toy_tokenizer, MaskingPolicy(**hidden, prediction_rate=rate))
        predicted = set(batch.predict_positions.tolist())
        assert set(np.flatnonzero(batch.input_ids.numpy() == 4).tolist()) == reference
        assert within(counts.predicted, 100_000, rate)
        assert predicted <= reference if rate <= 0.4 else predicted >= reference
        assert counts.visible_predicted == len(predicted - reference)
        assert counts.unpredicted == len(reference - predicted)
        assert np.all(batch.labels.numpy() == 5)


def test_rate_schedules_meet_their_ends():
    ends = {"mask_rate": 0.3, "final_mask_rate": 0.15}
    for name in ("linear", "cosine", "step"):
        policy = MaskingPolicy(mask_rate_schedule=name, **ends)
        assert policy.rate_at(0.0) == 0.3
        assert policy.rate_at(1.0) == pytest.approx(0.15)
    assert MaskingPolicy(mask_rate_schedule="linear", **ends).rate_at(0.5) == pytest.approx(0.225)
    assert MaskingPolicy(mask_rate_schedule="cosine", **ends).rate_at(0.25) == pytest.approx(
        0.15 + 0.15 * (1 + 2**-0.5) / 2
    )
    step = MaskingPolicy(mask_rate_schedule="step", mask_rate_step_at=0.25, **ends)
    assert [step.rate_at(p) for p in (0.2, 0.25, 0.3)] == [0.3, 0.15, 0.15]
    assert MaskingPolicy().rate_at(0.7) == 0.15


def test_cosine_schedule_is_half_a_wave_to_the_end():
    """first + (last - first) (1 - cos(pi x)) / 2; at 3/4 the cosine is -1 / sqrt 2."""
    policy = MaskingPolicy(mask_rate=0.3, mask_rate_schedule="cosine", final_mask_rate=0.15)
    assert policy.rate_at(0.75) == pytest.approx(0.3 - 0.15 * (1 + 2**-0.5) / 2, abs=1e-12)
    assert policy.rate_at(0.5) == pytest.approx(0.225, abs=1e-12)
    assert policy.rate_at(2 / 3) == pytest.approx(0.3 - 0.15 * 3 / 4, abs=1e-12)


def test_length_distributions_are_the_published_ones():
    span = MaskingPolicy("span").length_distribution()
    assert len(span) == 10
    assert span.sum() == pytest.approx(1)
    assert np.allclose(span[1:] / span[:-1], 0.8)
    assert (span * np.arange(1, 11)).sum() == pytest.approx(3.8, abs=0.01)  # SpanBERT, sec. 3.1
    ngram = MaskingPolicy("ngram").length_distribution()
    assert np.allclose(ngram, [6 / 11, 3 / 11, 2 / 11])


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"selection": "words"}, "masking.selection"),
        ({"budget_rule": "poisson"}, "masking.budget_rule"),
        ({"mask_rate": 0.0}, "masking.mask_rate"),
        ({"mask_rate": 1.5}, "masking.mask_rate"),
        ({"mask_rate": float("nan")}, "masking.mask_rate"),
        ({"prediction_rate": 0.0}, "masking.prediction_rate"),
        ({"mask_replace_prob": 0.9, "random_replace_prob": 0.2}, "at most 1"),
        ({"random_replace_prob": -0.1}, "shares"),
        ({"mask_replace_prob": float("nan")}, "shares"),
        ({"mask_rate_schedule": "linear"}, "final_mask_rate"),
        ({"final_mask_rate": 0.2}, "mask_rate_schedule"),
        ({"mask_rate_step_at": 1.0}, "mask_rate_step_at"),
        ({"max_predictions_per_row": 0}, "max_predictions_per_row"),
        ({"selection": "span", "max_predictions_per_row": 20}, "max_predictions_per_row=null"),
        (
            {"budget_rule": "exact", "overshoot": "skip", "prediction_rate": 0.1},
            "masking.overshoot=stop",
        ),
        ({"span_max_words": 10**11}, "span_max_words"),
        ({"copies": 0}, "masking.copies"),
        ({"span_geometric_p": 0.0}, "span_geometric_p"),
        ({"ngram_weights": [0, 0]}, "ngram_weights"),
        ({"ngram_weights": [1, -1]}, "ngram_weights"),
        ({"pmi_max_words": 1}, "pmi_max_words"),
    ],
)
def test_impossible_policies_are_refused(settings, named):
    with pytest.raises(ValueError, match=named):
        MaskingPolicy(**settings)
