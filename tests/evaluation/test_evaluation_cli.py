"""`python -m ablate.evaluation`: a finished run's numbers from its predictions alone."""

import json
import subprocess
import sys

import numpy as np
import pytest

from ablate.evaluation import __main__ as command
from ablate.evaluation import averages, predictions, scoring
from ablate.evaluation.__main__ import main
from ablate.evaluation.measurement import EvaluationResult, Part

SETTINGS = {"learning_rate": 4e-5, "batch_size": 32, "num_epochs": 3, "max_steps": None}


def fits(task, *, labels=2, metrics=("accuracy",), splits=("validation",), seeds=2, n=60, **facts):
    """A part a fine-tuning seed, right in about four of five examples; `test` is hidden."""
    random = np.random.default_rng(len(task))
    gold = {s: random.integers(0, labels or 6, n).astype(int if labels else float) for s in splits}
    parts = []
    for seed in range(seeds):
        table = {name: [] for name in ("example_id", "label", "prediction", "split")}
        for split in splits:
            noise = random.random(n) < 0.2
            wrong = (gold[split] + 1) % labels if labels else gold[split] + 1.5
            found = np.where(noise, wrong, gold[split])
            table["example_id"] += range(n)
            table["label"] += (gold[split] if "test" not in split else gold[split] * 0 - 1).tolist()
            table["prediction"] += found.tolist()
            table["split"] += [split] * n
        table |= {"finetune_seed": [seed] * n * len(splits), "score_0": [0.0] * n * len(splits)}
        spec = {
            **{"name": task, "suite": "glue", "labels": [f"c{i}" for i in range(labels)]},
            **{"metrics": list(metrics), "splits": [s for s in splits if "test" not in s]},
        }
        fixed = {"task": spec, "nothing": 0, "train_loss": 0.1, "notes": {}}
        parts.append(Part(table, {**fixed, "num_train_examples": 90, **facts}))
    return parts


def make_run(folder, tasks, **record):
    """A run's folder as the runner leaves it."""
    result = EvaluationResult()
    for name, parts in tasks.items():
        facts = {**parts[0].facts, "hyper_parameters": SETTINGS}
        scoring.add_scores(result, facts, [p.table for p in parts], [0.1] * len(parts))
        predictions.write(
            folder / "predictions" / f"{name}.parquet", predictions.joined(parts), key={}
        )
    averages.add_averages(result)
    content = {
        **{"status": "complete", "arm": "mine", "seed": 3, "scores": result.scores},
        **{"evaluation": result.details, "averages": result.averages, **record},
    }
    (folder / "record.json").write_text(json.dumps(content, allow_nan=False))
    return result


@pytest.fixture
def run(tmp_path):
    tasks = {
        "cola": fits("cola", metrics=["mcc"], splits=("validation", "test")),
        "rte": fits("rte", num_train_available=200),
    }
    return tmp_path, make_run(tmp_path, tasks)


@pytest.fixture
def whole(tmp_path):
    """All of GLUE but WNLI."""
    tasks = {name: fits(name) for name in ("sst2", "qnli", "rte")}
    tasks |= {name: fits(name, metrics=["f1", "accuracy"]) for name in ("mrpc", "qqp")}
    tasks["cola"] = fits("cola", metrics=["mcc"])
    tasks["stsb"] = fits("stsb", labels=0, metrics=["pearson", "spearman"])
    splits = ("validation_matched", "validation_mismatched")
    tasks["mnli"] = fits("mnli", labels=3, splits=splits)
    return tmp_path, make_run(tmp_path, tasks)


