"""Options of a fit: layer-wise rates, poolings and heads, frozen encoders, caps, early stopping."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from ablate import rng
from ablate.encoder.backends import resolve
from ablate.encoder.config import EncoderConfig
from ablate.encoder.heads import MaskedLanguageModel
from ablate.encoder.initialization import initialize
from ablate.evaluation import finetune as module
from ablate.evaluation import fitting, frozen
from ablate.evaluation.early_stopping import hold_out
from ablate.evaluation.encoding import encode_task
from ablate.evaluation.finetune import finetune
from ablate.evaluation.fitting import FinetuneSettings
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


@pytest.mark.parametrize(
    ("schedule", "rates"),
    [("constant", [0.5, 1, 1, 1, 1, 1, 1]), ("cosine", [0.5, 1, 0.933, 0.75, 0.5, 0.25, 0.067])],
)
def test_other_schedules_after_the_warm_up(schedule, rates):
    settings = FinetuneSettings(learning_rate=1.0, warmup_fraction=0.25, schedule=schedule)
    found = [fitting.learning_rate(step, 7, settings) for step in range(7)]
    assert found == pytest.approx(rates, abs=1e-3)


def test_layerwise_decay_goes_down_from_the_head():
    """ELECTRA's exponents: head 0, layers L + 1 .. 2 from the bottom, embeddings L + 2."""
    model, task = make_model(num_hidden_layers=3), make_task(leaking_rows(8), leaking_rows(3))
    settings = FinetuneSettings(layerwise_decay=0.5, weight_decay=0.1)
    head = module.new_head(model.encoder, task, settings, (0, "x"))
    groups = fitting.parameter_groups(model.encoder, head, settings)
    scale = {id(p): group["scale"] for group in groups for p in group["params"]}
    named = {**dict(model.encoder.named_parameters()), **dict(head.named_parameters())}
    assert len(scale) == len(named) == sum(len(group["params"]) for group in groups)
    assert scale[id(head.dense.weight)] == 1.0
    for index, exponent in ((0, 4), (1, 3), (2, 2)):
        layer = model.encoder.layers[index]
        assert {scale[id(p)] for p in layer.parameters()} == {0.5**exponent}
    assert {scale[id(p)] for p in model.encoder.embeddings.parameters()} == {0.5**5}
    decay = {id(p): group["weight_decay"] for group in groups for p in group["params"]}
    assert {decay[id(p)] for p in named.values() if p.ndim < 2} == {0.0}
    assert {decay[id(p)] for p in named.values() if p.ndim >= 2} == {0.1}


def test_layerwise_decay_reaches_the_weights_and_needs_layers_of_their_own(tmp_path):
    task, model = make_task(leaking_rows(20), leaking_rows(3)), make_model()
    moved = {}
    for rate in (1e-6, 0.5):
        settings = FinetuneSettings(**QUICK, layerwise_decay=rate, dropout=0.0, weight_decay=0.0)
        file = tmp_path / f"{rate}.pt"
        finetune(model, task, settings, seed=0, finetune_seed=0, keep_encoder=file)
        state = torch.load(file, weights_only=True)
        start = model.encoder.state_dict()
        moved[rate] = max(float((state[name] - start[name]).abs().max()) for name in start)
    assert moved[1e-6] < 1e-12 < 1e-4 < moved[0.5]
    shared = make_model(num_hidden_layers=2, shared_layers="all")
    with pytest.raises(ValueError, match=r"layerwise_decay=0\.5 needs layers.*layerwise_decay=1"):
        finetune(shared, task, settings, seed=0, finetune_seed=0)


@pytest.mark.parametrize("head", ["mlp", "linear"])
@pytest.mark.parametrize("pooling", ["cls", "mean", "max", "attention", "cls_mean"])
def test_every_head_learns_the_leaking_toy(pooling, head):
    held_out = leaking_rows(101)
    task = make_task(leaking_rows(160), held_out)
    settings = FinetuneSettings(
        **{**QUICK, "num_epochs": 8, "learning_rate": 1e-2}, pooling=pooling, head=head
    )
    fit = finetune(make_model(), task, settings, seed=0, finetune_seed=0)
    gold = [row["label"] for row in held_out]
    assert (fit.outputs["validation"].argmax(axis=1) == gold).mean() > 0.95
    assert ("head.query" in fit.new_weights) == (pooling == "attention")
    assert ("head.dense.weight" in fit.new_weights) == (head == "mlp")


