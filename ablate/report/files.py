"""A result -> files for programs: results.csv, verdicts.json, metadata.json, table.tex."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
from collections.abc import Mapping
from typing import Any

from ablate.report import wording
from ablate.report.content import Table
from ablate.study.collect import StudyResult
from ablate.study.examples import Interval

RESULT_COLUMNS = ("arm", "seed", "score", "value", "status", "run")
_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_",
    "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", "−": "$-$", "–": "--",
    "→": r"$\to$",
}  # fmt: skip


def results_csv(result: StudyResult) -> str:
    """A row for each arm x seed x score; a run without scores has one row without a value."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(RESULT_COLUMNS)
    for arm in result.arms.values():
        for seed, state in sorted(arm.states.items()):
            found: list[tuple[str, Any]] = [
                (n, by_seed[seed]) for n, by_seed in arm.scores.items() if seed in by_seed
            ]
            for name, value in found or [("", "")]:
                shown = repr(value) if isinstance(value, float) else value
                writer.writerow([arm.name, seed, name, shown, state.status, state.run or ""])
    return text.getvalue()


def verdicts_json(
    result: StudyResult, bootstraps: Mapping[str, Interval | str] | None = None
) -> str:
    """{arm: decision, with the means, the published direction and the bootstrap's interval}."""
    found = {}
    for name, decision in result.decisions.items():
        baseline = result.study.baseline
        expected = result.study.expected.get(name)
        resampled = (bootstraps or {}).get(name)
        known = resampled if isinstance(resampled, Interval) else None
        found[name] = {
            **dataclasses.asdict(decision),
            "metric": result.study.primary,
            "baseline": baseline,
            "arm_mean": wording.mean_at(result, name, decision.seeds),
            "baseline_mean": wording.mean_at(result, baseline, decision.seeds),
            "bootstrap_low": None if known is None else known.low,
            "bootstrap_high": None if known is None else known.high,
            "expected": None if expected is None else dataclasses.asdict(expected),
            "exploratory": wording.is_exploratory(result),
        }
    return _json(found)


def metadata_json(result: StudyResult, rule: str | None = None) -> str:
    """What the index of all studies shows of this one."""
    study = result.study
    counts: dict[str, int] = {}
    for decision in result.decisions.values():
        counts[decision.verdict] = counts.get(decision.verdict, 0) + 1
    return _json(
        {
            "title": wording.title_of(result, rule),
            "question": study.question,
            "locked": result.locked,
            "exploratory": wording.is_exploratory(result),
            "baseline": study.baseline,
            "primary": study.primary,
            "higher_is_better": study.higher_is_better,
            "margin": None if wording.is_descriptive(result) else study.margin,
            "pairs": sorted({decision.n for decision in result.decisions.values()}),
            "looks": result.looks,
            "floor": result.floor,
            "runs_lacking": len(result.failures),
            "verdicts": counts,
        }
    )


def _json(value: Any) -> str:
    return json.dumps(value, indent=2, allow_nan=False, ensure_ascii=False) + "\n"


def latex(text: str) -> str:
    """Plain text as LaTeX that prints it."""
    return "".join(_LATEX.get(sign, sign) for sign in " ".join(text.split()))


def table_tex(result: StudyResult, table: Table) -> str:
    """The main table for a paper (booktabs); what its numbers rest on is in the caption."""
    spec = "".join("l" if name in table.words else "r" for name in table.columns)
    lines = [
        "% \\usepackage{booktabs}",
        "\\begin{table}",
        "\\centering",
        "\\small",
        f"\\begin{{tabular}}{{{spec}}}",
        "\\toprule",
        " & ".join(map(latex, table.columns)) + r" \\",
        "\\midrule",
        *(" & ".join(latex(cell.text) for cell in row) + r" \\" for row in table.rows),
        "\\bottomrule",
        "\\end{tabular}",
        f"\\caption{{{latex(_caption(result, table))}}}",
        f"\\label{{tab:{_label(result.study.name)}}}",
        "\\end{table}",
    ]
    return "\n".join(lines) + "\n"


def _caption(result: StudyResult, table: Table) -> str:
    exploratory = "Exploratory. " if wording.is_exploratory(result) else ""
    margin = (
        ""
        if wording.is_descriptive(result)
        else f" Margin {wording.digits_of(result).plain(result.study.margin)}."
    )
    return f"{exploratory}{table.caption}{margin}"


def _label(name: str) -> str:
    return "".join(sign if sign.isalnum() else "-" for sign in name)
