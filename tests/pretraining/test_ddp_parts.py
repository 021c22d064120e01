"""What several devices rest on, without a second process: rows, validation, counts, strategies."""

import os
import pickle

import numpy as np
import pytest
import torch

from ablate.inputs.mask_counts import MaskCounts
from ablate.pretraining.distributed import summed_counts
from ablate.pretraining.machine import resolve_strategy, resolve_threads


def rows_of(data, rank, world):
    """(epoch, row) -> its ids and labels, as this rank draws them; and its step items."""
    data.rank, data.world = rank, world
    seen, plain = {}, data.rows.batch

    def batch(plan, rows, *, epoch, progress=0.0):
        found, counts = plain(plan, rows, epoch=epoch, progress=progress)
        bounds = found.cu_seqlens.tolist()
        for row, begin, end in zip(rows, bounds, bounds[1:], strict=False):
            inside = (found.predict_positions >= begin) & (found.predict_positions < end)
            assert (epoch, row) not in seen
            seen[epoch, int(row)] = (
                found.input_ids[begin:end].tolist(),
                (found.predict_positions[inside] - begin).tolist(),
                found.labels[inside].tolist(),
            )
        return found, counts

    data.rows.batch = batch
    return seen, list(data.train_dataloader())


@pytest.mark.parametrize("world", [2, 4])
def test_ranks_share_the_rows_of_one_process_bit_for_bit(make_data, world):
    rows = make_data().steps.plan(0).num_rows
    options = {"amount": rows // 8 + 3, "batch": 8, "micro": 3}  # over an epoch's edge
    one, items = rows_of(make_data(**options), 0, 1)
    assert len({epoch for epoch, _ in one}) > 1
    together = {}
    for rank in range(world):
        own, own_items = rows_of(make_data(**options), rank, world)
        assert not together.keys() & own.keys()
        together |= own
        for ours, theirs in zip(own_items, items, strict=True):
            assert (ours.step, ours.tokens, ours.progress, ours.num_rows) == (
                theirs.step, theirs.tokens, theirs.progress, theirs.num_rows,
            )  # fmt: skip
            assert sum(micro.num_rows for micro in ours.micro_batches) == 8 // world
    assert together == one


def test_validation_batches_are_dealt_out_whole(make_data):
    data = make_data(micro=8)
    whole = [list(loader) for loader in data.val_dataloader()]
    data.world, parts = 2, []
    for data.rank in (0, 1):
        parts.append([list(loader) for loader in data.val_dataloader()])
    for batches, first, second in zip(whole, *parts, strict=True):
        assert len(first) == len(second)  # Lightning validates on all ranks or hangs
        dealt = [id(batch) for batch in first + second if batch is not None]
        assert sorted(dealt) == sorted(id(batch) for batch in batches)


def test_counts_are_added_up_by_name():
    counts = MaskCounts(eligible=3, predicted=2, span_tokens=list(range(33)))
    doubled = summed_counts(counts, lambda values: [2 * value for value in values])
    assert (doubled.eligible, doubled.predicted, doubled.rows) == (6, 4, 0)
    assert doubled.span_tokens == list(range(0, 66, 2))


def test_threads_are_shared_out_and_strategies_resolved():
    assert resolve_threads(None, hidden_size=64, devices=2) == 1
    cores = len(os.sched_getaffinity(0))
    assert resolve_threads(None, hidden_size=512, devices=2) == max(cores // 2, 1)
    assert resolve_threads(3, hidden_size=512, devices=2) == 3

    def strategy(name, *, device="cpu", devices=2, threads=1):
        return resolve_strategy(name, device=device, devices=devices, threads=threads)

    assert strategy("auto", devices=1) is None
    if not torch.cuda.is_available():
        assert strategy("auto") == "ddp_fork"
    assert strategy("auto", threads=2) == "ddp_spawn"
    for name, threads, hint in (
        ("ddp_fork", 2, "trainer.threads=1"),
        ("ddp", 1, "trainer.strategy=ddp_fork"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=hint):
            strategy(name, threads=threads)
    many = torch.cuda.device_count() + 1
    if many > 1 or not torch.cuda.is_available():
        with pytest.raises(ValueError, match="torch sees"):
            strategy("ddp", device="cuda", devices=max(many, 2))


def test_the_data_can_be_pickled_without_its_arrays(make_data):
    data = make_data()
    _ = data.steps, data.rows
    text = pickle.dumps(data.steps)
    assert len(text) < 200_000
    again = pickle.loads(text)
    for step in range(len(data.steps)):
        for (epoch, rows), (other, theirs) in zip(
            data.steps.rows(step), again.rows(step), strict=True
        ):
            assert epoch == other
            assert np.array_equal(rows, theirs)
