"""A task's spec, and files or the hub -> labelled examples.

Labels may be written as numbers or names; where a source carries its own names (a `ClassLabel`
feature) these decide, so that a data set with another order of labels is read right. A label of -1
is a hidden one: a split that is trained on or scored is refused for it, one that is only predicted
is not. Whether labels are hidden is read from them and never from the split's name.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ablate.evaluation.example_files import (
    FORMATS,
    class_reader,
    named_labels,
    read_rows,
    regression_value,
    task_folder,
)
from ablate.evaluation.metrics import majority_prediction
from ablate.evaluation.task_spec import TaskSpec

_HIDDEN = -1


@dataclass(frozen=True)
class Examples:
    """One split: `texts[i]` holds one or two strings, `labels` int64 classes or float64 values.

    A hidden label (only in a split that is only predicted) is -1, or NaN among values.
    """

    ids: list[int] | list[str]
    texts: list[tuple[str, ...]]
    labels: np.ndarray
    source: str

    def __len__(self) -> int:
        return len(self.texts)


@dataclass(frozen=True)
class TaskData:
    """A task with its examples. `notes` says what was absent or stood in for something else.

    `scored` are the spec's `splits`, `predicted` those of its `predicted_splits` that exist.
    """

    spec: TaskSpec
    train: Examples
    scored: dict[str, Examples]
    notes: dict[str, str] = field(default_factory=dict)
    predicted: dict[str, Examples] = field(default_factory=dict)

    @property
    def evaluated(self) -> dict[str, Examples]:
        """All splits that a fit answers."""
        return {**self.scored, **self.predicted}

    def nothing(self) -> float | dict[str, float]:
        """What an answer that reads nothing says, from the training labels; by split where one has
        merged labels."""
        spec, labels = self.spec, self.train.labels
        plain = majority_prediction(labels, regression=spec.is_regression)
        if not any(split in self.evaluated for split in spec.merged_labels):
            return plain
        found = dict.fromkeys(self.evaluated, plain)
        for split, groups in spec.merged_labels.items():
            counts = [
                sum((labels == spec.labels.index(m)).sum() for m in g) for g in groups.values()
            ]
            found[split] = float(np.argmax(counts))
        return found

    def hash(self) -> str:
        """Identity of spec and contents (not of file names): part of the key of cached results."""
        spec = dataclasses.replace(self.spec, sources={})
        digest = hashlib.blake2b(repr(spec).encode(), digest_size=8)
        for split, examples in {"train": self.train, **self.evaluated}.items():
            content = (split, examples.ids, examples.texts, examples.labels.tolist())
            digest.update(json.dumps(content).encode())
        return digest.hexdigest()


def from_rows(
    spec: TaskSpec,
    train: Sequence[Mapping[str, Any]],
    scored: Mapping[str, Sequence[Mapping[str, Any]]],
    *,
    predicted: Mapping[str, Sequence[Mapping[str, Any]]] | None = None,
    source: str = "rows given",
) -> TaskData:
    """Rows in memory (the generated tasks) -> `TaskData`, through the same checks as files."""
    return TaskData(
        spec,
        _examples(spec, list(train), f"{source} (train)", "train"),
        {
            split: _examples(spec, list(rows), f"{source} ({split})", split)
            for split, rows in scored.items()
        },
        predicted={
            split: _examples(spec, list(rows), f"{source} ({split})", split)
            for split, rows in (predicted or {}).items()
        },
    )


def load_task(
    spec: TaskSpec, *, path: str | Path | None = None, cache_dir: str | Path | None = None
) -> TaskData:
    """Read a task from `<path>/<task>/<split>.{jsonl,parquet,tsv,csv}` (see `task_folder`), or from
    the hub without a path.

    A tsv has a header line and no quoting (as GLUE's own files). `cache_dir` is where `datasets`
    keeps what it downloads; None = its own default place.

    Raises:
        ValueError: missing file, wrong columns, unknown or hidden labels, or a hub data set that is
            neither cached nor reachable; the message says what to type instead.
    """
    reader = _folder_reader(spec, Path(path)) if path is not None else _hub_reader(spec, cache_dir)
    train = reader("train")
    if train is None:
        raise ValueError(_missing(spec, "train", path))
    scored: dict[str, Examples] = {}
    notes: dict[str, str] = {}
    for split in spec.splits:
        examples, stand_in = reader(split), spec.stand_ins.get(split)
        if examples is None and stand_in is not None:
            examples = reader(stand_in)
            if examples is not None:
                notes[split] = f"{examples.source} was taken as {split}"
        if examples is not None:
            scored[split] = examples
        elif split in spec.optional_splits:
            notes[split] = "absent"
        else:
            raise ValueError(_missing(spec, split, path))
    predicted = {split: reader(split) for split in spec.only_predicted}
    found = {split: examples for split, examples in predicted.items() if examples is not None}
    return TaskData(spec, train, scored, notes, found)


def _folder_reader(spec: TaskSpec, path: Path) -> Callable[[str], Examples | None]:
    folder = task_folder(path, spec.suite, spec.name)

    def read(split: str) -> Examples | None:
        source = spec.sources.get(split, split)
        if source.endswith(tuple(f".{suffix}" for suffix in FORMATS)):
            file = folder / source
            return _examples(spec, read_rows(file), str(file), split)
        task, _, name = source.rpartition("/")
        where = task_folder(path, spec.suite, task) if task else folder
        if task and where == path:  # files beside another task's are not its own
            return None
        for suffix in FORMATS:
            file = where / f"{name}.{suffix}"
            if file.is_file():
                return _examples(spec, read_rows(file), str(file), split)
        return None

    return read


def _hub_reader(spec: TaskSpec, cache_dir: str | Path | None) -> Callable[[str], Examples | None]:
    if spec.hub_name is None:
        raise ValueError(
            f"task {spec.name!r} names no hub data set: give evaluation.path=FOLDER with "
            f"FOLDER/{spec.name}/train.jsonl, or path or hub_name in the task's file"
        )
    keep = None if cache_dir is None else str(cache_dir)
    opened: dict[str | None, Any] = {}

    def read(split: str) -> Examples | None:
        task, _, name = spec.sources.get(split, split).rpartition("/")
        config = task or spec.hub_config
        if config not in opened:
            optional = split in spec.only_predicted and config != spec.hub_config
            opened[config] = _open_hub(spec, config, keep, optional=optional)
        found = opened[config]
        if name not in found:
            return None
        part = found[name]
        names = getattr(part.features.get(spec.label_column), "names", None)
        rows = named_labels(list(part), spec.label_column, names)
        return _examples(spec, rows, f"{spec.hub_name}/{config or 'default'}/{name}", split)

    return read


def _open_hub(spec: TaskSpec, config: str | None, keep: str | None, *, optional: bool) -> Any:
    """The splits of a data set; none where it is `optional` and not there."""
    import datasets

    where = ", ".join(repr(str(a)) for a in (spec.hub_name, config) if a is not None)
    try:
        return datasets.load_dataset(spec.hub_name, config, cache_dir=keep)
    except Exception as error:  # the library raises a dozen types for "not there and no network"
        if optional:
            return {}
        call = where + (f", cache_dir={keep!r}" if keep else "")
        raise ValueError(
            f"task {spec.name!r}: the data set {where} is neither cached nor reachable "
            f"({type(error).__name__}). Fetch it once with a network: "
            f'python -c "import datasets; datasets.load_dataset({call})", '
            f"or give local files: evaluation.path=FOLDER (FOLDER/{spec.name}/train.jsonl, ...)"
        ) from error


def _missing(spec: TaskSpec, split: str, path: str | Path | None) -> str:
    if path is None:
        return f"task {spec.name!r}: {spec.hub_name}/{spec.hub_config} has no split {split!r}"
    folder = task_folder(path, spec.suite, spec.name)
    found = sorted(p.name for p in folder.iterdir()) if folder.is_dir() else "no such folder"
    wanted = ", ".join(f"{split}.{suffix}" for suffix in FORMATS)
    return (
        f"task {spec.name!r}: no file for split {split!r} in {folder} (found: {found}); wanted one "
        f"of {wanted}. Give evaluation.path=FOLDER that holds one folder a task, or leave the task "
        "out of evaluation.tasks"
    )


def _examples(
    spec: TaskSpec,
    rows: list[Mapping[str, Any]] | list[dict[str, Any]],
    source: str,
    split: str,
) -> Examples:
    """Checked columns and labels of one split.

    Raises:
        ValueError: naming the source, what it has and what was wanted.
    """
    if not rows:
        raise ValueError(f"task {spec.name!r}: {source} holds no examples")
    may_hide = split in spec.only_predicted
    wanted = [*spec.fields] if may_hide else [*spec.fields, spec.label_column]
    for number, row in enumerate(rows):
        if any(row.get(column) is None for column in wanted):
            raise ValueError(
                f"task {spec.name!r}: {source} row {number} has columns "
                f"{sorted(k for k, v in row.items() if v is not None)}, wanted {wanted}"
            )
    texts = [tuple(str(row[column]) for column in spec.fields) for row in rows]
    read = regression_value if spec.is_regression else class_reader(spec.labels_of(split))
    hidden = math.nan if spec.is_regression else _HIDDEN
    labels = []
    for row in rows:
        label = row.get(spec.label_column)
        if may_hide and (label is None or str(label).strip() in ("", "-1", "-1.0")):
            labels.append(hidden)
            continue
        try:
            labels.append(read(label))
        except ValueError as error:
            raise ValueError(f"task {spec.name!r}: {source} has {error}") from error
    if spec.is_regression and labels.count(-1.0) and not any(x < 0 and x != -1 for x in labels):
        raise ValueError(
            f"task {spec.name!r}: {source} has hidden labels (-1), wanted values (other negative "
            "ones among them would tell that -1 is a value); a split that is only to be predicted "
            "stands in predicted_splits"
        )
    kind = np.float64 if spec.is_regression else np.int64
    return Examples(_ids(spec, rows), texts, np.array(labels, dtype=kind), source)


def _ids(spec: TaskSpec, rows: Sequence[Mapping[str, Any]]) -> list[int] | list[str]:
    """The rows' own ids; their number in the file where there is none."""
    ids = [row.get(spec.id_column, number) for number, row in enumerate(rows)]
    if all(isinstance(i, int) or (isinstance(i, str) and i.isdecimal()) for i in ids):
        return [int(i) for i in ids]
    return [str(i) for i in ids]
