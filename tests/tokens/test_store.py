"""A corpus by hand -> the arrays of its store, whatever the batches and processes."""

import dataclasses
import itertools
import json
import multiprocessing

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ablate.corpus import sources
from ablate.corpus.sentences import split_sentences
from ablate.tokens import store, training
from ablate.tokens.encoding import visible_characters
from ablate.tokens.store import ARRAYS, TokenStore, build

#     ids:   5    6      7       8     9     10   11
WORDS = ["un", "cat", "##s", "##able", "the", ".", "ran"]
DOCUMENTS = ["The cats ran.\nUnable .", "cat 😀😀😀. The cat", "\u200b", "ran\n\u200b\nran"]


def corpus_of(documents, fraction=0.5) -> sources.Corpus:
    hashes = np.array([sources.document_hash(text) for text in documents], dtype=np.uint64)
    return sources.Corpus(
        name="by hand",
        fingerprint=sources.fingerprint_of(hashes),
        open=lambda: iter(documents),
        validation_threshold=int(fraction * 2**64),
        counts={},
    )


@pytest.fixture
def tokenizer(tmp_path):
    return training.from_morphemes(WORDS, cache_dir=tmp_path)


def test_every_array_by_hand(tmp_path, tokenizer):
    made = build(corpus_of(DOCUMENTS), tokenizer, cache_dir=tmp_path)
    #       The cat s ran . | Un able . || cat [UNK] . | The cat || ran | ran
    ids = [9, 6, 7, 11, 10, 5, 8, 10, 6, 1, 10, 9, 6, 11, 11]
    assert made.tokens.dtype == np.uint16
    assert made.tokens.tolist() == ids
    assert np.flatnonzero(~made.word_starts).tolist() == [2, 6]
    assert made.sentence_starts.tolist() == [0, 5, 8, 11, 13, 14, 15]
    assert made.document_starts.tolist() == [0, 8, 13, 15]
    kept = [DOCUMENTS[0], DOCUMENTS[1], DOCUMENTS[3]]
    assert made.document_hashes.tolist() == [sources.document_hash(text) for text in kept]
    assert made.document_bytes.tolist() == [len(text.encode()) for text in kept]
    assert {name: made.meta[name] for name in ("tokens", "words", "sentences", "documents")} == {
        "tokens": 15,
        "words": 13,
        "sentences": 6,
        "documents": 3,
    }
    assert made.meta["dropped"] == {"sentences_without_tokens": 2, "documents_without_tokens": 1}
    assert (made.meta["unk_tokens"], made.meta["unk_characters"]) == (1, 3)
    assert made.meta["characters"] == sum(len("".join(text.split())) for text in DOCUMENTS)
    assert made.meta["tokenizer_hash"] == tokenizer.hash
    assert made.hash == made.folder.name
    with pytest.raises(ValueError, match="read-only"):
        made.tokens[0] = 1


def test_three_of_six_characters_are_lost(tmp_path, tokenizer):
    meta = build(corpus_of(["cat 😀😀😀"]), tokenizer, cache_dir=tmp_path).meta
    assert (meta["unk_tokens"], meta["tokens"]) == (1, 2)
    assert (meta["unk_characters"], meta["characters"]) == (3, 6)


def test_split_by_hash(tmp_path, tokenizer):
    made = build(corpus_of(DOCUMENTS), tokenizer, cache_dir=tmp_path)
    hashes = made.document_hashes.tolist()
    threshold = sorted(hashes)[1]
    train, validation = made.split(threshold)
    assert train.dtype == validation.dtype == np.int64
    assert validation.tolist() == [hashes.index(min(hashes))]
    assert sorted([*train, *validation]) == [0, 1, 2]