def printed(capsys, *argv):
    assert main([str(word) for word in argv]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out


def refused(capsys, *argv):
    assert main([str(word) for word in argv]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("ablate: ")
    assert len(err.strip().splitlines()) == 1
    return err


def test_scores_computed_again_are_those_of_the_record(run, capsys):
    folder, result = run
    found = json.loads(printed(capsys, folder, "--json"))
    assert {name: entry["value"] for name, entry in found["scores"].items()} == result.scores
    assert found["differences"] == {}
    assert found["scores"]["glue/rte/accuracy"]["standard_error_method"] == "examples"
    assert (found["arm"], found["seed"]) == ("mine", 3)


def test_the_table_says_what_a_score_rests_on(run, capsys):
    folder, result = run
    lines = printed(capsys, folder).splitlines()
    head = next(line for line in lines if line.startswith("score"))
    assert head.split() == ["score", "value", "s.e.", "baseline", "n", "seeds", "flags"]
    row = next(line.split() for line in lines if line.startswith("glue/rte/accuracy"))
    entry = result.details["rte"]["metrics"]["glue/rte/accuracy"]
    wanted = (result.scores["glue/rte/accuracy"], entry["standard_error"], entry["majority"])
    assert row[1:] == [*(f"{number:.3f}" for number in wanted), "60", "2"]


def test_the_protocol_stands_above_the_table(run, capsys):
    out = printed(capsys, run[0])
    assert "fine-tuning, the same for 2 tasks: learning_rate 4e-05, batch_size 32" in out
    assert "grid: none" in out
    assert "every task starts from the pretrained encoder" in out
    assert "training examples capped: rte 90 of 200" in out


def test_from_mnli_a_grid_and_own_settings_are_told(tmp_path, capsys):
    result = make_run(tmp_path, {"cola": fits("cola"), "rte": fits("rte")})
    result.details["rte"] |= {
        "start_from": [{"task": "mnli", "finetune_seed": 0}],
        "grid_by_seed": [{}],
        "hyper_parameters": {**SETTINGS, "num_epochs": 10},
    }
    record = json.loads((tmp_path / "record.json").read_text())
    record["evaluation"] = result.details
    (tmp_path / "record.json").write_text(json.dumps(record))
    out = printed(capsys, tmp_path)
    assert "rte start from the encoder that was fine-tuned on mnli" in out
    assert "grid: settings chosen on examples held out of train for rte" in out
    assert "rte has its own num_epochs 10" in out


def test_all_rules_that_lack_nothing_stand_under_their_names(whole, capsys):
    out = printed(capsys, whole[0])
    for rule in set(averages.RULES) - {"official"}:
        assert f"\nglue/{rule} " in out
        assert f"glue/{rule} = {averages.RULES[rule].formula}" in out
    assert "no average by glue/official: missing wnli" in out


def test_one_rule(whole, capsys):
    folder, result = whole
    out = printed(capsys, folder, "--rule", "bert9")
    assert "glue/bert9 = mean over 9 columns of: mnli_m matched_accuracy" in out
    assert "glue/mean8" not in out
    found = json.loads(printed(capsys, folder, "--rule", "cramming9_harmonic", "--json"))
    average = found["averages"]["glue/cramming9_harmonic"]
    assert average["value"] == result.scores["glue/cramming9_harmonic"]
    assert 0 < average["standard_error"] < 0.05


def test_a_rule_that_lacks_a_task_is_refused_and_names_it(run, capsys):
    message = refused(capsys, run[0], "--rule", "official")
    assert "glue/wnli/accuracy" in message
    assert "an average of fewer tasks is another quantity" in message


def test_one_task(run, capsys):
    out = printed(capsys, run[0], "--task", "rte")
    assert "glue/rte/accuracy" in out
    assert "glue/cola" not in out


def test_what_is_wrong_with_a_score_is_flagged(tmp_path, capsys):
    constant, upside_down = fits("cola", metrics=["mcc"]), fits("rte", n=200)
    constant[1].table["prediction"] = [1] * 60
    for part in upside_down:
        part.table["prediction"] = [1 - label for label in part.table["label"]]
    one_class = fits("mrpc")
    one_class[0].table["prediction"] = [0] * 60
    result = make_run(tmp_path, {"cola": constant, "rte": upside_down, "mrpc": one_class})
    lines = printed(capsys, tmp_path).splitlines()
    assert next(x for x in lines if x.startswith("glue/cola/mcc")).endswith(
        "collapsed (1 of 2 seeds), degenerate (1 of 2 seeds)"
    )
    flags = result.details["mrpc"]["metrics"]["glue/mrpc/accuracy"]["flags"]
    assert flags == ["collapsed", None]
    assert "glue/mrpc/accuracy" in result.averages["glue/electra8"]["flagged"]
    assert next(x for x in lines if x.startswith("glue/rte/accuracy")).endswith("below_chance")


def test_a_score_that_is_not_the_records_is_said(run, capsys):
    folder, _ = run
    record = json.loads((folder / "record.json").read_text())
    record["scores"]["glue/rte/accuracy"] = 0.99
    (folder / "record.json").write_text(json.dumps(record))
    assert main([str(folder)]) == 1
    out, err = capsys.readouterr()
    assert "glue/rte/accuracy is" in err
    row = next(line for line in out.splitlines() if line.startswith("glue/rte/accuracy"))
    assert row.endswith("record says 0.990")


def rewritten(folder, task, change):
    """The stored file of a task after `change(table)`."""
    file = folder / "predictions" / f"{task}.parquet"
    part = predictions.read(file)
    predictions.write(file, Part(change(part.table), part.facts), key={})


def cut(which):
    return lambda table: {name: [v[i] for i in which] for name, v in table.items()}


def test_an_edited_file_is_flagged_and_ends_in_exit_code_1(run, capsys):
    folder, result = run
    rewritten(folder, "rte", lambda table: {**table, "prediction": [0] * 120})
    assert main([str(folder)]) == 1
    out, err = capsys.readouterr()
    assert err.startswith("ablate: glue/rte/accuracy is 0.")
    said = f"record says {result.scores['glue/rte/accuracy']:.3f}"
    rows = {line.split()[0]: line for line in out.splitlines() if line.startswith("glue/")}
    assert said in rows["glue/rte/accuracy"]
    assert "record says" not in rows["glue/cola/mcc"]
    assert main([str(folder), "--json"]) == 1
    assert list(json.loads(capsys.readouterr().out)["differences"]) == ["glue/rte/accuracy"]
    assert main([str(folder), "--task", "cola"]) == 0


def test_a_file_cut_short_is_flagged_or_refused(run, capsys):
    folder, _ = run
    rewritten(folder, "rte", cut([*range(40), *range(60, 100)]))  # of both fits
    assert main([str(folder)]) == 1
    out, err = capsys.readouterr()
    assert "n 60\n" in out
    assert "ablate: glue/rte/accuracy is of n 40 from the predictions and 60 in record" in err
    rewritten(folder, "rte", cut(range(70)))
    assert "not the same examples in all its fits (40 and 30 rows)" in refused(capsys, folder)
    rewritten(folder, "rte", cut(range(20)))
    assert "rows for 1 and facts for 2 fits" in refused(capsys, folder)
    test_only = cut([*range(60, 120), *range(180, 240)])
    rewritten(folder, "cola", test_only)
    assert "has no rows for glue/cola/mcc" in refused(capsys, folder, "--task", "cola")


def test_a_file_of_another_task_or_without_a_column_is_one_message(run, capsys):
    folder, _ = run
    files = {name: folder / "predictions" / f"{name}.parquet" for name in ("cola", "rte")}
    whole = files["rte"].read_bytes()
    files["rte"].write_bytes(files["cola"].read_bytes())
    assert "rte.parquet has the predictions of cola, not rte" in refused(capsys, folder)
    files["rte"].write_bytes(whole)
    without = lambda table: {k: v for k, v in table.items() if k not in ("label", "score_0")}  # noqa: E731
    rewritten(folder, "rte", without)
    message = refused(capsys, folder)
    assert "lacks the columns label, score_0" in message
    assert "force=true" in message


def test_of_one_task_only_its_file_is_read(run, capsys):
    folder, _ = run
    (folder / "predictions" / "rte.parquet").write_bytes(b"PAR1")
    out = printed(capsys, folder, "--task", "cola")
    assert "glue/cola/mcc" in out
    assert "glue/rte" not in out


def test_words_that_are_not_scored_again_are_counted(run, capsys):
    folder, _ = run
    part = Part({"label": ["N"], "finetune_seed": [0], "split": ["test"]}, {"task": {}})
    predictions.write(folder / "predictions" / "pos.parquet", predictions.joined([part]), key={})
    record = json.loads((folder / "record.json").read_text())
    record["evaluation"]["pos"] = {"metrics": {}, "n": {"test": 2}}
    (folder / "record.json").write_text(json.dumps(record))
    assert "pos.parquet has 1 of the 2 rows of test in record.json" in refused(capsys, folder)


def test_an_average_of_one_task_is_refused(whole, capsys):
    message = refused(capsys, whole[0], "--rule", "electra8", "--task", "cola")
    assert "--rule electra8 with --task cola: an average is over all tasks of its rule" in message


def test_scores_of_other_kinds_are_taken_from_the_record(run, capsys):
    folder, result = run
    part = Part({"label": ["N"], "finetune_seed": [0]}, {"task": {}, "nothing": "N"})
    predictions.write(folder / "predictions" / "pos.parquet", predictions.joined([part]), key={})
    record = json.loads((folder / "record.json").read_text())
    entry = result.details["rte"]["metrics"]["glue/rte/accuracy"]
    record["evaluation"]["pos"] = {"metrics": {"tags/pos/accuracy": entry}}
    record["scores"]["tags/pos/accuracy"] = 0.9
    (folder / "record.json").write_text(json.dumps(record))
    out = printed(capsys, folder)
    assert "tags/pos/accuracy" in out
    assert "taken from record.json, not scored again: pos" in out


def test_flags_wrap_in_a_terminal(monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "40")
    rows = [("score", "n", "flags"), ("a/b/" + "c" * 20, "60", "below_chance, record says -0.239")]
    lines = command._table(rows)
    flags = [line[30:] for line in lines[1:]]
    assert flags == ["below_chance,", "record says", "-0.239"]


def test_submission_files(run, tmp_path, capsys):
    out = printed(capsys, run[0], "--submission", tmp_path / "out", "--seed", 1)
    assert "CoLA.tsv" in out
    assert "fine-tuning seed 1" in out
    assert "the server wants: SST-2" in out
    assert len((tmp_path / "out" / "CoLA.tsv").read_text().splitlines()) == 61


def test_bad_input_is_one_message(run, tmp_path, capsys):
    folder, _ = run
    assert "has no record.json" in refused(capsys, tmp_path / "nowhere")
    assert "--rule glue is unknown; allowed: official" in refused(capsys, folder, "--rule", "glue")
    assert "allowed: cola, rte" in refused(capsys, folder, "--task", "mnli")
    assert "--help" in refused(capsys, folder, "--average")
    assert "--help" in refused(capsys)
    assert "chooses what --submission" in refused(capsys, folder, "--seed", 1)
    (folder / "predictions" / "rte.parquet").write_bytes(b"PAR1")
    assert "rte.parquet is missing or no file of predictions" in refused(capsys, folder)
    record = json.loads((folder / "record.json").read_text())
    (folder / "record.json").write_text(json.dumps({**record, "status": "failed"}))
    assert "not complete (status: failed)" in refused(capsys, folder)
    (folder / "record.json").write_text("{")
    assert "cannot be read" in refused(capsys, folder)


def test_a_run_without_evaluation_is_refused(tmp_path, capsys):
    (tmp_path / "record.json").write_text(json.dumps({"status": "complete", "scores": {}}))
    assert "has no predictions" in refused(capsys, tmp_path)


def test_the_command_imports_no_torch(run):
    code = (
        "import sys; from ablate.evaluation.__main__ import main; "
        f"assert main([{str(run[0])!r}]) == 0; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)
