"""The page stands alone, is the same for the same settings, and shows a corpus as text."""

import re
from html.parser import HTMLParser

import pytest

VOID = {"meta", "br"}


class Checker(HTMLParser):
    """Collects tags, attributes and text; every tag must be closed in order."""

    def __init__(self):
        super().__init__()
        self.open, self.attributes, self.text = [], [], []

    def handle_starttag(self, tag, attrs):
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open[-1:] != ["style"]:
            self.text.append(data)


@pytest.fixture
def page(inspect, tmp_path):
    def make(*words, name="page.html"):
        code, _, err = inspect(*words, "--html", name)
        assert code == 0, err
        return (tmp_path / name).read_text(encoding="utf-8")

    return make


@pytest.mark.parametrize("preset", ["bert_80_10_10", "span", "wettig_corrupt40_predict20"])
def test_page_asks_for_nothing_and_is_well_formed(page, preset):
    text = page(f"masking={preset}")
    checker = Checker()
    checker.feed(text)
    assert checker.open == []
    assert not {"src", "href", "srcset", "action", "onload"} & {n for n, _ in checker.attributes}
    assert not re.search(r"url\(|@import|<script|<link|<img|<iframe|http", text)
    assert "prefers-color-scheme: dark" in text
    assert "width=device-width" in text


def test_page_is_the_same_bytes_for_the_same_settings(page):
    assert page("masking=span") == page("masking=span", name="again.html")
    assert page("masking=span") != page("masking=span", "seed=1")


def test_page_escapes_what_a_corpus_holds(page, strange_corpus):
    text = page(*strange_corpus, "tokenizer=byte_bpe", "tokenizer.vocab_size=400", "--rows", "9")
    checker = Checker()
    checker.feed(text)
    assert checker.open == []
    body = text.split("<body>")[1]
    assert "\x1b" not in body
    assert "<b>bold" not in body
    assert "&lt;" in body
    said = "".join(checker.text)
    assert "café" in said
    assert "☃" in said


def test_page_says_the_command_and_the_table(page, findings):
    text = page("masking=whole_word", "--rows", "2")
    assert "python -m ablate.inspect corpus.num_documents=60" in text
    assert "masking=whole_word --rows 2 --tokens 3000 --html FILE" in text
    for line in findings("masking=whole_word", "--rows", "2")["table"]:
        assert f"{line['count']:,} / {line['total']:,}" in text
