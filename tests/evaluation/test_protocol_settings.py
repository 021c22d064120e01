"""Settings of single tasks, and tasks that start from another task's fit: keys, order, resuming."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from ablate import rng
from ablate.encoder.backends import resolve
from ablate.encoder.config import EncoderConfig
from ablate.encoder.heads import MaskedLanguageModel
from ablate.encoder.initialization import initialize
from ablate.evaluation import classification, scoring
from ablate.evaluation.classification import Classification
from ablate.evaluation.plan import Plan
from ablate.evaluation.protocol import evaluate
from ablate.evaluation.tasks import TaskSpec, from_rows
from ablate.tokens.training import from_morphemes

WORDS = [*"abcdefgh", "yes", "no"]
QUICK = {
    "learning_rate": 5e-3,
    "batch_size": 8,
    "num_epochs": 1,
    "min_steps": 4,
    "max_steps": 4,
    "max_length": 16,
}
FROM_MNLI = Plan(start_from="mnli", start_from_tasks=("rte", "mrpc"))


class WordTokenizer:
    """One id a word; stands for a trained tokenizer."""

    pad_token_id, unk_token_id, cls_token_id, sep_token_id, mask_token_id = range(5)
    hash = "words"

    def encode_batch(self, texts):
        return [SimpleNamespace(ids=[5 + WORDS.index(w) for w in t.split()]) for t in texts]


def make_model():
    config = EncoderConfig(
        vocab_size=5 + len(WORDS), hidden_size=16, num_hidden_layers=1,
        num_attention_heads=2, intermediate_size=32, max_position_embeddings=16,
    )  # fmt: skip
    backend = resolve("auto", device="cpu", dtype=torch.float32, max_length=16)
    model = MaskedLanguageModel(config, backend)
    initialize(model, config, lambda name: rng.torch_seed(0, "init", name))
    return model


def rows(number):
    random = np.random.default_rng(number)
    answers = random.integers(2, size=number).tolist()
    texts = [f"{random.choice(WORDS[:8])} {('no', 'yes')[a]}" for a in answers]
    return [{"sentence": t, "label": a} for t, a in zip(texts, answers, strict=True)]


def task(name="cola", metrics=("accuracy",)):
    spec = TaskSpec.from_dict(
        {"name": name, "fields": ["sentence"], "labels": ["no", "yes"], "metrics": list(metrics)}
    )
    return from_rows(spec, rows(24), {"validation": rows(9)})


def run(folder, names=("rte", "mnli", "cola"), **options):
    found = [Classification(task(name, metrics=["accuracy"])) for name in names]
    options = {"seed": 0, "num_finetune_seeds": 2, **QUICK, "learning_rate": 2e-2, **options}
    return evaluate(make_model(), WordTokenizer(), measurements=found, out_dir=folder, **options)


@pytest.fixture
def fits(monkeypatch):
    """(task, fine-tuning seed) of every fit."""
    calls = []
    original = classification.finetune

    def counted(model, task, settings, **options):
        calls.append((task.name, options["finetune_seed"]))
        return original(model, task, settings, **options)

    monkeypatch.setattr(classification, "finetune", counted)
    return calls


def test_a_task_has_settings_of_its_own(tmp_path, fits):
    plan = Plan(per_task={"cola": {"learning_rate": 1e-4, "num_seeds": 3}})
    result = run(tmp_path, plan=plan)
    rates = {n: d["hyper_parameters"]["learning_rate"] for n, d in result.details.items()}
    assert rates == {"rte": 2e-2, "mnli": 2e-2, "cola": 1e-4}
    assert [fits.count(("cola", i)) for i in range(4)] == [1, 1, 1, 0]
    assert len(fits) == 7
    fits.clear()
    run(tmp_path, plan=Plan(per_task={"cola": {"learning_rate": 1e-3}}))
    assert fits == [("cola", 0), ("cola", 1)]  # what is said of cola is in no other task's key


def test_settings_of_a_task_that_cannot_be(tmp_path):
    for changes, says in (({"lr": 1}, "names lr"), ({"dropout": 2}, r"cola: .*dropout=2")):
        with pytest.raises(ValueError, match=says):
            run(tmp_path, plan=Plan(per_task={"cola": changes}))


def test_a_capped_protocol_says_so(tmp_path):
    result = run(tmp_path, max_scored_examples=5, max_train_examples=10)
    details = result.details["cola"]
    assert details["n"] == {"validation": 5}
    assert details["num_scored_available"] == {"validation": 9}
    assert (details["num_train_examples"], details["num_train_available"]) == (10, 24)
    assert result.averages["glue/mean8"]["notes"][-2:] == [
        "cola validation: 5 of 9 examples scored, a fixed sample",
        "cola trained on 10 of 24 examples, a fixed sample",
    ]
    assert run(tmp_path / "whole").details["cola"]["n"] == {"validation": 9}


def test_tasks_start_from_the_fit_of_the_same_seed(tmp_path, fits):
    plain, started = run(tmp_path / "a"), run(tmp_path / "b", plan=FROM_MNLI)
    assert started.details["rte"]["start_from"] == [
        {"task": "mnli", "finetune_seed": 0},
        {"task": "mnli", "finetune_seed": 1},
    ]
    assert "start_from" not in started.details["cola"]
    loss = [r.details["rte"]["train_loss_by_seed"] for r in (plain, started)]
    assert loss[0] != loss[1]
    for name in ("mnli", "cola"):
        ours, theirs = (r.details[name] for r in (plain, started))
        assert ours == theirs
    note = "rte starts from the encoder of this run's mnli fit"
    assert started.averages["glue/mean8"]["notes"] == [note]
    assert plain.averages["glue/mean8"]["notes"] == []
    assert not [*(tmp_path / "b" / "fits").rglob("*.pt")]  # gone when the protocol is complete


def test_the_start_is_the_encoder_that_mnli_ends_with(tmp_path, monkeypatch):
    seen = {}
    original = classification.finetune

    def spying(model, task, settings, **options):
        if options["start_from"] is not None:
            state = torch.load(options["start_from"], weights_only=True)
            seen[task.name, options["finetune_seed"]] = state
        return original(model, task, settings, **options)

    monkeypatch.setattr(classification, "finetune", spying)
    run(tmp_path, plan=FROM_MNLI)
    assert set(seen) == {("rte", 0), ("rte", 1)}
    before = make_model().encoder.state_dict()
    for name, value in seen["rte", 0].items():
        assert value.shape == before[name].shape
    assert any(not torch.equal(seen["rte", 0][n], before[n]) for n in before)
    assert any(not torch.equal(seen["rte", 0][n], seen["rte", 1][n]) for n in before)


def test_more_seeds_than_the_source_has_take_its_fits_in_turn(tmp_path):
    plan = Plan(start_from="mnli", start_from_tasks=("rte",), per_task={"mnli": {"num_seeds": 1}})
    result = run(tmp_path, plan=plan)
    assert [s["finetune_seed"] for s in result.details["rte"]["start_from"]] == [0, 0]


def test_the_sources_settings_are_in_the_key_of_those_who_start_from_it(tmp_path, fits):
    run(tmp_path, plan=FROM_MNLI)
    fits.clear()
    changed = Plan(
        start_from="mnli", start_from_tasks=("rte",), per_task={"mnli": {"learning_rate": 1e-3}}
    )
    run(tmp_path, plan=changed)
    assert sorted(fits) == [("mnli", 0), ("mnli", 1), ("rte", 0), ("rte", 1)]
    fits.clear()
    run(tmp_path, plan=FROM_MNLI)
    run(tmp_path, plan=changed)
    assert fits == []


def test_a_killed_protocol_goes_on_in_the_second_wave(tmp_path, fits):
    def interrupt(name, done, total):
        if fits[-1] == ("rte", 1) and done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, plan=FROM_MNLI, on_progress=interrupt)
    assert len([*(tmp_path / "fits" / "encoders").iterdir()]) == 2
    fits.clear()
    result = run(tmp_path, plan=FROM_MNLI)
    assert fits == [("rte", 1)]
    assert result.details == run(tmp_path / "at_once", plan=FROM_MNLI).details


def test_a_source_is_fitted_again_where_only_its_encoder_is_gone(tmp_path, fits):
    first = run(tmp_path, plan=FROM_MNLI)
    for part in (tmp_path / "fits").glob("rte-1-*.parquet"):
        part.unlink()
    fits.clear()
    again = run(tmp_path, plan=FROM_MNLI)
    assert fits == [("mnli", 1), ("rte", 1)]
    assert again.details == first.details


def test_a_start_needs_its_source(tmp_path):
    with pytest.raises(ValueError, match=r"start_from=mnli needs mnli.*tasks=\[mnli,rte,cola\]"):
        run(tmp_path, names=("rte", "cola"), plan=FROM_MNLI)
    result = run(tmp_path, names=("cola",), plan=FROM_MNLI)  # nobody starts from it
    assert "start_from" not in result.details["cola"]


def test_workers_start_from_the_fits_of_other_workers(tmp_path):
    tokenizer = from_morphemes(WORDS, cache_dir=tmp_path)
    config = dataclasses.replace(make_model().config, vocab_size=tokenizer.vocab_size)
    backend = resolve("auto", device="cpu", dtype=torch.float32, max_length=16)
    results = []
    for folder, devices in (("here", ["cpu"]), ("there", ["cpu", "cpu"])):
        model = MaskedLanguageModel(config, backend)
        initialize(model, config, lambda name: rng.torch_seed(0, "init", name))
        results.append(
            evaluate(
                model, tokenizer, measurements=[Classification(task(n)) for n in ("rte", "mnli")],
                seed=0, num_finetune_seeds=2, out_dir=tmp_path / folder, devices=devices,
                plan=FROM_MNLI, **QUICK,
            )
        )  # fmt: skip
    assert results[0].details == results[1].details
    assert results[0].details["rte"]["start_from"][1] == {"task": "mnli", "finetune_seed": 1}


@pytest.mark.parametrize(
    "plan",
    [
        Plan(per_task={"pos": {"num_epochs": 2}}),
        Plan(grid_per_task={"pos": {"batch_size": [8]}}),
        Plan(start_from="cola", start_from_tasks=("pos",)),
    ],
)
def test_what_is_said_of_no_measurement_is_refused(plan):
    with pytest.raises(ValueError, match=r"names pos, which is not measured; allowed: cola\."):
        plan.check_names([Classification(task("cola"))])


def test_a_source_of_more_seeds_is_another_start(tmp_path, fits):
    """Part 1 of rte started from mnli's fit 0 where mnli had one; with two it starts from fit 1."""
    one = Plan(start_from="mnli", start_from_tasks=("rte",), per_task={"mnli": {"num_seeds": 1}})
    run(tmp_path, names=("rte", "mnli"), plan=one)
    fits.clear()
    two = run(tmp_path, names=("rte", "mnli"), plan=FROM_MNLI)
    assert sorted(fits) == [("mnli", 1), ("rte", 1)]
    fresh = run(tmp_path / "fresh", names=("rte", "mnli"), plan=FROM_MNLI)
    assert two.details == fresh.details


