"""The page in headless Chromium: no overlap, legible, sorts, no error on the console, no request.

Chromium is driven over its own pipe (`--remote-debugging-pipe`: JSON messages that end in a zero
byte), so that a test needs no other package and sees the console and every request of the browser.
"""

import base64
import fcntl
import itertools
import json
import os
import select
import shutil
import subprocess
import time

import pytest

from ablate.report.build import write
from ablate.study.design import Gate

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-dev-shm-usage", "--hide-scrollbars", "--remote-debugging-pipe",
)  # fmt: skip


class Browser:
    """One Chromium with one page."""

    def __init__(self, path, profile):
        theirs, ours = os.pipe(), os.pipe()
        # above 9, so that the shell below, which puts them at 3 and 4, treads on neither
        read, write = (fcntl.fcntl(fd, fcntl.F_DUPFD, 10) for fd in (theirs[0], ours[1]))
        self.process = subprocess.Popen(
            ["bash", "-c", f'exec "$@" 3<&{read} 4>&{write}', "bash", path, *FLAGS,
             f"--user-data-dir={profile}", "about:blank"],
            pass_fds=(read, write), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        for fd in (read, write, theirs[0], ours[1]):
            os.close(fd)
        self.out, self.inn = os.fdopen(theirs[1], "wb"), os.fdopen(ours[0], "rb", buffering=0)
        self.numbers, self.session, self.events, self.rest = itertools.count(1), None, [], b""
        pages = self.call("Target.getTargets")["targetInfos"]
        page = next(target["targetId"] for target in pages if target["type"] == "page")
        attached = self.call("Target.attachToTarget", targetId=page, flatten=True)
        self.session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def _message(self):
        while b"\0" not in self.rest:
            assert select.select([self.inn], [], [], 60)[0], "chromium has said nothing for 60 s"
            part = self.inn.read(1 << 20)
            assert part, f"chromium is gone, exit code {self.process.poll()}"
            self.rest += part
        message, _, self.rest = self.rest.partition(b"\0")
        return json.loads(message)

    def _send(self, method, params):
        number = next(self.numbers)
        message = {"id": number, "method": method, "params": params}
        message |= {"sessionId": self.session} if self.session else {}
        self.out.write(json.dumps(message).encode() + b"\0")
        self.out.flush()
        return number

    def call(self, method, **params):
        number = self._send(method, params)
        while True:
            found = self._message()
            if found.get("id") == number:
                assert "error" not in found, f"{method}: {found}"
                return found["result"]
            self.events.append(found)

    def evaluate(self, code):
        found = self.call("Runtime.evaluate", expression=code, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def open(self, address, width, *, scheme="light", height=900):
        """Load a page at a width, as a phone does below 500 pixels."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1,
            mobile=width < 500,
        )  # fmt: skip
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.call("Emulation.setEmulatedMedia", features=[feature])
        for step in ("about:blank", address):
            self.events.clear()
            self.call("Page.navigate", url=step)
            self._until("Page.loadEventFired")

    def _until(self, event):
        end = time.monotonic() + 60
        while not any(e.get("method") == event for e in self.events):
            assert time.monotonic() < end, f"no {event}"
            self.events.append(self._message())

    def click(self, code):
        """A click of the mouse on the middle of an element."""
        x, y = self.evaluate(
            f"(() => {{ const e = {code}; e.scrollIntoView({{block: 'center', inline: 'center'}});"
            "const b = e.getBoundingClientRect(); return [b.x + b.width / 2, b.y + b.height / 2];"
            "})()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def key(self, name, code):
        for kind in ("rawKeyDown", "char", "keyUp"):
            text = {"text": "\r"} if kind == "char" else {}
            self.call(
                "Input.dispatchKeyEvent", type=kind, key=name, windowsVirtualKeyCode=code, **text
            )

    def said(self):
        """Exceptions, console messages and entries of the log."""
        kinds = ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded")
        return [e["params"] for e in self.events if e.get("method") in kinds]

    def requests(self):
        """Addresses that the page asked for, its own among them; `data:` is no request."""
        sent = [e for e in self.events if e.get("method") == "Network.requestWillBeSent"]
        found = [e["params"]["request"]["url"] for e in sent]
        return [address for address in found if not address.startswith("data:")]

    def screenshot(self):
        """The whole page as PNG."""
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        found = self.call("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
        return base64.b64decode(found["data"])

    def close(self):
        self.session = None
        self._send("Browser.close", {})  # its answer may never come
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.out.close()
        self.inn.close()


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        pytest.skip("no chromium on the path: apt-get install chromium")
    found = Browser(path, tmp_path_factory.mktemp("profile"))
    yield found
    found.close()


LOOK = """
(() => {
  const found = {wide: document.documentElement.scrollWidth, width: innerWidth, size: 99};
  const over = (a, b) => [Math.min(a.right, b.right) - Math.max(a.left, b.left),
                          Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top)];
  const pairs = (boxes, wide, high) => boxes.flatMap(([name, a], i) => boxes.slice(i + 1)
    .filter(([, b]) => over(a, b)[0] > wide && over(a, b)[1] > high).map(([b]) => [name, b]));
  const box = e => [e.textContent.slice(0, 60), e.getBoundingClientRect()];
  found.blocks = pairs([...document.querySelectorAll("h1, h2, p, ul, pre, .box, figure")].map(box),
                       1, 1);
  found.texts = []; found.cut = [];
  for (const svg of document.querySelectorAll("svg")) {
    const boxes = [...svg.querySelectorAll("text")].map(box).filter(([, b]) => b.width);
    const frame = svg.getBoundingClientRect();
    found.texts.push(...pairs(boxes, 1.5, 4.5));
    found.cut.push(...boxes.filter(([, b]) => b.left < frame.left - 2 || b.right > frame.right + 2)
      .map(([t]) => t));
    const scale = frame.width / svg.viewBox.baseVal.width;
    for (const text of svg.querySelectorAll("text"))
      found.size = Math.min(found.size, parseFloat(getComputedStyle(text).fontSize) * scale);
  }
  for (const cell of document.querySelectorAll("th, td, li, p, figcaption, h1")) {
    const words = document.createRange(); words.selectNodeContents(cell);
    const inner = words.getBoundingClientRect(), outer = cell.getBoundingClientRect();
    if (inner.right > outer.right + 1 || inner.left < outer.left - 1 ||
        inner.bottom > outer.bottom + 1) found.cut.push(cell.textContent.slice(0, 60));
  }
  const lines = cell => { const words = document.createRange(); words.selectNodeContents(cell);
    return new Set([...words.getClientRects()].map(b => Math.round(b.top))).size; };
  found.broken = [...document.querySelectorAll("tbody th")].filter(c => lines(c) > 1)
    .map(c => c.textContent);
  const paper = getComputedStyle(document.body).backgroundColor;
  found.paper = paper.match(/\\d+/g).slice(0, 3).map(Number);
  return found;
})()
"""
NAMES = {
    "few": lambda i: f"arm_{i}",
    "many": lambda i: f"arm_{i:02d}_of_a_rate_{i}",
    "long": lambda i: f"ANameThatNothingBreaks{i}AndThatGoesOnForMuchLongerThanAnyone-reads_it",
}
ARMS = {"few": 6, "many": 40, "long": 4}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Reports by kind, each written once: (result, address)."""
    return {}


def _shuffled(number, count):
    return (count - 1) * (number + 2) % count


def report_of(kind, made, make, tmp_path):
    if kind in made:
        return made[kind]
    count, name = ARMS[kind], NAMES[kind]
    effects = {name(i): (_shuffled(i, count) - count / 2) / (10 * count) for i in range(count)}
    more = {}
    if kind == "long":
        gate = Gate("val/token_mask/accuracy", 0.9, "masked-LM accuracy above a trigram's")
        gone = [("standard", 3), *((name(3), seed) for seed in range(5))]
        more = {"failed": [(name(0), 1)], "missing": gone, "gates": [gate], "changes": ["a: 1, 2"]}
    result = make(effects, curves=True, more_scores=10 if kind == "many" else 0, **more)
    folder = write(result, tmp_path / "reports", make.runs_dir)
    made[kind] = result, (folder / "report.html").as_uri()
    return made[kind]


@pytest.mark.parametrize("kind", ["few", "many", "long"])
@pytest.mark.parametrize("width", [390, 1280])
def test_page_fits_and_nothing_overlaps_or_is_cut(browser, made, make, tmp_path, kind, width):
    _, address = report_of(kind, made, make, tmp_path)
    browser.open(address, width)
    seen = browser.evaluate(LOOK)
    assert seen["wide"] <= seen["width"] == width
    assert seen["blocks"] == []
    assert seen["texts"] == []
    assert seen["cut"] == []
    assert 9 <= seen["size"] < 99
    assert kind == "long" or width == 390 or seen["broken"] == []
    assert browser.said() == []
    assert browser.requests() == [address]


@pytest.mark.parametrize("width", [390, 1280])
def test_a_table_sorts_by_click_and_by_key(browser, made, make, tmp_path, width):
    result, address = report_of("few", made, make, tmp_path)
    browser.open(address, width)
    names = "[...document.querySelector('tbody').rows].map(row => row.cells[0].textContent)"
    head = "[...document.querySelectorAll('th button')].find(b => b.textContent === 'difference')"
    by_difference = sorted(result.decisions, key=lambda n: result.decisions[n].difference)
    assert browser.evaluate(names) == list(result.decisions) != by_difference
    browser.click(head)
    assert browser.evaluate(names) == by_difference
    assert browser.evaluate(f"{head}.parentNode.getAttribute('aria-sort')") == "ascending"
    browser.evaluate(f"{head}.focus()")
    browser.key("Enter", 13)
    assert browser.evaluate(names) == by_difference[::-1]
    assert browser.said() == []
    assert browser.requests() == [address]


def test_a_page_is_dark_where_the_reader_asks_for_it(browser, made, make, tmp_path):
    _, address = report_of("few", made, make, tmp_path)
    papers = {}
    for scheme in ("light", "dark"):
        browser.open(address, 1280, scheme=scheme)
        papers[scheme] = browser.evaluate(LOOK)["paper"]
        (tmp_path / f"{scheme}.png").write_bytes(browser.screenshot())  # for a person to look at
    assert min(papers["light"]) > 200
    assert max(papers["dark"]) < 60


def test_what_the_browser_would_report_is_seen(browser, tmp_path):
    """The three checks above can fail: a page with an error, a message and two requests."""
    page = tmp_path / "bad.html"
    page.write_text(
        "<!doctype html><img src='gone.png'><script>console.warn('x'); fetch('b.json')"
        ".catch(() => 0); setTimeout(() => { throw Error('y') })</script>"
        "<p style='width:900px'>wide</p><h1 style='margin-top:-40px'>on it</h1>"
    )
    browser.open(page.as_uri(), 390)
    seen = browser.evaluate(LOOK)
    assert seen["wide"] > 390
    assert seen["blocks"]
    assert len(browser.said()) >= 3
    assert page.with_name("gone.png").as_uri() in browser.requests()
