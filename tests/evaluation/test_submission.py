"""Predictions of test sets -> files in the layout of GLUE's server; FAULTS B20."""

import zipfile

import pytest

from ablate.evaluation import submission
from ablate.evaluation.measurement import EvaluationResult, Part
from ablate.evaluation.scoring import add_scores

NLI = ["entailment", "neutral", "contradiction"]


def part(task, examples, labels, *, seed=0, metrics=("accuracy",), **spec):
    """`examples[split]` = (ids, labels, predictions)."""
    table = {name: [] for name in ("example_id", "label", "prediction", "split", "finetune_seed")}
    table |= {"score_0": []}
    for split, (ids, gold, found) in examples.items():
        table["example_id"] += ids
        table["label"] += gold
        table["prediction"] += found
        table["split"] += [split] * len(ids)
        table["finetune_seed"] += [seed] * len(ids)
        table["score_0"] += [0.0] * len(ids)
    facts = {
        "task": {
            **{"name": task, "suite": "glue", "labels": labels, "metrics": list(metrics)},
            **{"splits": ["validation"], **spec},
        },
        "nothing": 0,
        "train_loss": 0.5,
    }
    return Part(table, facts)


def scores_of(one):
    result = EvaluationResult()
    add_scores(result, one.facts, [one.table], [0.5])
    return result


@pytest.mark.parametrize("gold", [[-1, -1, -1], [0, -1, 1]])
def test_hidden_labels_give_no_metric_and_a_file_in_the_order_of_the_index(tmp_path, gold):
    one = part(
        "rte",
        {"validation": ([0, 1], [0, 1], [0, 1]), "test": ([2, 0, 1], gold, [1, 0, 0])},
        ["entailment", "not_entailment"],
        metrics_of={"test": ["accuracy"]},
    )
    result = scores_of(one)
    assert result.scores == {"glue/rte/accuracy": 1.0}
    assert result.details["rte"]["predicted"] == {"test": 3}
    written = submission.write({"rte": [one]}, tmp_path / "out")
    assert [file.name for file in written.files] == ["RTE.tsv", "submission.zip"]
    assert written.files[0].read_text() == (
        "index\tprediction\n0\tentailment\n1\tentailment\n2\tnot_entailment\n"
    )
    assert written.missing == [name for name in submission.FILES if name != "RTE"]
    with zipfile.ZipFile(written.files[1]) as archive:
        assert archive.namelist() == ["RTE.tsv"]


def test_all_eleven_files(tmp_path):
    test = {"test": ([0, 1], [-1, -1], [1, 0])}
    parts = {task: [part(task, test, ["no", "yes"])] for task in ("cola", "sst2", "mrpc", "qqp")}
    for task in ("qnli", "rte"):
        parts[task] = [part(task, test, ["entailment", "not_entailment"])]
    parts["wnli"] = [part("wnli", test, ["not_entailment", "entailment"])]
    parts["stsb"] = [part("stsb", {"test": ([0, 1, 2], [0.0] * 3, [5.7, -0.2, 2.34567])}, [])]
    three = ([0, 1, 2], [-1] * 3, [2, 1, 0])
    splits = dict.fromkeys(("test_matched", "test_mismatched", "ax"), three)
    parts["mnli"] = [part("mnli", splits, NLI)]
    written = submission.write(parts, tmp_path)
    names = {file.stem for file in written.files if file.suffix == ".tsv"}
    assert names == {
        *("CoLA", "SST-2", "MRPC", "STS-B", "QQP", "MNLI-m", "MNLI-mm", "QNLI", "RTE", "WNLI"),
        "AX",
    }
    assert written.missing == []
    read = {file.stem: file.read_text().split("\n")[1:-1] for file in written.files[:-1]}
    assert read["CoLA"] == read["WNLI"] == ["0\t1", "1\t0"]  # numbers
    assert read["QNLI"] == ["0\tnot_entailment", "1\tentailment"]  # names
    assert read["AX"] == read["MNLI-mm"] == ["0\tcontradiction", "1\tneutral", "2\tentailment"]
    assert read["STS-B"] == ["0\t5.000", "1\t0.000", "2\t2.346"]  # clipped


