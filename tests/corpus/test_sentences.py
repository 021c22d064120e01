"""Documents -> sentences: where the cuts are, and that nothing is lost."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ablate.corpus.sentences import split_sentences


@pytest.mark.parametrize(
    ("document", "sentences"),
    [
        ("One. Two! Three?", ["One.", "Two!", "Three?"]),
        ("He said “Go.” Then he went.", ["He said “Go.”", "Then he went."]),
        ('"Why?!" (She left.) Yes', ['"Why?!"', "(She left.)", "Yes"]),
        ("costs 1.5 or a.b, see x.y", ["costs 1.5 or a.b, see x.y"]),
        ("no stop\nnext line\r\nthird\rfourth", ["no stop", "next line", "third", "fourth"]),
        ("a b .\nc d .", ["a b .", "c d ."]),
        ("Wait... What", ["Wait...", "What"]),
        ("  \n\n. \n", ["."]),
        ("", []),
    ],
)
def test_cuts_by_hand(document, sentences):
    assert split_sentences(document) == sentences


def test_only_the_three_line_breaks_end_a_line():
    assert split_sentences("two\u2029half\x85x\u2028y\x0cz") == ["two\u2029half\x85x\u2028y\x0cz"]


@given(st.text(alphabet='ab.!?"”) \n\r\t\u2028é', max_size=60))
def test_nothing_but_blanks_is_lost_and_no_sentence_is_empty(document):
    sentences = split_sentences(document)
    assert all(sentence == sentence.strip() and sentence for sentence in sentences)
    assert not any("\n" in sentence or "\r" in sentence for sentence in sentences)
    assert re.sub(r"\s", "", "".join(sentences)) == re.sub(r"\s", "", document)
