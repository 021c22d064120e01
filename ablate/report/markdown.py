"""`Report` -> README.md, as GitHub shows it. Texts are escaped: none can break a table."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ablate.report.content import Block, Bullets, Code, Figure, Paragraph, Report, Table

_SPECIAL = re.compile(r"([\\`*|$~])")
_OUTER = re.compile(r"(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")


def escape(text: str) -> str:
    """Plain text as Markdown that shows it, on one line."""
    text = " ".join(text.split())
    text = _SPECIAL.sub(r"\\\1", text)
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    text = _OUTER.sub(r"\\_", text).replace("](", "]\\(")
    return re.sub(r"^([#+-]|\d+[.)])(?=\s)", r"\\\1", text)


BESIDE = ("results.csv", "verdicts.json", "table.tex")  # a study's other files


def markdown(report: Report, *, beside: Sequence[str] = BESIDE) -> str:
    """The whole file; `beside` are files that it links to."""
    parts = [f"# {escape(report.title)}"]
    for section in report.sections:
        parts.append(f"## {escape(section.heading)}")
        parts += map(_block, section.blocks)
    parts.append(
        "Also here: [report.html](report.html) (one page with everything, also for phones), "
        + ", ".join(f"[{name}]({name})" for name in beside)
        + "."
    )
    return "\n\n".join(parts) + "\n"


def _block(block: Block) -> str:
    if isinstance(block, Paragraph):
        return f"> {escape(block.text)}" if block.strong else escape(block.text)
    if isinstance(block, Bullets):
        return "\n".join(f"- {escape(item)}" for item in block.items)
    if isinstance(block, Code):
        longest = max((len(run) for run in re.findall(r"`+", block.text)), default=0)
        fence = "`" * max(longest + 1, 3)
        return f"{fence}\n{block.text}\n{fence}"
    if isinstance(block, Figure):
        return f"![{escape(block.title)}](figures/{block.name}.svg)\n\n{escape(block.caption)}"
    return _table(block)


def _table(table: Table) -> str:
    def line(cells: list[str]) -> str:
        return "| " + " | ".join(cells) + " |"

    lines = [
        line([escape(name) for name in table.columns]),
        line(["---" if name in table.words else "---:" for name in table.columns]),
        *(line([escape(cell.text) for cell in row]) for row in table.rows),
    ]
    return "\n".join(lines) + (f"\n\n{escape(table.caption)}" if table.caption else "")
