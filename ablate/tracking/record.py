"""The run folder: what is true about a run, in plain files that survive any kill.

`record.json` is written to a temporary name and renamed; `metrics.jsonl` gets one flushed line a
logging step, and on resume loses the lines after the checkpoint that is continued. Nothing here
imports torch or W&B: reports read these files alone.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

STATUSES = ("running", "complete", "interrupted", "failed")


def write_atomically(path: Path, text: str) -> None:
    """Write to a temporary name, flush, rename: a reader sees the old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with open(temporary, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def write_json(path: Path, value: Any) -> None:
    """`write_atomically` as indented JSON with keys in the order given; no NaN."""
    write_atomically(path, json.dumps(value, indent=2, allow_nan=False) + "\n")


def read_json(path: Path) -> Any:
    """The content of a JSON file, or None where there is none or it is not JSON."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, json.JSONDecodeError):
        return None


def read_kept(path: Path, kind: type) -> Any:
    """What was kept in a file that nothing can replace, or None where there is no such file.

    Raises:
        ValueError: it is damaged, or holds something else than a `kind`.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (UnicodeDecodeError, json.JSONDecodeError):
        found = None
    if not isinstance(found, kind):
        raise ValueError(
            f"{path} is damaged; put back a copy of it, or move its folder away (runs are kept "
            "elsewhere; what was locked and decided is forgotten then)"
        )
    return found


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the folder for this process; another one waits, and says so.

    The lock is the kernel's (flock) and ends with its owner, however that ends. It holds between
    processes of one machine and on file systems that support flock.
    """
    try:
        import fcntl
    except ImportError:  # not a POSIX system: nothing to lock with
        yield
        return
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "w", encoding="ascii") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"another process works in {folder}; waiting for it", file=sys.stderr, flush=True)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


class RunFolder:
    """One run's folder and its record.

    The record is a dict whose `status` is one of `STATUSES`; `update` merges keys and writes it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.record: dict[str, Any] = read_json(path / "record.json") or {}

    @property
    def status(self) -> str | None:
        return self.record.get("status")

    def update(self, **values: Any) -> None:
        if values.get("status") not in (None, *STATUSES):
            raise AssertionError(values["status"])
        write_json(self.path / "record.json", {**self.record, **values})  # may refuse a NaN
        self.record.update(values)

    @property
    def metrics(self) -> MetricsFile:
        return MetricsFile(self.path / "metrics.jsonl")


class MetricsFile:
    """Append-only JSON lines {"step", "tokens", metric: value}."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, step: int, metrics: dict[str, float]) -> None:
        """One line, flushed. Values as they come, rounded to 9 significant digits."""
        row = {"step": step, **{name: float(f"{value:.9g}") for name, value in metrics.items()}}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps(row, allow_nan=True) + "\n")

    def rows(self) -> list[dict[str, float]]:
        """All whole lines; a line torn by a kill is left out."""
        if not self.path.exists():
            return []
        found = []
        for line in self.path.read_text(encoding="utf-8").split("\n"):
            try:
                found.append(json.loads(line))
            except json.JSONDecodeError:
                continue
        return found

    def keep(self, wanted: Callable[[dict[str, float]], bool]) -> None:
        """Drop the lines that are not `wanted`: a resumed run writes them again."""
        if self.path.exists():
            kept = [json.dumps(row) + "\n" for row in self.rows() if wanted(row)]
            write_atomically(self.path, "".join(kept))
