"""`python -m ablate.report`: studies by name or file, folders of plain runs, refusals."""

import dataclasses
import json
import subprocess
import sys

import pytest

from ablate.report.__main__ import main
from ablate.report.build import write
from ablate.report.plain import plain_result, run_folders
from ablate.report.rules import by_rule
from ablate.study.states import State, StudyFolder

STUDY = """\
question: Does all-mask help?
baseline: standard
arms: {standard: [], all_mask: [masking=all_mask]}
moves: [masking.*]
seeds: 3
primary: glue/mean8
margin: 0.01
"""


@pytest.fixture
def plain(make, tmp_path):
    """Folders of runs without a study, as `python -m ablate -m` leaves them."""

    def build(effects, **how):
        result = make(effects, **how)
        for arm in result.arms.values():
            for seed, record in arm.records.items():
                folder = tmp_path / "runs" / "single" / arm.states[seed].run
                folder.mkdir(parents=True, exist_ok=True)
                kept = {**record, "averages": {"glue/mean8": {"value": 0.5, "formula": "a mean"}}}
                (folder / "record.json").write_text(json.dumps(kept))
        return result

    build.singles = tmp_path / "runs" / "single"
    return build


def test_plain_runs_are_described_and_called_exploratory(plain, tmp_path, capsys):
    wanted = plain({"all_mask": 0.05, "mask_95": -0.06}, curves=True)
    reports = tmp_path / "reports"
    code = main([str(plain.singles), "--baseline", "standard", "--reports-dir", str(reports)])
    assert code == 0
    readme = (reports / "single" / "README.md").read_text()
    assert "Exploratory: these are plain runs" in readme
    assert "no verdict" in readme
    found = json.loads((reports / "single" / "verdicts.json").read_text())
    for name, here in wanted.decisions.items():
        assert found[name]["verdict"] == "descriptive"
        assert found[name]["difference"] == pytest.approx(here.difference)
        assert found[name]["p_adjusted"] is None
    assert (reports / "single" / "figures" / "curves.svg").exists()
    assert "written: " in capsys.readouterr().out


