"""A file of examples -> rows with named fields; a label as written there -> its number.

jsonl: one object a line. parquet: label numbers are turned into names where the file carries its
own (written by `datasets`), because another file may count its classes in another order. tsv: a
header line, tabs, no quoting - GLUE's own files hold stray quotes that a csv reader would pair up.
csv: a header line, quoting as in RFC 4180.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

FORMATS = ("jsonl", "parquet", "tsv", "csv")


def task_folder(path: str | Path, suite: str, name: str) -> Path:
    """`<path>/<name>`, or `<path>/<suite>/<name>` where only that is there, or `<path>` itself
    where neither is and it holds a file named `train`."""
    root = Path(path).expanduser()
    for folder in (root / name, root / suite / name):
        if folder.is_dir():
            return folder
    if any((root / f"train.{suffix}").is_file() for suffix in FORMATS):
        return root
    return root / name


def read_rows(file: Path) -> list[dict[str, Any]]:
    """All rows of a .jsonl, .tsv, .csv or .parquet file.

    Raises:
        ValueError: unreadable, or not what its suffix says; names the file and the line.
    """
    try:
        if file.suffix == ".jsonl":
            with file.open(encoding="utf-8") as lines:
                return [_json_row(file, i, line) for i, line in enumerate(lines, 1) if line.strip()]
        if file.suffix == ".tsv":
            return _tsv_rows(file, file.read_text(encoding="utf-8"))
        if file.suffix == ".csv":
            with file.open(encoding="utf-8-sig", newline="") as lines:
                return _csv_rows(file, lines)
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


def _csv_rows(file: Path, lines: TextIO) -> list[dict[str, Any]]:
    try:
        table = [cells for cells in csv.reader(lines, strict=True) if cells]
    except csv.Error as error:
        raise ValueError(f"{file} is not a readable csv file: {error}") from error
    header = table[0] if table else []
    for number, cells in enumerate(table, 1):
        if len(cells) != len(header):
            raise ValueError(
                f"{file}, row {number} has {len(cells)} cells, the header has {len(header)} "
                f"({header}); a cell that holds a comma stands in double quotes"
            )
    return [dict(zip(header, cells, strict=True)) for cells in table[1:]]


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
        rows = named_labels(rows, column, feature_names(feature))
    return rows


def feature_names(feature: Any) -> Any:
    """Names that a stored feature carries, one of a column of lists among them; None if none."""
    while isinstance(feature, dict) and isinstance(feature.get("feature"), dict):
        feature = feature["feature"]
    return feature.get("names") if isinstance(feature, dict) else None


def named_labels(rows: list[dict[str, Any]], column: str, names: Any) -> list[dict[str, Any]]:
    """Label numbers, or those in lists, replaced by the source's names; a hidden -1 stays."""
    if not names:
        return rows
    if rows and isinstance(rows[0][column], list):
        return [{**row, column: [_named(i, names) for i in row[column] or ()]} for row in rows]
    numbered = [isinstance(row[column], int) and row[column] >= 0 for row in rows]
    return [
        {**row, column: names[row[column]]} if known else row
        for row, known in zip(rows, numbered, strict=True)
    ]


def _named(label: Any, names: Any) -> Any:
    return names[label] if isinstance(label, int) and label >= 0 else label


def regression_value(label: Any) -> float:
    """A finite regression value."""
    number = _number(label)
    if not math.isfinite(number):
        raise ValueError(f"label {label!r}, wanted a number")
    return number


def class_reader(labels: tuple[str, ...]) -> Callable[[Any], int]:
    """Label as found in a file (name or number) -> class number.

    Raises:
        ValueError: names that could be read as other classes' numbers.
    """
    check_label_names(labels)
    names = {plain_name(name): index for index, name in enumerate(labels)}

    def read(label: Any) -> int:
        if isinstance(label, str) and plain_name(label) in names:
            return names[plain_name(label)]
        number = _number(label)
        if number in range(len(labels)):
            return int(number)
        hidden = " (hidden: predicted_splits predicts it)" if number == -1 else ""
        allowed = ", ".join(f"{index} = {name}" for index, name in enumerate(labels))
        raise ValueError(f"label {label!r}{hidden}, allowed are {allowed}")

    return read


def check_label_names(labels: tuple[str, ...], where: str = "") -> None:
    """Refuse a name that is the number of another class: "1" in a csv and 1 in a jsonl would be
    two classes.

    Raises:
        ValueError: a numeral that is not its own place among the labels.
    """
    for index, name in enumerate(labels):
        number = _number(name)
        if math.isfinite(number) and number != index:
            raise ValueError(
                f"{where}labels={list(labels)}: {name} stands in place {index}, and a number in a "
                f"file is a place (0 = {labels[0]}); allowed are words, or the numbers "
                f"{list(range(len(labels)))} in this order. For example labels: "
                f"{[f'class_{label}' for label in labels]}, with the same words in the files"
            )


def _number(label: Any) -> float:
    """NaN where it is none."""
    try:
        return float(label)
    except (TypeError, ValueError):
        return math.nan


def plain_name(name: Any) -> str:
    """Names are compared without regard to case, and `-` or a space count as `_`."""
    return str(name).strip().casefold().replace("-", "_").replace(" ", "_")
