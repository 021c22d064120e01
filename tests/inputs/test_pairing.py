"""What makes two arms comparable: no shared random numbers, the same rows and masks anywhere."""

import itertools

import numpy as np
import pytest

from ablate import rng
from ablate.inputs.formats import plan_epoch
from ablate.inputs.masked_rows import MaskedRows
from ablate.inputs.masking import MaskingPolicy
from ablate.inputs.steps import StepDataset, StepLoader, StepSequence

POLICIES = {
    "bert": MaskingPolicy(),
    "exact": MaskingPolicy(budget_rule="exact", budget_rounding="stochastic"),
    "whole_word": MaskingPolicy("whole_word", budget_rule="exact", overshoot="skip"),
    "span": MaskingPolicy("span", budget_rule="exact", corruption_unit="unit"),
    "ngram": MaskingPolicy("ngram", corruption_unit="unit"),
    "static": MaskingPolicy(copies=2),
}
FORMATS = (
    "segment_pair", "sentence_pair", "full_sentences", "doc_sentences", "single_document",
    "packed_documents",
)  # fmt: skip


@pytest.fixture
def make_loader(built_in):
    corpus, tokenizer, store = built_in
    documents = store.split(corpus.validation_threshold)[0][:30]

    def make(policy="bert", name="segment_pair", *, batch=8, micro=8, workers=0, rank=0, world=1):
        chosen = POLICIES[policy]

        def plan(epoch):
            return plan_epoch(
                store, documents, input_format=name, max_length=64, seed=3, epoch=epoch,
                copies=chosen.copies, short_seq_prob=0.1,
            )  # fmt: skip

        amount = 10 * 8 * 4 // batch
        steps = StepSequence(plan, clock="steps", amount=amount, global_batch_size=batch)
        rows = MaskedRows(store, tokenizer, chosen, max_length=64, seed=3)
        dataset = StepDataset(steps, rows, micro_batch_size=micro, rank=rank, world=world)
        return StepLoader(dataset, num_workers=workers)

    return make


def rows_of(items):
    """Everything the model sees and is asked, a tuple a row, in order."""
    found = []
    for item in items:
        for batch in item.micro_batches:
            asked = dict(zip(batch.predict_positions.tolist(), batch.labels.tolist(), strict=True))
            pairs = batch.pair_labels.tolist() if batch.pair_labels is not None else None
            for number, (begin, end) in enumerate(itertools.pairwise(batch.cu_seqlens.tolist())):
                labels = tuple((i - begin, asked[i]) for i in range(begin, end) if i in asked)
                types = tuple(batch.token_type_ids[begin:end].tolist())
                pair = pairs[number] if pairs else None
                found.append((tuple(batch.input_ids[begin:end].tolist()), types, labels, pair))
    return found


@pytest.mark.parametrize("policy", POLICIES)
def test_rows_and_masks_do_not_depend_on_batches_workers_or_devices(make_loader, policy):
    reference = rows_of(make_loader(policy))
    assert len(reference) == 320
    assert rows_of(make_loader(policy, batch=16, micro=5)) == reference
    assert rows_of(make_loader(policy, batch=4, micro=4)) == reference
    for workers in (1, 2):
        assert rows_of(make_loader(policy, workers=workers)) == reference
    ranks = [rows_of(make_loader(policy, rank=rank, world=2)) for rank in (0, 1)]
    assert [row for pair in zip(*ranks, strict=True) for row in pair] == reference


@pytest.mark.parametrize("name", FORMATS)
def test_the_same_for_every_format(make_loader, name):
    reference = rows_of(make_loader("span", name))
    assert rows_of(make_loader("span", name, batch=4, micro=3, workers=2)) == reference
    ranks = [rows_of(make_loader("span", name, rank=rank, world=2)) for rank in (0, 1)]
    assert [row for pair in zip(*ranks, strict=True) for row in pair] == reference


@pytest.mark.parametrize("stop", [1, 7, 23, 40])
@pytest.mark.parametrize("policy", ["span", "static"])
def test_resuming_at_any_step_goes_on_with_the_same_rows(make_loader, policy, stop):
    reference = rows_of(make_loader(policy))
    loader = make_loader(policy)
    seen = list(itertools.islice(loader, stop))
    resumed = make_loader(policy, workers=1)
    resumed.load_state_dict(loader.state_dict())
    assert rows_of(seen) + rows_of(resumed) == reference


