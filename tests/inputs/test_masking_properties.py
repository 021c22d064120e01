"""Any selection x budget rule x corruption x tokenizer keeps the promises of a mask."""

import itertools
import math
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from ablate.corpus import sources
from ablate.inputs import pmi
from ablate.inputs.candidates import by_frequency, count_tokens
from ablate.inputs.formats import plan_epoch
from ablate.inputs.masked_rows import MaskedRows
from ablate.inputs.masking import SELECTIONS, MaskingPolicy
from ablate.inputs.rows import assemble
from ablate.tokens import store as stores
from ablate.tokens import training

KINDS = [
    ("wordpiece", 120, True),
    ("wordpiece", 120, False),
    ("byte_bpe", 320, False),
    ("byte_bpe", 320, True),
    ("unigram", 110, True),
    ("unigram", 110, False),
]
NAMES = [f"{kind}-{'uncased' if lower else 'cased'}" for kind, _, lower in KINDS]
FORMATS = ("segment_pair", "full_sentences", "doc_sentences", "single_document")
LENGTH = 48


def write_corpus(path: Path) -> None:
    """Documents with repeated collocations, capitals, punctuation and rare words."""
    random = np.random.default_rng(0)
    line = "the cat Dog saw unbelievable Tables of New York, near it's old. Zürich quickly"
    words = line.split(" ")
    documents = []
    for _ in range(60):
        sentences = [
            " ".join(random.choice(words, random.integers(2, 12))) + " New York ."
            for _ in range(random.integers(1, 6))
        ]
        documents.append("\n".join(sentences))
    path.write_text("\n\n".join(documents), encoding="utf-8")


@pytest.fixture(scope="module")
def worlds(tmp_path_factory):
    """(store, tokenizer, collocations, candidates by frequency) of each kind of tokenizer."""
    folder = tmp_path_factory.mktemp("worlds")
    write_corpus(folder / "text.txt")
    cache = Path(os.environ["ABLATE_CACHE"])
    corpus = sources.load_files(folder / "text.txt", cache_dir=cache, validation_fraction=0.01)
    found = {}
    for name, (kind, size, lower) in zip(NAMES, KINDS, strict=True):
        tokenizer = training.train(
            kind, sources.TrainingDocuments(corpus), vocab_size=size, lowercase=lower,
            cache_dir=cache, documents_key="worlds",
        )  # fmt: skip
        store = stores.build(corpus, tokenizer, cache_dir=cache)
        documents = np.arange(len(store.document_starts) - 1)
        ngrams = pmi.build_list(
            store, documents, num_ngrams=40, max_words=4, min_count=3, cache_dir=cache
        )
        counts = count_tokens(store, documents, tokenizer.vocab_size)
        found[name] = (store, tokenizer, ngrams, by_frequency(tokenizer.ordinary_ids, counts))
    return found


@st.composite
def policies(draw):
    """Any policy that the settings allow."""
    mask = draw(st.floats(0, 1))
    rule = draw(st.sampled_from(["bernoulli", "exact"]))
    selection = draw(st.sampled_from(SELECTIONS))
    overshoot = draw(st.sampled_from(["stop", "skip"]))
    skips = rule == "exact" and overshoot == "skip"
    limit = draw(st.none() | st.integers(1, 30)) if skips or selection == "token" else None
    return MaskingPolicy(
        selection=selection,
        mask_rate=draw(st.floats(0.01, 1.0)),
        prediction_rate=None if skips else draw(st.none() | st.floats(0.01, 1.0)),
        budget_rule=rule,
        budget_base=draw(st.sampled_from(["eligible", "row"])),
        budget_rounding=draw(st.sampled_from(["nearest", "stochastic"])),
        max_predictions_per_row=limit,
        overshoot=overshoot,
        mask_replace_prob=mask,
        random_replace_prob=(1 - mask) * draw(st.floats(0, 1)),
        corruption_unit=draw(st.sampled_from(["token", "unit"])),
        random_candidates=draw(st.sampled_from(["uniform", "frequency"])),
        span_geometric_p=draw(st.floats(0.05, 1.0)),
        span_max_words=draw(st.integers(1, 12)),
        ngram_weights=draw(st.lists(st.floats(0.01, 1), min_size=1, max_size=5)),
    )