def test_hidden_labels_of_a_split_with_metrics_are_not_scored(tmp_path):
    """FAULTS B20: -1 is no class, and an accuracy on it would be 0."""
    spec = dataclasses.replace(task().spec, metrics_of={"test": ("accuracy",)})
    scores = {}
    for name, change in (("known", {}), ("hidden", {"label": -1})):
        test = [*rows(5), {**rows(3)[0], **change}]
        data = from_rows(spec, rows(24), {"validation": rows(9)}, predicted={"test": test})
        result = evaluate(
            make_model(), WordTokenizer(), measurements=[Classification(data)], seed=0,
            out_dir=tmp_path / name, **QUICK,
        )  # fmt: skip
        scores[name] = set(result.scores)
    assert scores["known"] - scores["hidden"] == {"glue/cola/test_accuracy"}
    assert result.details["cola"]["predicted"] == {"test": 6}
    values = {"splits": ["validation"], "metrics": ["x"], "metrics_of": {"test": ["accuracy"]}}
    for hidden in (np.array([0, -1]), np.array([0.5, np.nan])):
        assert scoring.metrics_of(values, "test", hidden) == []
        assert scoring.metrics_of(values, "test", np.abs(hidden[:1])) == ["accuracy"]


def test_scored_examples_that_are_in_train_too_are_counted(tmp_path):
    train = [{"sentence": "a yes", "label": 1}, {"sentence": "b no", "label": 0}] * 4
    scored = [{"sentence": s, "label": 0} for s in ("A  yes", "c no", "b no", "d no")]
    spec = dataclasses.replace(task().spec, splits=("validation", "other"))
    data = from_rows(spec, train, {"validation": scored, "other": scored[1:2]})

    class Any(WordTokenizer):
        def encode_batch(self, texts):
            return super().encode_batch([text.casefold() for text in texts])

    result = evaluate(
        make_model(), Any(), measurements=[Classification(data)], seed=0, out_dir=tmp_path, **QUICK
    )
    details = result.details["cola"]
    assert details["train_overlap"] == {"validation": 2, "other": 0}
    assert details["notes"] == {"validation": "has 2 of 4 examples that are in train too"}
    assert details["n"] == {"validation": 4, "other": 1}  # none is dropped