def test_no_two_rows_epochs_streams_or_arms_share_a_number():
    """100,000 draws of 53 bits: two alike have a chance of one in two million."""
    drawn = []
    for seed, stream, replicate in ((0, "masking", 0), (0, "masking", 1), (1, "masking", 0)):
        key = rng.key(seed, stream, replicate)
        for epoch in (0, 1):
            for substream in (0, 1):
                drawn.append(rng.uniforms(key, [0, 1, 7], 1001, epoch=epoch, substream=substream))
    drawn.append(rng.uniforms(rng.key(0, "validation", 0), [0, 1, 7], 1001, epoch=0, substream=0))
    numbers = np.concatenate([part.reshape(-1) for part in drawn])
    assert len(np.unique(numbers)) == len(numbers)


def test_each_row_reads_the_numbers_of_its_own_id(built_in, monkeypatch):
    _, tokenizer, store = built_in
    plan = plan_epoch(
        store, np.arange(30), input_format="segment_pair", max_length=64, seed=0, epoch=5, copies=2
    )
    asked = []

    def spy(drawing):
        def asking(key, rows, length, *, epoch, substream):
            asked.append((tuple(rows.tolist()), epoch))
            return drawing(key, rows, length, epoch=epoch, substream=substream)

        return asking

    monkeypatch.setattr(rng, "bits", spy(rng.bits))
    policy = MaskingPolicy("span", copies=4)
    MaskedRows(store, tokenizer, policy, max_length=64, seed=0).batch(
        plan, np.array([4, 2]), epoch=5
    )
    ids = tuple(plan.row_ids[[4, 2]].tolist())
    assert asked == [(ids, 1)]  # epoch 5 shows the masks of copy 1


def test_static_masks_come_back_and_dynamic_ones_do_not(built_in):
    _, tokenizer, store = built_in

    def epoch_rows(policy, epoch):
        plan = plan_epoch(
            store, np.arange(30), input_format="full_sentences", max_length=64, seed=0,
            epoch=epoch, copies=2, short_seq_prob=0.0,
        )  # fmt: skip
        rows = MaskedRows(store, tokenizer, policy, max_length=64, seed=0)
        batch = rows.batch(plan, np.arange(plan.num_rows), epoch=epoch)[0]
        bounds = batch.cu_seqlens.tolist()
        return sorted(tuple(batch.input_ids[a:b].tolist()) for a, b in itertools.pairwise(bounds))

    static, dynamic = MaskingPolicy(copies=2), MaskingPolicy()
    first = [epoch_rows(static, epoch) for epoch in range(5)]
    assert first[0] == first[2] == first[4]
    assert first[1] == first[3] != first[0]
    assert epoch_rows(dynamic, 0) == first[0]  # until the copies are used up, the same
    assert epoch_rows(dynamic, 2) != first[0]


def test_a_schedule_moves_the_rate_and_nothing_else(built_in):
    _, tokenizer, store = built_in
    plan = plan_epoch(
        store, np.arange(200), input_format="segment_pair", max_length=64, seed=0, epoch=0
    )
    moving = MaskingPolicy(mask_rate=0.3, mask_rate_schedule="linear", final_mask_rate=0.1)
    fixed = MaskingPolicy(mask_rate=0.2)
    rows = np.arange(plan.num_rows)
    ours = MaskedRows(store, tokenizer, moving, max_length=64, seed=0)
    theirs = MaskedRows(store, tokenizer, fixed, max_length=64, seed=0)
    middle = ours.batch(plan, rows, epoch=0, progress=0.5)[0]
    assert middle.input_ids.tolist() == theirs.batch(plan, rows, epoch=0)[0].input_ids.tolist()
    shares = [
        ours.batch(plan, rows, epoch=0, progress=p)[1].shares()["mask_rate"] for p in (0, 0.5, 1)
    ]
    assert shares == sorted(shares, reverse=True)
