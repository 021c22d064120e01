"""The page: one file, well formed, escaped, and in a real browser without a request or an error."""

import html.parser
import json
import re
import shutil
import subprocess

import pytest

from ablate.report.build import write
from ablate.report.markdown import escape

VOID = {"meta", "link", "br", "hr", "img", "input"}


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


PROBE = """
<script>
window.addEventListener("load", () => {
  const table = document.querySelector("table"), found = {errors: window.failed ?? []};
  const first = () => [...table.tBodies[0].rows].map(row => row.cells[0].textContent);
  const heads = [...table.querySelectorAll("th button")];
  const button = heads.find(head => head.textContent === "difference");
  button.focus(); found.focused = document.activeElement === button;
  button.click(); found.up = first(); found.sort = button.parentNode.getAttribute("aria-sort");
  button.click(); found.down = first();
  found.requests = performance.getEntriesByType("resource").map(entry => entry.name);
  found.wide = document.documentElement.scrollWidth; found.width = innerWidth;
  found.texts = [...document.querySelectorAll("svg")].flatMap(svg => {
    const boxes = [...svg.querySelectorAll("text")].map(t => [t.textContent,
      t.getBoundingClientRect()]).filter(([t, b]) => b.width);
    return boxes.flatMap(([t, b], i) => boxes.slice(i + 1).filter(([u, c]) =>
      Math.min(b.right, c.right) - Math.max(b.left, c.left) > 1.5 &&
      Math.min(b.bottom, c.bottom) - Math.max(b.top, c.top) > 4.5).map(([u]) => [t, u]));
  });
  parent.postMessage(JSON.stringify(found), "*");
});
</script>
"""
ERRORS = "<head><script>window.failed=[];window.onerror=m=>window.failed.push(m)</script>"


def seen_by_chromium(page, tmp_path, width):
    """What a script inside the page sees at this width; skips where there is no browser."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    if browser is None:
        pytest.skip("no chromium on the path: apt-get install chromium")
    inner, outer = tmp_path / "inner.html", tmp_path / f"outer{width}.html"
    inner.write_text(page.replace("<head>", ERRORS, 1).replace("</body>", PROBE + "</body>"))
    outer.write_text(
        "<!doctype html><body><pre id=seen></pre><script>onmessage = e => "
        "document.getElementById('seen').textContent = e.data</script>"
        f"<iframe src='inner.html' style='width:{width}px;height:900px;border:0'></iframe>"
    )
    done = subprocess.run(
        [
            browser, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom",
            "--virtual-time-budget=4000", f"--user-data-dir={tmp_path / 'profile'}",
            "--window-size=1400,1000", outer.as_uri(),
        ],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    found = re.search(r'<pre id="seen">(.*?)</pre>', done.stdout, flags=re.DOTALL)
    return json.loads(html.unescape(found[1]))


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("arms", [3, 30])
def test_browser_sorts_fits_and_asks_for_nothing(make, tmp_path, width, arms):
    effects = {f"arm_{i:02d}_that_has_a_long_name": (7 * i % arms - 9) / 100 for i in range(arms)}
    result = make(effects, curves=True)
    page = (write(result, tmp_path / "reports", make.runs_dir) / "report.html").read_text()
    seen = seen_by_chromium(page, tmp_path, width)
    assert seen["errors"] == []
    assert seen["requests"] == []
    assert seen["focused"]
    assert seen["sort"] == "ascending"
    by_difference = sorted(effects, key=lambda n: result.decisions[n].difference)
    assert seen["up"] == by_difference
    assert seen["down"] == by_difference[::-1]
    assert seen["wide"] <= seen["width"] == width
    assert seen["texts"] == []
