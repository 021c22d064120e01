"""One fit: paired streams, an untouched model, exact schedule and loss, scores in their order."""

import gc
import itertools
import os
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from ablate import rng
from ablate.encoder.backends import resolve
from ablate.encoder.config import EncoderConfig
from ablate.encoder.heads import MaskedLanguageModel
from ablate.encoder.initialization import initialize
from ablate.evaluation import finetune as module
from ablate.evaluation import fitting
from ablate.evaluation.encoding import batches_by_tokens, encode, encode_task
from ablate.evaluation.finetune import finetune
from ablate.evaluation.fitting import FinetuneSettings, num_steps
from ablate.evaluation.tasks import TaskSpec, from_rows

WORDS = [*"abcdefgh", "yes", "no"]
QUICK = {"learning_rate": 5e-3, "batch_size": 8, "num_epochs": 1, "min_steps": 0}


class WordTokenizer:
    """One id a word; stands for a trained tokenizer."""

    pad_token_id, unk_token_id, cls_token_id, sep_token_id, mask_token_id = range(5)
    vocab_size = 5 + len(WORDS)

    def encode_batch(self, texts):
        return [SimpleNamespace(ids=[5 + WORDS.index(w) for w in t.split()]) for t in texts]


def make_model(pair_classes=0, **changes):
    config = EncoderConfig(
        **{
            "vocab_size": WordTokenizer.vocab_size,
            "hidden_size": 16,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "intermediate_size": 32,
            "max_position_embeddings": 16,
            "init_std": 0.1,
            **changes,
        }
    )
    backend = resolve("auto", device="cpu", dtype=torch.float32, max_length=16)
    model = MaskedLanguageModel(config, backend, pair_classes)
    initialize(model, config, lambda name: rng.torch_seed(0, "init", name))
    return model


def leaking_rows(number, label_of=lambda answer: answer):
    """Random letters and one word that gives the label away."""
    random = np.random.default_rng(number)
    rows = []
    for _ in range(number):
        answer = int(random.integers(2))
        words = [*random.choice(list("abcdefgh"), random.integers(1, 6)), ("no", "yes")[answer]]
        rows.append({"sentence": " ".join(random.permutation(words)), "label": label_of(answer)})
    return rows


def make_task(train, scored, *, labels=("no", "yes"), metrics=("accuracy",), **encoding):
    spec = TaskSpec.from_dict(
        {"name": "leak", "fields": ["sentence"], "labels": list(labels), "metrics": list(metrics)}
    )
    data = from_rows(spec, train, {"validation": scored})
    return encode_task(data, WordTokenizer(), **{"max_length": 16, **encoding})


def test_rate_never_starts_or_ends_at_zero():
    settings = FinetuneSettings(learning_rate=1.0, warmup_fraction=0.25)
    rates = [fitting.learning_rate(step, 7, settings) for step in range(7)]
    assert rates == pytest.approx([0.5, 1.0, 5 / 6, 4 / 6, 3 / 6, 2 / 6, 1 / 6])
    assert fitting.learning_rate(0, 1, settings) > 0
    assert fitting.learning_rate(500, 7, settings) == 0.0


@pytest.mark.parametrize(
    ("examples", "settings", "steps"),
    [
        (800, {"num_epochs": 6}, 150),
        (801, {"num_epochs": 6}, 156),
        (10, {"num_epochs": 1}, 150),
        (10, {"num_epochs": 1, "min_steps": 0}, 1),
        (80_000, {"num_epochs": 3, "max_steps": 500}, 500),
        (800, {"num_epochs": 6, "max_steps": 20}, 20),
    ],
)
def test_number_of_steps(examples, settings, steps):
    assert num_steps(examples, FinetuneSettings(**settings)) == steps


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("learning_rate", 0),
        ("precision", "fp64"),
        ("dropout", 1.0),
        ("max_steps", 0),
        ("schedule", "step"),
        ("head", "deep"),
        ("layerwise_decay", 0),
        ("selection_fraction", 1.0),
        ("early_stopping", 0),
        ("gradient_clip", 0),
        ("max_scored_examples", 0),
        ("num_epochs", 1.5),
        ("frozen", 1),
    ],
)
def test_settings_out_of_range_are_refused(name, value):
    with pytest.raises(ValueError, match=rf"evaluation\.finetune\.{name}={value} is not"):
        FinetuneSettings(**{name: value})


