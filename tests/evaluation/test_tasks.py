"""Task files and example files: label numbers, hidden labels, absent splits, clear errors;
FAULTS B19."""

import json
from pathlib import Path

import numpy as np
import pytest
import yaml

from ablate.config.task_files import task_definition
from ablate.evaluation import averages
from ablate.evaluation.example_files import class_reader
from ablate.evaluation.tasks import TaskSpec, from_rows, load_task

ROOT = Path(__file__).parents[2]
TASK_FILES = sorted((ROOT / "conf/evaluation/task").glob("*.yaml"))
GLUE = ROOT.parent / "shared/data/glue"

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
    if suffix == "jsonl":
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif suffix in ("tsv", "csv"):
        lines = [rows[0], *(row.values() for row in rows)]
        between = "\t" if suffix == "tsv" else ","
        file.write_text("".join(between.join(map(str, line)) + "\n" for line in lines))
    else:
        import datasets

        datasets.Dataset.from_list(rows).to_parquet(str(file))


def test_task_files_are_the_nine_glue_tasks():
    found = {file: yaml.safe_load(file.read_text()) for file in TASK_FILES}
    glue = {file: values for file, values in found.items() if values.get("suite") == "glue"}
    specs = [TaskSpec.from_dict(values) for values in glue.values()]
    assert {spec.name for spec in specs} == {
        *("cola", "sst2", "mrpc", "qqp", "stsb", "mnli", "qnli", "rte", "wnli", "ax")
    }
    for spec, file in zip(specs, glue, strict=True):
        assert spec.name == file.stem == spec.hub_config
        assert spec.hub_name == "nyu-mll/glue"
    in_average = {spec.name: spec for spec in specs if spec.in_average}
    assert set(in_average) == set(averages.MEAN8)
    for name, wanted in averages.MEAN8.items():
        assert {metric.split("_")[-1] for metric in wanted} == set(in_average[name].metrics)


def test_an_unknown_key_is_refused_with_the_allowed_ones():
    with pytest.raises(ValueError, match=r"unknown keys \['metric'\].*'metrics'"):
        TaskSpec.from_dict({**PAIR, "metric": "accuracy"})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"fields": []}, "missing keys"),
        ({"fields": ["a", "b", "c"]}, "one or two text columns"),
        ({"fields": "premise"}, "must be a list"),
        ({"labels": ["yes", "Yes"]}, "different names"),
        ({"labels": ["yes"]}, "two or more"),
        ({"metrics": ["pearson"]}, "do not fit classification"),
        ({"metrics": ["bleu"]}, "do not fit classification"),
        ({"labels": ["a", "b", "c"], "metrics": ["f1"]}, r"for 3 labels.*metrics: \[accuracy\]"),
        ({"labels": ["1", "0"]}, r"1 stands in place 0, and a number in a file is a place"),
        ({"labels": [1, 2]}, r"1 stands in place 0"),
        ({"labels": ["no", "0"]}, r"0 stands in place 1"),
        ({"optional_splits": ["validation"]}, "optional_splits must leave"),
    ],
)
def test_a_spec_that_makes_no_task_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        TaskSpec.from_dict({**PAIR, **change})


@pytest.mark.parametrize("suffix", ["jsonl", "parquet", "tsv", "csv"])
def test_files_keep_ids_texts_and_labels(tmp_path, suffix):
    for split in ("train", "validation"):
        write(tmp_path / "nli", split, ROWS, suffix)
    data = load_task(TaskSpec.from_dict(PAIR), path=tmp_path)
    assert data.train.ids == [7, 3]
    assert data.train.texts == [("a b", "a"), ("c", "d")]
    assert data.scored["validation"].labels.tolist() == [0, 2]
    assert data.notes == {}


def test_label_names_are_mapped_by_the_spec_without_regard_to_case():
    rows = [
        {"premise": "a", "hypothesis": "b", "label": label}
        for label in ("Contradiction", "ENTAILMENT", "neutral", 1, "2", 0.0)
    ]
    data = from_rows(TaskSpec.from_dict(PAIR), rows, {"validation": rows})
    assert data.train.labels.tolist() == [2, 0, 1, 1, 2, 0]
    assert data.train.ids == [0, 1, 2, 3, 4, 5]


