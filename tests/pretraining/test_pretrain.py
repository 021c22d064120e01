"""Whole fits at tiny size: accumulation, resume, validation, budget 0."""

import json
import os
import signal

import pytest
import torch

from ablate.inputs.masking import MaskingPolicy
from ablate.pretraining import pretrain as fits
from ablate.pretraining.checkpoints import checkpoint_path
from ablate.pretraining.interrupted import Interrupted


def same(ours, theirs):
    pairs = zip(ours.state_dict().items(), theirs.state_dict().values(), strict=True)
    return [name for (name, a), b in pairs if not torch.equal(a, b)]


@pytest.mark.parametrize("micro", [1, 3, 4])
def test_accumulation_does_not_change_the_gradient_or_the_logged_loss(fit, micro):
    whole, _, lines = fit("whole", amount=4)
    split, _, split_lines = fit("split", amount=4, micro=micro)
    for (name, a), b in zip(whole.state_dict().items(), split.state_dict().values(), strict=True):
        assert torch.allclose(a, b, atol=2e-5), name
    for ours, theirs in zip(lines.rows(), split_lines.rows(), strict=True):
        assert ours.keys() == theirs.keys()
        for name in ours:
            assert ours[name] == pytest.approx(theirs[name], rel=1e-4, abs=1e-6), name


class KilledError(Exception):
    """Stands for a kill: nothing is saved when it is raised."""


def before_step(monkeypatch, step, action):
    """Do `action` when training is about to take the step after `step`."""

    class Spy(fits.Throughput):
        def on_train_batch_start(self, trainer, module, item, index):
            if trainer.global_step == step:
                action()

    monkeypatch.setattr(fits, "Throughput", Spy)


def kill():
    raise KilledError


