"""Pairs from files, tiers, parts of whole paradigms; every number follows from the stored parts."""

import json
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

from ablate import rng
from ablate.config.task_files import task_definition
from ablate.encoder.backends import resolve
from ablate.encoder.config import EncoderConfig
from ablate.encoder.heads import MaskedLanguageModel
from ablate.encoder.initialization import initialize
from ablate.evaluation import kinds, pair_task
from ablate.evaluation.measurement import EvaluationResult, Part, Setup, Subject
from ablate.evaluation.pair_files import PairSpec, load_pairs
from ablate.evaluation.pair_scores import add_pairs
from ablate.evaluation.pair_task import MinimalPairs
from ablate.evaluation.protocol import evaluate

DATA = Path(__file__).parents[3] / "shared" / "data"


def row(number, uid, term="binding", field="syntax"):
    return {
        "sentence_good": f"good {number}",
        "sentence_bad": f"bad {number}",
        "UID": uid,
        "linguistics_term": term,
        "field": field,
        "pairID": str(number),
    }


def write(folder, name, rows):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text("".join(json.dumps(r) + "\n" for r in rows))


@pytest.fixture
def suite(tmp_path):
    """Three paradigms of two phenomena, 8 pairs each."""
    terms = {"one": "binding", "two": "binding", "three": "s-selection"}
    for uid, term in terms.items():
        field = "syntax/semantics" if uid == "two" else "syntax"
        write(tmp_path / "blimp", f"{uid}.jsonl", [row(i, uid, term, field) for i in range(8)])
    return tmp_path


def part_of(wins, paradigms, phenomena=None, fields=None, **facts):
    """A stored part in which pairs are won (1), tied (.5) or lost (0)."""
    n = len(wins)
    return Part(
        {
            "example_id": list(range(n)),
            "label": [1.0] * n,
            "prediction": [float(w) for w in wins],
            "split": ["validation"] * n,
            "finetune_seed": [0] * n,
            "paradigm": paradigms,
            "phenomenon": phenomena or [""] * n,
            "field": fields or [""] * n,
            "log_likelihood_good": [float(w) for w in wins],
            "log_likelihood_bad": [0.5] * n,
        },
        {
            "suite": "blimp",
            "name": "blimp",
            "likelihood": "log-likelihood",
            "tier": "full",
            "truncated_tokens": 1,
            "unknown_tokens": 2,
            **facts,
        },
    )


def test_files_become_pairs_with_paper_names(suite):
    found = kinds.load(task_definition("blimp"), path=suite)
    assert isinstance(found, MinimalPairs)
    assert len(found.pairs) == 24
    assert {p["phenomenon"] for p in found.pairs} == {"binding", "argument_structure"}
    assert {p["field"] for p in found.pairs} == {"syntax", "syntax_semantics"}
    assert found.pairs[0]["idx"] == "one/0"
    assert found.pairs == load_pairs(PairSpec.from_dict(found_definition()), suite / "blimp")


def found_definition():
    definition = task_definition("blimp")
    definition.pop("kind")
    return definition


@pytest.mark.parametrize("name", ["blimp", "blimp_fast", "blimp_within_word"])
def test_every_task_file_is_read(suite, name):
    found = kinds.load(task_definition(name), path=suite)
    assert found.name == name
    assert found.suite == name  # one name: `blimp_fast/accuracy`


def test_fast_tier_is_a_fixed_part_of_the_full_one(suite, tmp_path):
    spec = PairSpec.from_dict({**found_definition(), "tier": "fast", "fast_pairs_per_paradigm": 3})
    full = load_pairs(PairSpec.from_dict(found_definition()), suite)
    fast = load_pairs(spec, suite)
    assert all(pair in full for pair in fast)
    assert [p["paradigm"] for p in fast] == ["one"] * 3 + ["three"] * 3 + ["two"] * 3
    other = tmp_path / "other"  # the same pairs in another order, all in one file
    rows = [
        json.loads(line)
        for file in sorted((suite / "blimp").glob("*.jsonl"), reverse=True)
        for line in reversed(file.read_text().splitlines())
    ]
    write(other, "all.jsonl", rows)
    assert {p["idx"] for p in load_pairs(spec, other)} == {p["idx"] for p in fast}
    more = PairSpec.from_dict({**found_definition(), "tier": "fast", "fast_pairs_per_paradigm": 5})
    assert {p["idx"] for p in fast} < {p["idx"] for p in load_pairs(more, suite)}


