"""Task definitions as data, and files or the hub -> labelled examples.

A task is a mapping (conf/evaluation/task/*.yaml), never a class: which columns hold the texts, what
the label numbers mean, which metrics score which splits. Labels may be written as numbers or names;
where a source carries its own names (a `ClassLabel` feature) these decide, so that a data set with
another order of labels is read right. A label of -1 is a hidden one: such a split cannot be scored
and is refused. GLUE: Wang et al. 2019; names and numbers as in the hub's `nyu-mll/glue`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np

from ablate.evaluation.example_files import (
    FORMATS,
    class_reader,
    named_labels,
    plain_name,
    read_rows,
    regression_value,
)
from ablate.evaluation.metrics import check_metrics


@dataclass(frozen=True)
class TaskSpec:
    """One task. `labels[i]` is the name of class i; no labels = regression (one number).

    `splits` are scored, `optional_splits` among them may be absent (recorded), `stand_ins` names a
    file that counts as a split where the split's own file is missing (recorded too).
    """

    name: str
    fields: tuple[str, ...]
    metrics: tuple[str, ...]
    suite: str = "glue"
    labels: tuple[str, ...] = ()
    splits: tuple[str, ...] = ("validation",)
    optional_splits: tuple[str, ...] = ()
    stand_ins: Mapping[str, str] = field(default_factory=dict)
    label_column: str = "label"
    id_column: str = "idx"
    hub_name: str | None = None
    hub_config: str | None = None
    in_average: bool = False

    def __post_init__(self) -> None:
        where = f"task {self.name!r}: "
        if len(self.fields) not in (1, 2):
            raise ValueError(f"{where}fields={list(self.fields)}: give one or two text columns")
        if not self.metrics or not self.splits:
            raise ValueError(f"{where}metrics and splits need at least one entry each")
        check_metrics(self.metrics, regression=self.is_regression, task=self.name)
        if not set(self.optional_splits) < set(self.splits):
            raise ValueError(f"{where}optional_splits must leave one of {list(self.splits)}")
        if len(self.labels) == 1 or len(set(map(plain_name, self.labels))) < len(self.labels):
            raise ValueError(
                f"{where}labels={list(self.labels)}: give two or more different names in the order "
                "of their numbers, or none for regression"
            )

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> TaskSpec:
        """The spec of a YAML file's mapping.

        Raises:
            ValueError: an unknown or a missing key, or values that do not make a task.
        """
        allowed = [f.name for f in fields(cls)]
        unknown = sorted(set(values) - set(allowed))
        missing = [name for name in ("name", "fields", "metrics") if not values.get(name)]
        if unknown or missing:
            raise ValueError(
                f"task {values.get('name', '(no name)')!r}: "
                + (f"unknown keys {unknown}; " if unknown else "")
                + (f"missing keys {missing}; " if missing else "")
                + f"allowed are {allowed}"
            )
        kwargs = {key: value for key, value in values.items() if value is not None}
        for key in ("fields", "metrics", "labels", "splits", "optional_splits"):
            if key in kwargs:
                kwargs[key] = _strings(kwargs[key], key, str(values["name"]))
        kwargs["stand_ins"] = dict(values.get("stand_ins") or {})
        return cls(**kwargs)

    @property
    def is_regression(self) -> bool:
        return not self.labels

    @property
    def num_outputs(self) -> int:
        """Width of the head: one a class, or 1 for regression."""
        return len(self.labels) or 1


@dataclass(frozen=True)
class Examples:
    """One split: `texts[i]` holds one or two strings, `labels` int64 classes or float64 values."""

    ids: list[int] | list[str]
    texts: list[tuple[str, ...]]
    labels: np.ndarray
    source: str

    def __len__(self) -> int:
        return len(self.texts)


@dataclass(frozen=True)
class TaskData:
    """A task with its examples. `notes` says what was absent or stood in for something else."""

    spec: TaskSpec
    train: Examples
    scored: dict[str, Examples]
    notes: dict[str, str] = field(default_factory=dict)

    def hash(self) -> str:
        """Identity of spec and contents (not of file names): part of the key of cached results."""
        digest = hashlib.blake2b(repr(self.spec).encode(), digest_size=8)
        for split, examples in {"train": self.train, **self.scored}.items():
            content = (split, examples.ids, examples.texts, examples.labels.tolist())
            digest.update(json.dumps(content).encode())
        return digest.hexdigest()


def from_rows(
    spec: TaskSpec,
    train: Sequence[Mapping[str, Any]],
    scored: Mapping[str, Sequence[Mapping[str, Any]]],
    *,
    source: str = "rows given",
) -> TaskData:
    """Rows in memory (the generated tasks) -> `TaskData`, through the same checks as files."""
    return TaskData(
        spec,
        _examples(spec, list(train), f"{source} (train)"),
        {
            split: _examples(spec, list(rows), f"{source} ({split})")
            for split, rows in scored.items()
        },
    )


def load_task(
    spec: TaskSpec, *, path: str | Path | None = None, cache_dir: str | Path | None = None
) -> TaskData:
    """Read a task from `<path>/<task>/<split>.{jsonl,parquet,tsv}`, or from the hub without a path.

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
    return TaskData(spec, train, scored, notes)


