"""The page: one file, well formed and escaped. `test_browser` looks at it in a browser."""

import html.parser
import re

import pytest

from ablate.report.build import write
from ablate.report.markdown import escape

VOID = {"meta", "link", "br", "hr", "img", "input", "wbr"}


class Balanced(html.parser.HTMLParser):
    """Fails where a tag is closed that is not open."""

    def __init__(self):
        super().__init__()
        self.open, self.ids, self.tags = [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.ids += [value for name, value in attrs if name == "id"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.ids += [value for name, value in attrs if name == "id"]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def parsed(text):
    page = Balanced()
    page.feed(text)
    page.close()
    assert not page.open
    return page


def test_page_is_balanced_and_asks_for_nothing(three, make, tmp_path):
    text = (write(three, tmp_path / "reports", make.runs_dir) / "report.html").read_text()
    page = parsed(text)
    assert not re.search(r"https?:|//\w", text.split("<script>")[0])
    assert len(page.ids) == len(set(page.ids))
    for tag, attributes in page.tags:
        for name in ("src", "href", "xlink:href"):
            assert (attributes.get(name) or "#")[0] == "#" or attributes[name].startswith("data:")
        assert tag not in ("iframe", "object", "embed")
    assert ("meta", "width=device-width, initial-scale=1") in {
        (tag, attributes.get("content")) for tag, attributes in page.tags
    }
    assert "prefers-color-scheme: dark" in text
    for name in re.findall(r"url\(#([\w-]+)\)", text):
        assert name in page.ids


def test_texts_are_escaped(make, tmp_path):
    evil = "<script>alert(1)</script> | `x` & **y** [z](javascript:1)"
    folder = write(make({"all_mask": 0.0}, question=evil), tmp_path / "reports")
    text = (folder / "report.html").read_text()
    parsed(text)
    assert text.count("<script>") == 1
    assert "&lt;script&gt;alert(1)" in text
    for name in (folder / "README.md", tmp_path / "reports" / "README.md"):
        assert "<script" not in name.read_text()
        assert "](javascript" not in name.read_text()


@pytest.mark.parametrize(
    ("text", "shown"),
    [("a_b", "a_b"), ("_a_", "\\_a\\_"), ("a|b", "a\\|b"), ("# a", "\\# a"), ("a\nb", "a b")],
)
def test_markdown_is_escaped_where_it_would_be_read(text, shown):
    assert escape(text) == shown
