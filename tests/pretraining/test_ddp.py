"""Two ranks on the CPU (gloo) against one process: losses, weights, rows, resume, signals."""

import multiprocessing
import os
import signal
import threading
import time

import pytest
import torch

from ablate import rng
from ablate.encoder.config import EncoderConfig
from ablate.encoder.heads import MaskedLanguageModel
from ablate.encoder.initialization import initialize
from ablate.inputs.masking import MaskingPolicy
from ablate.inputs.pairs import NO_PAIR
from ablate.pretraining import pretrain as fits
from ablate.pretraining.checkpoints import newest_checkpoint
from ablate.pretraining.interrupted import Interrupted
from ablate.run.stages import forget_after
from ablate.tracking.lightning import RecordLogger
from ablate.tracking.record import MetricsFile

MODERN = {
    "norm_position": "pre", "norm_bias": False, "norm_eps": 1e-5, "position_embedding": "rope",
    "mlp": "glu", "attention_bias": False, "mlp_bias": False, "head_dense_bias": False,
    "first_layer_norm": False, "final_norm": True, "type_vocab_size": 0,
    "global_attention_every_n": 2, "local_attention": 8, "init_scheme": "megatron",
}  # fmt: skip


@pytest.fixture
def fit(make_model, make_data, make_module, tmp_path):
    """A fit on 1 or 2 ranks; (model, result, metrics)."""

    def run(
        name, devices, *, model=None, axes=None, nsp=True, every=100, validations=2,
        strategy="ddp_fork", prepare=None, dropout=0.0, **data_options,
    ):  # fmt: skip
        model = model or make_model(nsp=nsp, dropout=dropout)
        if axes is not None:
            sizes = {
                "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
                "intermediate_size": 32, "max_position_embeddings": 64, "init_std": 0.1,
            }  # fmt: skip
            config = EncoderConfig(vocab_size=model.config.vocab_size, **sizes, **axes)
            model = MaskedLanguageModel(config, model.encoder.backend, 2 if nsp else 0)
            initialize(model, config, lambda name: rng.torch_seed(0, "init", name))
        data = make_data(**data_options)
        module = make_module(model, data, log_every=1)
        if prepare is not None:
            prepare(module, data)
        metrics = MetricsFile(tmp_path / name / "metrics.jsonl")
        newest = newest_checkpoint(tmp_path / name / "checkpoints")
        forget_after(metrics, newest[1] if newest else 0, total=len(data.steps))
        result = fits.pretrain(
            module, data, folder=tmp_path / name / "checkpoints", resume_from=newest,
            loggers=[RecordLogger(metrics)], accelerator="cpu", devices=devices, precision="fp32",
            num_validations=validations, checkpoint_every=every, show_progress=False,
            strategy=strategy if devices > 1 else None,
        )  # fmt: skip
        return model, result, metrics

    return run


def agree(one, two, *, first=3):
    """Losses of the first steps to 1e-6, later ones, counts and weights as far as they drift."""
    (model, result, lines), (other, other_result, other_lines) = one, two
    rows, other_rows = lines.rows(), other_lines.rows()
    assert [list(row) for row in rows] == [list(row) for row in other_rows]
    for row, theirs in zip(rows, other_rows, strict=True):
        early = row["step"] <= first and "train/loss" in row
        for name, value in row.items():
            exact = "loss" in name or "norm" in name
            close = pytest.approx(theirs[name], rel=1e-6 if early and exact else 1e-4, abs=1e-9)
            assert value == close, (row["step"], name)
    state = other.state_dict()
    for name, value in model.state_dict().items():
        assert torch.allclose(value, state[name], atol=2e-5), name
    assert other_result.masking == result.masking
    clocks, theirs = dict(result.clocks), dict(other_result.clocks)
    assert clocks.pop("seconds") > 0 < theirs.pop("seconds")
    assert clocks == theirs
    assert result.metrics.keys() == other_result.metrics.keys()


SCHEDULE = MaskingPolicy(mask_rate=0.4, mask_rate_schedule="linear", final_mask_rate=0.1)
CASES = {
    "bert, masked tokens alone": {"nsp": False},
    "bert, pairs, one row at a time": {"micro": 1},
    "modernbert, pairs, mask rate schedule": {"axes": MODERN, "policy": SCHEDULE, "micro": 2},
    "an end between validations": {"nsp": False, "micro": 2, "validations": 5, "amount": 7},
    "a token in a hundred": {"policy": MaskingPolicy(mask_rate=0.01), "batch": 2, "micro": 2},
}


@pytest.mark.parametrize("name", CASES)
def test_two_ranks_train_as_one_process(fit, name):
    options = {"amount": 6, **CASES[name]}
    agree(fit("one", 1, **options), fit("two", 2, **options))


