"""Next-token rows by hand: shifted once, inside a row, inside a document where attention stops."""

import itertools

import numpy as np
import pytest

from ablate.inputs.causal_rows import NextTokenRows
from ablate.inputs.datamodule import PretrainingData
from ablate.inputs.masked_rows import MaskedRows
from ablate.inputs.masking import MaskingPolicy

CLS, SEP, UNK = 2, 3, 1
FORMATS = [
    ("single_document", "none"),
    ("segment_pair", "none"),
    ("sentence_pair", "none"),
    ("full_sentences", "none"),
    ("full_sentences", "block"),
    ("doc_sentences", "none"),
    ("packed_documents", "none"),
    ("packed_documents", "block"),
]


def asked(batch):
    """Each attention sequence as (ids, {place: label})."""
    labels = dict(zip(batch.predict_positions.tolist(), batch.labels.tolist(), strict=True))
    bounds = itertools.pairwise(batch.cu_seqlens.tolist())
    return [
        (batch.input_ids[a:b].tolist(), {i - a: labels[i] for i in range(a, b) if i in labels})
        for a, b in bounds
    ]


@pytest.fixture
def all_rows(make_store, toy_tokenizer, plan_of):
    def make(documents, **how):
        store = make_store(documents)
        plan = plan_of(store, **how)
        return NextTokenRows(store, toy_tokenizer).batch(plan, np.arange(plan.num_rows))

    return make


def test_each_place_is_asked_for_its_successor_and_labels_are_shifted_once(all_rows):
    """D9: a label that was shifted twice would be two places on: 6 at [CLS]."""
    batch, _ = all_rows([[[5, 6, 7], [8]]], input_format="single_document")
    assert asked(batch) == [([CLS, 5, 6, 7, 8, SEP], {0: 5, 1: 6, 2: 7, 3: 8})]


def test_nothing_is_masked_and_no_label_crosses_rows(all_rows):
    batch, _ = all_rows([[[5, 6]], [[7, 8]]], input_format="doc_sentences")
    assert sorted(asked(batch)) == [
        ([CLS, 5, 6, SEP], {0: 5, 1: 6}),
        ([CLS, 7, 8, SEP], {0: 7, 1: 8}),
    ]


def test_specials_and_unknown_pieces_are_no_targets(all_rows):
    batch, counts = all_rows([[[5, UNK, 7]]], input_format="single_document")
    assert asked(batch) == [([CLS, 5, UNK, 7, SEP], {0: 5, 2: 7})]
    assert (counts.eligible, counts.predicted, counts.selected) == (2, 2, 0)


def test_documents_of_one_row_follow_each_other_unless_attention_stops_there(all_rows):
    """Without a [CLS] of its own a blocked document has nothing before its first token."""
    texts = {"input_format": "full_sentences", "max_length": 16}
    batch, counts = all_rows([[[5, 6]], [[7, 8]]], **texts)
    ((ids, labels),) = asked(batch)
    first, second = ids[1:3], ids[4:6]
    assert ids == [CLS, *first, SEP, *second, SEP]
    assert labels == {0: first[0], 1: first[1], 3: second[0], 4: second[1]}
    assert (counts.eligible, counts.predicted) == (4, 4)
    blocked, counts = all_rows([[[5, 6]], [[7, 8]]], document_boundary="block", **texts)
    assert asked(blocked) == [
        ([CLS, *first, SEP], {0: first[0], 1: first[1]}),
        ([*second, SEP], {0: second[1]}),
    ]
    assert (counts.eligible, counts.predicted) == (4, 3)


@pytest.mark.parametrize(("input_format", "boundary"), FORMATS)
def test_rows_are_those_of_the_masked_twin_and_labels_are_the_next_ids(
    built_in, plan_of, input_format, boundary
):
    _, tokenizer, store = built_in
    how = {"max_length": 48, "input_format": input_format, "document_boundary": boundary}
    plan = plan_of(store, **how)
    chosen = np.arange(0, plan.num_rows, 7)
    ours, counts = NextTokenRows(store, tokenizer).batch(plan, chosen)
    masked = MaskedRows(store, tokenizer, MaskingPolicy(), max_length=48, seed=0)
    theirs, other = masked.batch(plan, chosen, epoch=0)
    shown = theirs.input_ids.clone()
    shown[theirs.predict_positions] = theirs.labels
    for name in ("token_type_ids", "position_ids", "cu_seqlens"):
        assert getattr(ours, name).equal(getattr(theirs, name)), name
    assert ours.input_ids.equal(shown)
    assert ours.labels.equal(ours.input_ids[ours.predict_positions + 1])
    sequence = np.repeat(np.arange(ours.num_rows), np.diff(ours.cu_seqlens))
    places = ours.predict_positions.numpy()
    assert (sequence[places] == sequence[places + 1]).all()
    assert not np.isin(ours.labels, tokenizer.special_ids).any()
    assert counts.eligible == other.eligible
    assert (counts.rows, counts.rows_without_prediction) == (len(chosen), 0)
    assert counts.visible_predicted == counts.predicted == len(places)
    without_cls = boundary == "block" and not plan.cls_per_slice
    assert counts.predicted == counts.eligible - (without_cls and ours.num_rows - len(chosen))


@pytest.fixture
def data_of(built_in, tmp_path):
    corpus, tokenizer, store = built_in

    def make(objective):
        return PretrainingData(
            store, tokenizer, MaskingPolicy(), input_format="segment_pair", max_length=32,
            short_seq_prob=0.1, validation_threshold=corpus.validation_threshold,
            validation_seed=0, validation_rows=40, clock="steps", amount=6, global_batch_size=8,
            micro_batch_size=4, num_workers=0, seed=3, cache_dir=tmp_path, objective=objective,
        )  # fmt: skip

    return make


def unmasked(batches):
    found = []
    for batch in batches:
        ids = batch.input_ids.clone()
        if not batch.labels.equal(ids[(batch.predict_positions + 1).clamp(max=len(ids) - 1)]):
            ids[batch.predict_positions] = batch.labels
        found += [tuple(ids[a:b].tolist()) for a, b in itertools.pairwise(batch.cu_seqlens)]
    return found


def test_twins_train_on_the_same_rows_in_the_same_order_and_validate_on_the_same(data_of):
    masked, causal = data_of("mlm"), data_of("clm")
    trained = [
        unmasked([micro for item in data.train_dataloader() for micro in item.micro_batches])
        for data in (masked, causal)
    ]
    assert len(trained[0]) == 6 * 8
    assert trained[0] == trained[1]
    assert causal.validation_names == ("clm",)
    (validation,) = causal.validation_batches
    assert unmasked(validation) == unmasked(masked.validation_batches[0])
    assert masked.statistics() == causal.statistics()
