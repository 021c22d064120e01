"""Tasks and pairs -> named scores, details, parquet files; resuming; averages."""

import json
from types import SimpleNamespace

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from ablate import rng
from ablate.encoder.backends import resolve
from ablate.encoder.config import EncoderConfig
from ablate.encoder.heads import MaskedLanguageModel
from ablate.encoder.initialization import initialize
from ablate.evaluation import averages, classification
from ablate.evaluation.classification import Classification
from ablate.evaluation.pair_task import MinimalPairs
from ablate.evaluation.protocol import evaluate
from ablate.evaluation.tasks import TaskSpec, from_rows

WORDS = [*"abcdefgh", "yes", "no"]
QUICK = {
    "learning_rate": 5e-3,
    "batch_size": 8,
    "num_epochs": 1,
    "min_steps": 4,
    "max_steps": 4,
    "max_length": 16,
}
PAIRS = [
    {"sentence_good": "a b", "sentence_bad": "c b", "paradigm": "one"},
    {"sentence_good": "c b", "sentence_bad": "a b", "paradigm": "two"},
]


class WordTokenizer:
    """One id a word; stands for a trained tokenizer."""

    pad_token_id, unk_token_id, cls_token_id, sep_token_id, mask_token_id = range(5)
    hash = "words"

    def encode_batch(self, texts):
        return [SimpleNamespace(ids=[5 + WORDS.index(w) for w in t.split()]) for t in texts]


def make_model(seed=0):
    config = EncoderConfig(
        vocab_size=5 + len(WORDS),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=16,
    )
    backend = resolve("auto", device="cpu", dtype=torch.float32, max_length=16)
    model = MaskedLanguageModel(config, backend)
    initialize(model, config, lambda name: rng.torch_seed(seed, "init", name))
    return model


def rows(number, label_of=int):
    random = np.random.default_rng(number)
    answers = [int(random.integers(2)) for _ in range(number)]
    return [
        {
            "sentence": f"{random.choice(WORDS[:8])} {('no', 'yes')[a]}",
            "label": label_of(a),
            "idx": i,
        }
        for i, a in enumerate(answers, 100)
    ]


def task(name="cola", splits=("validation",), **changes):
    values = {
        "name": name,
        "fields": ["sentence"],
        "labels": ["no", "yes"],
        "metrics": ["mcc"],
        "splits": list(splits),
        "in_average": True,
    }
    spec = TaskSpec.from_dict({**values, **changes})
    label_of = float if spec.is_regression else int
    scored = {split: rows(9 + i, label_of) for i, split in enumerate(splits)}
    return from_rows(spec, rows(24, label_of), scored)


def run(folder, tasks, model=None, pairs=(), **changes):
    wanted = [Classification(data) for data in tasks]
    wanted += [MinimalPairs("synthetic", "minimal_pairs", pairs)] if pairs else []
    options = {"seed": 0, "num_finetune_seeds": 2, "out_dir": folder, **QUICK, **changes}
    return evaluate(model or make_model(), WordTokenizer(), measurements=wanted, **options)


@pytest.fixture
def no_fits(monkeypatch):
    """Any fit after this point fails the test."""

    def refuse(*args, **kwargs):
        raise AssertionError("a fit was run again")

    return lambda: monkeypatch.setattr(classification, "finetune", refuse)


