"""The name of a task and of a split -> the rows of that split, from files or from the hub.

For tasks whose rows are no labelled texts (tagging, question answering): the checks of columns are
theirs. Files: `<path>/<task>/<split>.jsonl` or `<path>/<suite>/<task>/<split>.jsonl`, or parquet.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ablate.evaluation.example_files import feature_names, named_labels, read_rows, task_folder

LAYOUTS = ("jsonl", "parquet")
Row = Mapping[str, Any]
Reader = Callable[[Path], list[dict[str, Any]]]


class SplitRows:
    """Reads splits of one task; `rows(split)` is None where there is no such split.

    Args:
        files: other names under which a split's file may lie in the folder.
        readers: for suffixes other than jsonl and parquet.
        label_column: its numbers are replaced by the names that the source carries.
    """

    def __init__(
        self,
        name: str,
        suite: str,
        *,
        path: str | Path | None,
        hub_name: str | None = None,
        hub_config: str | None = None,
        cache_dir: str | Path | None = None,
        label_column: str | None = None,
        files: Mapping[str, str] | None = None,
        readers: Mapping[str, Reader] | None = None,
    ) -> None:
        self.name, self.suite, self.label_column = name, suite, label_column
        self.files, self.readers = dict(files or {}), dict(readers or {})
        self.folder = None if path is None else task_folder(path, suite, name)
        self.hub = (hub_name, hub_config)
        self._found: Any = None if path is not None else self._from_hub(cache_dir)

    def rows(self, split: str) -> tuple[list[dict[str, Any]], str] | None:
        """The rows, and where they come from."""
        if self.folder is None:
            return self._hub_rows(split)
        for name in self._names(split):
            file = self.folder / name
            if file.is_file():
                return self.readers.get(file.suffix[1:], read_rows)(file), str(file)
        return None

    def needed(self, split: str) -> tuple[list[dict[str, Any]], str]:
        """As `rows`.

        Raises:
            ValueError: there is no such split; says what was looked for.
        """
        found = self.rows(split)
        if found is not None:
            return found
        if self.folder is None:
            raise ValueError(f"task {self.name!r}: {self.hub[0]} has no split {split!r}")
        there = sorted(p.name for p in self.folder.iterdir()) if self.folder.is_dir() else None
        raise ValueError(
            f"task {self.name!r}: no file for split {split!r} in {self.folder} "
            f"(found: {there or 'no such folder'}); wanted one of "
            f"{', '.join(self._names(split))}. Give evaluation.path=FOLDER that holds "
            f"{self.name}/ or {self.suite}/{self.name}/, or leave the task out of evaluation.tasks"
        )

    def _names(self, split: str) -> list[str]:
        plain = [f"{split}.{suffix}" for suffix in (*LAYOUTS, *self.readers)]
        return [*plain, self.files[split]] if split in self.files else plain

    def _from_hub(self, cache_dir: str | Path | None) -> Any:
        name, config = self.hub
        if name is None:
            raise ValueError(
                f"task {self.name!r} names no hub data set: give evaluation.path=FOLDER with "
                f"FOLDER/{self.name}/train.jsonl, or hub_name in the task's file"
            )
        import datasets

        try:
            return datasets.load_dataset(
                name, config, cache_dir=None if cache_dir is None else str(cache_dir)
            )
        except Exception as error:  # the library raises a dozen types for "not there, no network"
            raise ValueError(
                f"task {self.name!r}: the data set {name} {config or ''} is neither cached nor "
                f"reachable ({type(error).__name__}). Run once with a network, or give local "
                f"files: evaluation.path=FOLDER (FOLDER/{self.name}/train.jsonl, ...)"
            ) from error

    def _hub_rows(self, split: str) -> tuple[list[dict[str, Any]], str] | None:
        if split not in self._found:
            return None
        part = self._found[split]
        rows = [dict(row) for row in part]
        if self.label_column is not None:
            feature: Any = part.features.get(self.label_column)
            while getattr(feature, "feature", None) is not None:
                feature = feature.feature
            names = getattr(feature, "names", None) or feature_names(feature)
            rows = named_labels(rows, self.label_column, names)
        return rows, f"{self.hub[0]}/{self.hub[1] or 'default'}/{split}"
