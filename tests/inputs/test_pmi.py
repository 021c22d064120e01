"""Words are letters, tokens of one word are joined by "|": "new york" or "al|pha bet"."""

import itertools
import math
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ablate.inputs import collocations, ngram_counts, pmi
from ablate.inputs.ngram_counts import frequent_ngrams, sentences_of
from ablate.inputs.pmi import build_list, pmi_scores, quotas_of

IDS: dict[str, int] = {"[UNK]": 0}


def encode(text):
    """(ids, word begins) of words."""
    pieces = [word.split("|") for word in text.split()]
    ids = [IDS.setdefault(piece, len(IDS)) for word in pieces for piece in word]
    return ids, [i == 0 for word in pieces for i in range(len(word))]


def decode(ids):
    return " ".join(list(IDS)[i] for i in ids)


def store_of(*documents):
    """Each document is a list of sentences."""
    pairs = [[encode(sentence) for sentence in document] for document in documents]
    flat = [pair for document in pairs for pair in document]
    lengths = [len(ids) for ids, _ in flat]
    sizes = [sum(len(ids) for ids, _ in document) for document in pairs]
    return SimpleNamespace(
        hash=repr(documents),
        tokens=np.array([i for ids, _ in flat for i in ids], dtype=np.uint16),
        word_starts=np.array([begin for _, begins in flat for begin in begins], dtype=bool),
        sentence_starts=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        document_starts=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
    )


def list_of(store, cache_dir, **settings):
    settings = {"num_ngrams": 1000, "max_words": 3, "min_count": 2, **settings}
    documents = settings.pop("documents", np.arange(len(store.document_starts) - 1))
    return build_list(store, documents, cache_dir=cache_dir, **settings)


def texts(ngrams, store, n):
    return [example.text for example in ngrams.examples(store, decode, n, 1000)]


def levels_of(store, max_words, min_count=1, **chunks):
    documents = np.arange(len(store.document_starts) - 1)
    found = sentences_of(store, documents, max_tokens=10**9, special_ids=np.array([0]))
    return frequent_ngrams(found, max_words=max_words, min_count=min_count, **chunks)


def scores_of(store, max_words, min_count=1):
    """n-gram as text -> (PMI, count)."""
    levels = levels_of(store, max_words, min_count)
    found = {}
    for level, scores in zip(levels[1:], pmi_scores(store, levels), strict=True):
        for i, start in enumerate(level.starts):
            tokens = store.tokens[start : start + level.lengths[i]]
            begins = store.word_starts[start : start + level.lengths[i]]
            marks = np.where(begins, " ", "|")
            joined = "".join(f"{m}{decode([t])}" for m, t in zip(marks, tokens, strict=True))
            found[joined[1:]] = (scores[i], level.counts[i])
    return found


INDEPENDENT = ["of the"] * 25 + ["of of"] * 25 + ["the the"] * 25 + ["the of"] * 25


def test_new_york_ranks_first_and_of_the_last(tmp_path):
    store = store_of(["new york"] * 20 + INDEPENDENT + ["the of"] * 5)
    ngrams = list_of(store, tmp_path, max_words=2)
    found = ngrams.examples(store, decode, 2, 10)
    # 125 pairs, 250 words: new and york 20 each, of and the 105 each
    assert found[0].text == "new york"
    assert found[0].pmi == pytest.approx(math.log((20 / 125) / (20 / 250) ** 2))
    assert found[0].num_occurrences == 20
    assert found[1].text == "the of"
    assert {example.text for example in found[2:]} == {"of the", "of of", "the the"}
    assert found[2].pmi == pytest.approx(math.log((25 / 125) / (105 / 250) ** 2))