def test_each_epoch_takes_every_example_once_in_a_new_order():
    settings = FinetuneSettings(**{**QUICK, "batch_size": 4})
    endless = fitting._rows(10, settings, (0, "x"))
    steps = list(itertools.islice(endless, 6))
    assert [len(step) for step in steps] == [4, 4, 2, 4, 4, 2]
    first, second = np.concatenate(steps[:3]), np.concatenate(steps[3:6])
    assert sorted(first) == sorted(second) == list(range(10))
    assert first.tolist() != second.tolist()


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_label_leaking_toy_is_learned_completely(precision):
    held_out = leaking_rows(101)
    task = make_task(leaking_rows(160), held_out)
    settings = FinetuneSettings(**{**QUICK, "num_epochs": 6}, precision=precision)
    fit = finetune(make_model(), task, settings, seed=0, finetune_seed=0)
    predictions = fit.outputs["validation"].argmax(axis=1)
    assert predictions.tolist() == [row["label"] for row in held_out]
    assert fit.steps == 120
    assert fit.train_loss < 0.1


def test_noise_labels_are_not_learned():
    random = np.random.default_rng(0)
    rows = [{**row, "label": int(random.integers(2))} for row in leaking_rows(700)]
    task = make_task(rows[:300], rows[300:])
    fit = finetune(make_model(), task, FinetuneSettings(**QUICK), seed=0, finetune_seed=0)
    gold = np.array([row["label"] for row in rows[300:]])
    accuracy = (fit.outputs["validation"].argmax(axis=1) == gold).mean()
    assert abs(accuracy - 0.5) < 4 * 0.5 / len(gold) ** 0.5


def test_regression_comes_out_in_the_units_of_the_labels():
    train, held_out = (leaking_rows(n, lambda answer: 2.0 + 2.0 * answer) for n in (160, 50))
    task = make_task(train, held_out, labels=(), metrics=("pearson",))
    settings = FinetuneSettings(**{**QUICK, "num_epochs": 6, "dropout": 0.0})
    found = finetune(make_model(), task, settings, seed=0, finetune_seed=0).outputs["validation"]
    gold = np.array([row["label"] for row in held_out])
    assert found.shape == (50, 1)
    assert np.abs(found[:, 0] - gold).mean() < 0.3


def test_two_calls_agree_to_the_bit_and_seeds_differ():
    model, task = make_model(), make_task(leaking_rows(40), leaking_rows(11))
    settings = FinetuneSettings(**QUICK)
    torch.manual_seed(1)
    first = finetune(model, task, settings, seed=0, finetune_seed=0)
    torch.manual_seed(2)
    again = finetune(model, task, settings, seed=0, finetune_seed=0)
    assert np.array_equal(first.outputs["validation"], again.outputs["validation"])
    assert first.train_loss == again.train_loss
    for seed, finetune_seed in ((0, 1), (1, 0)):
        other = finetune(model, task, settings, seed=seed, finetune_seed=finetune_seed)
        assert not np.array_equal(first.outputs["validation"], other.outputs["validation"])


@pytest.mark.parametrize("frozen", [False, True])
def test_the_callers_model_and_random_state_are_untouched(frozen):
    model, task = make_model(), make_task(leaking_rows(20), leaking_rows(3))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = torch.random.get_rng_state()
    settings = FinetuneSettings(**QUICK, frozen=frozen)
    finetune(model, task, settings, seed=0, finetune_seed=0)
    assert torch.equal(state, torch.random.get_rng_state())
    assert model.training
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])
    assert all(p.requires_grad and p.grad is None for p in model.parameters())


def test_a_frozen_encoder_does_not_move(monkeypatch):
    model, task = make_model(), make_task(leaking_rows(20), leaking_rows(3))
    copies = []
    original = module.copy_encoder

    def remember(*args, **kwargs):
        copies.append(original(*args, **kwargs))
        return copies[-1]

    monkeypatch.setattr(module, "copy_encoder", remember)
    moved = []
    for frozen in (True, False):
        settings = FinetuneSettings(**QUICK, frozen=frozen)
        finetune(model, task, settings, seed=0, finetune_seed=0)
        pairs = zip(copies[-1].parameters(), model.encoder.parameters(), strict=True)
        moved.append(any(not torch.equal(ours, theirs) for ours, theirs in pairs))
    assert moved == [False, True]


def test_new_weights_are_the_whole_head_with_and_without_a_pretrained_pooler():
    task = make_task(leaking_rows(8), leaking_rows(3))
    for pair_classes in (0, 2):
        fit = finetune(
            make_model(pair_classes), task, FinetuneSettings(**QUICK), seed=0, finetune_seed=0
        )
        assert fit.new_weights == (
            *("head.dense.weight", "head.dense.bias"),
            *("head.classifier.weight", "head.classifier.bias"),
        )


def test_two_arms_start_from_the_same_head():
    task, settings = make_task(leaking_rows(8), leaking_rows(3)), FinetuneSettings(**QUICK)
    arms = [make_model(), make_model(init_std=0.02, position_embedding="rope", mlp="glu")]
    heads = [module.new_head(arm.encoder, task, settings, (0, "x", 1)) for arm in arms]
    for ours, theirs in zip(heads[0].parameters(), heads[1].parameters(), strict=True):
        assert torch.equal(ours, theirs)
    other = module.new_head(arms[0].encoder, task, settings, (0, "x", 2))
    assert not torch.equal(other.dense.weight, heads[0].dense.weight)


