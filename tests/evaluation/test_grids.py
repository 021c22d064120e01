"""Grids: every point judged on examples held out of train, the chosen one fitted again."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from ablate import rng
from ablate.encoder.backends import resolve
from ablate.encoder.config import EncoderConfig
from ablate.encoder.heads import MaskedLanguageModel
from ablate.encoder.initialization import initialize
from ablate.evaluation import classification
from ablate.evaluation.classification import Classification
from ablate.evaluation.early_stopping import BestWeights
from ablate.evaluation.grids import choose, points
from ablate.evaluation.pair_task import MinimalPairs
from ablate.evaluation.plan import Plan
from ablate.evaluation.protocol import evaluate
from ablate.evaluation.settings import FinetuneSettings
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
GRID = {"learning_rate": [1e-9, 5e-3], "batch_size": [8, 12]}


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


def run(folder, wanted, **options):
    options = {"seed": 0, "num_finetune_seeds": 1, "plan": Plan(grid=GRID), **QUICK, **options}
    return evaluate(make_model(), WordTokenizer(), measurements=wanted, out_dir=folder, **options)


def test_points_are_all_combinations():
    assert points({}) == ()
    assert points({"a": [1, 2], "b": [3]}) == ({"a": 1, "b": 3}, {"a": 2, "b": 3})


@pytest.mark.parametrize("grid", [{"a": []}, {"a": [1, 1]}, {"max_length": [8]}])
def test_grids_that_say_nothing_are_refused(grid):
    with pytest.raises(ValueError, match=r"evaluation\.grid\."):
        points(grid)


def test_the_best_point_is_the_first_of_equal_ones(tmp_path):
    scores = {1e-3: 0.4, 2e-3: 0.7, 3e-3: 0.7}
    found = choose(
        points({"learning_rate": list(scores)}),
        FinetuneSettings(),
        lambda s: {"score": scores[s.learning_rate], "held_out_examples": 9, "metric": "f1"},
        folder=tmp_path,
        key={},
    )
    assert found.settings.learning_rate == 2e-3
    assert found.facts["chosen"] == {"learning_rate": 2e-3}
    assert [p["held_out_score"] for p in found.facts["points"]] == [0.4, 0.7, 0.7]
    assert (found.facts["num_points"], found.facts["metric"]) == (3, "f1")


def test_a_kill_costs_one_point(tmp_path):
    calls = []

    def fit(settings):
        calls.append(settings.learning_rate)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return {"score": settings.learning_rate, "held_out_examples": 9, "metric": "f1"}

    candidates = points({"learning_rate": [1e-3, 2e-3, 3e-3]})
    options = {"folder": tmp_path, "key": {"weights": "w"}}
    with pytest.raises(KeyboardInterrupt):
        choose(candidates, FinetuneSettings(), fit, **options)
    assert choose(candidates, FinetuneSettings(), fit, **options).settings.learning_rate == 3e-3
    assert calls == [1e-3, 2e-3, 2e-3, 3e-3]
    choose(candidates, FinetuneSettings(dropout=0.0), fit, **options)  # other settings, other fits
    choose(candidates, FinetuneSettings(), fit, folder=tmp_path, key={"weights": "v"})
    assert len(calls) == 10
    next(iter(tmp_path.iterdir())).write_text("{broken")
    choose(candidates, FinetuneSettings(), fit, **options)
    assert len(calls) in (10, 11)


def test_a_grid_has_scores_of_its_own_and_says_how_it_chose(tmp_path):
    result = run(tmp_path, [Classification(task(metrics=["accuracy"]))])
    assert list(result.scores) == ["glue-grid/cola/accuracy"]
    assert not [name for name in result.averages if name.startswith("glue/")]
    (found,) = result.details["cola"]["grid_by_seed"]
    assert found["num_points"] == len(found["points"]) == 4
    assert found["held_out_examples"] == 2  # of the 24 training examples
    assert found["selected_on"] == "examples held out of train"
    assert found["fitted_again_on"] == "all training examples"
    best = max(p["held_out_score"] for p in found["points"])
    chosen = next(p for p in found["points"] if p["held_out_score"] == best)
    assert found["chosen"] == {k: chosen[k] for k in GRID}


def test_the_chosen_point_is_reported_as_if_it_had_been_declared(tmp_path):
    """Fitted again on all training examples: the outputs of a single-setting protocol."""
    wanted = [Classification(task(metrics=["accuracy"]))]
    grid = run(tmp_path / "grid", wanted)
    (found,) = grid.details["cola"]["grid_by_seed"]
    single = run(tmp_path / "single", wanted, plan=None, **{**QUICK, **found["chosen"]})
    ours, theirs = (r.details["cola"]["train_loss_by_seed"] for r in (grid, single))
    assert ours == theirs
    assert grid.scores["glue-grid/cola/accuracy"] == single.scores["glue/cola/accuracy"]


def test_points_see_neither_scored_rows_nor_their_labels(tmp_path):
    spec = task(metrics=["accuracy"]).spec
    held = rows(30)
    flipped = [{**row, "label": 1 - row["label"]} for row in held]
    found = [
        run(
            tmp_path / str(number),
            [Classification(from_rows(spec, rows(24), {"validation": scored}))],
        ).details["cola"]["grid_by_seed"]
        for number, scored in enumerate((held, flipped))
    ]
    assert found[0] == found[1]


def test_every_point_is_stored_and_a_second_run_fits_none(tmp_path, monkeypatch):
    wanted = [Classification(task(metrics=["accuracy"]))]
    run(tmp_path, wanted, num_finetune_seeds=2)
    files = [*(tmp_path / "fits" / "points").iterdir()]
    assert len(files) == 8
    assert json.loads(files[0].read_text())["key"]["tokenizer"] == "words"
    for part in (tmp_path / "fits").glob("*.parquet"):
        part.unlink()
    fits = []
    original = classification.finetune
    monkeypatch.setattr(
        classification,
        "finetune",
        lambda *args, **kw: fits.append(kw) or original(*args, **kw),
    )
    run(tmp_path, wanted, num_finetune_seeds=2)
    assert ["only_held_out" in kw for kw in fits] == [False, False]


def test_with_early_stopping_the_second_fit_keeps_the_held_out_examples(tmp_path):
    wanted = [Classification(task(metrics=["accuracy"]))]
    result = run(tmp_path, wanted, early_stopping=2, num_epochs=3)
    details = result.details["cola"]
    assert details["grid_by_seed"][0]["fitted_again_on"].startswith("train without")
    (stopped,) = details["early_stopping_by_seed"]
    best = max(p["held_out_score"] for p in details["grid_by_seed"][0]["points"])
    assert stopped["best_score"] == best  # the very fit that was selected


def test_values_of_one_task_replace_those_of_all(tmp_path):
    plan = Plan(
        grid={"learning_rate": [1e-3, 2e-3]}, grid_per_task={"sst2": {"learning_rate": [1]}}
    )
    wanted = [Classification(task()), Classification(task("sst2"))]
    result = run(tmp_path, wanted, plan=plan)
    numbers = [result.details[n]["grid_by_seed"][0]["num_points"] for n in ("cola", "sst2")]
    assert numbers == [2, 1]


def test_zero_shot_parts_do_not_know_of_a_grid(tmp_path):
    pairs = [{"sentence_good": "a b", "sentence_bad": "c b", "paradigm": "one"}]
    wanted = [MinimalPairs("synthetic", "pairs", pairs)]
    with_grid = run(tmp_path, wanted)
    assert with_grid.scores == run(tmp_path, wanted, plan=None).scores
    assert len([*(tmp_path / "fits").iterdir()]) == 1


def test_what_is_fitted_and_takes_no_grid_is_refused(tmp_path):
    class Tagging(Classification):
        takes_plan = stops_early = False

    with pytest.raises(ValueError, match=r"kind classification, and cola.*evaluation\.grid=null"):
        run(tmp_path, [Tagging(task())])
    with pytest.raises(ValueError, match=r"early_stopping=2 is not known to cola"):
        run(tmp_path, [Tagging(task())], plan=None, early_stopping=2)


def test_a_point_that_diverges_is_never_chosen(tmp_path):
    plan = Plan(grid={"learning_rate": [1e30, 1e-3], "gradient_clip": [None]})
    result = run(tmp_path, [Classification(task(metrics=["accuracy"]))], plan=plan)
    for grid in result.details["cola"]["grid_by_seed"]:
        assert grid["chosen"]["learning_rate"] == 1e-3
        assert grid["points"][0]["held_out_score"] is None


def test_early_stopping_of_a_divergence_keeps_weights_and_says_so():
    module = torch.nn.Linear(2, 2)
    watch = BestWeights([module], lambda: float("nan"), every=1, patience=3)
    before = module.weight.detach().clone()
    assert not watch(1)
    module.weight.data.zero_()
    watch(2)
    watch.restore()
    assert torch.equal(module.weight, before)


def test_a_grid_is_deterministic(tmp_path):
    wanted = [Classification(task(metrics=["accuracy"]))]
    first, again = (run(tmp_path / n, wanted) for n in ("a", "b"))
    assert first.details == again.details
    assert np.isfinite(list(first.scores.values())).all()


def test_another_grid_is_another_part(tmp_path):
    """The points are in the key: what an earlier grid chose is not taken for this one's choice."""
    wanted = [Classification(task(metrics=["accuracy"]))]
    run(tmp_path, wanted, plan=Plan(grid={"learning_rate": [1e-9, 5e-3]}))
    second = run(tmp_path, wanted, plan=Plan(grid={"learning_rate": [1e-9, 1e-8]}))
    (found,) = second.details["cola"]["grid_by_seed"]
    assert [point["learning_rate"] for point in found["points"]] == [1e-9, 1e-8]
    assert len([*(tmp_path / "fits").glob("*.parquet")]) == 2