def test_the_first_arm_is_the_baseline_and_the_metric_may_be_chosen(plain):
    plain({"all_mask": 0.05})
    runs = run_folders([str(plain.singles / "*")])
    first = plain_result(runs, name="x")
    assert first.study.baseline == "all_mask"
    assert first.study.primary == "glue/mean8"
    loss = plain_result(runs, name="x", baseline="standard", metric="val/token_mask/loss")
    assert not loss.study.higher_is_better
    assert loss.decisions["all_mask"].difference == pytest.approx(0.05)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "nothing to report"),
        (["no_such_study"], "there is no such study"),
        (["RUNS", "--baseline", "x"], "allowed: all_mask, standard"),
        (["RUNS", "--metric", "x"], "allowed: glue/"),
        (["RUNS", "--scale", "x"], "--scale belongs to a study"),
        (["RUNS/nothing*"], "no run with a record.json"),
        (["--what"], "--help"),
        (["STUDY", "--baseline", "x"], "--baseline belongs to plain runs"),
        (["STUDY", "--scale", "x"], "scale=x is not possible"),
        (["STUDY", "--runs-dir", "RUNSDIR", "--rule", "x"], "allowed: (none)"),
    ],
)
def test_bad_input_is_one_message_and_exit_code_2(plain, tmp_path, capsys, words, said):
    plain({"all_mask": 0.05})
    (tmp_path / "study.yaml").write_text(STUDY)
    names = {
        "RUNSDIR": str(tmp_path / "runs"),
        "RUNS": str(plain.singles),
        "STUDY": str(tmp_path / "study.yaml"),
    }
    for name, path in names.items():
        words = [path + w.removeprefix(name) if w.startswith(name) else w for w in words]
    assert main([*words, "--reports-dir", str(tmp_path / "r")]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_two_runs_of_one_arm_and_seed_are_refused(plain, capsys):
    plain({"all_mask": 0.05})
    run = next(iter(sorted(plain.singles.iterdir())))
    other = plain.singles / "other"
    other.mkdir()
    (other / "record.json").write_text((run / "record.json").read_text())
    assert main([str(plain.singles)]) == 2
    assert "are both arm all_mask at seed 0" in capsys.readouterr().err


def test_a_study_file_is_reported_with_its_runs_and_its_lock(plain, tmp_path, capsys):
    made = plain({"all_mask": 0.05}, seeds=3)
    file = tmp_path / "half.yaml"
    file.write_text(STUDY)
    words = [str(file), "--runs-dir", str(tmp_path / "runs"), "--reports-dir", str(tmp_path / "r")]
    assert main(words) == 0
    assert "No run is complete" in (tmp_path / "r" / "half" / "README.md").read_text()

    from ablate.study.design import load
    from ablate.study.guard import compose_arms

    study = load(file)
    folder = StudyFolder(tmp_path / "runs", study)
    folder.take_lock(study, compose_arms(study), "2026-11-30")
    for arm in made.arms.values():
        for seed, state in arm.states.items():
            folder.note(arm.name, seed, state)
    folder.note("all_mask", 2, State("failed", None, error="ValueError: x"))
    assert main(words) == 0
    readme = (tmp_path / "r" / "half" / "README.md").read_text()
    assert "locked on 2026-11-30" in readme
    assert "xploratory" not in readme
    assert "masking.mask_replace_prob: 0.8 → 1" in readme
    assert "ValueError: x" in readme
    file.write_text(STUDY.replace("0.01", "0.02"))
    assert main(words) == 0
    readme = (tmp_path / "r" / "half" / "README.md").read_text()
    assert "Exploratory" in readme
    assert "rule.margin: 0.01 when locked, 0.02 now" in readme


def test_a_report_needs_no_torch():
    modules = ["build", "forest", "page", "panels", "plain", "rules"]
    code = (
        "import sys, importlib\n"
        f"for name in {modules}: importlib.import_module('ablate.report.' + name)\n"
        "assert not {'torch', 'transformers', 'wandb'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def with_average(result, rule, shift):
    """The same with another rule's average in every record."""
    arms = {}
    for name, arm in result.arms.items():
        records = {
            seed: {
                **record,
                "averages": {
                    f"glue/{r}": {"value": 0.5, "formula": f"by {r}"} for r in ("mean8", rule)
                },
                "scores": {
                    **record["scores"],
                    f"glue/{rule}": record["scores"]["glue/mean8"] + shift * (name != "standard"),
                },
            }
            for seed, record in arm.records.items()
        }
        scores = {
            **arm.scores,
            f"glue/{rule}": {s: r["scores"][f"glue/{rule}"] for s, r in records.items()},
        }
        arms[name] = dataclasses.replace(arm, records=records, scores=scores)
    return dataclasses.replace(result, arms=arms)


def test_another_rule_is_exploratory_and_in_a_folder_of_its_own(make, tmp_path):
    result = with_average(make({"all_mask": 0.05}), "bert9", 0.1)
    folder = StudyFolder(tmp_path / "runs", result.study)
    other = by_rule(result, folder, "bert9")
    assert other.study.primary == "glue/bert9"
    shift = other.decisions["all_mask"].difference - result.decisions["all_mask"].difference
    assert shift == pytest.approx(0.1)
    declared = write(result, tmp_path / "r")
    path = write(other, tmp_path / "r", rule="bert9")
    assert path.name == "made-by_bert9"
    readme = (path / "README.md").read_text()
    assert "Exploratory" in readme
    assert "glue/mean8 was declared, glue/bert9 is shown" in readme
    assert "python -m ablate.report made --rule bert9" in readme
    assert "bert9" not in (declared / "README.md").read_text().split("## Secondary")[0]
    assert not by_rule(result, folder, "mean8").changes