def test_train_loss_is_sum_over_count_and_not_a_mean_of_batches():
    rows = leaking_rows(5)
    task = make_task(rows, rows)
    settings = FinetuneSettings(
        learning_rate=1e-12, batch_size=4, num_epochs=1, min_steps=0, dropout=0.0
    )
    fit = finetune(make_model(), task, settings, seed=0, finetune_seed=0)
    assert fit.steps == 2
    logits = torch.from_numpy(fit.outputs["validation"])
    wanted = F.cross_entropy(logits, torch.from_numpy(task.targets))
    assert fit.train_loss == pytest.approx(float(wanted), abs=1e-5)


@pytest.mark.parametrize("tokens", [1, 30, 10_000])
def test_scores_do_not_depend_on_the_scoring_batch(monkeypatch, tokens):
    model, task = make_model(), make_task(leaking_rows(20), leaking_rows(33))
    settings = FinetuneSettings(**QUICK)
    whole = finetune(model, task, settings, seed=0, finetune_seed=0).outputs["validation"]
    monkeypatch.setattr(module, "SCORING_TOKENS", tokens)
    parts = finetune(model, task, settings, seed=0, finetune_seed=0).outputs["validation"]
    np.testing.assert_allclose(parts, whole, atol=1e-5)


def test_batches_by_tokens_hold_every_row_once_sorted_by_length():
    lengths = np.array([5, 3, 9, 3, 4])
    batches = list(batches_by_tokens(lengths, tokens_per_batch=8))
    assert np.concatenate(batches).tolist() == [1, 3, 4, 0, 2]
    assert [int(lengths[b].sum()) for b in batches] == [6, 9, 9]


def test_rows_are_cls_a_sep_b_sep_and_cut_tokens_are_counted():
    rows = encode(WordTokenizer(), [("a b", "c"), ("a b c d e f", "g h")], max_length=8)
    assert rows.lengths.tolist() == [6, 8]
    assert rows.truncated_tokens == 3
    batch = rows.batch(np.array([1, 0]))
    assert batch.cu_seqlens.tolist() == [0, 8, 14]
    assert batch.input_ids[8:].tolist() == [2, 5, 6, 3, 7, 3]
    assert batch.token_type_ids[8:].tolist() == [0, 0, 0, 0, 1, 1]
    assert batch.position_ids.tolist() == [*range(8), *range(6)]


def test_rows_beyond_learned_positions_are_refused():
    rows = [{"sentence": "a " * 20, "label": 0}, {"sentence": "b", "label": 1}]
    task = make_task(rows, rows, max_length=32)
    settings = FinetuneSettings(**QUICK)
    with pytest.raises(ValueError, match=r"22 tokens.*positions for 16.*max_length"):
        finetune(make_model(), task, settings, seed=0, finetune_seed=0)
    finetune(make_model(position_embedding="rope"), task, settings, seed=0, finetune_seed=0)


def test_memory_is_flat_over_200_fits():
    """Resident memory after 50 fits to warm up; a graph or an optimizer kept by each would show."""
    statm = Path("/proc/self/statm")
    if not statm.exists():
        pytest.skip("resident memory is read from /proc")
    model, task = make_model(), make_task(leaking_rows(16), leaking_rows(3))
    resident = []
    for number in range(200):
        finetune(model, task, FinetuneSettings(**QUICK), seed=0, finetune_seed=number)
        resident.append(int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE"))
    assert resident[-1] - resident[50] < 8 * 2**20


def test_seeding_a_step_is_manual_seed_without_its_stack_traces(monkeypatch):
    torch.manual_seed(5)
    expected = torch.rand(4)
    monkeypatch.setattr(torch, "manual_seed", lambda seed: pytest.fail("2 ms a step"))
    fitting._seed(5, torch.device("cpu"))
    assert torch.equal(torch.rand(4), expected)
    task = make_task(leaking_rows(8), leaking_rows(3))
    finetune(make_model(), task, FinetuneSettings(**QUICK), seed=0, finetune_seed=0)


def test_many_fits_leave_nothing_behind():
    """Not even cycles that wait for the collector."""
    model, task = make_model(), make_task(leaking_rows(16), leaking_rows(3))
    counts = []
    gc.collect()
    gc.disable()
    try:
        for number in range(4):
            finetune(model, task, FinetuneSettings(**QUICK), seed=0, finetune_seed=number)
            tensors = [x for x in gc.get_objects() if issubclass(type(x), torch.Tensor)]
            counts.append(len(tensors))
            del tensors
    finally:
        gc.enable()
    assert counts[1] == counts[-1]
