"""Our exported checkpoint fine-tuned by plain transformers: the score of our own fine-tuning.

Same examples, rate, schedule, steps, batch, dropout and pooling; heads and orders are drawn
elsewhere, so the means over seeds agree within what the seeds themselves differ by.
"""

import dataclasses
import warnings

import numpy as np
import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from ablate.evaluation import synthetic_tasks
from ablate.evaluation.encoding import encode_task
from ablate.evaluation.finetune import finetune, new_head
from ablate.evaluation.fitting import _rows, learning_rate, num_steps
from ablate.evaluation.settings import FinetuneSettings
from ablate.evaluation.tasks import TaskSpec, from_rows
from ablate.run.saved import open_saved

SEEDS = range(4)
SETTINGS = FinetuneSettings(
    learning_rate=1e-3, batch_size=32, num_epochs=6, min_steps=0, dropout=0.1, pooling="cls",
    max_length=64,
)  # fmt: skip


def task_rows():
    train = synthetic_tasks.generate("sentiment", "train", seed=0, num_examples=1200)
    scored = synthetic_tasks.generate(
        "sentiment", "validation", seed=0, num_examples=400, exclude=train
    )
    return train, scored


def trained(model, folder, train, fields, rates, batches):
    """A bare loop of transformers; returns rows -> logits."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    decayed = [p for p in model.parameters() if p.ndim >= 2]
    rest = [p for p in model.parameters() if p.ndim < 2]
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": 0.01}, {"params": rest, "weight_decay": 0.0}],
        eps=SETTINGS.adam_eps,
    )

    def encoded(some):
        sides = [[row[field] for row in some] for field in fields]
        return tokenizer(*sides, padding=True, return_tensors="pt")

    model.train()
    for rate, which in zip(rates, batches, strict=False):
        for group in optimizer.param_groups:
            group["lr"] = rate
        some = [train[i] for i in which]
        labels = torch.tensor([row["label"] for row in some])
        optimizer.zero_grad()
        model(**encoded(some), labels=labels).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), SETTINGS.gradient_clip)
        optimizer.step()
    model.eval()

    def logits(some):
        with torch.inference_mode():
            return model(**encoded(some)).logits.numpy()

    return logits


def theirs(folder, train, scored, fields, seed):
    """Accuracy where head, order and dropout are drawn by torch and transformers."""
    torch.manual_seed(seed)
    model = AutoModelForSequenceClassification.from_pretrained(
        folder, num_labels=2, hidden_dropout_prob=SETTINGS.dropout,
        attention_probs_dropout_prob=SETTINGS.dropout,
    )  # fmt: skip
    steps = num_steps(len(train), SETTINGS)
    rates = [learning_rate(step, steps, SETTINGS) for step in range(steps)]
    batches = (
        which.tolist()
        for _ in range(SETTINGS.num_epochs)
        for which in torch.randperm(len(train)).split(SETTINGS.batch_size)
    )
    found = trained(model, folder, train, fields, rates, batches)(scored).argmax(1)
    return float((found == np.array([row["label"] for row in scored])).mean())


def test_the_same_heads_and_orders_give_the_same_fit(exported):
    """With no dropout nothing is random but what is copied here: the outputs are equal."""
    run, folder, _ = exported("bert")
    spec = TaskSpec.from_dict(
        {"name": "sentiment", "suite": "synthetic", **synthetic_tasks.SPECS["sentiment"]}
    )
    train, scored = task_rows()
    train, scored = train[:160], scored[:50]
    saved = open_saved(run)
    data = from_rows(spec, train, {"validation": scored})
    task = encode_task(data, saved.tokenizer, max_length=SETTINGS.max_length)
    settings = dataclasses.replace(SETTINGS, dropout=0.0)
    ours = finetune(saved.model, task, settings, seed=0, finetune_seed=0)

    stream = (0, "finetune", "sentiment", 0)
    head = new_head(saved.model.encoder, task, settings, stream)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = AutoModelForSequenceClassification.from_pretrained(folder, num_labels=2)
    model.bert.pooler.dense.load_state_dict(head.dense.state_dict())
    model.classifier.load_state_dict(head.classifier.state_dict())
    for name, value in (("hidden_dropout_prob", 0.0), ("attention_probs_dropout_prob", 0.0)):
        assert getattr(model.config, name) == value  # as it was pretrained
    steps = num_steps(len(train), settings)
    rates = [learning_rate(step, steps, settings) for step in range(steps)]
    found = trained(model, folder, train, spec.fields, rates, _rows(len(train), settings, stream))
    expected = found(scored)
    np.testing.assert_allclose(ours.outputs["validation"], expected, atol=2e-3)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of transformers, about the new head
def test_plain_transformers_reaches_the_same_score(exported):
    run, folder, _ = exported("bert")
    spec = TaskSpec.from_dict(
        {"name": "sentiment", "suite": "synthetic", **synthetic_tasks.SPECS["sentiment"]}
    )
    train, scored = task_rows()
    saved = open_saved(run)
    data = from_rows(spec, train, {"validation": scored})
    task = encode_task(data, saved.tokenizer, max_length=SETTINGS.max_length)
    gold = data.scored["validation"].labels
    ours = []
    for seed in SEEDS:
        fit = finetune(saved.model, task, SETTINGS, seed=0, finetune_seed=seed)
        ours.append(float((fit.outputs["validation"].argmax(1) == gold).mean()))
    others = [theirs(folder, train, scored, spec.fields, seed) for seed in SEEDS]
    print("ours", ours, "theirs", others)
    spread = np.sqrt((np.var(ours, ddof=1) + np.var(others, ddof=1)) / len(SEEDS))
    assert min(np.mean(ours), np.mean(others)) > 0.6  # something was learned
    assert abs(np.mean(ours) - np.mean(others)) < 3 * spread + 0.01
