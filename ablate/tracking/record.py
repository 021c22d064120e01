"""The run folder: what is true about a run, in plain files that survive any kill.

`record.json` is written to a temporary name and renamed; `metrics.jsonl` gets one flushed line a
logging step, and on resume loses the lines after the checkpoint that is continued. What was found
damaged, and what was done about it, is in the record's `notes`. Nothing here imports torch or W&B:
reports read these files alone.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ablate.pretraining.disk import writing

_HOST = re.sub(r"\W", "", platform.node()) or "here"  # a file system may have several
STATUSES = ("running", "complete", "interrupted", "failed")


def write_atomically(path: Path, text: str) -> None:
    """Write to a temporary name, flush, rename: a reader sees the old file or the new one."""
    temporary = path.with_name(f".{path.name}.{_HOST}.{os.getpid()}")
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with open(temporary, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


def forget_temporaries(folder: Path) -> None:
    """Remove what processes of this machine that are no more left half written."""
    for path in folder.glob(".*"):
        match = re.fullmatch(rf"\..+\.{_HOST}\.(\d+)", path.name)
        if match and path.is_file() and not _runs(int(match[1])):
            path.unlink(missing_ok=True)


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # somebody else's
        return True
    return True


def write_json(path: Path, value: Any) -> None:
    """`write_atomically` as indented JSON with keys in the order given; no NaN."""
    write_atomically(path, json.dumps(value, indent=2, allow_nan=False) + "\n")


def read_json(path: Path) -> Any:
    """The content of a JSON file, or None where there is none or it is not JSON."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError):
        return None


def read_record(folder: Path) -> dict[str, Any] | None:
    """A run's record, or None where there is none, or a damaged one."""
    found = read_json(folder / "record.json")
    return found if _is_record(found) and "status" in found else None


def _is_record(found: Any) -> bool:
    if not isinstance(found, dict) or found.get("status") not in (None, *STATUSES):
        return False
    return found.get("status") != "complete" or isinstance(found.get("scores"), dict)


def read_kept(path: Path, kind: type, valid: Callable[[Any], bool] = bool) -> Any:
    """What was kept in a file that nothing can replace, or None where there is no such file.

    Args:
        valid: says of a `kind` that is not empty whether it is what was kept.

    Raises:
        ValueError: it is damaged, or holds something else than a `kind`.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (UnicodeDecodeError, json.JSONDecodeError):
        found = None
    if not isinstance(found, kind) or (found and not valid(found)):
        raise ValueError(
            f"{path} is damaged; put back a copy of it, or move its folder away (runs are kept "
            "elsewhere; what was locked and decided is forgotten then)"
        )
    return found


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the folder for this process; another one waits, and says so.

    The lock is the kernel's (flock) and ends with its owner, however that ends: forked children,
    such as workers that load data, let go of it. It holds between processes of one machine and on
    file systems that support flock.
    """
    try:
        import fcntl
    except ImportError:  # not a POSIX system: nothing to lock with
        yield
        return
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o666)
    _held.add(lock)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.pread(lock, 20, 0).decode("ascii", "replace").strip()
            print(
                f"another process works in {folder}{owner and f' (pid {owner})'}; waiting for it",
                file=sys.stderr,
                flush=True,
            )
            fcntl.flock(lock, fcntl.LOCK_EX)
        with contextlib.suppress(OSError):  # a full disk: who waits is told no number
            os.ftruncate(lock, 0)
            os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        if lock in _held:  # else this is a child
            _held.discard(lock)
            os.close(lock)


_held: set[int] = set()


def _let_go() -> None:
    for lock in _held:
        os.close(lock)
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go)


class RunFolder:
    """One run's folder and its record.

    The record is a dict whose `status` is one of `STATUSES`; `update` merges keys and writes it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        found = read_json(path / "record.json")
        self.record: dict[str, Any] = found if _is_record(found) else {}
        if not self.record and (path / "record.json").exists():
            self.note(f"{path / 'record.json'} was damaged: it is made again")

    def note(self, text: str) -> None:
        """Say it, and keep it in the record: written with the next `update`."""
        print(f"warning: {text}", file=sys.stderr, flush=True)
        self.record["notes"] = [*self.record.get("notes", []), text]

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
        with writing(self.path), open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps(row, allow_nan=True) + "\n")

    def rows(self) -> list[dict[str, float]]:
        """All whole lines; a line torn by a kill, or damaged since, is left out."""
        if not self.path.exists():
            return []
        found = []
        for line in self.path.read_bytes().split(b"\n"):
            try:
                row = json.loads(line.decode())
            except (UnicodeDecodeError, json.JSONDecodeError):
                continue
            if isinstance(row, dict) and isinstance(row.get("step"), int):
                found.append(row)
        return found

    def keep(self, wanted: Callable[[dict[str, float]], bool]) -> None:
        """Drop the lines that are not `wanted`: a resumed run writes them again."""
        if self.path.exists():
            kept = [json.dumps(row) + "\n" for row in self.rows() if wanted(row)]
            write_atomically(self.path, "".join(kept))