def test_another_layout_through_the_definition(tmp_path):
    write(tmp_path, "agreement.jsonl", [{"right": "a", "wrong": "b"}, {"right": "c", "wrong": "d"}])
    spec = PairSpec.from_dict(
        {
            "name": "mine", "good_column": "right", "bad_column": "wrong", "paradigm_column": None,
            "phenomenon_column": None, "field_column": None, "id_column": None,
        }
    )  # fmt: skip
    found = load_pairs(spec, tmp_path)
    assert [p["paradigm"] for p in found] == ["agreement", "agreement"]
    assert [p["idx"] for p in found] == ["agreement/agreement:0", "agreement/agreement:1"]
    assert found[1]["sentence_bad"] == "d"


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"likelihood": "pll"}, "allowed: original, within_word_l2r"),
        ({"tier": "small"}, "allowed: full, fast"),
        ({"fast_pairs_per_paradigm": 0}, "give 1 or more"),
        ({"good": "x"}, r"unknown keys \['good'\]"),
        ({"name": ""}, "missing key name"),
        ({"good_column": "text"}, r"no \['text'\]"),
    ],
)
def test_bad_definitions_are_refused(suite, changed, message):
    with pytest.raises(ValueError, match=message):
        kinds.load({**task_definition("blimp"), **changed}, path=suite)


def test_missing_files_and_repeated_ids_are_refused(tmp_path, suite):
    with pytest.raises(ValueError, match="give evaluation.path=FOLDER"):
        kinds.load(task_definition("blimp"))
    with pytest.raises(ValueError, match=r"no \.jsonl"):
        kinds.load(task_definition("blimp"), path=tmp_path / "nothing")
    write(suite / "blimp", "four.jsonl", [row(1, "one")])
    with pytest.raises(ValueError, match="two pairs have the id one/1"):
        kinds.load(task_definition("blimp"), path=suite)


def test_parts_are_whole_paradigms_and_cover_all_pairs(monkeypatch):
    monkeypatch.setattr(pair_task, "PAIRS_PER_PART", 4)
    sizes = {"a": 3, "b": 3, "c": 5, "d": 1}
    pairs = [{"sentence_good": "x", "sentence_bad": "y", "paradigm": p} for p in sizes
             for _ in range(sizes[p])]  # fmt: skip
    found = MinimalPairs("s", "n", pairs)
    assert found.num_parts(None) == 3
    assert sorted(i for part in found._parts for i in part) == list(range(12))
    assert [{pairs[i]["paradigm"] for i in part} for part in found._parts] == [
        {"a", "b"}, {"c"}, {"d"},
    ]  # fmt: skip
    assert pickle.loads(pickle.dumps(found)).hash() == found.hash()


def test_the_score_is_the_unweighted_mean_over_paradigms():
    first = part_of([1, 1, 1, 1], ["big"] * 4, ["binding"] * 4, ["syntax"] * 4)
    second = part_of([0, 0.5], ["small"] * 2, ["islands"] * 2, ["syntax"] * 2)
    result = EvaluationResult()
    add_pairs(result, [first, second])
    assert result.scores == {
        "blimp/accuracy": (1.0 + 0.25) / 2,
        "blimp/binding/accuracy": 1.0,
        "blimp/islands/accuracy": 0.25,
    }
    details = result.details["blimp"]
    assert details["paradigms"]["small"]["ties"] == 1
    assert details["ties"] == 1
    assert details["by_field"]["syntax"]["accuracy"] == 0.625
    assert details["truncated_tokens"] == 2
    assert details["unknown_tokens"] == 4
    assert details["metrics"]["blimp/islands/accuracy"]["flags"] == ["1 ties"]
    metric = details["metrics"]["blimp/accuracy"]
    assert metric["majority"] == 0.5
    assert metric["n"] == 6
    # each paradigm's error is that of its own mean, the suite's that of their mean
    assert metric["standard_error"] == pytest.approx(np.std([0, 0.5]) / 2**0.5 / 2)
    other = EvaluationResult()
    add_pairs(other, [second, first])
    assert other.scores == result.scores