def without(rank, what):
    """Take from the rows that `rank` of 2 gets what there is to predict, or their pairs."""

    def prepare(module, data):
        plain = data.rows.batch

        def batch(plan, rows, **more):
            found, counts = plain(plan, rows, **more)
            assert len(rows) == 1  # micro-batches of one row, in both runs
            if rows[0] % 2 == rank:
                if what == "pair":
                    found.pair_labels = torch.full_like(found.pair_labels, NO_PAIR)
                else:
                    found.predict_positions = found.predict_positions[:0]
                    found.labels = found.labels[:0]
            return found, counts

        data.rows.batch = batch

    return prepare


@pytest.mark.parametrize(("rank", "what"), [(1, "prediction"), (0, "pair")])
def test_a_rank_that_has_nothing_to_count_weighs_nothing(fit, rank, what):
    options = {"amount": 4, "micro": 1, "prepare": without(rank, what)}
    agree(fit("one", 1, **options), fit("two", 2, **options))


class BrokenError(Exception):
    """What a rank runs into."""


def at_step(step, rank, action):
    """Do `action` on one rank before it takes the step after `step`."""

    def prepare(module, data):
        plain = module.training_step

        def training_step(item, batch_idx):
            if item.step == step and module.global_rank == rank:
                action()
            return plain(item, batch_idx)

        module.training_step = training_step

    return prepare


def broken():
    raise BrokenError


def killed():
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize(("rank", "action"), [(0, broken), (1, broken), (1, killed)])
def test_a_rank_that_fails_ends_the_others(fit, rank, action):
    start, environment = time.monotonic(), dict(os.environ)
    with pytest.raises(Exception, match="BrokenError|SIGKILL|by peer"):
        fit("broken", 2, prepare=at_step(2, rank, action))
    assert time.monotonic() - start < 25
    assert not multiprocessing.active_children()
    assert dict(os.environ) == environment


def test_what_a_rank_says_to_the_user_arrives_without_its_traceback(fit):
    def prepare(module, data):
        module.learning_rate = float("inf")

    with pytest.raises(FloatingPointError, match="not finite at step .*learning_rate") as caught:
        fit("diverged", 2, prepare=prepare)
    assert "Traceback" not in str(caught.value)


@pytest.mark.parametrize("stop", [3, 6])
def test_two_ranks_that_were_killed_continue_bit_for_bit(fit, stop):
    options = {"every": 2, "dropout": 0.1, "micro": 2, "amount": 8}
    straight, result, lines = fit("straight", 2, **options)
    with pytest.raises(Exception, match="BrokenError|by peer"):
        fit("killed", 2, prepare=at_step(stop, 1, broken), **options)
    resumed, again, lines_again = fit("killed", 2, **options)
    assert again.resumed_from == stop // 2 * 2
    for (name, a), b in zip(
        straight.state_dict().items(), resumed.state_dict().values(), strict=True
    ):
        assert torch.equal(a, b), name
    assert lines_again.path.read_bytes() == lines.path.read_bytes()
    assert again.masking == result.masking
    assert again.metrics == result.metrics


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_to_the_parent_stops_both_ranks_after_the_same_step(fit, tmp_path, signum, code):
    metrics = tmp_path / "stopped" / "metrics.jsonl"

    def stop():
        while not metrics.exists() or metrics.read_text().count("train/loss") < 3:
            time.sleep(0.01)
        os.kill(os.getpid(), signum)

    before = signal.getsignal(signum)
    thread = threading.Thread(target=stop)
    thread.start()
    with pytest.raises(Interrupted, match="after step") as caught:
        fit("stopped", 2, amount=4000, validations=1)
    thread.join()
    assert caught.value.exit_code == code
    assert signal.getsignal(signum) is before
    assert not multiprocessing.active_children()
    step = newest_checkpoint(tmp_path / "stopped" / "checkpoints")[1]
    assert step < 4000
    assert MetricsFile(metrics).rows()[-1]["step"] == step


def test_dropout_differs_between_ranks_and_not_between_runs(fit):
    losses = [
        [row["train/loss"] for row in fit(name, devices, amount=3, dropout=0.5)[2].rows()
         if "train/loss" in row]
        for name, devices in (("one", 1), ("two", 2), ("again", 2))
    ]  # fmt: skip
    assert losses[1] == losses[2]
    assert losses[0][0] != pytest.approx(losses[1][0], rel=1e-6)


def test_budget_zero_and_validation_at_another_step_stay_in_one_process(fit):
    _, nothing, _ = fit("zero", 2, amount=0)
    _, one, _ = fit("one", 1, amount=0)
    assert nothing.metrics == one.metrics
    assert not multiprocessing.active_children()


@pytest.mark.slow
def test_spawned_ranks_give_the_bits_of_forked_ones(fit):
    forked, _, lines = fit("forked", 2, amount=4)
    spawned, _, other = fit("spawned", 2, amount=4, strategy="ddp_spawn")
    for (name, a), b in zip(
        forked.state_dict().items(), spawned.state_dict().values(), strict=True
    ):
        assert torch.equal(a, b), name
    assert lines.path.read_bytes() == other.path.read_bytes()
