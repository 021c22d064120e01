"""What a report says, apart from how it is shown: sections of paragraphs, lists, tables, figures.

Markdown and HTML are two renderings of this one content, so that neither says more. Texts here are
plain: each rendering escapes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias


@dataclass(frozen=True)
class Paragraph:
    """`strong` stands out: a warning, a verdict."""

    text: str
    strong: bool = False


@dataclass(frozen=True)
class Bullets:
    """A list of short texts."""

    items: Sequence[str]


@dataclass(frozen=True)
class Code:
    """Lines to type."""

    text: str


@dataclass(frozen=True)
class Cell:
    """`key` is what a column is sorted by: a number, or the text where it is None."""

    text: str
    key: float | None = None
    kind: str = ""  # a verdict, which the page colours


@dataclass(frozen=True)
class Table:
    """The first column names the row; the columns in `words` are text, all others are numbers."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    words: frozenset[str] = frozenset()
    caption: str = ""


@dataclass(frozen=True)
class Figure:
    """An SVG in `figures/<name>.svg`; the caption says n, interval and baseline."""

    name: str
    title: str
    caption: str


Block: TypeAlias = Paragraph | Bullets | Code | Table | Figure


@dataclass(frozen=True)
class Section:
    """A heading with what stands under it; one without blocks is left out."""

    heading: str
    blocks: Sequence[Block] = field(default_factory=tuple)


@dataclass(frozen=True)
class Report:
    """A title, and the sections that follow it."""

    title: str
    sections: Sequence[Section]