def test_no_phenomena_no_tables():
    result = EvaluationResult()
    add_pairs(result, [part_of([1, 0], ["p", "p"], suite="synthetic", name="minimal_pairs")])
    assert result.scores == {"synthetic/minimal_pairs/accuracy": 0.5}
    assert "by_phenomenon" not in result.details["minimal_pairs"]


def test_likelihood_and_pairs_are_part_of_the_key():
    pairs = [{"sentence_good": "x", "sentence_bad": "y", "paradigm": "p"}]
    plain, corrected = (
        MinimalPairs("s", "n", pairs, how) for how in ("original", "within_word_l2r")
    )
    assert plain.hash() != corrected.hash()
    assert plain.hash() != MinimalPairs("s", "n", pairs * 2).hash()


@pytest.fixture(scope="module")
def subject(built_in):
    tokenizer = built_in[1]
    config = EncoderConfig(
        vocab_size=tokenizer.vocab_size, hidden_size=16, num_hidden_layers=1,
        num_attention_heads=2, intermediate_size=32, max_position_embeddings=64, init_std=0.02,
    )  # fmt: skip
    backend = resolve("auto", device="cpu", dtype=torch.float32, max_length=64)
    model = MaskedLanguageModel(config, backend)
    initialize(model, config, lambda name: rng.torch_seed(0, "init", name))
    return Subject(model, tokenizer, "weights")


def sentences(built_in, count):
    texts = [line.strip() for text in built_in[0].open() for line in text.split(".")]
    return [text for text in texts if text][:count]


def test_parts_give_the_same_scores_however_many(subject, built_in, monkeypatch, tmp_path):
    texts = sentences(built_in, 24)
    pairs = [
        {
            "sentence_good": text,
            "sentence_bad": " ".join(reversed(text.split())),
            "paradigm": f"p{i % 4}",
            "phenomenon": f"q{i % 2}",
            "idx": i,
        }
        for i, text in enumerate(texts)
    ]
    found = []
    for size in (100, 6, 1):
        monkeypatch.setattr(pair_task, "PAIRS_PER_PART", size)
        result = evaluate(
            subject.model, subject.tokenizer, measurements=[MinimalPairs("s", "n", pairs)],
            seed=0, out_dir=tmp_path / str(size), max_length=64,
        )  # fmt: skip
        found.append((result.scores, result.details))
    assert found[0] == found[1] == found[2]
    assert set(found[0][0]) == {"s/n/accuracy", "s/n/q0/accuracy", "s/n/q1/accuracy"}


def test_within_word_correction_is_measured_and_named(subject, built_in):
    texts = sentences(built_in, 40)
    pairs = [{"sentence_good": a, "sentence_bad": b, "paradigm": "p"}
             for a, b in zip(texts[:20], texts[20:], strict=True)]  # fmt: skip
    from ablate.evaluation.fitting import FinetuneSettings

    setup = Setup(0, FinetuneSettings(max_length=64), 1, Path())
    likelihoods = {}
    for how in ("original", "within_word_l2r"):
        part = MinimalPairs("s", "n", pairs, how).measure(subject, setup, 0, lambda *done: None)
        likelihoods[part.facts["likelihood"]] = part.table["log_likelihood_good"]
    assert set(likelihoods) == {"pseudo-log-likelihood", "pseudo-log-likelihood within_word_l2r"}
    assert len({tuple(values) for values in likelihoods.values()}) == 2


@pytest.mark.skipif(not (DATA / "blimp").is_dir(), reason="no shared data here")
def test_blimp_is_read_whole():
    found = kinds.load(task_definition("blimp"), path=DATA)
    assert len(found.pairs) == 67_000
    assert len({p["paradigm"] for p in found.pairs}) == 67
    assert len({p["phenomenon"] for p in found.pairs}) == 12
    assert {p["field"] for p in found.pairs} == {
        "morphology", "semantics", "syntax", "syntax_semantics",
    }  # fmt: skip
    fast = kinds.load(task_definition("blimp_fast"), path=DATA)
    assert len(fast.pairs) == 6_700
