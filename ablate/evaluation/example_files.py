"""A file of examples -> rows with named fields; a label as written there -> its number.

jsonl: one object a line. parquet: label numbers are turned into names where the file carries its
own (written by `datasets`), because another file may count its classes in another order. tsv: a
header line, tabs, no quoting - GLUE's own files hold stray quotes that a csv reader would pair up.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

FORMATS = ("jsonl", "parquet", "tsv")


def read_rows(file: Path) -> list[dict[str, Any]]:
    """All rows of a .jsonl, .tsv or .parquet file.

    Raises:
        ValueError: unreadable, or not what its suffix says; names the file and the line.
    """
    try:
        if file.suffix == ".jsonl":
            with file.open(encoding="utf-8") as lines:
                return [_json_row(file, i, line) for i, line in enumerate(lines, 1) if line.strip()]
        if file.suffix == ".tsv":
            return _tsv_rows(file, file.read_text(encoding="utf-8"))
        return _parquet_rows(file)
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{file} cannot be read: {error}") from error


def _json_row(file: Path, number: int, line: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError(f"{file}, line {number} is not JSON: {error}") from error
    if not isinstance(row, dict):
        raise ValueError(f"{file}, line {number} is not an object with named fields: {line[:60]!r}")
    return row


def _tsv_rows(file: Path, text: str) -> list[dict[str, Any]]:
    lines = [line.rstrip("\r") for line in text.split("\n")]
    header = lines[0].split("\t")
    rows = []
    for number, line in enumerate(lines[1:], 2):
        if not line:
            continue
        cells = line.split("\t")
        if len(cells) != len(header):
            raise ValueError(
                f"{file}, line {number} has {len(cells)} cells, the header has {len(header)} "
                f"({header}); a tsv here is tab-separated without quoting"
            )
        rows.append(dict(zip(header, cells, strict=True)))
    return rows


def _parquet_rows(file: Path) -> list[dict[str, Any]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(file)
    except pa.ArrowException as error:
        raise ValueError(f"{file} is not a readable parquet file: {error}") from error
    carried = json.loads((table.schema.metadata or {}).get(b"huggingface", b"{}"))
    features = carried.get("info", {}).get("features", {})
    rows = table.to_pylist()
    for column, feature in features.items():
        if isinstance(feature, dict) and feature.get("names"):
            rows = named_labels(rows, column, feature["names"])
    return rows


def named_labels(rows: list[dict[str, Any]], column: str, names: Any) -> list[dict[str, Any]]:
    """Label numbers replaced by the names that the source itself gives; a hidden -1 stays."""
    if not names:
        return rows
    numbered = [isinstance(row[column], int) and row[column] >= 0 for row in rows]
    return [
        {**row, column: names[row[column]]} if known else row
        for row, known in zip(rows, numbered, strict=True)
    ]


def regression_value(label: Any) -> float:
    """A finite regression value."""
    number = _number(label)
    if not math.isfinite(number):
        raise ValueError(f"label {label!r}, wanted a number")
    return number


def class_reader(labels: tuple[str, ...]) -> Callable[[Any], int]:
    """Label as found in a file (name or number) -> class number."""
    names = {plain_name(name): index for index, name in enumerate(labels)}

    def read(label: Any) -> int:
        if isinstance(label, str) and plain_name(label) in names:
            return names[plain_name(label)]
        number = _number(label)
        if number in range(len(labels)):
            return int(number)
        hidden = " (hidden: it can be neither trained on nor scored)" if number == -1 else ""
        allowed = ", ".join(f"{index} = {name}" for index, name in enumerate(labels))
        raise ValueError(f"label {label!r}{hidden}, allowed are {allowed}")

    return read


def _number(label: Any) -> float:
    """NaN where it is none."""
    try:
        return float(label)
    except (TypeError, ValueError):
        return math.nan


def plain_name(name: Any) -> str:
    """Names are compared without regard to case, and `-` or a space count as `_`."""
    return str(name).strip().casefold().replace("-", "_").replace(" ", "_")