def test_scores_details_and_files(tmp_path):
    tasks = [
        task(),
        task("mrpc", metrics=["f1", "accuracy"]),
        task("stsb", labels=[], metrics=["pearson", "spearman"]),
        task("acceptability", suite="synthetic", in_average=False),
    ]
    result = run(tmp_path, tasks, pairs=PAIRS)
    assert list(result.scores) == [
        "glue/cola/mcc",
        "glue/mrpc/f1",
        "glue/mrpc/accuracy",
        "glue/stsb/pearson",
        "glue/stsb/spearman",
        "synthetic/acceptability/mcc",
        "synthetic/minimal_pairs/accuracy",
    ]
    assert all(np.isfinite(list(result.scores.values())))
    assert result.scores["synthetic/minimal_pairs/accuracy"] == 0.5  # mirrored pairs
    details = result.details["mrpc"]
    f1 = details["metrics"]["glue/mrpc/f1"]
    assert (f1["n"], len(f1["by_seed"])) == (9, 2)
    assert result.scores["glue/mrpc/f1"] == pytest.approx(np.mean(f1["by_seed"]))
    assert details["steps"] == 4
    assert details["truncated_tokens"] == {"train": 0, "validation": 0}
    assert details["hyper_parameters"]["learning_rate"] == 5e-3
    assert details["new_weights"][0] == "head.dense.weight"
    assert result.details["minimal_pairs"]["paradigms"]["one"]["n"] == 1
    table = pq.read_table(tmp_path / "predictions" / "stsb.parquet").to_pydict()
    assert list(table) == [
        *("example_id", "label", "prediction", "split", "finetune_seed", "score_0")
    ]
    assert table["example_id"] == [*range(100, 109)] * 2
    assert table["finetune_seed"] == [0] * 9 + [1] * 9
    assert not [*(tmp_path / "predictions").glob(".*")]


def test_scores_follow_from_the_stored_predictions(tmp_path):
    result = run(tmp_path, [task(metrics=["mcc", "accuracy"])])
    table = pq.read_table(tmp_path / "predictions" / "cola.parquet").to_pydict()
    label, found = np.array(table["label"]), np.array(table["prediction"])
    assert result.scores["glue/cola/accuracy"] == pytest.approx((label == found).mean())
    logits = np.array([table["score_0"], table["score_1"]])
    assert logits.argmax(axis=0).tolist() == table["prediction"]


def test_majority_is_the_training_sets_and_collapse_is_flagged(tmp_path):
    spec = TaskSpec.from_dict(
        {
            "name": "one_sided",
            "fields": ["sentence"],
            "labels": ["no", "yes"],
            "metrics": ["mcc", "accuracy"],
        }
    )
    train = [{"sentence": "a", "label": 1}] * 24
    scored = [{"sentence": "a", "label": label} for label in (1, 0, 0, 0)]
    result = run(tmp_path, [from_rows(spec, train, {"validation": scored})])
    details = result.details["one_sided"]
    assert details["collapsed"] == {"validation": [True, True]}
    assert details["metrics"]["glue/one_sided/accuracy"]["majority"] == 0.25
    assert details["metrics"]["glue/one_sided/mcc"]["flags"] == ["degenerate", "degenerate"]
    assert result.scores["glue/one_sided/mcc"] == 0.0


def test_a_diverged_fit_is_a_flag_and_no_nan(tmp_path, monkeypatch):
    original = classification.finetune

    def diverged(*args, **kwargs):
        fit = original(*args, **kwargs)
        for outputs in fit.outputs.values():
            outputs[:] = np.nan
        return fit

    monkeypatch.setattr(classification, "finetune", diverged)
    tasks = [task(), task("stsb", labels=[], metrics=["pearson"])]
    result = run(tmp_path, tasks)
    assert result.scores == {"glue/cola/mcc": 0.0, "glue/stsb/pearson": 0.0}
    for name in ("cola", "stsb"):
        assert result.details[name]["not_finite"] == {"validation": [True, True]}


def test_a_real_divergence_is_recorded_and_flagged(tmp_path):
    """Nothing of it stands in the way of a record: every number of the result is one of JSON."""
    rates = {"learning_rate": 1e30, "gradient_clip": None}
    result = run(tmp_path, [task()], **rates)
    json.dumps([result.scores, result.details, result.averages], allow_nan=False)
    details = result.details["cola"]
    assert details["train_loss_by_seed"] == [None, None]
    assert details["metrics"]["glue/cola/mcc"]["flags"] == ["not_finite", "not_finite"]
    again = run(tmp_path, [task()], **rates)
    assert again.details == result.details


def test_pairs_of_a_broken_model_are_even_and_flagged(tmp_path):
    model = make_model()
    model.mlm_head.dense.weight.data.fill_(float("nan"))
    result = run(tmp_path, [], model=model, pairs=PAIRS)
    assert result.scores["synthetic/minimal_pairs/accuracy"] == 0.5
    measured = result.details["minimal_pairs"]["metrics"]["synthetic/minimal_pairs/accuracy"]
    assert measured["flags"] == ["not_finite"]