def test_strong_pair_beside_any_word_is_no_strong_triple():
    sentences = [f"new york {word}" for word in ("a", "b", "c", "d")] * 5
    sentences += ["x y z"] * 5 + [" ".join(w) for w in itertools.product("abcd", repeat=3)]
    found = scores_of(store_of(sentences), 3)
    triples = len(sentences)
    pair, word = 20 / (2 * triples), Counter(" ".join(sentences).split())["a"] / (3 * triples)
    assert found["new york a"][0] == pytest.approx(math.log(5 / triples / (pair * word)))
    assert found["x y z"][0] > found["new york"][0] > 2 * found["new york a"][0]


WORDS = ("a", "b", "c|d", "c", "d", "d|c", "[UNK]")
SENTENCES = st.lists(st.lists(st.sampled_from(WORDS), min_size=1, max_size=7), min_size=1)


@settings(max_examples=60, deadline=None)
@given(SENTENCES, st.integers(1, 3))
def test_counts_and_pmi_are_those_of_all_segmentations_listed(sentences, min_count):
    counts, places = Counter(), Counter()
    for sentence in sentences:
        for text in " ".join(sentence).split("[UNK]"):
            words = text.split()
            for n, i in itertools.product(range(1, 6), range(len(words))):
                if i + n <= len(words):
                    counts[tuple(words[i : i + n])] += 1
                    places[n] += 1
    log_p = {gram: math.log(count / places[len(gram)]) for gram, count in counts.items()}
    found = scores_of(store_of([" ".join(sentence) for sentence in sentences]), 5, min_count)
    passed = {g for g, count in counts.items() if len(g) > 1 and count >= min_count}
    assert set(found) == {" ".join(gram) for gram in passed}
    for gram in passed:
        n = len(gram)
        sums = [
            sum(log_p[gram[i:j]] for i, j in itertools.pairwise([0, *inner, n]))
            for cuts in range(1, n)
            for inner in itertools.combinations(range(1, n), cuts)
        ]
        score, count = found[" ".join(gram)]
        assert count == counts[gram]
        assert score == pytest.approx(log_p[gram] - max(sums), abs=1e-8)


def test_no_ngram_crosses_a_sentence_or_an_unknown_token():
    found = scores_of(store_of(["a b", "c d"], ["e [UNK] f", "[UNK] g h"]), 3)
    assert set(found) == {"a b", "c d", "g h"}


def test_min_count_itself_is_enough():
    store = store_of(["a b"] * 3 + ["c d"] * 2)
    assert set(scores_of(store, 2, min_count=3)) == {"a b"}


def test_chunks_and_order_of_documents_do_not_change_the_list(tmp_path):
    words = np.random.default_rng(0).choice(["a", "b", "c|d", "e"], size=(80, 6))
    store = store_of(*[[" ".join(row)] for row in words])
    whole = levels_of(store, 5)
    for chunk_tokens in (1, 13):
        for ours, theirs in zip(levels_of(store, 5, chunk_tokens=chunk_tokens), whole, strict=True):
            assert ours.index.hashes.tolist() == theirs.index.hashes.tolist()
            assert ours.counts.tolist() == theirs.counts.tolist()
            assert ours.starts.tolist() == theirs.starts.tolist()
    one = list_of(store, tmp_path / "1")
    other = list_of(store, tmp_path / "2", documents=np.arange(80)[::-1])
    assert one.meta == other.meta
    assert one.hash == other.hash


@pytest.mark.parametrize("max_tokens", [16, 17])
def test_only_the_given_documents_and_tokens_are_counted(tmp_path, max_tokens):
    store = store_of(["a b"] * 4, ["c d"] * 4, ["e f"] * 4, ["g h"] * 4)
    ngrams = list_of(store, tmp_path, documents=np.array([0, 2, 3]), max_tokens=max_tokens)
    assert set(texts(ngrams, store, 2)) == {"a b", "e f"}
    assert ngrams.meta["tokens_available"] == 24
    assert ngrams.meta["tokens_counted"] == 16
    assert ngrams.meta["covered_share"] == 1.0