def _folder_reader(spec: TaskSpec, path: Path) -> Callable[[str], Examples | None]:
    folder = path / spec.name

    def read(split: str) -> Examples | None:
        for suffix in FORMATS:
            file = folder / f"{split}.{suffix}"
            if file.is_file():
                return _examples(spec, read_rows(file), str(file))
        return None

    return read


def _hub_reader(spec: TaskSpec, cache_dir: str | Path | None) -> Callable[[str], Examples | None]:
    if spec.hub_name is None:
        raise ValueError(
            f"task {spec.name!r} names no hub data set: give evaluation.path=FOLDER with "
            f"FOLDER/{spec.name}/train.jsonl, or hub_name in the task's file"
        )
    import datasets

    where = ", ".join(repr(str(a)) for a in (spec.hub_name, spec.hub_config) if a is not None)
    keep = None if cache_dir is None else str(cache_dir)
    try:
        found = datasets.load_dataset(spec.hub_name, spec.hub_config, cache_dir=keep)
    except Exception as error:  # the library raises a dozen types for "not there and no network"
        call = where + (f", cache_dir={keep!r}" if keep else "")
        raise ValueError(
            f"task {spec.name!r}: the data set {where} is neither cached nor reachable "
            f"({type(error).__name__}). Fetch it once with a network: "
            f'python -c "import datasets; datasets.load_dataset({call})", '
            f"or give local files: evaluation.path=FOLDER (FOLDER/{spec.name}/train.jsonl, ...)"
        ) from error

    def read(split: str) -> Examples | None:
        if split not in found:
            return None
        part = found[split]
        names = getattr(part.features.get(spec.label_column), "names", None)
        rows = named_labels(list(part), spec.label_column, names)
        return _examples(spec, rows, f"{spec.hub_name}/{spec.hub_config or 'default'}/{split}")

    return read


def _missing(spec: TaskSpec, split: str, path: str | Path | None) -> str:
    if path is None:
        return f"task {spec.name!r}: {spec.hub_name}/{spec.hub_config} has no split {split!r}"
    folder = Path(path) / spec.name
    found = sorted(p.name for p in folder.iterdir()) if folder.is_dir() else "no such folder"
    wanted = ", ".join(f"{split}.{suffix}" for suffix in FORMATS)
    return (
        f"task {spec.name!r}: no file for split {split!r} in {folder} (found: {found}); wanted one "
        f"of {wanted}. Give evaluation.path=FOLDER that holds one folder a task, or leave the task "
        "out of evaluation.tasks"
    )


def _examples(
    spec: TaskSpec, rows: list[Mapping[str, Any]] | list[dict[str, Any]], source: str
) -> Examples:
    """Checked columns and labels of one split.

    Raises:
        ValueError: naming the source, what it has and what was wanted.
    """
    if not rows:
        raise ValueError(f"task {spec.name!r}: {source} holds no examples")
    wanted = [*spec.fields, spec.label_column]
    for number, row in enumerate(rows):
        if any(row.get(column) is None for column in wanted):
            raise ValueError(
                f"task {spec.name!r}: {source} row {number} has columns "
                f"{sorted(k for k, v in row.items() if v is not None)}, wanted {wanted}"
            )
    texts = [tuple(str(row[column]) for column in spec.fields) for row in rows]
    read = regression_value if spec.is_regression else class_reader(spec.labels)
    labels = []
    for row in rows:
        try:
            labels.append(read(row[spec.label_column]))
        except ValueError as error:
            raise ValueError(f"task {spec.name!r}: {source} has {error}") from error
    if spec.is_regression and -1.0 in labels:
        raise ValueError(f"task {spec.name!r}: {source} has hidden labels (-1), wanted values")
    kind = np.float64 if spec.is_regression else np.int64
    return Examples(_ids(spec, rows), texts, np.array(labels, dtype=kind), source)


def _ids(spec: TaskSpec, rows: Sequence[Mapping[str, Any]]) -> list[int] | list[str]:
    """The rows' own ids; their number in the file where there is none."""
    ids = [row.get(spec.id_column, number) for number, row in enumerate(rows)]
    if all(isinstance(i, int) or (isinstance(i, str) and i.isdecimal()) for i in ids):
        return [int(i) for i in ids]
    return [str(i) for i in ids]


def _strings(value: Any, key: str, task: str) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise ValueError(f"task {task!r}: {key}={value!r} must be a list, e.g. {key}: [{value}]")
    return tuple(str(item) for item in value)