def test_of_several_seeds_the_first_is_written_and_never_the_best(tmp_path):
    seeds = [
        part("cola", {"test": ([0, 1], [-1, -1], [seed, 1])}, ["no", "yes"], seed=seed)
        for seed in (0, 1)
    ]
    submission.write({"cola": seeds}, tmp_path)
    assert (tmp_path / "CoLA.tsv").read_text().endswith("0\t0\n1\t1\n")
    submission.write({"cola": seeds}, tmp_path, seed=1)
    assert (tmp_path / "CoLA.tsv").read_text().endswith("0\t1\n1\t1\n")
    with pytest.raises(ValueError, match=r"--seed 2: task cola has the fine-tuning seeds \[0, 1\]"):
        submission.write({"cola": seeds}, tmp_path, seed=2)


def test_ids_that_are_no_index_are_replaced_and_said(tmp_path):
    one = part("cola", {"test": ([70, 12], [-1, -1], [1, 0])}, ["no", "yes"])
    written = submission.write({"cola": [one]}, tmp_path)
    assert written.notes[0].startswith("CoLA: ids are not 0 to 1")
    assert (tmp_path / "CoLA.tsv").read_text() == "index\tprediction\n0\t1\n1\t0\n"


def test_nothing_predicted_and_a_folder_that_cannot_be_are_one_message(tmp_path):
    scored = part("cola", {"validation": ([0], [1], [1])}, ["no", "yes"])
    with pytest.raises(ValueError, match=r"no test set was predicted.*test_matched\.jsonl"):
        submission.write({"cola": [scored]}, tmp_path)
    (tmp_path / "file").write_text("")
    one = part("cola", {"test": ([0], [-1], [1])}, ["no", "yes"])
    with pytest.raises(ValueError, match="cannot be written"):
        submission.write({"cola": [one]}, tmp_path / "file")


def test_the_diagnostic_set_is_scored_by_mcc_where_it_carries_labels():
    splits = {
        "validation_matched": ([0, 1], [0, 1], [0, 1]),
        "ax": ([0, 1, 2, 3], [0, 1, 2, 2], [0, 1, 2, 1]),
    }
    changes = {"splits": ["validation_matched"], "metrics_of": {"ax": ["mcc"]}}
    result = scores_of(part("mnli", splits, NLI, **changes))
    assert set(result.scores) == {"glue/mnli/matched_accuracy", "glue/mnli/ax_mcc"}
    assert 0.5 < result.scores["glue/mnli/ax_mcc"] < 1.0


def test_a_three_way_head_is_scored_on_merged_labels_under_another_name():
    """The most probable class decides; its group is compared with the file's label."""
    merged = {"validation_matched_2way": {"entailment": NLI[:1], "not_entailment": NLI[1:]}}
    splits = {
        "validation_matched": ([0, 1, 2], [0, 1, 2], [0, 2, 2]),
        "validation_matched_2way": ([0, 1, 2, 3], [0, 1, 1, 1], [0, 1, 2, 0]),
    }
    one = part(
        "mnli", splits, NLI, splits=["validation_matched"], merged_labels=merged,
        metrics_of={"validation_matched_2way": ["accuracy"]},
    )  # fmt: skip
    one.facts["nothing"] = {"validation_matched": 0, "validation_matched_2way": 1}
    result = scores_of(one)
    assert result.scores == {
        "glue/mnli/matched_accuracy": pytest.approx(2 / 3),
        "glue/mnli/matched_2way_accuracy": 0.75,
    }
    two = result.details["mnli"]["metrics"]["glue/mnli/matched_2way_accuracy"]
    assert two["majority"] == 0.75
