"""Planning measured: rows, seconds and memory are told; the made-up store is one."""

import json

import numpy as np

from ablate.bench import planning


def test_planning_plans_about_as_many_rows_as_asked(bench):
    formats = "segment_pair,full_sentences"
    code, out, _ = bench("planning", "--json", "--rows", "2000", "--only", formats)
    found = json.loads(out)
    assert code == 0
    assert [row["name"] for row in found["rows"]] == formats.split(",")
    for row in found["rows"]:
        assert 1800 < row["rows"] < 2200
        assert row["seconds"] > 0
        assert row["extra_mb"] >= 0
    assert len(planning.table(found)) == 2 + 2


def test_made_up_store_is_a_store():
    made = planning.store_of(50)
    sentences = np.diff(made.sentence_starts)
    assert (sentences.min(), sentences.max()) == (5, 40)
    assert made.document_starts[-1] == made.sentence_starts[-1]
    assert set(made.document_starts.tolist()) <= set(made.sentence_starts.tolist())
