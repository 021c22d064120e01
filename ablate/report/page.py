"""`Report` with its figures -> one HTML page that needs nothing else: no font, no file, no request.

Colours of the figures become the page's own, so that they follow light and dark. Every table sorts
by a click or a key on its heads.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from html import escape

from ablate.report.content import Block, Bullets, Cell, Code, Figure, Paragraph, Report, Table
from ablate.report.drawing import BAND, EDGE, FAINT, INK, PAPER, PHONE_POINTS
from ablate.report.style import SCRIPT, STYLE

_LONG_NAME = 28  # signs; a longer one is broken
_VARIABLES = {INK: "--ink", FAINT: "--faint", EDGE: "--edge", PAPER: "--paper", BAND: "--band"}


def page(report: Report, drawings: Mapping[str, str]) -> str:
    """The whole document; `drawings[name]` is the SVG of a figure."""
    parts = [f"<h1>{escape(report.title)}</h1>"]
    for section in report.sections:
        parts.append(f"<h2>{escape(section.heading)}</h2>")
        figures = [b for b in section.blocks if isinstance(b, Figure)]
        if figures:
            shown = "\n".join(_figure(figure, drawings[figure.name]) for figure in figures)
            parts.append(f'<div class="figures">\n{shown}\n</div>')
        parts += [_block(b, section.heading) for b in section.blocks if not isinstance(b, Figure)]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<link rel="icon" href="data:,">\n'
        f"<title>{escape(report.title)}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n"
        + "\n".join(parts)
        + f"\n<script>\n{SCRIPT}</script>\n</body>\n</html>\n"
    )


def _block(block: Block, heading: str) -> str:
    if isinstance(block, Paragraph):
        strong = ' class="strong"' if block.strong else ""
        return f"<p{strong}>{escape(block.text)}</p>"
    if isinstance(block, Bullets):
        items = "\n".join(f"<li>{escape(item)}</li>" for item in block.items)
        return f"<ul>\n{items}\n</ul>"
    if isinstance(block, Code):
        return f"<pre><code>{escape(block.text)}</code></pre>"
    assert isinstance(block, Table)
    return _table(block, heading)


def _table(table: Table, heading: str) -> str:
    heads = "".join(
        f'<th scope="col" data-kind="{"text" if name in table.words else "number"}"'
        f"{'' if name in table.words else ' class=num'}>"
        f'<button type="button">{escape(name)}</button></th>'
        for name in table.columns
    )
    rows = []
    for row in table.rows:
        cells = [
            _cell(cell, name in table.words, number == 0)
            for number, (cell, name) in enumerate(zip(row, table.columns, strict=True))
        ]
        rows.append(f"<tr>{''.join(cells)}</tr>")
    note = f'\n<p class="note">{escape(table.caption)}</p>' if table.caption else ""
    return (
        f'<div class="box" tabindex="0" role="region" aria-label="{escape(heading)}">\n<table>\n'
        f"<thead><tr>{heads}</tr></thead>\n<tbody>\n" + "\n".join(rows) + "\n</tbody>\n</table>\n"
        f"</div>{note}"
    )


def _cell(cell: Cell, is_text: bool, is_head: bool) -> str:
    text = escape(cell.text)
    if is_head:
        long = ' class="long"' if len(cell.text) > _LONG_NAME else ""
        text = re.sub("([_-])", r"\1<wbr>", text)  # where a narrow page may break a name
        return f'<th scope="row"{long}>{text}</th>'
    if cell.kind:
        return f'<td class="kind {escape(cell.kind)}">{text}</td>'
    if not is_text:
        return (
            f'<td class="num" data-key="{"" if cell.key is None else repr(cell.key)}">{text}</td>'
        )
    kind = "long" if len(cell.text) > 40 else "words"
    return f'<td class="{kind}">{text}</td>'


def _figure(figure: Figure, drawing: str) -> str:
    width = float(re.findall(r'<svg[^>]* width="([\d.]+)pt"', drawing)[0])
    wide = ' class="wide"' if width > PHONE_POINTS + 1 else ""
    return (
        f"<figure{wide}>\n<figcaption><b>{escape(figure.title)}.</b> {escape(figure.caption)}"
        f'</figcaption>\n<div class="plot">{inlined(drawing, figure.name, figure.title)}</div>\n'
        "</figure>"
    )


def alone(drawing: str, name: str, title: str) -> str:
    """An SVG file as a small page of its own, in the page's colours."""
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f"<title>{escape(title)}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n"
        f'<div class="plot">{inlined(drawing, name, title)}</div>\n</body>\n</html>\n'
    )


def inlined(drawing: str, name: str, title: str) -> str:
    """An SVG file as a part of a page: no prolog, no addresses, its own ids, the page's colours."""
    text = drawing[drawing.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r' xmlns(:\w+)?="[^"]*"', "", text)
    text = text.replace("xlink:href=", "href=")
    text = re.sub(r'\bid="', f'id="{name}-', text)
    text = re.sub(r"url\(#", f"url(#{name}-", text)
    text = re.sub(r'href="#', f'href="#{name}-', text)
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    for color, variable in _VARIABLES.items():
        text = text.replace(color, f"var({variable})")
    text = re.sub(r"<svg ", f'<svg role="img" aria-label="{escape(title)}" ', text, count=1)
    return text.strip()
