"""Words are letters, tokens of one word are joined by "|": "a b" or "c|d a"."""

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from ablate.inputs import collocations
from ablate.inputs.collocations import HashIndex, collocation_units, ngram_hashes, words_of

IDS: dict[str, int] = {"[SEP]": 0}


def encode(text):
    """(ids, word begins) of words."""
    pieces = [word.split("|") for word in text.split()]
    ids = [IDS.setdefault(piece, len(IDS)) for word in pieces for piece in word]
    return np.array(ids), np.array([i == 0 for word in pieces for i in range(len(word))])


def gram_hash(gram):
    ids, begins = encode(" ".join(gram))
    words = words_of(ids, begins, np.ones(len(ids), bool))
    return ngram_hashes(words.hashes, len(gram))[-1].tolist()[0]


def test_words_differ_by_where_they_are_cut_and_in_which_order():
    grams = [["c|d"], ["d|c"], ["c", "d"], ["d", "c"], ["c"], ["c", "d", "c"], ["c|d", "c"]]
    assert len({gram_hash(gram) for gram in grams}) == len(grams)


def indexes_of(*grams):
    """Indexes for n = 2, 3, ... of n-grams given as texts."""
    longest = max(len(gram.split()) for gram in grams)
    sizes = [[g.split() for g in grams if len(g.split()) == n] for n in range(2, longest + 1)]
    return [HashIndex(np.array(sorted(gram_hash(g) for g in s), np.uint64)) for s in sizes]


def units_of(text, uniforms, indexes):
    """Units as texts; [SEP] is not eligible."""
    ids, begins = encode(text)
    heads = collocation_units(ids, begins, ids != 0, np.array(uniforms), indexes)
    assert np.array_equal(heads == -1, ids == 0)
    names = list(IDS)
    return [" ".join(names[i] for i in ids[heads == head]) for head in np.unique(heads[heads >= 0])]


def test_longest_listed_ngram_wins_whatever_the_uniforms():
    indexes = indexes_of("a b", "b c|d e", "e f")
    for uniforms in ([0.1, 0.9, 0.5, 0.5, 0.2, 0.3], [0.9, 0.8, 0.5, 0.5, 0.1, 0.3]):
        assert units_of("a b c|d e f", uniforms, indexes) == ["a", "b c d e", "f"]


def test_smaller_uniform_wins_among_overlapping_pairs():
    indexes = indexes_of("a b", "b c", "c d")
    assert units_of("a b c d", [0.2, 0.1, 0.3, 0.0], indexes) == ["a", "b c", "d"]
    assert units_of("a b c d", [0.1, 0.2, 0.3, 0.0], indexes) == ["a b", "c d"]


def test_units_do_not_cross_a_separator():
    indexes = indexes_of("a b")
    assert units_of("a [SEP] b a b", [0.5] * 5, indexes) == ["a", "b", "a b"]


WORDS = ("a", "b", "c|d", "c", "d", "d|c")
ROWS = st.lists(st.lists(st.sampled_from(WORDS), max_size=9), min_size=1, max_size=5)
LISTED = indexes_of(
    "a b", "b a", "b c|d", "c d", "c|d d|c", "a b a", "b a b", "c d c d", "a a a a b"
)


def batch_of(rows, seed):
    ids, begins = encode("[SEP] " + " ".join(" ".join([*row, "[SEP]"]) for row in rows))
    return ids, begins, ids != 0, np.random.default_rng(seed).random(len(ids))


@settings(max_examples=60, deadline=None)
@given(ROWS, st.integers(0, 99))
def test_units_tile_the_eligible_positions_with_whole_words_and_listed_ngrams(rows, seed):
    ids, begins, eligible, uniforms = batch_of(rows, seed)
    heads = collocation_units(ids, begins, eligible, uniforms, LISTED)
    assert np.array_equal(heads >= 0, eligible)
    for head in np.unique(heads[heads >= 0]):
        places = np.flatnonzero(heads == head)
        assert np.array_equal(places, np.arange(head, head + len(places)))
        assert begins[head]
        assert begins[places[-1] + 1], "the unit ends inside a word"
        words = words_of(ids[places], begins[places], eligible[places])
        n = len(words.hashes)
        assert n == 1 or LISTED[n - 2].find(ngram_hashes(words.hashes, n)[-1])[0] >= 0


@settings(max_examples=60, deadline=None)
@given(ROWS, st.integers(0, 99))
def test_row_alone_gives_what_it_gives_in_a_batch(rows, seed):
    batch = batch_of(rows, seed)
    together = collocation_units(*batch, LISTED)
    ends = np.flatnonzero(~batch[2])
    for begin, end in itertools.pairwise(ends):
        alone = collocation_units(*(part[begin : end + 1] for part in batch), LISTED)
        assert np.array_equal(np.where(alone < 0, -1, alone + begin), together[begin : end + 1])


def test_compiled_loops_agree_with_plain_python(monkeypatch):
    rows = np.random.default_rng(1).choice(WORDS, size=(20, 8))
    batch = batch_of(rows.tolist(), 3)
    compiled = collocation_units(*batch, LISTED)
    monkeypatch.setattr(collocations, "compiled", lambda loop: loop)
    assert np.array_equal(compiled, collocation_units(*batch, LISTED))
    assert len(np.unique(compiled)) < 150, "next to nothing was joined"


def test_index_finds_what_is_there_and_nothing_else():
    values = np.random.default_rng(0).integers(0, 2**64, 3000, dtype=np.uint64)
    low = np.arange(50, dtype=np.uint64)  # all in one bucket
    for listed in (np.sort(values[:1000]), np.sort(np.append(low[::2], values[:9])), values[:0]):
        wanted = np.concatenate([values, low, [np.uint64(2**64 - 1)]])
        places = {value: place for place, value in enumerate(listed.tolist())}
        expected = [places.get(value, -1) for value in wanted.tolist()]
        assert HashIndex(listed).find(wanted).tolist() == expected
