"""What stands beside scores: the same lines for a run's end and for `ablate.evaluation`."""

import io

import pytest
from rich.console import Console

from ablate.evaluation.averages import said_of_protocol, scored_of_available
from ablate.tracking import fine_tuning, scores, summary

SETTINGS = {"learning_rate": 2e-5, "batch_size": 32, "num_epochs": 3}


def grid(rate, size):
    points = [{"learning_rate": a, "batch_size": b} for a in (1e-5, 3e-5) for b in (16, 32)]
    return {
        "points": [{**point, "held_out_score": 0.5} for point in points],
        "chosen": {"learning_rate": rate, "batch_size": size},
    }


def metric(**changes):
    entry = {"by_seed": [0.5], "flags": [None], "majority": 0.5, "n": 60, "standard_error": 0.1}
    return {**entry, **changes}


def test_a_setting_that_a_grid_chose_stands_in_no_shared_line():
    details = {
        "rte": {
            "hyper_parameters": SETTINGS,
            "grid_by_seed": [grid(3e-5, 16), grid(1e-5, 32), grid(3e-5, 16)],
        },
        "pos": {"hyper_parameters": SETTINGS},
    }
    lines = fine_tuning.protocol(details)
    assert lines[0] == "fine-tuning, the same for 2 tasks: num_epochs 3"
    assert "pos has its own learning_rate 2e-05, batch_size 32" in lines
    assert (
        "rte: learning_rate of {1e-05, 3e-05}, batch_size of {16, 32}; chosen 3e-05, 16 (seeds 0, "
        "2), 1e-05, 32 (seed 1)"
    ) in lines
    assert not any(line.startswith("rte has its own") for line in lines)


def test_caps_compare_sentences_with_sentences():
    tagging = {
        "hyper_parameters": SETTINGS,
        "words": {"validation": 900},
        "n": {"validation": 900},
        "num_scored_available": {"validation": 1000},
    }
    assert scored_of_available(tagging) == {}
    assert said_of_protocol(tagging) == []
    assert not any("capped" in line for line in fine_tuning.protocol({"pos": tagging}))
    capped = {**tagging, "num_scored": {"validation": 50}}
    line = "scored examples capped: pos validation 50 of 1,000"
    assert line in fine_tuning.protocol({"pos": capped})
    assert said_of_protocol(capped) == ["validation: 50 of 1000 examples scored, a fixed sample"]
    whole = {**tagging, "num_scored": {"validation": 1000}}
    assert said_of_protocol(whole) == []


def test_the_legend_names_units_that_are_drawn():
    plain = {"cola": {"metrics": {"glue/cola/mcc": metric(standard_error_method="bootstrap")}}}
    assert "drawn are" not in scores.legend(plain)
    assert "(tasks of other kinds: see their notes)" in scores.legend(plain)
    units = {"pos": "sentences", "ner": "sentences", "squad": "paragraphs", "scifact": "queries"}
    others = {
        name: {"metrics": {name: metric(standard_error_method=unit)}}
        for name, unit in units.items()
    }
    others["blimp"] = {"metrics": {"blimp/accuracy": metric()}, "paradigms": {}}
    legend = scores.legend({**plain, **others})
    assert "; drawn are sentences for pos, ner;" in legend
    assert "; drawn are paragraphs for squad;" in legend
    assert "; drawn are queries for scifact;" in legend
    assert "; drawn are pairs within paradigms for blimp;" in legend


def test_the_baseline_of_each_kind_is_one_note():
    paragraphs = metric(standard_error_method="paragraphs")
    details = {
        "cola": {"metrics": {}, "notes": {}},
        "blimp": {"metrics": {}, "notes": {"baseline": "is chance"}},
        "squad": {"metrics": {"a": paragraphs}, "nothing": "the first 3 words of the paragraph"},
        "scifact": {"metrics": {}, "by_architecture": {}, "notes": {"train": "x"}},
        "pos": {"metrics": {}, "tags": ["N"], "nothing": "N"},
        "stsb": {"metrics": {}, "contrastive": {}},
    }
    assert [line for line in scores.notes(details) if ": baseline " in line] == [
        "blimp: baseline is chance",
        "squad: baseline is one answer to all questions: the first 3 words of the paragraph",
        "scifact: baseline is a random order of the same documents (BM25's score: `bm25` in the "
        "record)",
        "pos: baseline is the commonest training tag, N, for every word",
        "stsb: baseline is 0, the correlation of one cosine for all pairs",
    ]


def test_no_error_is_shown_where_all_examples_are_alike():
    entries = {
        "a/b/f1": metric(standard_error=0.0),
        "a/b/accuracy": metric(standard_error=1e-17),
        "a/b/mcc": metric(standard_error=0.0004),
    }
    rows = scores.rows(dict.fromkeys(entries, 0.0), {"b": {"metrics": entries}}, {})
    assert [row.standard_error for row in rows] == ["", "", "0.000"]


def test_an_average_repeats_no_cap():
    notes = [
        "cola validation: 5 of 9 examples scored, a fixed sample",
        "cola trained on 10 of 24 examples, a fixed sample",
        "mnli x: y.jsonl was taken as x",
    ]
    found = {"value": 0.5, "formula": "mean", "notes": notes, "missing": []}
    lines = scores.formulas({"glue/hf": found, "glue/mean8": {**found, "notes": notes[:1]}}, {})
    assert lines == [
        "glue/hf = mean; mnli x: y.jsonl was taken as x",
        "glue/mean8 = mean",
        "of all averages: capped, see above",
    ]
    assert found["notes"] == notes


@pytest.mark.parametrize("width", [60, 80, 120])
def test_nothing_of_a_table_is_cut_in_a_narrow_terminal(width):
    names = ["val/token_mask/accuracy", "embeddings/scifact/crossencoder_zero_shot_ndcg10"]
    rows = [
        scores.Row(names[0], "0.300", "", "0.536", "", "", "baseline: two-sided trigram"),
        scores.Row(
            names[1], "0.300", "0.012", "0.123", "67000", "3", "below_chance (1 of 3 seeds)"
        ),
    ]
    screen = io.StringIO()
    Console(width=width, file=screen).print(summary._table(rows, "arm a", width))
    lines = screen.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    text = "".join(character for line in lines for character in line if character.isalnum())
    assert "…" not in screen.getvalue()
    for word in ("67000", "0123", "crossencoder", *(["trigram", "chance"] if width > 60 else [])):
        assert word in text, word
    if width == 120:
        assert names[1] in screen.getvalue()
