"""The mapping in a task's YAML file -> a checked `TaskSpec`.

A task is data, never a class: which columns hold the texts, what the label numbers mean, which
metrics score which splits, where a split's rows are. GLUE: Wang et al. 2019; names and numbers as
in the hub's `nyu-mll/glue`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from ablate.evaluation.example_files import check_label_names, plain_name
from ablate.evaluation.metrics import check_metrics

_LISTS = ("fields", "metrics", "labels", "splits", "optional_splits", "predicted_splits")


@dataclass(frozen=True)
class TaskSpec:
    """One task. `labels[i]` is the name of class i; no labels = regression (one number).

    `splits` are scored, `optional_splits` among them may be absent (recorded), `stand_ins` names a
    file that counts as a split where the split's own file is missing (recorded too).

    `predicted_splits` are predicted where they exist, with labels or without, and not scored -
    unless `metrics_of[split]` names metrics and every label is there. `sources[split]` says where
    its rows are, if not in `<split>.jsonl`: a file of the task's folder, or `<other task>/<split>`.
    `merged_labels[split]` = {name: [classes]} is for a file whose labels are groups of classes: a
    prediction counts as the group of the most probable class.
    """

    name: str
    fields: tuple[str, ...]
    metrics: tuple[str, ...]
    suite: str = "glue"
    labels: tuple[str, ...] = ()
    splits: tuple[str, ...] = ("validation",)
    optional_splits: tuple[str, ...] = ()
    stand_ins: Mapping[str, str] = field(default_factory=dict)
    predicted_splits: tuple[str, ...] = ("test",)
    metrics_of: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    merged_labels: Mapping[str, Mapping[str, tuple[str, ...]]] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)
    label_column: str = "label"
    id_column: str = "idx"
    hub_name: str | None = None
    hub_config: str | None = None
    in_average: bool = False

    def __post_init__(self) -> None:
        where = f"task {self.name!r}: "
        if len(self.fields) not in (1, 2):
            raise ValueError(f"{where}fields={list(self.fields)}: give one or two text columns")
        if not self.metrics or not (self.splits or self.predicted_splits):
            raise ValueError(f"{where}metrics and splits need at least one entry each")
        scored = [(self.metrics, self.labels)]  # of the held-out examples, if of no split
        scored += [(self.metrics, self.labels_of(split)) for split in self.splits]
        scored += [(names, self.labels_of(split)) for split, names in self.metrics_of.items()]
        for names, labels in scored:
            check_label_names(labels, where)
            check_metrics(
                names, regression=self.is_regression, task=self.name, num_labels=len(labels)
            )
        if self.optional_splits and not set(self.optional_splits) < set(self.splits):
            raise ValueError(f"{where}optional_splits must leave one of {list(self.splits)}")
        if len(self.labels) == 1 or len(set(map(plain_name, self.labels))) < len(self.labels):
            raise ValueError(
                f"{where}labels={list(self.labels)}: give two or more different names in the order "
                "of their numbers, or none for regression"
            )
        for key in ("metrics_of", "merged_labels"):
            unknown = sorted(set(getattr(self, key)) - {*self.splits, *self.predicted_splits})
            if unknown:
                raise ValueError(
                    f"{where}{key} names {unknown}, which is none of splits {list(self.splits)} or "
                    f"predicted_splits {list(self.predicted_splits)}"
                )
        for split, groups in self.merged_labels.items():
            members = [name for group in groups.values() for name in group]
            if sorted(members) != sorted(self.labels) or len(groups) < 2:
                raise ValueError(
                    f"{where}merged_labels of {split} must put each of labels {list(self.labels)} "
                    "into one of two or more groups; for example merged_labels: {test: {yes: "
                    "[entailment], no: [neutral, contradiction]}}"
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
        task = str(values.get("name", "(no name)"))
        if unknown or missing:
            raise ValueError(
                f"task {task!r}: "
                + (f"unknown keys {unknown}; " if unknown else "")
                + (f"missing keys {missing}; " if missing else "")
                + f"allowed are {allowed}"
            )
        kwargs = {key: value for key, value in values.items() if value is not None}
        for key in _LISTS:
            if key in kwargs:
                kwargs[key] = _strings(kwargs[key], key, task)
        for key in ("stand_ins", "sources", "metrics_of", "merged_labels"):
            kwargs[key] = _mapping(values.get(key) or {}, key, task)
        kwargs["metrics_of"] = {
            split: _strings(names, f"metrics_of.{split}", task)
            for split, names in kwargs["metrics_of"].items()
        }
        kwargs["merged_labels"] = {
            split: {
                str(name): _strings(members, f"merged_labels.{split}.{name}", task)
                for name, members in _mapping(groups, f"merged_labels.{split}", task).items()
            }
            for split, groups in kwargs["merged_labels"].items()
        }
        return cls(**kwargs)

    @property
    def is_regression(self) -> bool:
        return not self.labels

    @property
    def num_outputs(self) -> int:
        """Width of the head: one a class, or 1 for regression."""
        return len(self.labels) or 1

    @property
    def only_predicted(self) -> tuple[str, ...]:
        """Splits that may hide their labels."""
        return tuple(split for split in self.predicted_splits if split not in self.splits)

    def labels_of(self, split: str) -> tuple[str, ...]:
        """Names of the labels in a split's file, in the order of their numbers there."""
        return tuple(self.merged_labels.get(split, self.labels))


def _strings(value: Any, key: str, task: str) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise ValueError(f"task {task!r}: {key}={value!r} must be a list, e.g. {key}: [{value}]")
    return tuple(str(item) for item in value)


def _mapping(value: Any, key: str, task: str) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError(f"task {task!r}: {key}={value!r} must be keys and values")
    return {str(name): content for name, content in value.items()}
