"""Counts by hand and by a second, slow way."""

import itertools
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ablate.evaluation.ngram_baseline import count, count_before


def counted(documents, vocab_size=20, chosen=None, count=count, **options):
    lengths = [len(document) for document in documents]
    kind = np.uint16 if vocab_size <= 1 << 16 else np.uint32
    store = SimpleNamespace(
        tokens=np.array([token for document in documents for token in document], dtype=kind),
        document_starts=np.concatenate([[0], np.cumsum(lengths)]),
    )
    chosen = np.arange(len(documents)) if chosen is None else np.array(chosen)
    return count(store, chosen, vocab_size=vocab_size, **options)


def one(baseline, left, right):
    return int(baseline.predict(np.array([left]), np.array([right]))[0])


DOCUMENTS = [[5, 6, 7], [5, 6, 7], [5, 8, 7], [9, 8, 9, 8, 9, 8], [5, 8], [5, 8]]


def test_trigram_then_the_better_bigram_then_unigram():
    baseline = counted(DOCUMENTS)
    assert one(baseline, 5, 7) == 6  # 5 6 7 twice, 5 8 7 once
    assert one(baseline, 5, 9) == 8  # never around a token; 5 8 three times, 8 9 twice
    assert one(baseline, 9, -1) == 8  # the right neighbour is hidden
    assert one(baseline, -1, 6) == 5
    assert one(baseline, 7, -1) == 8  # nothing follows 7: the most frequent token
    assert one(baseline, -1, -1) == 8
    assert one(baseline, 19, 19) == 8


def test_counts_stay_inside_documents_and_ties_go_to_the_smallest_id():
    baseline = counted([[5, 6], [7, 8]])
    assert one(baseline, 6, -1) == 5  # not 7: 6 and 7 are in two documents
    assert one(counted([[5, 7, 5, 6]]), 5, -1) == 6


def test_only_the_given_documents_and_no_more_than_the_cap():
    documents = [[5, 6, 5, 6], [7, 8], [9, 9, 9, 9, 9, 9]]
    assert one(counted(documents, chosen=[0, 1]), -1, -1) == 5
    assert counted(documents, max_tokens=6).num_tokens == 6
    assert counted(documents, max_tokens=11).num_tokens == 6
    assert counted(documents, max_tokens=1).num_tokens == 4, "at least one document"


def test_accuracies_hide_masked_special_and_foreign_neighbours():
    baseline = counted(DOCUMENTS)
    # [CLS] 5 [MASK] 7 [SEP] | [CLS] 9 [MASK] [MASK] [SEP] | 7 [MASK] | [MASK]
    ids = np.array([2, 5, 4, 7, 3, 2, 9, 4, 4, 3, 7, 4, 4])
    starts = np.array([0, 5, 10, 12, 13])
    positions, labels = np.array([2, 7, 8, 11, 12]), np.array([6, 8, 9, 9, 8])
    scores = baseline.accuracies(ids, starts, positions, labels, hidden_ids=range(5))
    # trigram 6: right; 9 then hidden -> 8: right; both hidden -> 8: wrong; after 7 -> 8: wrong;
    # alone in its row -> 8: right
    assert scores == {"trigram_accuracy": 3 / 5, "unigram_accuracy": 2 / 5}
    assert ids[2] == 4, "the input is not changed"
    kept = np.array([5, 4, 7])  # the 7 is predicted too, though shown: 6 cannot be told from it
    scores = baseline.accuracies(
        kept, np.array([0, 3]), np.array([1, 2]), np.array([6, 8]), hidden_ids=range(5)
    )
    assert scores["trigram_accuracy"] == 0.5
    nothing = np.empty(0, dtype=np.int64)
    assert baseline.accuracies(ids, starts, nothing, nothing, hidden_ids=range(5)) == {}


def slow(documents, left, right):
    def best(counter):
        return min(counter.items(), key=lambda item: (-item[1], item[0]), default=(-1, 0))

    triples = Counter()
    after, before = Counter(), Counter()
    for document in documents:
        triples.update(
            b for a, b, c in zip(document, document[1:], document[2:], strict=False)
            if (a, c) == (left, right)
        )  # fmt: skip
        after.update(b for a, b in itertools.pairwise(document) if a == left)
        before.update(a for a, b in itertools.pairwise(document) if b == right)
    if triples:
        return best(triples)[0]
    from_left, from_right = best(after), best(before)
    token = from_left[0] if from_left[1] >= from_right[1] else from_right[0]
    return token if token >= 0 else best(Counter(t for d in documents for t in d))[0]


TOKEN = st.integers(0, 6)


@given(
    documents=st.lists(st.lists(TOKEN, max_size=12), min_size=1, max_size=6).filter(any),
    sides=st.lists(st.tuples(st.integers(-1, 7), st.integers(-1, 7)), min_size=1, max_size=10),
    vocab_size=st.sampled_from([8, 8192, 70_000]),
)
def test_the_same_as_counting_slowly(documents, sides, vocab_size):
    baseline = counted(documents, vocab_size)
    left, right = map(np.array, zip(*sides, strict=True))
    want = [slow(documents, a, b) for a, b in sides]
    assert baseline.predict(left, right).tolist() == want


def test_a_vocabulary_too_large_to_pack_is_refused():
    with pytest.raises(ValueError, match="2,000,000"):
        counted([[1, 2, 3]], vocab_size=3_000_000)


def test_the_next_token_is_foretold_by_the_two_before_then_the_one_then_the_most_frequent():
    before = counted([[5, 6, 7], [5, 6, 7], [5, 6, 8], [9, 6, 8], [10, 6, 8]], count=count_before)
    asked = [(5, 6, 7), (9, 6, 8), (11, 6, 8), (-1, 6, 8), (-1, 5, 6), (8, 9, 6), (5, 8, 6)]
    earlier, last, wanted = (np.array(side) for side in zip(*asked, strict=True))
    assert before.predict(earlier, last).tolist() == wanted.tolist()
    assert before.num_tokens == 15


def test_the_two_before_stay_inside_documents_rows_and_text():
    before = counted([[5, 6, 5, 6], [7, 8]], count=count_before)
    assert before.predict(np.array([5]), np.array([6])).tolist() == [5]  # not 7, of the next one
    apart = counted([[5, 6], [7, 8], [7, 9], [7, 9]], count=count_before)
    assert apart.predict(np.array([6]), np.array([7])).tolist() == [9]  # 6 | 7 8 is no trigram
    ids = np.array([2, 5, 6, 3, 7, 7])  # [CLS] 5 6 [SEP] | 7 7: of position 4 the row begins anew
    found = before.accuracies(ids, np.array([0, 4, 6]), np.array([0, 1, 4]), [5, 6, 8], range(5))
    assert found == {"trigram_accuracy": 1.0, "unigram_accuracy": pytest.approx(1 / 3)}


@given(
    st.lists(st.lists(st.integers(5, 8), max_size=12), min_size=1, max_size=6),
    st.integers(5, 8), st.integers(5, 8),
)  # fmt: skip
def test_the_token_after_two_is_the_one_counted_most_often(documents, first, second):
    follows = Counter(
        d[i + 2] for d in documents for i in range(len(d) - 2) if d[i : i + 2] == [first, second]
    )
    if sum(map(len, documents)) and follows:
        before = counted(documents, count=count_before)
        best = min(follows, key=lambda token: (-follows[token], token))
        assert before.predict(np.array([first]), np.array([second])).tolist() == [best]