def test_names_inside_a_source_win_over_its_numbers(tmp_path):
    """A data set that counts contradiction first (FAULTS B19), as parquet and as a hub folder."""
    import datasets

    names = ["contradiction", "entailment", "neutral"]
    rows = {"premise": ["a"] * 3, "hypothesis": ["b"] * 3, "label": [0, 1, 2], "idx": [0, 1, 2]}
    features = datasets.Features(
        {
            "premise": datasets.Value("string"),
            "hypothesis": datasets.Value("string"),
            "label": datasets.ClassLabel(names=names),
            "idx": datasets.Value("int32"),
        }
    )
    table = datasets.Dataset.from_dict(rows, features=features)
    (tmp_path / "nli").mkdir()
    for split in ("train", "validation"):
        table.to_parquet(str(tmp_path / "nli" / f"{split}.parquet"))
    from_files = load_task(TaskSpec.from_dict(PAIR), path=tmp_path)
    spec = TaskSpec.from_dict({**PAIR, "hub_name": str(tmp_path / "nli")})
    from_hub = load_task(spec, cache_dir=tmp_path / "cache")
    for data in (from_files, from_hub):
        assert data.train.labels.tolist() == [2, 0, 1]
        assert data.scored["validation"].labels.tolist() == [2, 0, 1]


@pytest.mark.parametrize("labels", [[-1, -1], [0, -1]])
def test_hidden_labels_are_refused(tmp_path, labels):
    rows = [{**row, "label": label} for row, label in zip(ROWS, labels, strict=True)]
    write(tmp_path / "nli", "train", ROWS)
    write(tmp_path / "nli", "validation", rows)
    with pytest.raises(ValueError, match=r"validation\.jsonl has label -1 \(hidden"):
        load_task(TaskSpec.from_dict(PAIR), path=tmp_path)


def test_hidden_regression_labels_are_refused():
    spec = TaskSpec.from_dict({"name": "sim", "fields": ["s"], "metrics": ["pearson"]})
    rows = [{"s": "a", "label": -1.0}, {"s": "b", "label": -1.0}]
    with pytest.raises(ValueError, match="hidden labels"):
        from_rows(spec, rows, {"validation": rows})
    with pytest.raises(ValueError, match="label 'high', wanted a number"):
        from_rows(spec, [{"s": "a", "label": "high"}], {"validation": rows})


def test_wrong_columns_name_file_found_and_wanted(tmp_path):
    rows = [{"sentence1": "a", "sentence2": "b", "label": 0}]
    write(tmp_path / "nli", "train", rows)
    with pytest.raises(ValueError, match=r"train\.jsonl.*sentence1.*wanted \['premise'"):
        load_task(TaskSpec.from_dict(PAIR), path=tmp_path)


def test_unknown_label_names_the_allowed_ones():
    rows = [{**ROWS[0], "label": "maybe"}]
    with pytest.raises(ValueError, match=r"label 'maybe', allowed are 0 = entailment, 1 = neutral"):
        from_rows(TaskSpec.from_dict(PAIR), rows, {"validation": rows})
    with pytest.raises(ValueError, match="label 3"):
        from_rows(TaskSpec.from_dict(PAIR), [{**ROWS[0], "label": 3}], {"validation": rows})


def test_missing_file_says_what_was_found_and_wanted(tmp_path):
    write(tmp_path / "nli", "train", ROWS)
    with pytest.raises(ValueError, match=r"'validation'.*train\.jsonl.*validation\.tsv"):
        load_task(TaskSpec.from_dict(PAIR), path=tmp_path)
    with pytest.raises(ValueError, match="no such folder"):
        load_task(TaskSpec.from_dict({**PAIR, "name": "other"}), path=tmp_path)


@pytest.mark.parametrize(
    ("suffix", "content", "message"),
    [
        ("jsonl", '{"premise": "a"', "line 1 is not JSON"),
        ("jsonl", "[1]\n", "not an object"),
        ("jsonl", "", "no examples"),
        ("tsv", "premise\thypothesis\tlabel\na\tb\n", "line 2 has 2 cells, the header has 3"),
        ("tsv", b"\xff\xfe\n", "cannot be read"),
        ("csv", "premise,hypothesis,label\na,b\n", "row 2 has 2 cells, the header has 3"),
        ("csv", 'premise\n"a', "not a readable csv"),
        ("csv", "", "no examples"),
        ("parquet", "hello", "not a readable parquet"),
    ],
)
def test_a_broken_file_is_one_clear_error(tmp_path, suffix, content, message):
    folder = tmp_path / "nli"
    folder.mkdir()
    data = content if isinstance(content, bytes) else content.encode()
    (folder / f"train.{suffix}").write_bytes(data)
    with pytest.raises(ValueError, match=message):
        load_task(TaskSpec.from_dict(PAIR), path=tmp_path)


def test_tsv_keeps_quotes_as_they_stand(tmp_path):
    folder = tmp_path / "nli"
    folder.mkdir()
    for split in ("train", "validation"):
        (folder / f"{split}.tsv").write_text('premise\thypothesis\tlabel\n"a said\tb "\tneutral\n')
    assert load_task(TaskSpec.from_dict(PAIR), path=tmp_path).train.texts == [('"a said', 'b "')]


