"""Splits that are only predicted, merged or found elsewhere; tasks of a user's own; FAULTS B20."""

import json
from pathlib import Path

import numpy as np
import pytest
import yaml

from ablate.config.task_files import task_definition
from ablate.evaluation import kinds
from ablate.evaluation.tasks import TaskSpec, from_rows, load_task

ROOT = Path(__file__).parents[2]
PAIR = {
    "name": "nli",
    "fields": ["premise", "hypothesis"],
    "labels": ["entailment", "neutral", "contradiction"],
    "metrics": ["accuracy"],
}
ROWS = [
    {"premise": "a b", "hypothesis": "a", "label": 0, "idx": 7},
    {"premise": "c", "hypothesis": "d", "label": 2, "idx": 3},
]


def write(folder, split, rows, suffix="jsonl"):
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{split}.{suffix}"
    if suffix == "csv":
        lines = [rows[0], *(row.values() for row in rows)]
        file.write_text("".join(",".join(map(str, line)) + "\n" for line in lines))
    else:
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))


def mnli():
    return TaskSpec.from_dict(yaml.safe_load((ROOT / "conf/evaluation/task/mnli.yaml").read_text()))


@pytest.mark.parametrize("labels", [[-1, -1], [0, -1], ["-1", ""], [None, None]])
def test_a_split_with_hidden_labels_may_be_predicted(tmp_path, labels):
    rows = [{**row, "label": label} for row, label in zip(ROWS, labels, strict=True)]
    for split in ("train", "validation"):
        write(tmp_path / "nli", split, ROWS)
    write(tmp_path / "nli", "test", rows)
    data = load_task(TaskSpec.from_dict(PAIR), path=tmp_path)
    assert list(data.scored) == ["validation"]
    assert data.predicted["test"].texts == data.train.texts
    assert -1 in data.predicted["test"].labels
    assert list(data.evaluated) == ["validation", "test"]


def test_labels_are_not_hidden_for_the_name_of_their_split(tmp_path):
    """FAULTS B20: a copy of MRPC's test set carries its labels."""
    for split in ("train", "test"):
        write(tmp_path / "nli", split, ROWS)
    data = load_task(TaskSpec.from_dict({**PAIR, "splits": ["test"]}), path=tmp_path)
    assert data.scored["test"].labels.tolist() == [0, 2]
    assert data.predicted == {}


def test_a_predicted_split_without_labels_needs_no_label_column():
    spec = TaskSpec.from_dict({"name": "sim", "fields": ["s"], "metrics": ["pearson"]})
    rows = [{"s": "a", "label": 1.0}, {"s": "b", "label": 2.5}]
    data = from_rows(spec, rows, {"validation": rows}, predicted={"test": [{"s": "c"}]})
    assert np.isnan(data.predicted["test"].labels).all()


def test_minus_one_is_a_value_among_other_negative_ones():
    spec = TaskSpec.from_dict({"name": "sim", "fields": ["s"], "metrics": ["pearson"]})
    rows = [{"s": "a", "label": label} for label in (-1, -0.5, 1)]
    assert from_rows(spec, rows, {"validation": rows}).train.labels.min() == -1


def test_a_source_may_be_a_file_or_the_split_of_another_task(tmp_path):
    write(tmp_path / "mnli", "train", ROWS)
    write(tmp_path / "nli", "first", ROWS[:1], "csv")
    changes = {"sources": {"train": "mnli/train", "validation": "first.csv", "test": "ax/test"}}
    spec = TaskSpec.from_dict({**PAIR, **changes})
    data = load_task(spec, path=tmp_path)
    assert (len(data.train), len(data.scored["validation"])) == (2, 1)
    assert data.predicted == {}
    write(tmp_path / "ax", "test", ROWS[1:])
    assert len(load_task(spec, path=tmp_path).predicted["test"]) == 1


def test_files_of_a_task_are_found_alone_under_its_name_or_under_its_suite(tmp_path):
    spec = TaskSpec.from_dict({**PAIR, "suite": "mine"})
    for number, folder in enumerate(("alone", "named/nli", "nested/mine/nli"), 1):
        for split in ("train", "validation"):
            write(tmp_path / folder, split, ROWS[:number])
    for number, root in enumerate(("alone", "named", "nested"), 1):
        assert len(load_task(spec, path=tmp_path / root).train) == min(number, 2)


def test_a_merged_file_has_labels_of_its_own(tmp_path):
    write(tmp_path / "mnli", "train", ROWS)
    write(tmp_path / "mnli", "validation", ROWS)
    two = [{**ROWS[0], "label": 1}, {**ROWS[1], "label": "not_entailment"}]
    write(tmp_path / "mnli", "validation_matched_2way", two)
    data = load_task(mnli(), path=tmp_path)
    assert data.predicted["validation_matched_2way"].labels.tolist() == [1, 1]
    assert data.nothing() == {"validation_matched": 0.0, "validation_matched_2way": 0.0}
    write(tmp_path / "mnli", "validation_matched_2way", [{**ROWS[0], "label": 2}])
    with pytest.raises(ValueError, match=r"label 2, allowed are 0 = entailment, 1 = not_entail"):
        load_task(mnli(), path=tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"merged_labels": {"dev": {"a": ["entailment"]}}}, r"merged_labels names \['dev'\]"),
        ({"merged_labels": {"test": {"a": ["entailment"], "b": ["neutral"]}}}, "put each of"),
        ({"merged_labels": {"test": ["entailment"]}}, "keys and values"),
        ({"metrics_of": {"test": ["pearson"]}}, "do not fit"),
        ({"metrics_of": {"test": "accuracy"}}, "must be a list"),
        ({"sources": "train.csv"}, "keys and values"),
    ],
)
def test_a_spec_of_splits_that_makes_no_sense_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        TaskSpec.from_dict({**PAIR, **change})


def own_task(folder, name, **keys):
    """A task of nothing but local files: a YAML file and a folder beside it."""
    file = folder / f"{name}.yaml"
    file.write_text(yaml.safe_dump({"path": "./data", **keys}))
    return str(file)


def test_a_task_of_a_users_own_reads_the_files_beside_its_yaml(tmp_path, monkeypatch):
    moods = ["sad,0", "fine,1", "glad,2"]
    (tmp_path / "data").mkdir()
    for split in ("train", "validation"):
        (tmp_path / "data" / f"{split}.csv").write_text("\n".join(["text,mood", *moods]) + "\n")
    keys = {"fields": ["text"], "labels": ["low", "middle", "high"], "label_column": "mood"}
    file = own_task(tmp_path, "moods", metrics=["accuracy", "mcc"], **keys)
    monkeypatch.chdir(tmp_path.parent)
    measurement = kinds.load(task_definition(file), path="elsewhere")
    assert (measurement.name, measurement.data.spec.suite) == ("moods", "own")
    assert measurement.data.train.labels.tolist() == [0, 1, 2]
    monkeypatch.chdir(tmp_path)
    assert kinds.load(task_definition("./moods.yaml")).hash() == measurement.hash()


def test_a_regression_on_pairs_of_a_users_own(tmp_path):
    rows = [{"a": "x", "b": "y", "likeness": value / 7} for value in range(5)]
    for split in ("train", "validation"):
        write(tmp_path / "data" / "likeness", split, rows)
    file = own_task(
        tmp_path, "likeness", fields=["a", "b"], metrics=["spearman"], label_column="likeness",
        suite="mine",
    )  # fmt: skip
    data = kinds.load(task_definition(file)).data
    assert data.spec.is_regression
    assert data.train.labels[-1] == pytest.approx(4 / 7)
