"""Store building measured: what is told, and that nothing is left behind."""

import json

import pytest

from ablate.bench import made_up_text, store


def test_store_is_built_read_and_removed(bench, monkeypatch, tmp_path):
    monkeypatch.setattr(store.tempfile, "tempdir", str(tmp_path))
    code, out, _ = bench("store", "--json", "--megabytes", "0.5")
    found = json.loads(out)
    assert code == 0
    assert 0.5 <= found["text_mb"] < 1.0
    assert found["tokens"] > 50_000
    assert found["seconds"] == pytest.approx(found["scan_seconds"] + found["build_seconds"])
    assert 0 < found["share_outside_tokenizer"] < 1
    assert found["bare_tokenizers_mb_per_s"] > 0
    assert found["drawing"]["mapped"] is True
    assert found["drawing"]["batches"] == 100
    assert "bar 1500 MB" in "\n".join(store.table(found))
    assert list(tmp_path.iterdir()) == []


def test_workers_are_measured_in_turns_with_one_process(bench, monkeypatch):
    monkeypatch.setattr(store, "run_alone", lambda function, *given: function(*given))
    code, out, _ = bench("store", "--json", "--megabytes", "0.5", "--jobs", "2")
    found = json.loads(out)
    assert code == 0
    assert list(found["sides"]) == ["one process", "2 workers"]
    one, two = found["sides"].values()
    assert len(one["build_seconds"]) == len(two["build_seconds"]) == store.TURNS
    assert found["times_as_fast"] == min(one["build_seconds"]) / min(two["build_seconds"])
    assert two["worker_peak_mb"] > 0  # of one process there is none: not seen here, in one process
    assert "2 workers" in "\n".join(store.table(found))


def test_made_up_documents_differ_and_bring_new_words(tmp_path):
    made_up_text.write(tmp_path / "a.txt", 0.5)
    documents = (tmp_path / "a.txt").read_text().strip().split("\n\n")
    assert len(documents) == len(set(documents))
    assert {len(document.split("\n")) for document in documents} == {made_up_text.SENTENCES}
    first, second = documents[: len(documents) // 2], documents[len(documents) // 2 :]
    words = [set(" ".join(part).split()) for part in (first, second)]
    assert len(words[1] - words[0]) > 100
