"""Findings -> one HTML page that needs nothing else: no script, no font, no request.

The same findings give the same bytes: no date, no machine, no path but those of the settings.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from html import escape

from ablate import __version__
from ablate.inspect.findings import SHOWN_SETTINGS, Findings
from ablate.inspect.histograms import Histogram
from ablate.inspect.lines import Line
from ablate.inspect.percentages import bar_words, cells_of, percent
from ablate.inspect.rows import LEGEND, Row, Token, line_names
from ablate.inspect.style import STYLE


def page(findings: Findings) -> str:
    """The whole document."""
    rows = ""
    if findings.rows:
        rows = (
            f"<h2>The first {len(findings.rows)} rows of epoch {findings.options.epoch}</h2>\n"
            + "\n".join(_row(row) for row in findings.rows)
            + _legend()
        )
    command = f"{findings.options.command} --html FILE"
    parts = [
        f"<h1>{escape(_title(findings))}</h1>",
        f"<p><code>{escape(command)}</code></p>",
        rows,
        "<h2>What was achieved</h2>",
        f"<p>Over {escape(findings.scope)}.</p>",
        _table(findings.lines),
        *(
            f"<p>{escape(text)}</p>"
            for text in (findings.summary, findings.reason, findings.intervals_note)
            if text
        ),
        *map(_histogram, findings.histograms),
        _collocations(findings),
        _settings(findings),
    ]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(_title(findings))}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n"
        + "\n".join(part for part in parts if part)
        + "\n</body>\n</html>\n"
    )


def _title(findings: Findings) -> str:
    policy = findings.policy
    named = [word for word in findings.options.overrides if word.startswith("masking=")]
    return f"Masked rows, {named[-1] if named else f'masking.selection={policy.selection}'}"


def _token(token: Token) -> str:
    before, original, after = map(escape, token.parts)
    if token.style == "text":
        return original
    hidden = f"<i>{original}</i>" if token.style == "masked" else original
    return f'<span class="{token.style}">{before}{hidden}{after}</span>'


def _row(row: Row) -> str:
    tokens = row.tokens
    predicted = sum(token.predicted for token in tokens)
    pair = f" <b>{escape(row.pair)}</b>" if row.pair else ""
    lines = []
    for name, line in zip(line_names(row), row.lines, strict=True):
        text = ""
        for token in line:
            text += ("" if token.attached or not text else " ") + _token(token)
        lines.append(f"<p>{f'<small>{name}</small>' if name else ''}{text}</p>")
    return (
        f'<section class="row">\n<p class="small"><b>row {row.number}</b> {len(tokens)} tokens, '
        f"{predicted} predicted{pair}</p>\n" + "\n".join(lines) + "\n</section>"
    )


def _legend() -> str:
    entries = "\n".join(
        f'<li><span class="{key}">{escape(example)}</span> {escape(meaning)}</li>'
        for key, (example, meaning) in LEGEND.items()
    )
    return f'\n<ul class="legend">\n{entries}\n</ul>'


def _table(lines: list[Line]) -> str:
    heads = ("quantity", "nominal", "count / total", "share", "95% interval", "inside")
    kinds = ("num", "num", "num", "why", "num")
    rows, group = [], ""
    for line in lines:
        cells = cells_of(line)
        first = ' class="first"' if line.group != group else ""
        group = line.group
        note = f"<small>{escape(line.note)}</small>" if line.note else ""
        inside = f'<b class="out">{cells.inside}</b>' if line.inside is False else cells.inside
        values = (cells.nominal, cells.counted, cells.share, cells.interval + note, inside)
        rows.append(
            f"<tr{first}><th>{escape(line.name)}<small>{escape(line.counted)}</small></th>"
            + "".join(
                f'<td class="{kind}" data-label="{head}">{value}</td>' if value else "<td></td>"
                for head, value, kind in zip(heads[1:], values, kinds, strict=True)
            )
            + "</tr>"
        )
    head = "".join(f"<th>{name}</th>" for name in heads)
    return (
        f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n"
        + "\n".join(rows)
        + ("\n</tbody>\n</table>")
    )


def _histogram(histogram: Histogram) -> str:
    """Bars as wide as their shares; a line across the bar stands at the nominal share."""
    longest = max((max(b.share, b.nominal or 0.0) for b in histogram.bars), default=0.0) or 1.0
    rows = []
    for bar in histogram.bars:
        tick = ""
        if bar.nominal is not None:
            tick = f'<s style="left:{100 * bar.nominal / longest:.2f}%"></s>'
        nominal = f", nominal {percent(bar.nominal)}" if bar.nominal is not None else ""
        rows.append(
            f'<div class="bar"><b>{bar.label}</b><div class="track">'
            f'<i style="width:{100 * bar.share / longest:.2f}%"></i>{tick}</div>'
            f"<span>{percent(bar.share)}{nominal} <small>{bar_words(bar)}</small></span></div>"
        )
    note = f'\n<p class="small">{escape(histogram.note)}</p>' if histogram.note else ""
    return f"<h2>{escape(histogram.title)}</h2>\n" + "\n".join(rows) + note


def _collocations(findings: Findings) -> str:
    if not findings.collocations:
        return ""
    rows = "\n".join(
        f"<tr><th>{escape(entry['text'])}</th>"
        f'<td class="num" data-label="words">{entry["words"]}</td>'
        f'<td class="num" data-label="PMI">{entry["pmi"]:.2f}</td>'
        f'<td class="num" data-label="occurrences">{entry["occurrences"]:,}</td></tr>'
        for entry in findings.collocations
    )
    head = "<th>n-gram</th><th>words</th><th>PMI</th><th>occurrences</th>"
    return (
        "<h2>Collocations that rank first</h2>\n"
        f"<p>{escape(findings.collocation_list)}</p>\n<table>\n"
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}\n</tbody>\n</table>"
    )


def _settings(findings: Findings) -> str:
    every = asdict(findings.settings)
    shown = json.dumps({name: every[name] for name in SHOWN_SETTINGS}, indent=1, ensure_ascii=False)
    return (
        f"<details><summary>Settings, ablate {__version__}</summary>\n"
        f"<pre>{escape(shown)}</pre>\n</details>"
    )