def source(world, policy, seed=0):
    store, tokenizer, ngrams, by_count = world
    return MaskedRows(
        store, tokenizer, policy, max_length=LENGTH, seed=seed, ngrams=ngrams,
        candidates=by_count if policy.random_candidates == "frequency" else None,
    )  # fmt: skip


def plan_of(world, name, seed=0):
    documents = np.arange(len(world[0].document_starts) - 1)
    return plan_epoch(
        world[0], documents, input_format=name, max_length=LENGTH, seed=seed, epoch=0,
        short_seq_prob=0.2 if name == "segment_pair" else 0.0,
    )  # fmt: skip


def words_of(flat):
    """Word groups by a plain loop: (first, last) token places of each word in the rows."""
    groups, open_group = [], None
    for i, (inside, start) in enumerate(zip(flat.eligible, flat.word_starts, strict=True)):
        if not inside:
            open_group = None
        elif start or open_group is None:
            open_group = [i]
            groups.append(open_group)
        else:
            open_group.append(i)
    return groups


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data(), policy=policies(), fmt=st.sampled_from(FORMATS), seed=st.integers(0, 2**31))
def test_promises_of_a_mask(worlds, name, data, policy, fmt, seed):
    world = worlds[name]
    store, tokenizer, _, _ = world
    plan = plan_of(world, fmt, seed % 5)
    rows = np.array(data.draw(st.lists(st.integers(0, plan.num_rows - 1), min_size=1, max_size=6)))
    batch, counts = source(world, policy, seed).batch(plan, rows, epoch=seed % 7)
    flat = assemble(store, tokenizer, plan, rows)
    original, shown = flat.input_ids, batch.input_ids.numpy()
    predicted = batch.predict_positions.numpy()
    special = np.isin(original, tokenizer.special_ids)
    changed = shown != original

    # labels are the original ids, in order, each position once, nothing special among them
    assert np.array_equal(batch.labels.numpy(), original[predicted])
    assert np.all(np.diff(predicted) > 0)
    assert not special[predicted].any()
    assert not changed[special].any()
    # what changed is [MASK] or an ordinary id; nothing special was drawn
    drawn = shown[changed & (shown != tokenizer.mask_token_id)]
    assert np.isin(drawn, tokenizer.ordinary_ids).all()
    # the corrupted positions are those the same policy predicts where nothing tells them apart
    plain = MaskingPolicy(**{**vars(policy), "prediction_rate": None})
    selected = np.zeros(len(shown), bool)
    corrupted = source(world, plain, seed).batch(plan, rows, epoch=seed % 7)[0].predict_positions
    selected[corrupted.numpy()] = True
    assert not changed[~selected].any()
    assert counts.selected == selected.sum() == counts.masked + counts.random + counts.kept
    assert counts.masked == (shown[selected] == tokenizer.mask_token_id).sum()
    assert counts.predicted == len(predicted)
    assert counts.eligible == (~special).sum()
    # units of words are whole
    if policy.selection != "token":
        chosen = np.zeros(len(shown), bool)
        chosen[predicted] = True
        for group in words_of(flat):
            assert len(set(selected[group].tolist())) == 1
            assert len(set(chosen[group].tolist())) == 1
            if policy.corruption_unit == "unit":
                assert len({shown[i] == tokenizer.mask_token_id for i in group}) == 1
        assert counts.words_whole == counts.words_touched
    bounds = np.concatenate([[0], np.cumsum(flat.lengths)])
    check_counts(policy, selected, bounds, special)


def check_counts(policy, selected, bounds, special):
    """An exact rule keeps each row's count; no rule passes the limit."""
    for begin, end in itertools.pairwise(bounds):
        taken = int(selected[begin:end].sum())
        limit = policy.max_predictions_per_row
        assert limit is None or taken <= limit
        if policy.budget_rule == "exact" and policy.selection == "token":
            text = int((~special[begin:end]).sum())
            base = end - begin if policy.budget_base == "row" else text
            share = policy.mask_rate * base
            possible = {math.floor(share), math.floor(share) + 1}
            if policy.budget_rounding == "nearest":
                possible = {max(1, math.floor(share + 0.5))}
            assert taken in {min(p, text, limit or text) for p in possible}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("rate", [0.15, 0.4, 0.6])
