"""Losses on pairs: names, what they read, counts, and rows that could not teach them."""

import os
from types import SimpleNamespace

import pytest
import torch

from ablate import rng
from ablate.encoder.heads import MaskedLanguageModel
from ablate.encoder.initialization import initialize
from ablate.inputs.batches import Batch
from ablate.inputs.datamodule import PretrainingData
from ablate.inputs.mask_counts import MaskCounts
from ablate.inputs.masking import MaskingPolicy
from ablate.inputs.pairs import LOSSES, loss_classes
from ablate.inputs.steps import StepItem
from ablate.pretraining import pretrain as fits
from ablate.pretraining.module import PretrainingModule
from ablate.tracking.lightning import RecordLogger
from ablate.tracking.record import MetricsFile

PAIR_ARMS = [
    ("nsp", "next_or_random", "segment_pair"),
    ("sop", "ordered_or_swapped", "sentence_pair"),
    ("nsp_sop", "next_random_or_swapped", "segment_pair"),
    ("nsp", "next_random_or_swapped", "segment_pair"),
    ("sop", "next_random_or_swapped", "segment_pair"),
]


@pytest.fixture
def pair_arm(built_in, make_model, tmp_path):
    """A fit of a few steps with a loss on pairs; returns its labels, lines and weights."""
    corpus, tokenizer, store = built_in

    def run(loss, pairing, input_format, *, micro=8, steps=4):
        data = PretrainingData(
            store, tokenizer, MaskingPolicy(), input_format=input_format, max_length=64,
            short_seq_prob=0.1, pairing=pairing, validation_threshold=corpus.validation_threshold,
            validation_seed=0, validation_rows=20, clock="steps", amount=steps, global_batch_size=8,
            micro_batch_size=micro, num_workers=0, seed=0, cache_dir=os.environ["ABLATE_CACHE"],
        )  # fmt: skip
        plain = make_model(nsp=False)
        model = MaskedLanguageModel(plain.config, plain.encoder.backend, len(LOSSES[loss]))
        initialize(model, plain.config, lambda name: rng.torch_seed(0, "init", name))
        module = PretrainingModule(
            model, learning_rate=0.01, weight_decay=0.01, betas=(0.9, 0.98), eps=1e-6,
            gradient_clip=1.0, schedule="linear", warmup_fraction=0.25, final_fraction=0.0, seed=0,
            log_every=1, validation_names=data.validation_names,
            bytes_per_token=data.validation_bytes_per_token, pair_loss=loss, pairing=pairing,
        )  # fmt: skip
        metrics = MetricsFile(tmp_path / f"{loss}-{pairing}-{micro}" / "metrics.jsonl")
        fits.pretrain(
            module, data, folder=metrics.path.parent / "checkpoints", resume_from=None,
            loggers=[RecordLogger(metrics)], accelerator="cpu", devices=1, precision="fp32",
            num_validations=0, checkpoint_every=100, show_progress=False,
        )  # fmt: skip
        labels = [data.steps.plan(0).pair_labels[8 * k : 8 * k + 8] for k in range(steps)]
        rows = [row for row in metrics.rows() if "train/loss" in row]
        return labels, rows, model

    return run


@pytest.mark.parametrize(("loss", "pairing", "input_format"), PAIR_ARMS)
def test_a_pair_loss_is_logged_under_its_name_and_reads_its_kinds(
    pair_arm, loss, pairing, input_format
):
    labels, rows, _ = pair_arm(loss, pairing, input_format)
    classes = loss_classes(pairing, loss)
    for own, row in zip(labels, rows, strict=True):
        named = {name for name in row if name.startswith("train/") and name.endswith("_accuracy")}
        assert named == {"train/mlm_accuracy", f"train/{loss}_accuracy"}
        read = sum(label >= 0 and classes[label] >= 0 for label in own)
        hits = row[f"train/{loss}_accuracy"] * read
        assert hits == pytest.approx(round(hits), abs=1e-6)  # a share of the pairs it reads
        together = row["train/mlm_loss"] + row[f"train/{loss}_loss"]
        assert row["train/loss"] == pytest.approx(together)


@pytest.mark.parametrize(("loss", "pairing", "input_format"), PAIR_ARMS)
def test_rows_without_a_label_do_not_weigh_in_the_mean(pair_arm, loss, pairing, input_format):
    """One micro-batch of 8 rows or 3 of up to 3: the same gradient, whatever rows have a label."""
    _, lines, whole = pair_arm(loss, pairing, input_format)
    _, split_lines, split = pair_arm(loss, pairing, input_format, micro=3)
    for (name, a), b in zip(whole.state_dict().items(), split.state_dict().values(), strict=True):
        assert torch.allclose(a, b, atol=2e-5), name
    for ours, theirs in zip(lines, split_lines, strict=True):
        for name in ours:
            assert ours[name] == pytest.approx(theirs[name], rel=1e-4, abs=1e-6), name


def test_pairs_are_counted_over_micro_batches_and_ranks(make_model, make_module, make_data):
    """3 of 5 rows have a label here, and the other rank has as many."""
    data = make_data()
    module = make_module(make_model(), data)
    ends = torch.arange(6, dtype=torch.int32)

    def micro(labels):
        rows = len(labels)
        flat = torch.zeros(rows, dtype=torch.int64)
        return Batch(
            flat, flat, flat, ends[: rows + 1], 1, flat[:1], flat[:1], torch.tensor(labels)
        )

    item = StepItem(0, [micro([0, -100, 1]), micro([-100, 1])], 5, 5, 1.0, MaskCounts())
    sums = []

    def reduce(total, reduce_op):
        sums.append(reduce_op)
        return 2 * total

    for world, expected in ((1, {"mlm": 2, "nsp": 3}), (2, {"mlm": 4, "nsp": 6})):
        trainer = SimpleNamespace(world_size=world, strategy=SimpleNamespace(reduce=reduce))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(PretrainingModule, "trainer", trainer)
            assert module.global_counts(item) == expected
    assert sums == ["sum"]
