"""What is cached and then damaged: it is said once, built again, and is what it was.

Every cached thing x every file of it x every kind of damage.
"""

import json
import re

import numpy as np
import pytest

from ablate.corpus import cache, sources
from ablate.evaluation import held_out_text, predictions
from ablate.evaluation.measurement import Part
from ablate.inputs import pmi
from ablate.tokens import store, training, word_order

DAMAGE = {
    "truncated": lambda data: data[: len(data) // 2],
    "flipped": lambda data: flip(data, len(data) // 2),
    "flipped_last": lambda data: flip(data, len(data) - 1),
    "emptied": lambda data: b"",
    "deleted": lambda data: None,
    "empty_object": lambda data: b"{}",
    "list": lambda data: b"[1, 2]",
    "deep": lambda data: b"[" * 100_000,
}
THRESHOLD = 2**62


def flip(data, place):
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


def damage(file, kind):
    data = DAMAGE[kind](file.read_bytes())
    file.unlink() if data is None else file.write_bytes(data)


def content(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def corpus_of(folder):
    return sources.load_synthetic(
        seed=3, num_documents=40, validation_fraction=0.25, cache_dir=folder
    )


def store_of(folder):
    corpus = corpus_of(folder)
    tokenizer = training.from_morphemes(corpus.morphemes, cache_dir=folder)
    return store.build(corpus, tokenizer, cache_dir=folder)


def ngrams_of(folder):
    found = store_of(folder)
    return pmi.build_list(
        found, np.arange(30), num_ngrams=50, max_words=3, min_count=2, cache_dir=folder
    )


def held_out_of(folder):
    return held_out_text.from_corpus(
        corpus_of(folder), num_words=50, words_per_row=8, seed=0, cache_dir=folder
    )


def trained(kind):
    def make(folder):
        tokenizer = training.train(
            kind, corpus_of(None).open(), vocab_size=300, lowercase=True, cache_dir=folder
        )
        return tokenizer.hash

    return make


def remembered(folder):
    found = corpus_of(folder)
    return found.fingerprint, found.validation_threshold, found.counts, list(found.open())


def streamed(folder):
    data = folder / "data"
    if not data.exists():
        data.mkdir(parents=True)
        rows = [json.dumps({"text": f"Text {i} of {i * 7919}."}) for i in range(40)]
        (data / "a.jsonl").write_text("\n".join(rows))
    found = sources.load_hub(
        str(data), streaming=True, max_documents=20, validation_fraction=0.2, cache_dir=folder
    )
    return found.fingerprint, found.counts, list(found.open())


def shuffled(folder):
    made = word_order.shuffled(store_of(folder), THRESHOLD, seed=0, cache_dir=folder)
    assert made.meta["word_order"] == "shuffled"
    return content(made.folder)


THINGS = {  # what is made from a cache -> (the maker, pattern of the files that it keeps there)
    "store": (lambda folder: content(store_of(folder).folder), "stores/*/*"),
    "corpus": (remembered, "corpora/*.json"),
    "stream": (streamed, "corpora/*"),
    "morphemes": (lambda folder: store_of(folder).meta["tokenizer_hash"], "tokenizers/*/*"),
    **{kind: (trained(kind), "tokenizers/*/*") for kind in training.KINDS},
    "pmi": (lambda folder: content(ngrams_of(folder).folder), "pmi/*/*"),
    "held_out_text": (held_out_of, "held_out_text/*.json"),
}


@pytest.mark.parametrize("kind", DAMAGE)
@pytest.mark.parametrize("thing", THINGS)
def test_a_damaged_file_is_said_and_made_again(tmp_path, capsys, thing, kind):
    make, pattern = THINGS[thing]
    before = make(tmp_path)
    files = sorted(tmp_path.glob(pattern))
    assert files
    for file in files:
        data = file.read_bytes()
        capsys.readouterr()
        damage(file, kind)
        assert make(tmp_path) == before
        said = capsys.readouterr().err.splitlines()
        alone = file.suffix == ".json" and file.parent.name in ("corpora", "held_out_text")
        if kind == "deleted" and (alone or file.suffix == ".parquet"):
            assert said == []  # nothing is there, so nothing is damaged
        else:
            damaged = file if file.parent.name in ("corpora", "held_out_text") else file.parent
            assert said == [f"warning: {damaged} is not whole; it is built again"]
        assert file.read_bytes() == data
        assert make(tmp_path) == before
        assert capsys.readouterr().err == ""


@pytest.mark.parametrize("kind", ["flipped", "truncated"])
def test_a_shuffled_store_is_made_again_alone_and_with_the_store_it_shares_files_with(
    tmp_path, capsys, kind
):
    before = shuffled(tmp_path)
    folder = next(
        file.parent for file in tmp_path.glob("stores/*/meta.json")
        if "natural_store" in file.read_text()
    )  # fmt: skip
    for name, num_damaged in (("tokens.npy", 1), ("meta.json", 1), ("sentence_starts.npy", 2)):
        damage(folder / name, kind)
        assert shuffled(tmp_path) == before
        said = capsys.readouterr().err
        assert said.count("is not whole") == num_damaged
        assert shuffled(tmp_path) == before
        assert capsys.readouterr().err == ""


def test_a_store_without_hashes_is_built_again(tmp_path, capsys):
    """As versions before the hashes left it."""
    made = store_of(tmp_path)
    before = content(made.folder)
    (made.folder / "meta.json").write_text(json.dumps(made.meta))
    assert content(store_of(tmp_path).folder) == before
    assert "is not whole" in capsys.readouterr().err


def test_hashes_stay_out_of_what_a_record_takes_from_a_store(tmp_path):
    for meta in (store_of(tmp_path).meta, ngrams_of(tmp_path).meta):
        assert not {"files", "content_hash"} & set(meta)


def test_a_whole_store_is_read_once_a_process(tmp_path, monkeypatch):
    folder = store_of(tmp_path).folder
    opened = []
    file_digest = cache.hashlib.file_digest

    def counted(file, digest):
        opened.append(file.name)
        return file_digest(file, digest)

    monkeypatch.setattr(cache.hashlib, "file_digest", counted)
    for _ in range(3):
        store_of(tmp_path)
    assert sorted(name for name in opened if "stores" in name) == sorted(
        str(folder / name) for name in store.FILES
    )


PART = Part(
    {
        "example_id": [f"x{i}" for i in range(40)],
        "score_0": [i / 4 for i in range(40)],
        "label": [i % 3 for i in range(40)],
    },
    {"train_loss": 1.25, "task": {"name": "toy"}},
)


@pytest.mark.parametrize("bit", [1, 32, 128])
def test_no_flipped_bit_of_predictions_is_scored(tmp_path, capsys, bit):
    file, key = tmp_path / "toy-0.parquet", {"model": "a"}
    predictions.write(file, PART, key=key)
    assert predictions.read(file, key=key) == PART
    data = file.read_bytes()
    for place in range(len(data)):
        file.write_bytes(data[:place] + bytes([data[place] ^ bit]) + data[place + 1 :])
        assert predictions.read(file, key=key) is None, place
        said = capsys.readouterr().err
        assert said.count("; it is measured again\n") == said.count("\n") == 1


def test_a_prediction_may_hold_what_marks_the_hash(tmp_path):
    text = "blake2b:" + "0" * 32
    part = Part({"example_id": [text, "b"], "label": [0, 1]}, {"note": text})
    predictions.write(tmp_path / "a.parquet", part, key={"text": text})
    assert predictions.read(tmp_path / "a.parquet", key={"text": text}) == part


@pytest.mark.parametrize("kind", sorted(set(DAMAGE) - {"deleted"}))
def test_damaged_predictions_are_said_and_none_are_not(tmp_path, capsys, kind):
    file = tmp_path / "toy-0.parquet"
    assert predictions.read(file, key={}) is None
    assert capsys.readouterr().err == ""
    predictions.write(file, PART, key={})
    damage(file, kind)
    assert predictions.read(file, key={}) is None
    said = capsys.readouterr().err
    assert re.fullmatch(rf"warning: {re.escape(str(file))} .*; it is measured again\n", said)


def test_predictions_of_before_the_checksums_are_read(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = tmp_path / "toy-0.parquet"
    table = pa.table({"label": [1, 2]}).replace_schema_metadata(
        {"ablate_key": json.dumps({"a": 1}), "ablate_facts": json.dumps({"b": 2})}
    )
    pq.write_table(table, file)
    assert predictions.read(file, key={"a": 1}) == Part({"label": [1, 2]}, {"b": 2})