@pytest.mark.parametrize("pooling", ["cls_mean", "max", "attention"])
def test_kept_states_of_a_frozen_encoder(monkeypatch, pooling):
    """Computed once or in each step: the same fit up to the last bits."""
    model, task = make_model(num_hidden_layers=2), make_task(leaking_rows(60), leaking_rows(20))
    settings = FinetuneSettings(**{**QUICK, "num_epochs": 4}, frozen=True, pooling=pooling)
    kept = finetune(model, task, settings, seed=0, finetune_seed=0)
    monkeypatch.setattr(module, "fits_in_memory", lambda *args: False)
    stepwise = finetune(model, task, settings, seed=0, finetune_seed=0)
    np.testing.assert_allclose(
        kept.outputs["validation"], stepwise.outputs["validation"], atol=1e-5
    )
    assert kept.train_loss == pytest.approx(stepwise.train_loss, abs=1e-5)


def test_the_encoder_runs_once_over_the_rows_where_it_is_frozen(monkeypatch):
    model, task = make_model(), make_task(leaking_rows(60), leaking_rows(20))
    seen = []
    original = fitting.hidden_states
    for place in (module, frozen):
        monkeypatch.setattr(
            place,
            "hidden_states",
            lambda encoder, batch, settings: (
                seen.append(len(batch.cu_seqlens) - 1) or original(encoder, batch, settings)
            ),
        )
    settings = FinetuneSettings(**{**QUICK, "num_epochs": 5}, frozen=True)
    finetune(model, task, settings, seed=0, finetune_seed=0)
    assert sum(seen) == 60 + 20


def test_a_cap_takes_the_same_sample_in_every_run():
    rows = leaking_rows(50)
    first, again = (make_task(rows, rows[:2], max_train_examples=10) for _ in range(2))
    assert len(first.train) == 10
    assert np.array_equal(first.train.input_ids, again.train.input_ids)
    other = make_task(rows, rows[:2], max_train_examples=10, sample_seed=1)
    assert not np.array_equal(first.train.input_ids, other.train.input_ids)


def test_a_cap_on_scored_examples_takes_the_same_sample_in_every_run():
    rows = leaking_rows(50)
    first, again = (make_task(rows[:4], rows, max_scored_examples=10) for _ in range(2))
    numbers = first.scored_examples["validation"]
    assert len(first.scored["validation"]) == len(numbers) == 10
    assert numbers.tolist() == again.scored_examples["validation"].tolist()
    whole = make_task(rows[:4], rows).scored["validation"]
    for place, number in enumerate(numbers):
        begin, end = whole.starts[number], whole.starts[number + 1]
        here = first.scored["validation"]
        assert np.array_equal(
            here.input_ids[here.starts[place] : here.starts[place + 1]], whole.input_ids[begin:end]
        )


def test_held_out_examples_are_a_fixed_part_of_train():
    trained, held = hold_out(50, 0.1, sample_seed=0, task="x", finetune_seed=0)
    assert sorted([*trained, *held]) == list(range(50))
    assert len(held) == 5
    again = hold_out(50, 0.1, sample_seed=0, task="x", finetune_seed=0)
    assert np.array_equal(held, again[1])
    assert not np.array_equal(held, hold_out(50, 0.1, sample_seed=0, task="y", finetune_seed=0)[1])
    assert len(hold_out(3, 0.01, sample_seed=0, task="x", finetune_seed=0)[1]) == 1
    with pytest.raises(ValueError, match="1 training examples"):
        hold_out(1, 0.1, sample_seed=0, task="x", finetune_seed=0)


def test_the_weights_of_the_best_evaluation_are_used(monkeypatch):
    """Scores on held-out rows are scripted; the outputs are those of a fit that ended there."""
    model, task = make_model(), make_task(leaking_rows(40), leaking_rows(11))
    settings = FinetuneSettings(
        **{**QUICK, "num_epochs": 6, "schedule": "constant"}, early_stopping=2
    )
    scores = iter([0.2, 0.9, 0.9, 0.5, 1.0])
    monkeypatch.setattr(module, "_judge", lambda *args: next(scores))
    fit = finetune(model, task, settings, seed=0, finetune_seed=0)
    assert fit.selection["best_step"] == 10  # the second epoch of 36 rows; the first of equal ones
    assert fit.selection["evaluations"] == [[5, 0.2], [10, 0.9], [15, 0.9], [20, 0.5]]
    assert (fit.steps, fit.selection["held_out_examples"]) == (20, 4)
    scores = iter([0.1, 0.9, 0.2, 0.2])
    other = finetune(model, task, settings, seed=0, finetune_seed=0)
    assert np.array_equal(other.outputs["validation"], fit.outputs["validation"])
    scores = iter([0.9, 0.1, 0.2])
    earlier = finetune(model, task, settings, seed=0, finetune_seed=0)
    assert not np.array_equal(earlier.outputs["validation"], fit.outputs["validation"])