def test_shares_are_those_of_the_paper_and_add_up():
    assert quotas_of(800_000, 5) == {2: 400_000, 3: 200_000, 4: 100_000, 5: 100_000}
    assert quotas_of(7, 2) == {2: 7}
    assert quotas_of(9, 3) == {2: 6, 3: 3}
    assert sum(quotas_of(1001, 4).values()) == 1001


def test_best_of_each_length_are_kept_and_only_above_zero(tmp_path):
    store = store_of(["a b"] * 10 + ["c d e"] * 9 + INDEPENDENT + ["the of"] * 40)
    ngrams = list_of(store, tmp_path, num_ngrams=3)
    assert set(texts(ngrams, store, 2)) == {"c d", "d e"}
    assert texts(ngrams, store, 3) == ["c d e"]
    every = list_of(store, tmp_path)
    assert every.meta["candidates"]["2"] == 7
    assert every.meta["with_positive_pmi"]["2"] == every.meta["kept"]["2"] == 4
    assert every.pmi.min() > 0.0
    assert "of the" not in texts(every, store, 2)


def test_second_call_reads_the_cache(tmp_path, monkeypatch):
    store = store_of(["a b"] * 4, ["a b"])
    first = list_of(store, tmp_path)

    def refuse(*args, **kwargs):
        raise RuntimeError("counted again")

    monkeypatch.setattr(pmi, "frequent_ngrams", refuse)
    second = list_of(store, tmp_path)
    assert second.hash == first.hash
    assert second.folder == first.folder
    for change in ({"num_ngrams": 7}, {"max_words": 4}, {"min_count": 3}, {"max_tokens": 8}):
        with pytest.raises(RuntimeError, match="counted again"):
            list_of(store, tmp_path, **change)
    with pytest.raises(RuntimeError, match="counted again"):
        list_of(store, tmp_path, special_ids=[0])
    with pytest.raises(RuntimeError, match="counted again"):
        list_of(store, tmp_path, documents=np.array([0]))


def test_hash_names_the_set_of_ngrams(tmp_path):
    store = store_of(["a b", "c d e"] * 4)
    lists = [list_of(store, tmp_path, num_ngrams=num) for num in (1000, 2000, 1)]
    assert lists[0].hash == lists[1].hash != lists[2].hash


@pytest.mark.parametrize("min_count", [10, 1])
def test_no_ngram_left_is_told_with_what_to_type(tmp_path, min_count):
    store = store_of(["a", "b"])
    with pytest.raises(ValueError, match=f"masking.pmi_min_count={min_count}.*type for example"):
        list_of(store, tmp_path, min_count=min_count)
    assert not list(tmp_path.rglob("meta.json"))


def test_compiled_loops_agree_with_plain_python(tmp_path, monkeypatch):
    words = np.random.default_rng(1).choice(["a", "b", "c|d", "e", "f"], size=(200, 8))
    store = store_of([" ".join(row) for row in words])
    compiled = list_of(store, tmp_path / "compiled", max_words=5)
    monkeypatch.setattr(collocations, "compiled", lambda loop: loop)
    monkeypatch.setattr(ngram_counts, "compiled", lambda loop: loop)
    plain = list_of(store, tmp_path / "plain", max_words=5)
    assert compiled.meta == plain.meta
    assert all(np.array_equal(getattr(compiled, n), getattr(plain, n)) for n in pmi.ARRAYS)


def test_table_that_grows_keeps_counts_and_first_places():
    hashes = np.random.default_rng(2).integers(0, 500, 4000, dtype=np.uint64)
    table = ngram_counts.Tally(capacity=2)
    for part in np.array_split(np.arange(4000), 7):
        table.add(hashes[part], np.ones_like(part), part, part + 1)
    found, counts, starts, lengths = table.sorted(9)
    keys, first, expected = np.unique(hashes, return_index=True, return_counts=True)
    assert np.array_equal(found, keys[expected >= 9])
    assert np.array_equal(counts, expected[expected >= 9])
    assert np.array_equal(starts, first[expected >= 9])
    assert np.array_equal(lengths, starts + 1)
