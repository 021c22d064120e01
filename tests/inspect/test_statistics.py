"""Intervals that are printed are right: over many seeds they hold the nominal value."""

from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import binom
from tokenizers.pre_tokenizers import ByteLevel

from ablate.inputs.formats import plan_epoch
from ablate.inputs.masked_rows import MaskedRows
from ablate.inputs.masking import MaskingPolicy
from ablate.inspect.histograms import histograms
from ablate.inspect.pieces import byte_of, from_bytes, printable
from ablate.inspect.statistics import table
from ablate.inspect.walk import walk

SEEDS = 80


def walked(built_in, policy, seed, tokens=4000, pairing="ordered_or_swapped"):
    """A walk over rows that are planned and masked from one seed."""
    corpus, tokenizer, store = built_in
    training, _ = store.split(corpus.validation_threshold)

    def plan(epoch):
        return plan_epoch(
            store, training, input_format="segment_pair", max_length=32, seed=seed, epoch=epoch,
            pairing=pairing,
        )  # fmt: skip

    rows = MaskedRows(store, tokenizer, policy, max_length=32, seed=seed)
    data = SimpleNamespace(
        rows=rows, store=store, tokenizer=tokenizer, steps=SimpleNamespace(plan=plan)
    )
    return walk(data, tokens=tokens, epoch=0, progress=None, row_copies=None)


def lines_of(found, policy):
    settings = SimpleNamespace(pair_sampling="bert")
    return table(found, policy, settings, knows_words=True)


@pytest.mark.parametrize(
    "policy",
    [
        MaskingPolicy(),
        MaskingPolicy(mask_rate=0.4, prediction_rate=0.2),
        MaskingPolicy(mask_rate=0.2, prediction_rate=0.4),
        MaskingPolicy("whole_word", random_replace_prob=0.2),
        MaskingPolicy("span", corruption_unit="unit"),
        MaskingPolicy("ngram", corruption_unit="unit", budget_rule="exact"),
        MaskingPolicy(budget_rule="exact", budget_base="row"),
    ],
    ids=lambda p: f"{p.selection}-{p.budget_rule}-{p.corruption_unit}-{p.prediction_rate}",
)
def test_intervals_hold_the_nominal_value_in_95_of_100(built_in, policy):
    """Each line by itself: more misses than a 5% chance gives in 80 seeds mean a wrong interval."""
    missed, shown = {}, {}
    for seed in range(SEEDS):
        for line in lines_of(walked(built_in, policy, seed), policy):
            if line.inside is not None:
                missed[line.name] = missed.get(line.name, 0) + (not line.inside)
                shown[line.name] = shown.get(line.name, 0) + 1
    assert len(shown) >= 4
    for name, misses in missed.items():
        assert misses <= binom.ppf(0.9999, shown[name], 0.05), (name, misses)


def test_tokens_of_units_scatter_more_than_an_interval_would_say(built_in):
    """Why a rate of tokens has no interval where units are drawn: it would miss too often."""
    from ablate.inspect.lines import exact_interval

    policy = MaskingPolicy("span")
    missed = 0
    for seed in range(SEEDS):
        counts = walked(built_in, policy, seed).counts
        low, high = exact_interval(counts.selected, counts.eligible)
        missed += not low <= policy.mask_rate <= high
    assert missed > binom.ppf(0.9999, SEEDS, 0.05)


def test_counts_of_units_are_those_of_the_draws(built_in):
    policy = MaskingPolicy("whole_word", mask_rate=1.0, corruption_unit="unit")
    found = walked(built_in, policy, seed=0)
    assert found.counts.units == found.counts.units_selected == sum(found.counts.unit_words)
    assert 0 < found.counts.units_masked < found.counts.units_selected
    policy = MaskingPolicy(mask_rate=0.3)
    found = walked(built_in, policy, seed=0)
    assert found.counts.units == found.counts.eligible
    assert found.counts.units_masked == found.counts.masked
    assert found.counts.units_random == found.counts.random


def test_walk_ends_with_the_row_that_reaches_the_tokens(built_in):
    found = walked(built_in, MaskingPolicy(), seed=0, tokens=1000)
    assert 1000 <= found.counts.eligible < 1000 + 32
    longer = walked(built_in, MaskingPolicy(), seed=0, tokens=200_000)
    assert longer.epochs > 1
    assert longer.counts.eligible >= 200_000


def test_lengths_stand_beside_the_law_of_the_policy(built_in):
    policy = MaskingPolicy("span", mask_rate=0.5, span_max_words=6)
    found = {h.key: h for h in histograms(walked(built_in, policy, seed=0), policy)}
    nominal = [bar.nominal for bar in found["units"].bars]
    assert nominal == pytest.approx(policy.length_distribution().tolist())
    assert sum(bar.share for bar in found["units"].bars) == pytest.approx(1.0)
    policy = MaskingPolicy()
    runs = {h.key: h for h in histograms(walked(built_in, policy, seed=0), policy)}["runs"]
    assert [bar.nominal for bar in runs.bars[:2]] == pytest.approx([0.85, 0.85 * 0.15])


def test_rows_without_a_prediction_come_as_often_as_their_lengths_say(built_in):
    policy = MaskingPolicy(mask_rate=0.05)
    expected = empty = rows = 0.0
    for seed in range(20):
        found = walked(built_in, policy, seed)
        expected += found.expected_empty
        empty += found.counts.rows_without_prediction
        rows += found.counts.rows
    assert empty == pytest.approx(expected, abs=5 * np.sqrt(rows * 0.25))
    assert empty > 0


def test_bytes_behind_letters_are_those_of_byte_level_bpe():
    assert set(byte_of()) == set(ByteLevel.alphabet())
    text = "Ġcafé ☃\n".replace("Ġ", " ")
    entries = ByteLevel(add_prefix_space=False, use_regex=False).pre_tokenize_str(text)
    assert "".join(from_bytes(entry) for entry, _ in entries) == text
    assert from_bytes("Ã") == "\\xc3"


def test_printable_leaves_letters_and_shows_what_hides():
    assert printable("naïve ☃") == "naïve ☃"
    assert printable("a\x1b[0m\n") == "a\\x1b[0m\\n"
    assert printable(" ") == "␣"