@pytest.mark.parametrize("selection", SELECTIONS)
def test_realised_rate_is_within_exact_bounds(worlds, name, selection, rate):
    """Bernoulli: the selected units are binomial; exact: rows miss their count in no direction."""
    world = worlds[name]
    plan = plan_of(world, "full_sentences")
    rows = np.arange(plan.num_rows)
    units = hits = 0
    error, longest, trials = 0.0, 1, 0
    for epoch in range(6):
        rule = source(world, MaskingPolicy(selection, mask_rate=1.0), seed=3)
        whole = rule.batch(plan, rows, epoch=epoch)[1]
        units += sum(whole.unit_words)
        policy = MaskingPolicy(selection, mask_rate=rate)
        counts = source(world, policy, seed=3).batch(plan, rows, epoch=epoch)[1]
        hits += sum(counts.unit_words)
        policy = MaskingPolicy(
            selection, mask_rate=rate, budget_rule="exact", budget_rounding="stochastic"
        )
        counts = source(world, policy, seed=3).batch(plan, rows, epoch=epoch)[1]
        error += counts.selected - rate * counts.eligible
        trials += counts.rows
        longest = max(longest, LENGTH)
    low, high = binom.ppf([5e-8, 1 - 5e-8], units, rate)
    assert low <= hits <= high
    assert abs(error / trials) <= longest * math.sqrt(2 * math.log(2e7) / trials)


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(policy=policies(), name=st.sampled_from(NAMES), seed=st.integers(0, 2**31), data=st.data())
def test_a_row_drawn_alone_equals_the_same_row_in_any_batch(worlds, policy, name, seed, data):
    world = worlds[name]
    plan = plan_of(world, data.draw(st.sampled_from(FORMATS)))
    rows = np.array(data.draw(st.lists(st.integers(0, plan.num_rows - 1), min_size=2, max_size=5)))
    masked = source(world, policy, seed)
    together = masked.batch(plan, rows, epoch=1)[0]
    ids, labels, predicted = [], [], []
    for row in rows:
        alone = masked.batch(plan, np.array([row]), epoch=1)[0]
        predicted += (alone.predict_positions + len(ids)).tolist()
        ids += alone.input_ids.tolist()
        labels += alone.labels.tolist()
    assert together.input_ids.tolist() == ids
    assert together.labels.tolist() == labels
    assert together.predict_positions.tolist() == predicted


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    policy=policies(), name=st.sampled_from(NAMES), seed=st.integers(0, 2**31),
    higher=st.floats(0.01, 1.0),
)  # fmt: skip
def test_positions_at_a_lower_rate_are_a_subset(worlds, policy, name, seed, higher):
    assume(policy.overshoot == "stop" or policy.budget_rule == "bernoulli")
    world = worlds[name]
    plan = plan_of(world, "doc_sentences")
    rows = np.arange(min(5, plan.num_rows))
    found = []
    for rate in sorted([policy.mask_rate, higher]):
        wanted = {**vars(policy), "mask_rate": rate, "prediction_rate": None}
        batch = source(world, MaskingPolicy(**wanted), seed).batch(plan, rows, epoch=0)[0]
        found.append(set(batch.predict_positions.tolist()))
    assert found[0] <= found[1]


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(policy=policies(), name=st.sampled_from(NAMES), seed=st.integers(0, 2**31))
def test_any_two_corruptions_share_their_positions(worlds, policy, name, seed):
    world = worlds[name]
    plan = plan_of(world, "segment_pair")
    rows = np.arange(min(5, plan.num_rows))
    hidden = {**vars(policy), "mask_replace_prob": 1.0, "random_replace_prob": 0.0}
    ours = source(world, policy, seed).batch(plan, rows, epoch=0)[0]
    theirs = source(world, MaskingPolicy(**hidden), seed).batch(plan, rows, epoch=0)[0]
    assert ours.predict_positions.tolist() == theirs.predict_positions.tolist()
    assert ours.labels.tolist() == theirs.labels.tolist()
