"""Findings -> the text of a terminal. The marks say everything; colour repeats it."""

from __future__ import annotations

import os
from typing import TextIO

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from ablate.inspect.findings import Findings
from ablate.inspect.histograms import Histogram
from ablate.inspect.lines import Line
from ablate.inspect.percentages import bar_words, cells_of, percent
from ablate.inspect.rows import (
    LEGEND,
    MASKED,
    REPLACED,
    SPECIAL,
    TEXT,
    VISIBLE,
    Row,
    Token,
    line_names,
)

STYLES = {
    MASKED: "bold black on bright_cyan",
    REPLACED: "bold black on bright_yellow",
    VISIBLE: "bold black on bright_green",
    "unpredicted": "bold white on magenta",
    SPECIAL: "dim",
    TEXT: "",
}
HIDDEN = "italic bright_cyan"  # the word behind [MASK]
_BAR = 28  # columns of the longest bar


class _Console(Console):
    """Leaves a reader that went away to the caller; rich would end the process with code 1."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def console(file: TextIO, color: str) -> Console:
    """A console with colour, or one that writes plain text.

    `auto` is colour on a terminal, unless NO_COLOR is set or TERM is dumb.
    """
    dumb = os.environ.get("NO_COLOR") or os.environ.get("TERM") in ("dumb", "unknown")
    on = color == "always" or (color == "auto" and file.isatty() and not dumb)
    width = None if file.isatty() or os.environ.get("COLUMNS") else 100
    return _Console(
        file=file,
        force_terminal=on,
        color_system="standard" if on else None,
        no_color=not on,
        width=width,
        markup=False,
        emoji=False,
        highlight=False,
        legacy_windows=False,
    )


def show(findings: Findings, out: Console) -> None:
    """Rows, legend, table, histograms."""
    out.print(Text(findings.options.command, "bold"))
    if findings.rows:
        first = f"The first {len(findings.rows)} rows of epoch {findings.options.epoch}"
        _heading(out, first)
        for row in findings.rows:
            _row(out, row)
        _legend(out)
    _heading(out, "What was achieved")
    out.print(Text(f"Over {findings.scope}."))
    out.print(_table(findings.lines))
    for text in (findings.intervals_note, "", findings.summary, findings.reason):
        out.print(Text(text))
    for histogram in findings.histograms:
        _heading(out, histogram.title)
        out.print(_bars(histogram))
        if histogram.note:
            out.print(Text(histogram.note, "dim"))
    if findings.collocations:
        _heading(out, "Collocations that rank first")
        out.print(Text(findings.collocation_list))
        out.print(_collocations(findings))


def _heading(out: Console, title: str) -> None:
    out.print()
    out.print(Rule(Text(title, "bold"), align="left", characters="─", style="dim"))


def row_text(line: list[Token]) -> Text:
    """A line of tokens, each mark in its style."""
    text = Text()
    for token in line:
        if len(text) and not token.attached:
            text.append(" ")
        before, original, after = token.parts
        style = STYLES[token.style]
        text.append(before, style)
        text.append(original, HIDDEN if token.style == MASKED else style)
        text.append(after, style)
    return text


def _row(out: Console, row: Row) -> None:
    tokens = row.tokens
    predicted = sum(token.predicted for token in tokens)
    title = Text(f"row {row.number}", "bold")
    title.append(f"  {len(tokens)} tokens, {predicted} predicted", "dim")
    if row.pair:
        title.append(f"  {row.pair}", "bold")
    out.print(title)
    for name, line in zip(line_names(row), row.lines, strict=True):
        out.print(Text.assemble((name, "dim"), row_text(line)))
    out.print()


def _legend(out: Console) -> None:
    grid = Table.grid(padding=(0, 2))
    for key, (example, meaning) in LEGEND.items():
        grid.add_row(Text.assemble((example, STYLES[key])), Text(meaning))
    out.print(grid)


def _table(lines: list[Line]) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("quantity")
    for name in ("nominal", "count / total", "share"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("95% interval", overflow="fold")
    table.add_column("inside")
    group = lines[0].group if lines else ""
    for line in lines:
        if line.group != group:
            table.add_section()
            group = line.group
        cells = cells_of(line)
        quantity = Text.assemble(line.name, (f"\n{line.counted}", "dim"))
        where = Text(cells.interval)
        if line.note:
            where.append(("\n" if cells.interval else "") + line.note, "dim")
        mark = Text(cells.inside, "bold red" if line.inside is False else "green")
        table.add_row(quantity, cells.nominal, cells.counted, cells.share, where, mark)
    return table


def _bars(histogram: Histogram) -> Table:
    table = Table.grid(padding=(0, 2))
    for justify in ("right", "left", "right", "right", "left"):
        table.add_column(justify=justify, no_wrap=True)  # type: ignore[arg-type]
    longest = max((max(b.share, b.nominal or 0.0) for b in histogram.bars), default=0.0)
    has_law = any(bar.nominal is not None for bar in histogram.bars)
    has_interval = any(bar.interval is not None for bar in histogram.bars)
    behind = "95% interval, count" if has_interval else "count"
    table.add_row("", "", "share", "nominal" if has_law else "", behind)
    for bar in histogram.bars:
        filled = round(_BAR * bar.share / longest) if longest else 0
        signs = "█" * filled + " " * (_BAR - filled)
        drawn = Text(signs, "cyan")
        if bar.nominal is not None and longest:
            place = min(round(_BAR * bar.nominal / longest), _BAR - 1)
            drawn = Text.assemble(
                (signs[:place], "cyan"), ("│", "bold"), (signs[place + 1 :], "cyan")
            )
        table.add_row(bar.label, drawn, percent(bar.share), percent(bar.nominal), bar_words(bar))
    return table


def _collocations(findings: Findings) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for name in ("words", "n-gram", "PMI", "occurrences"):
        table.add_column(name, justify="left" if name == "n-gram" else "right")
    for entry in findings.collocations:
        table.add_row(
            str(entry["words"]),
            Text(entry["text"]),
            f"{entry['pmi']:.2f}",
            f"{entry['occurrences']:,}",
        )
    return table