def test_csv_reads_quoted_cells(tmp_path):
    folder = tmp_path / "nli"
    folder.mkdir()
    for split in ("train", "validation"):
        (folder / f"{split}.csv").write_text(
            '\ufeffpremise,hypothesis,label\n"a, ""b""","c\nd",neutral\n', encoding="utf-8"
        )
    data = load_task(TaskSpec.from_dict(PAIR), path=tmp_path)
    assert data.train.texts == [('a, "b"', "c\nd")]
    assert data.train.labels.tolist() == [1]


def mnli():
    return TaskSpec.from_dict(yaml.safe_load((ROOT / "conf/evaluation/task/mnli.yaml").read_text()))


def test_a_lone_validation_file_counts_as_matched_and_absence_is_recorded(tmp_path):
    write(tmp_path / "mnli", "train", ROWS)
    write(tmp_path / "mnli", "validation", ROWS)
    data = load_task(mnli(), path=tmp_path)
    assert list(data.scored) == ["validation_matched"]
    assert data.notes["validation_mismatched"] == "absent"
    assert "was taken as validation_matched" in data.notes["validation_matched"]


def test_mnli_reads_both_validation_sets(tmp_path):
    for split in ("train", "validation_matched", "validation_mismatched"):
        write(tmp_path / "mnli", split, ROWS)
    data = load_task(mnli(), path=tmp_path)
    assert list(data.scored) == ["validation_matched", "validation_mismatched"]
    assert data.notes == {}


def test_hub_that_cannot_be_reached_says_how_to_fetch_or_give_files(monkeypatch):
    import datasets

    def unreachable(*args, **kwargs):
        raise ConnectionError("no network")

    monkeypatch.setattr(datasets, "load_dataset", unreachable)
    with pytest.raises(
        ValueError, match=r"load_dataset\('nyu-mll/glue', 'mnli'\).*evaluation.path="
    ):
        load_task(mnli())
    with pytest.raises(ValueError, match="names no hub data set"):
        load_task(TaskSpec.from_dict(PAIR))


def test_identity_follows_content_and_not_place(tmp_path):
    spec = TaskSpec.from_dict(PAIR)
    ours = from_rows(spec, ROWS, {"validation": ROWS})
    assert ours.hash() == from_rows(spec, ROWS, {"validation": ROWS}, source="elsewhere").hash()
    changed = [{**ROWS[0], "label": 1}, ROWS[1]]
    assert ours.hash() != from_rows(spec, changed, {"validation": ROWS}).hash()


@pytest.mark.skipif(not GLUE.is_dir(), reason="no local GLUE files beside the repository")
def test_local_glue_reads_with_the_counts_of_its_readme():
    counts = {"cola": (8551, 1043), "stsb": (5749, 1500), "mrpc": (3668, 408), "rte": (2490, 277)}
    for name, (train, validation) in counts.items():
        values = yaml.safe_load((ROOT / f"conf/evaluation/task/{name}.yaml").read_text())
        data = load_task(TaskSpec.from_dict(values), path=GLUE)
        assert (len(data.train), len(data.scored["validation"])) == (train, validation)
        assert np.isfinite(data.train.labels).all()


def test_numerals_that_are_their_own_places_are_label_names():
    spec = TaskSpec.from_dict({**PAIR, "labels": ["0", "1"]})
    both = [[{**row, "label": kind(i)} for i, row in enumerate(ROWS)] for kind in (int, str)]
    found = [from_rows(spec, rows, {"validation": rows}).train.labels.tolist() for rows in both]
    assert found == [[0, 1], [0, 1]]
    with pytest.raises(ValueError, match="2 stands in place 0"):
        class_reader(("2", "1"))


def test_f1_is_of_two_labels_in_the_split_that_it_scores():
    merged = {"two": {"yes": ["a"], "no": ["b", "c"]}}
    values = {**PAIR, "labels": ["a", "b", "c"], "predicted_splits": ["two", "three"]}
    values["merged_labels"] = merged
    assert TaskSpec.from_dict({**values, "metrics_of": {"two": ["f1"]}}).metrics_of
    with pytest.raises(ValueError, match="for 3 labels"):
        TaskSpec.from_dict({**values, "metrics_of": {"three": ["f1"]}})


def test_yes_and_no_are_words_in_a_task_s_file(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("fields: [a]\nlabels: [no, maybe, yes]\nin_average: false\nmetrics: [mcc]\n")
    found = task_definition(str(file))
    assert found["labels"] == ["no", "maybe", "yes"]
    assert found["in_average"] is False
