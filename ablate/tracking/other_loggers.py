"""A run's rows, scores and tables -> CSV files, or TensorBoard's event files, in the run's folder.

Both are written anew by a process that continues a run: it replays the rows of those before it.
"""

from __future__ import annotations

import csv
import importlib.util
import math
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ablate.tracking.tracker import Table, Tracker


def check_installed(kind: str) -> None:
    """Refuse a tracker whose package is missing.

    Raises:
        ValueError: naming what to install.
    """
    if kind == "tensorboard" and importlib.util.find_spec("tensorboard") is None:
        raise ValueError(
            "tracking=tensorboard needs the package tensorboard: pip install 'ablate[tensorboard]';"
            " tracking=csv needs none"
        )


class CsvTracker(Tracker):
    """`metrics.csv` (a row a logging step, a column a metric), `final.csv`, a file a table."""

    name = "CSV tracker"

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder
        self._rows: list[dict[str, float]] = []
        self._columns: list[str] = []

    def _write(self, name: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        with open(self._folder / name, "w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(columns)
            writer.writerows(rows)

    def _log(self, row: dict[str, float]) -> None:
        self._rows.append(row)
        new = [name for name in row if name not in self._columns]
        if new or len(self._rows) == 1:  # a new column is a new header: all is written again
            first = [name for name in ("step", "tokens") if name in (*self._columns, *new)]
            rest = [name for name in (*self._columns, *new) if name not in first]
            self._columns = [*first, *rest]
            cells = ([r.get(name, "") for name in self._columns] for r in self._rows)
            self._write("metrics.csv", self._columns, cells)
            return
        with open(self._folder / "metrics.csv", "a", encoding="utf-8", newline="") as file:
            csv.writer(file).writerow([row.get(name, "") for name in self._columns])

    def _summary(self, values: dict[str, Any]) -> None:
        self._write("final.csv", ("name", "value"), values.items())

    def _tables(self, tables: Mapping[str, Table]) -> None:
        for name, (columns, rows) in tables.items():
            self._write(f"{name}.csv", columns, rows)


class TensorBoardTracker(Tracker):
    """Event files under `tensorboard/`, the x axis in tokens."""

    name = "TensorBoard tracker"

    def __init__(self, folder: Path) -> None:
        super().__init__()
        check_installed("tensorboard")
        self._place, self._tokens = folder / "tensorboard", 0
        self._made: Any = None

    @property
    def _writer(self) -> Any:
        if self._made is None:
            from torch.utils.tensorboard import SummaryWriter

            shutil.rmtree(self._place, ignore_errors=True)
            self._made = SummaryWriter(log_dir=str(self._place))
        return self._made

    def _log(self, row: dict[str, float]) -> None:
        self._tokens = int(row.get("tokens", self._tokens))
        for name, value in row.items():
            if name != "tokens" and math.isfinite(value):
                self._writer.add_scalar(name, value, self._tokens)
        self._writer.flush()

    def _summary(self, values: dict[str, Any]) -> None:
        for name, value in values.items():
            if isinstance(value, (int, float)):
                self._writer.add_scalar(f"final/{name}", value, self._tokens)

    def _tables(self, tables: Mapping[str, Table]) -> None:
        for name, (columns, rows) in tables.items():
            lines = [columns, ["---"] * len(columns), *rows]
            text = "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)
            self._writer.add_text(name, text, self._tokens)

    def _finish(self, exit_code: int) -> None:
        if self._made is not None:
            self._made.close()