def content(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("size", [1, 30, 60, 1000])
def test_the_same_bytes_for_every_chunk_size(tmp_path, tokenizer, size):
    documents = DOCUMENTS * 1 + [f"The cat ran {i}.\nran" for i in range(20)]
    whole = build(corpus_of(documents), tokenizer, cache_dir=tmp_path / "a")
    parts = build(corpus_of(documents), tokenizer, cache_dir=tmp_path / "b", chunk_characters=size)
    assert content(whole.folder) == content(parts.folder)


TEXTS = st.lists(
    st.text(alphabet="ctuna s.\n\u200bé", max_size=30).filter(lambda text: text.strip()),
    min_size=1,
    max_size=8,
    unique=True,
)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(documents=TEXTS, size=st.integers(1, 60))
def test_the_store_is_the_sentences_one_after_the_other(
    tmp_path_factory, tokenizer, documents, size
):
    folder = tmp_path_factory.mktemp("store")
    documents = ["cat", *documents]
    documents = list(dict.fromkeys(documents))
    made = build(corpus_of(documents), tokenizer, cache_dir=folder, chunk_characters=size)
    want = [
        [e.ids for e in tokenizer.encode_batch(split_sentences(text)) if e.ids]
        for text in documents
    ]
    want = [document for document in want if document]
    starts = made.sentence_starts.tolist()
    sentences = [made.tokens[a:b].tolist() for a, b in itertools.pairwise(starts)]
    assert sentences == [sentence for document in want for sentence in document]
    lengths = [sum(map(len, document)) for document in want]
    assert np.diff(made.document_starts).tolist() == lengths
    assert made.meta["characters"] == sum(len("".join(text.split())) for text in documents)


def test_a_second_build_opens_what_is_there(tmp_path, tokenizer):
    corpus = corpus_of(DOCUMENTS)
    seen = []
    first = build(corpus, tokenizer, cache_dir=tmp_path, progress=seen.append)
    assert sum(seen) == len(DOCUMENTS)
    never = dataclasses.replace(corpus, open=None)  # reading it would be an error
    second = build(never, tokenizer, cache_dir=tmp_path, chunk_characters=7)
    assert second.hash == first.hash
    other_split = dataclasses.replace(never, validation_threshold=5, name="x")
    assert build(other_split, tokenizer, cache_dir=tmp_path).hash == first.hash


@pytest.mark.parametrize("name", ["meta.json", "tokens.npy", "document_hashes.npy"])
def test_a_store_of_which_a_part_is_gone_is_built_again(tmp_path, tokenizer, capsys, name):
    first = build(corpus_of(DOCUMENTS), tokenizer, cache_dir=tmp_path)
    before = {path.name: path.read_bytes() for path in first.folder.iterdir()}
    (first.folder / name).unlink()
    again = build(corpus_of(DOCUMENTS), tokenizer, cache_dir=tmp_path)
    assert {path.name: path.read_bytes() for path in again.folder.iterdir()} == before
    assert "is not whole" in capsys.readouterr().err


def test_another_text_or_tokenizer_is_another_store(tmp_path, tokenizer):
    more = training.from_morphemes([*WORDS, "cats"], cache_dir=tmp_path)
    hashes = {
        build(corpus_of(DOCUMENTS), tokenizer, cache_dir=tmp_path).hash,
        build(corpus_of(DOCUMENTS), more, cache_dir=tmp_path).hash,
        build(corpus_of(DOCUMENTS[::-1]), tokenizer, cache_dir=tmp_path).hash,
        build(corpus_of([*DOCUMENTS, "ran ran"]), tokenizer, cache_dir=tmp_path).hash,
    }
    assert len(hashes) == 4


def test_a_failure_half_way_leaves_nothing_behind(tmp_path, tokenizer):
    def texts():
        yield DOCUMENTS[0]
        raise KeyError("stopped")

    broken = dataclasses.replace(corpus_of(DOCUMENTS), open=texts)
    with pytest.raises(KeyError):
        build(broken, tokenizer, cache_dir=tmp_path, chunk_characters=1)
    assert list((tmp_path / "stores").iterdir()) == []
    half = tmp_path / "stores" / ".half.1.ab"  # what a killed process leaves
    half.mkdir()
    (half / "tokens.npy").write_bytes(b"")
    assert build(corpus_of(DOCUMENTS), tokenizer, cache_dir=tmp_path).meta["documents"] == 3


def test_a_corpus_that_changed_meanwhile_is_refused(tmp_path, tokenizer):
    changed = dataclasses.replace(corpus_of(DOCUMENTS), open=lambda: iter(["the cat"]))
    with pytest.raises(ValueError, match="changed while it was read"):
        build(changed, tokenizer, cache_dir=tmp_path)
    with pytest.raises(ValueError, match="no token at all"):
        build(corpus_of(["\u200b"]), tokenizer, cache_dir=tmp_path)
    assert list((tmp_path / "stores").iterdir()) == []


def build_in_a_process(cache, file, barrier):
    tokenizer = store.Tokenizer(file)
    barrier.wait()
    made = build(corpus_of(DOCUMENTS), tokenizer, cache_dir=cache, chunk_characters=1)
    assert made.meta["documents"] == 3


def test_builders_at_the_same_time_do_no_harm(tmp_path, tokenizer):
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(3)
    arguments = (tmp_path, tokenizer.file, barrier)
    processes = [context.Process(target=build_in_a_process, args=arguments) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0, 0]
    folders = list((tmp_path / "stores").iterdir())
    assert len(folders) == 1
    assert TokenStore(folders[0]).tokens.shape == (15,)


def test_a_large_vocabulary_is_stored_in_32_bits(tmp_path):
    words = ["cat", *(f"w{i}" for i in range(70_000))]
    large = training.from_morphemes(words, cache_dir=tmp_path)
    made = build(corpus_of(["w69999 cat"]), large, cache_dir=tmp_path)
    assert made.tokens.dtype == np.uint32
    assert made.tokens.tolist() == [70_005, 5]


def test_the_folder_holds_plain_numpy_files_and_a_json(tmp_path, tokenizer):
    folder = build(corpus_of(DOCUMENTS), tokenizer, cache_dir=tmp_path).folder
    names = {f"{name}.npy" for name in ARRAYS} | {"meta.json"}
    assert {path.name for path in folder.iterdir()} == names
    assert all(np.load(folder / f"{name}.npy").ndim == 1 for name in ARRAYS)
    assert json.loads((folder / "meta.json").read_text())["format_version"] == store.FORMAT_VERSION


@given(st.text(alphabet=st.characters(max_codepoint=0x3100, exclude_categories=["Cs"])))
def test_visible_characters_are_those_that_split_keeps(text):
    assert visible_characters(text) == len("".join(text.split()))
