"""The files of a report: the same bytes twice, the decision's own numbers, nothing left out."""

import csv
import dataclasses
import json
import re
import time

import pytest

from ablate.report.build import write
from ablate.study.collect import look_of
from ablate.study.design import Expectation, Gate


def files_of(folder):
    return {p.relative_to(folder): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def rows_of(readme, heading):
    """Cells of the first table under a heading."""
    part = readme.split(f"## {heading}\n", 1)[1]
    lines = re.findall(r"^\|.*\|$", part.split("\n## ", 1)[0], flags=re.MULTILINE)
    cells = [[c.strip() for c in line.strip("|").split("|")] for line in lines]
    return cells[0], cells[2:]


def test_same_records_give_the_same_bytes(three, make, tmp_path):
    first = files_of(write(three, tmp_path / "one", make.runs_dir))
    second = files_of(write(three, tmp_path / "two", make.runs_dir))
    assert first == second
    assert {"README.md", "report.html", "results.csv", "verdicts.json", "table.tex"} <= {
        str(p) for p in first
    }
    figures = {p.stem for p in first if p.suffix == ".svg"}
    assert figures == {"forest", "scores", "curves", "cost"}


def test_numbers_of_the_table_are_the_decisions(three, tmp_path):
    folder = write(three, tmp_path / "reports")
    heads, rows = rows_of((folder / "README.md").read_text(), "Arms")
    assert [row[0] for row in rows] == list(three.decisions)
    for row in rows:
        cells, here = dict(zip(heads, row, strict=True)), three.decisions[row[0]]
        assert cells["verdict"] == here.verdict.replace("_", " ")
        assert cells["n pairs"] == str(here.n)
        signed = [f"{v:+.4f}".replace("-", "−") for v in (here.difference, here.low, here.high)]
        assert cells["difference"] == signed[0]
        assert cells["95% interval"] == f"{signed[1]} to {signed[2]}"
        assert cells["p difference (Holm)"] == f"{here.p_adjusted:.3f}"
        assert cells["p equivalence (Holm)"] == f"{here.p_equivalence_adjusted:.3f}"
        seeds = here.more_seeds if here.verdict == "undecided" else "–"
        assert cells["more seeds"] == str(seeds)
        means = [float(cells[name]) for name in ("arm mean", "baseline mean")]
        assert means[0] - means[1] == pytest.approx(here.difference, abs=2e-4)
    kept = json.loads((folder / "verdicts.json").read_text())
    for name, here in three.decisions.items():
        wanted = json.loads(json.dumps(dataclasses.asdict(here)))
        assert {key: kept[name][key] for key in wanted} == wanted
        assert kept[name]["arm_mean"] - kept[name]["baseline_mean"] == pytest.approx(
            here.difference
        )


def test_results_csv_holds_every_score_and_every_run(make, tmp_path):
    result = make({"all_mask": 0.0}, failed=[("all_mask", 1)], missing=[("standard", 2)])
    folder = write(result, tmp_path / "reports")
    with open(folder / "results.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    scores = {(r["arm"], int(r["seed"]), r["score"]): r for r in rows}
    for name, arm in result.arms.items():
        for score, by_seed in arm.scores.items():
            for seed, value in by_seed.items():
                assert float(scores[name, seed, score]["value"]) == value
    assert scores["all_mask", 1, ""]["status"] == "failed"
    assert scores["standard", 2, ""]["status"] == "missing"
    assert {(r["arm"], int(r["seed"])) for r in rows} == {
        (arm, seed) for arm in result.arms for seed in range(5)
    }


def test_failures_are_listed_with_their_reason_and_shift_no_pair(make, tmp_path):
    result = make({"all_mask": 0.05}, failed=[("all_mask", 1)], missing=[("standard", 2)])
    readme = (write(result, tmp_path / "reports") / "README.md").read_text()
    _, rows = rows_of(readme, "Failures and missing runs")
    assert {(r[0], r[1], r[2]) for r in rows} == {
        ("all_mask", "1", "failed"),
        ("standard", "2", "missing"),
    }
    assert "FloatingPointError: loss is nan" in readme
    assert "seeds 1, 2 have no partner" in readme
    assert result.decisions["all_mask"].n == 3


def test_tex_is_a_closed_table_with_escaped_names(make, tmp_path):
    result = make({"mask_95": 0.0}, name="a_study", locked=None)
    tex = (write(result, tmp_path / "reports") / "table.tex").read_text()
    for command in ("table", "tabular"):
        assert tex.count(f"\\begin{{{command}}}") == tex.count(f"\\end{{{command}}}") == 1
    body = tex.split("\\midrule")[1].split("\\bottomrule")[0]
    columns = re.search(r"\\begin\{tabular\}\{(\w+)\}", tex)[1]
    assert body.count("&") == len(columns) - 1
    plain = re.sub(r"\\[&%$#_{}]", "", tex.split("\\toprule")[1])
    assert not re.search(r"(?<!\\)[#_%]", plain.replace("%\n", ""))
    depth = 0
    for sign in re.sub(r"\\[{}]", "", tex):
        depth += (sign == "{") - (sign == "}")
        assert depth >= 0
    assert depth == 0
    assert "mask\\_95" in body


def test_index_is_newest_first_and_keeps_what_people_wrote(make, tmp_path):
    reports = tmp_path / "reports"
    reports.mkdir()
    log = "`LOG.md` holds measurements made while building, negative ones included."
    (reports / "README.md").write_text(f"# Reports\n\nNo study has been run yet. {log}\n")
    for name, locked in (("old", "2026-01-02"), ("none", None), ("new", "2026-11-30")):
        write(make({"all_mask": 0.0}, name=name, locked=locked), reports)
    write(make({"all_mask": 0.0}, name="mid", locked="2026-05-05", scale="smoke"), reports)
    text = (reports / "README.md").read_text()
    assert re.findall(r"\| \[[^]]*\]\(([\w-]+)/README.md\)", text) == [
        "new", "mid-smoke", "old", "none",
    ]  # fmt: skip
    assert log in text
    assert "No study has been run" not in text
    (reports / "README.md").write_text(text + "\nMy own words.\n")
    write(make({"all_mask": 0.0}, name="old", locked="2026-01-02"), reports)
    assert (reports / "README.md").read_text() == text + "\nMy own words.\n"


def test_a_changed_study_is_called_exploratory_with_what_changed(make, tmp_path):
    change = "rule.margin: 0.02 when locked, 0.01 now"
    result = make({"all_mask": 0.0}, changes=[change])
    folder = write(result, tmp_path / "reports")
    readme = (folder / "README.md").read_text()
    assert "Exploratory" in readme
    assert change in readme
    assert "xploratory" in (folder / "table.tex").read_text()
    assert json.loads((folder / "verdicts.json").read_text())["all_mask"]["exploratory"] is True
    assert "exploratory" in (tmp_path / "reports" / "README.md").read_text()
    same = write(make({"all_mask": 0.0}), tmp_path / "unchanged")
    assert "xploratory" not in (same / "README.md").read_text()


def verdict_of(result, tmp_path):
    readme = (write(result, tmp_path / "reports") / "README.md").read_text()
    return readme.split("## Verdict\n")[1].split("\n## ")[0]


def test_negative_and_undecided_results_have_their_plain_words(make, tmp_path):
    text = verdict_of(make({"mask_95": -0.2, "some": 0.02}, noise=0.02), tmp_path)
    assert re.search(r"mask_95 is worse \(−0\.\d+, 95% interval −.* to −.*, n = 5", text)
    assert "Of some neither a difference nor its absence is shown" in text
    assert re.search(r"at least \d+ more seeds? would be needed to decide", text)


def test_equivalence_is_said_as_shown(make, tmp_path):
    result = make({"same": 0.0, "too": 0.0}, noise=0.0005, seeds=5)
    assert {d.verdict for d in result.decisions.values()} == {"equivalent"}
    assert "makes no difference as large as the margin, which was shown" in verdict_of(
        result, tmp_path
    )


def test_not_trained_enough_is_said_so_and_not_as_no_effect(make, tmp_path):
    gate = Gate("val/token_mask/accuracy", 0.9, "masked-LM accuracy above a trigram's")
    result = make({"all_mask": 0.0}, gates=[gate])
    text = verdict_of(result, tmp_path)
    assert "was not trained enough to say anything, which is not 'no effect'" in text
    assert "0.600, not above 0.900" in text


def test_no_pair_no_baseline_and_no_run_give_a_clear_page(make, tmp_path):
    one = verdict_of(make({"all_mask": 0.1}, seeds=1), tmp_path)
    assert "no verdict is drawn from fewer than 3" in one
    gone = make({"all_mask": 0.1}, missing=[("standard", s) for s in range(5)])
    assert "The baseline standard has no complete run" in verdict_of(gone, tmp_path)
    every = [(arm, s) for arm in ("standard", "all_mask") for s in range(5)]
    nothing = make({"all_mask": 0.1}, missing=every)
    assert "No run is complete" in verdict_of(nothing, tmp_path)
    assert "There is no arm beside the baseline" in verdict_of(make({}), tmp_path)
    lost = make({"all_mask": 0.1, "other": 0.0}, missing=[("other", s) for s in range(5)])
    assert "other has no seed in common with the baseline" in verdict_of(lost, tmp_path)


def test_lower_is_better_turns_differences_and_published_signs(make, tmp_path):
    result = make(
        {"all_mask": 0.2}, higher=False, expected={"all_mask": Expectation("+", "a paper")}
    )
    folder = write(result, tmp_path / "reports")
    heads, rows = rows_of((folder / "README.md").read_text(), "Arms")
    cells = dict(zip(heads, rows[0], strict=True))
    assert cells["verdict"] == "worse"
    assert cells["difference"].startswith("−")
    assert cells["published"] == "better (a paper): disagrees at this scale"
    assert "differences are baseline minus arm" in (folder / "README.md").read_text()


def test_published_expectations_agree_disagree_or_wait(three, tmp_path):
    readme = (write(three, tmp_path / "reports") / "README.md").read_text()
    assert "better (BERT, table 8): agrees at this scale" in readme
    assert "no difference (x): disagrees at this scale" in readme


def test_every_look_and_its_alpha_is_told(make, tmp_path):
    first = make({"all_mask": 0.1, "some": 0.001}, seeds=3, noise=0.03)
    result = make({"all_mask": 0.1, "some": 0.001}, seeds=5, noise=0.03, looks=[look_of(first)])
    readme = (write(result, tmp_path / "reports") / "README.md").read_text()
    assert "2 looks were taken (look 1: alpha 0.025; look 2: alpha 0.0125" in readme


def test_mixed_commits_are_flagged(make, tmp_path):
    result = make({"all_mask": 0.0}, commits=("a" * 40, "b" * 40))
    readme = (write(result, tmp_path / "reports") / "README.md").read_text()
    assert "MIXED COMMITS" in readme
    assert "b" * 40 in readme


def test_runs_on_gpus_of_several_kinds_are_flagged(make, tmp_path):
    result = make({"all_mask": 0.0})
    for name, arm in result.arms.items():
        for record in arm.records.values():
            record["provenance"]["gpu"] = "H100" if name == "all_mask" else "A100"
    readme = (write(result, tmp_path / "reports") / "README.md").read_text()
    assert re.search(r"MIXED GPU: A100 \(\d runs\); H100", readme)


def test_protocol_pairing_floor_and_consequences_are_told(three, tmp_path):
    readme = (write(three, tmp_path / "reports") / "README.md").read_text()
    assert "training examples capped: sst2 500 of 67,349" in readme
    assert "masking.mask_rate: 0.15 → 0.4" in readme
    assert "parameters: 120,000 → 125,000" in readme
    assert "Floor of the sd of differences" in readme
    assert "sd unpaired" in readme
    assert re.search(r"null_draws: [+−]0\.\d+ \(95% interval", readme)
    assert "tokens 1,500,434" in readme
    assert "No learning curves: the folder of the runs was not given" in readme


def test_figures_of_an_earlier_report_do_not_stay(three, make, tmp_path):
    folder = write(three, tmp_path / "reports", make.runs_dir)
    assert (folder / "figures" / "curves.svg").exists()
    write(three, tmp_path / "reports")
    assert not (folder / "figures" / "curves.svg").exists()


def test_sixty_arms_render_quickly(make, tmp_path):
    effects = {f"arm_{i:02d}": (i - 30) / 500 for i in range(60)}
    result = make(effects, curves=True, more_scores=10)
    begin = time.perf_counter()
    write(result, tmp_path / "reports", make.runs_dir)
    assert time.perf_counter() - begin < 20


def test_the_command_that_reproduces_holds_what_was_typed(make, tmp_path):
    result = make({"all_mask": 0.0}, scale="laptop")
    base = result.baseline
    typed = [*base.overrides, "size=toy", "budget.amount=7", "evaluation.tasks=[a,b]"]
    hidden = ["paths.runs_dir=elsewhere", "tracking=none", "trainer.progress_bar=false"]
    base = dataclasses.replace(base, overrides=[*typed, *hidden])
    result = dataclasses.replace(result, arms={**result.arms, base.name: base})
    readme = (write(result, tmp_path / "reports") / "README.md").read_text()
    assert (
        "python -m ablate study=made scale=laptop budget.amount=7 'evaluation.tasks=[a,b]' "
        "trainer.threads=1\n"
    ) in readme