def test_matched_and_mismatched_are_two_scores(tmp_path):
    data = task("mnli", ("validation_matched", "validation_mismatched"), metrics=["accuracy"])
    result = run(tmp_path, [data])
    assert list(result.scores) == ["glue/mnli/matched_accuracy", "glue/mnli/mismatched_accuracy"]
    assert result.details["mnli"]["n"] == {"validation_matched": 9, "validation_mismatched": 10}


def test_a_second_call_reads_the_files_and_says_the_same(tmp_path, no_fits):
    tasks = [task(), task("stsb", labels=[], metrics=["pearson"])]
    first = run(tmp_path, tasks, pairs=PAIRS)
    elsewhere = run(tmp_path / "other", tasks, pairs=PAIRS)
    no_fits()
    again = run(tmp_path, tasks, pairs=PAIRS)
    for other in (elsewhere, again):
        assert other.scores == first.scores
        assert other.details == first.details
        assert other.averages == first.averages


@pytest.mark.parametrize(
    "change",
    [
        {"learning_rate": 1e-3},
        {"seed": 1},
        {"num_finetune_seeds": 3},
        {"threads": 2},
        {"model": make_model(1)},
        {"pooling": "mean"},
    ],
)
def test_another_key_is_another_result(tmp_path, no_fits, change):
    run(tmp_path, [task()])
    no_fits()
    with pytest.raises(AssertionError, match="run again"):
        run(tmp_path, [task()], **change)


def test_fewer_seeds_are_taken_from_what_is_there(tmp_path, no_fits):
    first = run(tmp_path, [task()])
    no_fits()
    fewer = run(tmp_path, [task()], num_finetune_seeds=1)
    by_seed = [r.details["cola"]["metrics"]["glue/cola/mcc"]["by_seed"] for r in (first, fewer)]
    assert by_seed[1] == by_seed[0][:1]


def test_an_interrupted_protocol_goes_on_with_the_next_fit(tmp_path):
    tasks = [task(), task("sst2", metrics=["accuracy"])]
    calls = []

    def interrupt(name, done, total):
        calls.append(name)
        if calls.count("sst2") == 7:  # in the second fit
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, tasks, on_progress=interrupt)
    kept = sorted(file.name[:6] for file in (tmp_path / "fits").iterdir())
    assert kept == ["cola-0", "cola-1", "sst2-0"]
    done = []
    result = run(tmp_path, tasks, on_progress=lambda *call: done.append(call))
    assert done == [("sst2", step, 4) for step in range(1, 5)]
    assert set(result.scores) == {"glue/cola/mcc", "glue/sst2/accuracy"}
    assert run(tmp_path / "at_once", tasks).details == result.details


def test_a_broken_file_is_made_again(tmp_path):
    first = run(tmp_path, [task()])
    for file in (tmp_path / "fits").iterdir():
        file.write_bytes(b"PAR1 broken")
    assert run(tmp_path, [task()]).details == first.details


def test_mean8_stands_only_where_all_eight_tasks_do(tmp_path):
    tasks = []
    for name, wanted in averages.MEAN8.items():
        if name == "mnli":
            splits = ("validation_matched", "validation_mismatched")
            tasks.append(task(name, splits, metrics=["accuracy"]))
        else:
            regression = {"labels": []} if name == "stsb" else {}
            tasks.append(task(name, metrics=list(wanted), **regression))
    result = run(tmp_path, tasks, num_finetune_seeds=1, min_steps=1, max_steps=1)
    assert result.scores["glue/mean8"] == result.averages["glue/mean8"]["value"]
    fewer = run(tmp_path, tasks[1:], num_finetune_seeds=1, min_steps=1, max_steps=1)
    assert "glue/mean8" not in fewer.scores
    assert fewer.averages["glue/mean8"]["missing"] == ["glue/cola/mcc"]


def test_zero_fits_are_refused(tmp_path):
    with pytest.raises(ValueError, match="num_seeds=0"):
        run(tmp_path, [task()], num_finetune_seeds=0)