def test_the_reported_set_decides_nothing():
    """FAULTS: best epoch on the reported set. Other scored rows and labels, the same fit."""
    model, train = make_model(), leaking_rows(60)
    settings = FinetuneSettings(**{**QUICK, "num_epochs": 4}, early_stopping=1)
    held = leaking_rows(20)
    flipped = [{**row, "label": 1 - row["label"]} for row in held]
    fits = [
        finetune(model, make_task(train, rows), settings, seed=0, finetune_seed=0)
        for rows in (held, flipped)
    ]
    assert fits[0].selection == fits[1].selection
    assert np.array_equal(fits[0].outputs["validation"], fits[1].outputs["validation"])


def test_held_out_examples_are_not_trained_on(monkeypatch):
    model, task = make_model(), make_task(leaking_rows(40), leaking_rows(5))
    seen = set()
    original = module._loss_sum
    monkeypatch.setattr(
        module,
        "_loss_sum",
        lambda outputs, task, which: seen.update(which.tolist()) or original(outputs, task, which),
    )
    settings = FinetuneSettings(**{**QUICK, "num_epochs": 2}, early_stopping=3)
    finetune(model, task, settings, seed=0, finetune_seed=4)
    _, held = hold_out(40, 0.1, sample_seed=0, task="leak", finetune_seed=4)
    assert seen == set(range(40)) - set(held.tolist())


def test_a_kept_encoder_is_the_start_of_another_fit(tmp_path):
    model, task = make_model(), make_task(leaking_rows(40), leaking_rows(11))
    settings = FinetuneSettings(**{**QUICK, "num_epochs": 6})
    file = tmp_path / "encoders" / "x.pt"
    tuned = finetune(model, task, settings, seed=0, finetune_seed=0, keep_encoder=file)
    short = FinetuneSettings(**{**QUICK, "learning_rate": 1e-9}, dropout=0.0)
    state = torch.load(file, weights_only=True)
    moved = make_model()
    moved.encoder.load_state_dict(state)
    ours = finetune(model, task, short, seed=0, finetune_seed=1, start_from=file)
    theirs = finetune(moved, task, short, seed=0, finetune_seed=1)
    assert np.array_equal(ours.outputs["validation"], theirs.outputs["validation"])
    assert [*tmp_path.rglob("*")] == [file.parent, file]
    assert tuned.selection is None


def test_a_text_is_held_out_whole(monkeypatch):
    """Copies up to case and blanks on both sides of the cut would be selected by memory."""
    groups = np.repeat(np.arange(12), 5)
    for seed in range(5):
        how = {"sample_seed": 0, "task": "x", "finetune_seed": seed, "groups": groups}
        trained, held = hold_out(60, 0.2, **how)
        assert sorted([*trained, *held]) == list(range(60))
        assert not set(groups[trained]) & set(groups[held])
        assert len(held) == 15  # the third text reaches 12 examples
    assert len(hold_out(3, 0.9, **{**how, "groups": np.array([0, 1, 1])})[0]) > 0
    with pytest.raises(ValueError, match="3 training examples of one text"):
        hold_out(3, 0.1, **{**how, "groups": np.zeros(3, dtype=int)})

    rows = [{"sentence": f"{w}  {v}" if i % 2 else f"{w} {v}", "label": i % 2}
            for w in "abcd" for v in "efgh" for i in range(4)]  # fmt: skip
    task, seen, judged = make_task(rows, leaking_rows(5)), set(), set()
    original = module._loss_sum
    monkeypatch.setattr(
        module, "_loss_sum", lambda *args: seen.update(args[2].tolist()) or original(*args)
    )
    monkeypatch.setattr(module, "_judge", lambda *args: judged.update(args[2].tolist()) or 0.5)
    settings = FinetuneSettings(**{**QUICK, "num_epochs": 2}, early_stopping=3)
    finetune(make_model(), task, settings, seed=0, finetune_seed=0)
    texts = [" ".join(row["sentence"].split()) for row in rows]
    assert len(judged) == 8
    assert len(seen) == 56
    assert not {texts[i] for i in seen} & {texts[i] for i in judged}
