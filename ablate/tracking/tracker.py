"""What a run tells any tracker: rows, final values, tables, files, its end.

A tracker shows what the record holds and may fail without hurting the run: the first error is one
warning, and whatever comes after it is left out. A signal is no error and passes.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

Table = tuple[Sequence[str], Sequence[Sequence[Any]]]  # columns, rows


def warn(error: Exception, rest: str, *, name: str = "W&B mirror") -> None:
    """One line on stderr; `rest` says what is whole all the same."""
    text = " ".join(str(error).split())
    print(f"warning: the {name} stopped ({type(error).__name__}: {text}); {rest}", file=sys.stderr)


@contextlib.contextmanager
def guarded(rest: str) -> Iterator[None]:
    """An error inside becomes one warning, which ends in `rest`: what is whole all the same."""
    try:
        yield
    except Exception as error:
        warn(error, rest)


class Tracker:
    """Base of all trackers: every call is guarded. Those that differ write the `_` methods."""

    name = "tracker"
    after_failure = "the run goes on, its record is local"

    def __init__(self) -> None:
        self._failed = self._warned = False

    def _warn(self, error: Exception, rest: str) -> None:
        """The first time only."""
        if not self._warned:
            warn(error, rest, name=self.name)
        self._warned = True

    def _fail(self, error: Exception) -> None:
        self._failed = True
        self._warn(error, self.after_failure)

    def _guard(self, call: Callable[[], Any]) -> None:
        if self._failed:
            return
        try:
            call()
        except Exception as error:
            self._fail(error)

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        """One row; `step` (optimizer steps) is a field, so that no row is ever out of order."""
        self._guard(lambda: self._log({**metrics, "step": step}))

    def replay(self, rows: Sequence[Mapping[str, float]]) -> None:
        """Rows of a `MetricsFile` that another process wrote, in their order."""
        for row in rows:
            self.log({k: v for k, v in row.items() if k != "step"}, int(row["step"]))

    def summary(self, values: Mapping[str, Any]) -> None:
        """Final values of the run."""
        self._guard(lambda: self._summary(dict(values)))

    def tables(self, tables: Mapping[str, Table]) -> None:
        """Name -> (columns, rows)."""
        self._guard(lambda: self._tables(tables))

    def keep_files(self, files: Sequence[Path], *, name: str) -> None:
        """Store files outside the run's folder, where the tracker can."""
        self._guard(lambda: self._keep_files(files, name))

    def finish(self, exit_code: int) -> None:
        """Close with the process's true exit code; later calls do nothing."""
        self._guard(lambda: self._finish(exit_code))

    def _log(self, row: dict[str, float]) -> None:
        raise NotImplementedError

    def _summary(self, values: dict[str, Any]) -> None:
        raise NotImplementedError

    def _tables(self, tables: Mapping[str, Table]) -> None:
        raise NotImplementedError

    def _keep_files(self, files: Sequence[Path], name: str) -> None:
        """Nothing, where a tracker has no place outside the run's folder."""

    def _finish(self, exit_code: int) -> None:
        """Nothing, where a tracker has nothing to close."""
