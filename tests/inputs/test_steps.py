import itertools

import numpy as np
import pytest
from torch.utils.data import DataLoader

from ablate.inputs.formats import plan_epoch
from ablate.inputs.masked_rows import MaskedRows
from ablate.inputs.masking import MaskingPolicy
from ablate.inputs.steps import StepDataset, StepLoader, StepSequence


@pytest.fixture
def make_loader(built_in):
    corpus, tokenizer, store = built_in
    documents = store.split(corpus.validation_threshold)[0][:40]

    def make(
        *, clock="steps", amount=12, batch=8, micro=8, workers=0, rank=0, world=1, seed=3,
        policy=None,
    ):  # fmt: skip
        steps = StepSequence(
            lambda epoch: plan_epoch(
                store, documents, input_format="segment_pair", max_length=64, seed=seed, epoch=epoch
            ),
            clock=clock, amount=amount, global_batch_size=batch,
        )  # fmt: skip
        rows = MaskedRows(store, tokenizer, policy or MaskingPolicy(), max_length=64, seed=seed)
        dataset = StepDataset(steps, rows, micro_batch_size=micro, rank=rank, world=world)
        return StepLoader(dataset, num_workers=workers)

    return make


def content(items):
    """Everything the model sees, a tuple a row, in order."""
    rows = []
    for item in items:
        for batch in item.micro_batches:
            bounds = batch.cu_seqlens.tolist()
            chosen = dict(zip(batch.predict_positions.tolist(), batch.labels.tolist(), strict=True))
            for begin, end in itertools.pairwise(bounds):
                labels = tuple((i - begin, chosen[i]) for i in range(begin, end) if i in chosen)
                rows.append((tuple(batch.input_ids[begin:end].tolist()), labels))
    return rows


def test_the_same_rows_and_masks_for_any_number_of_workers(make_loader):
    reference = content(make_loader())
    assert len(reference) == 12 * 8
    for workers in (1, 2):
        assert content(make_loader(workers=workers)) == reference


def test_the_same_rows_and_masks_for_any_batch_and_micro_batch_size(make_loader):
    reference = content(make_loader())
    assert content(make_loader(micro=3)) == reference
    assert content(make_loader(batch=16, amount=6)) == reference
    assert content(make_loader(batch=4, amount=24, micro=4)) == reference


def test_two_ranks_share_the_rows_of_each_step(make_loader):
    whole = [set(content([item])) for item in make_loader()]
    first = [content([item]) for item in make_loader(rank=0, world=2)]
    second = [content([item]) for item in make_loader(rank=1, world=2)]
    for together, ours, theirs in zip(whole, first, second, strict=True):
        assert len(ours) == len(theirs) == 4
        assert set(ours) | set(theirs) == together


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("stop", [1, 5, 11, 12])
def test_resuming_sees_every_row_once(make_loader, workers, stop):
    reference = content(make_loader())
    first = make_loader(workers=workers)
    seen = []
    iterator = iter(first)
    for _ in range(stop):
        seen.append(next(iterator))
    resumed = make_loader(workers=workers)
    resumed.load_state_dict(first.state_dict())
    assert content(seen) + content(resumed) == reference


def test_epochs_differ_and_no_row_is_dropped_between_them(make_loader):
    loader = make_loader(amount=60)
    starts = loader.dataset.steps.epoch_starts
    assert len(starts) >= 3
    rows = [pair for step in range(60) for pair in loader.dataset.steps.rows(step)]
    for epoch in range(len(starts) - 2):
        numbers = np.concatenate([found for e, found in rows if e == epoch])
        assert np.array_equal(numbers, np.arange(starts[epoch + 1] - starts[epoch]))


def test_token_budget_ends_at_the_first_step_that_reaches_it(make_loader):
    loader = make_loader(clock="tokens", amount=5000)
    items = list(loader)
    assert len(items) == len(loader)
    assert items[-1].tokens >= 5000 > items[-2].tokens
    spent = sum(batch.num_tokens for item in items for batch in item.micro_batches)
    assert items[-1].tokens == spent
    progress = [item.progress for item in items]
    assert progress == sorted(progress)
    assert progress[-1] == 1.0
    assert progress[0] > 0.0


def test_token_budget_larger_than_many_epochs(make_loader):
    loader = make_loader(clock="tokens", amount=60_000, batch=32, micro=32)
    assert loader.dataset.steps.num_epochs > 3
    assert loader.dataset.steps.tokens_after[-1] >= 60_000


@pytest.mark.parametrize("clock", ["tokens", "steps"])
def test_budget_of_zero_has_no_step(make_loader, clock):
    assert len(make_loader(clock=clock, amount=0)) == 0


def test_an_item_is_a_function_of_its_number(make_loader):
    loader = make_loader()
    direct = content([loader.dataset[7]])
    in_order = content(list(DataLoader(loader.dataset, batch_size=None))[7:8])
    assert direct == in_order


@pytest.mark.parametrize(("clock", "amount"), [("steps", 8), ("tokens", 5000)])
def test_the_mask_rate_of_a_step_follows_the_budget_spent_before_it(make_loader, clock, amount):
    """From 50% to 100% at half of the budget: of 8 steps the fifth is the first with all masked."""
    policy = MaskingPolicy(
        mask_rate=0.5, mask_rate_schedule="step", final_mask_rate=1.0, mask_rate_step_at=0.5
    )
    loader = make_loader(clock=clock, amount=amount, policy=policy)
    whole = [item.counts.selected == item.counts.eligible for item in loader]
    spent = np.arange(8) if clock == "steps" else loader.dataset.steps.tokens_after[:-1]
    assert whole == [before >= amount / 2 for before in spent]
    assert whole.index(True) == (4 if clock == "steps" else int((spent < 2500).sum()))