@pytest.mark.parametrize(
    ("stop", "workers", "micro"), [(1, 0, 8), (4, 0, 8), (5, 0, 4), (6, 2, 8), (11, 2, 4)]
)
def test_a_killed_run_continues_bit_for_bit(fit, make_model, monkeypatch, stop, workers, micro):
    options = {"workers": workers, "micro": micro, "module_options": {"log_every": 3}}
    straight, result, lines = fit("straight", model=make_model(dropout=0.1), **options)
    with monkeypatch.context() as patch:
        before_step(patch, stop, kill)
        with pytest.raises(KilledError):
            fit("killed", model=make_model(dropout=0.1), **options)
    resumed, again, lines_again = fit("killed", model=make_model(dropout=0.1), **options)
    assert same(straight, resumed) == []
    assert again.resumed_from == (stop // 4 * 4 or None)
    assert again.metrics == result.metrics
    assert again.masking == result.masking
    assert lines_again.path.read_bytes() == lines.path.read_bytes()


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_saves_the_step_and_gives_its_exit_code(fit, monkeypatch, signum, code):
    straight, *_ = fit("straight")

    with monkeypatch.context() as patch:
        before_step(patch, 6, lambda: os.kill(os.getpid(), signum))
        with pytest.raises(Interrupted) as caught:
            fit("stopped", every=100)
    assert caught.value.exit_code == code
    resumed, result, _ = fit("stopped", every=100)
    assert result.resumed_from == 7
    assert same(straight, resumed) == []


@pytest.mark.parametrize("stop", [3, 5, 6])
def test_a_checkpoint_at_a_validation_step_repeats_and_loses_no_line(fit, monkeypatch, stop):
    options = {"every": 3, "validations": 4, "module_options": {"log_every": 3}}
    straight, _, lines = fit("straight", **options)
    with monkeypatch.context() as patch:
        before_step(patch, stop, kill)
        with pytest.raises(KilledError):
            fit("killed", **options)
    resumed, _, again = fit("killed", **options)
    assert same(straight, resumed) == []
    assert again.path.read_bytes() == lines.path.read_bytes()


def test_a_kill_inside_validation_repeats_and_loses_no_line(fit, monkeypatch):
    options = {"every": 3, "validations": 4, "module_options": {"log_every": 3}}
    straight, _, lines = fit("straight", **options)

    class Spy(fits.Throughput):
        def on_validation_start(self, trainer, module):
            if trainer.global_step == 6:
                kill()

    with monkeypatch.context() as patch:
        patch.setattr(fits, "Throughput", Spy)
        with pytest.raises(KilledError):
            fit("killed", **options)
    resumed, _, again = fit("killed", **options)
    assert same(straight, resumed) == []
    assert again.path.read_bytes() == lines.path.read_bytes()


def test_a_torn_checkpoint_is_passed_over(fit, monkeypatch, tmp_path, capsys):
    straight, *_ = fit("straight")
    with monkeypatch.context() as patch:
        before_step(patch, 10, kill)
        with pytest.raises(KilledError):
            fit("torn")
    newest = checkpoint_path(tmp_path / "torn" / "checkpoints", 8)
    newest.write_bytes(newest.read_bytes()[:-2000])
    resumed, result, _ = fit("torn")
    assert result.resumed_from == 4
    assert "not whole" in capsys.readouterr().err
    assert same(straight, resumed) == []


def test_a_run_stopped_after_its_last_checkpoint_writes_no_line_twice(fit):
    _, _, lines = fit("run", every=3)
    before = lines.path.read_bytes()
    fit("run", every=3)
    assert lines.path.read_bytes() == before


def test_metrics_carry_tokens_and_stay_in_order(fit):
    _, result, lines = fit("run", amount=12, module_options={"log_every": 3})
    rows = lines.rows()
    steps = [row["step"] for row in rows]
    assert steps == sorted(steps)
    assert all(row["tokens"] > 0 for row in rows)
    assert sum("train/loss" in row for row in rows) == 4
    assert sum("val/token_mask/loss" in row for row in rows) == 2
    last = rows[-1]
    assert last["val/token_mask/loss"] == pytest.approx(result.metrics["val/token_mask/loss"])
    assert last["tokens"] == result.clocks["tokens"]
    for row in rows:
        if "train/loss" in row:
            assert row["train/loss"] == pytest.approx(row["train/mlm_loss"] + row["train/nsp_loss"])
    assert "nan" not in json.dumps(rows).lower()


def test_validation_is_the_same_for_every_arm_and_seed(make_data):
    reference = make_data().validation_batches
    other = make_data(policy=MaskingPolicy("whole_word", 0.4), seed=5, amount=3).validation_batches
    for ours, theirs in zip(reference, other, strict=True):
        for a, b in zip(ours, theirs, strict=True):
            assert torch.equal(a.input_ids, b.input_ids)
            assert torch.equal(a.labels, b.labels)
            assert set(a.input_ids[a.predict_positions].tolist()) == {4}


def test_validating_twice_gives_the_same_loss_to_the_last_bit(fit, make_model):
    model = make_model(dropout=0.5)
    _, first, _ = fit("a", model=model, amount=0)
    _, second, _ = fit("b", model=model, amount=0)
    assert first.metrics == second.metrics


def test_budget_zero_trains_nothing_and_validates(fit, make_model):
    model, untouched = make_model(), make_model()
    _, result, _ = fit("none", model=model, amount=0)
    assert same(model, untouched) == []
    assert result.clocks["tokens"] == 0
    assert result.metrics["val/token_mask/loss"] > 0


def test_rows_without_predictions_move_no_weight(fit, make_model):
    model, untouched = make_model(nsp=False), make_model(nsp=False)
    _, result, lines = fit("empty", model=model, policy=MaskingPolicy(mask_rate=1e-12), amount=4)
    assert same(model, untouched) == []
    assert result.clocks["predictions"] == 0
    assert all("train/mlm_loss" not in row for row in lines.rows())


def test_nsp_moves_the_loss_and_nothing_else(make_model, make_data):
    with_head, without = make_model(nsp=True), make_model(nsp=False)
    theirs = without.state_dict()
    for name, value in with_head.state_dict().items():
        if not name.startswith("pair_head"):
            assert torch.equal(value, theirs[name]), name


def test_dropout_is_a_function_of_seed_step_and_micro_batch(fit, make_model):
    torch.manual_seed(1)
    first, *_ = fit("a", model=make_model(dropout=0.3))
    torch.manual_seed(2)
    second, *_ = fit("b", model=make_model(dropout=0.3))
    assert same(first, second) == []
