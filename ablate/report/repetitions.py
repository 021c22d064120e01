"""Repetitions of a study with known answers -> repetitions.md and .json in its report's folder."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ablate.report.build import folder_name
from ablate.report.index import write_index
from ablate.report.markdown import escape
from ablate.report.wording import WORDS, digits_of
from ablate.study.collect import StudyResult
from ablate.study.repeat import OUTCOMES, summary, tallies
from ablate.tracking.record import write_atomically

_SIGN = {"+": "better", "-": "worse", "0": "not called"}


def write_repetitions(results: Sequence[StudyResult], reports_dir: Path) -> Path:
    """Write both files; returns the Markdown one."""
    found = summary(tallies(results))
    folder = reports_dir / folder_name(results[0])
    folder.mkdir(parents=True, exist_ok=True)
    content = {"study": folder.name, "seeds": [list(r.study.seeds) for r in results], **found}
    write_atomically(folder / "repetitions.json", json.dumps(content, indent=1) + "\n")
    write_atomically(folder / "repetitions.md", repetitions_markdown(results, found))
    write_index(reports_dir)
    return folder / "repetitions.md"


def repetitions_markdown(results: Sequence[StudyResult], found: dict[str, Any]) -> str:
    """What was right, missed and wrong, with exact intervals; then every difference."""
    study = results[0].study
    seeds = "; ".join(f"{min(r.study.seeds)} to {max(r.study.seeds)}" for r in results)
    lines = [
        f"# {escape(folder_name(results[0]))}: {len(results)} repetitions", "",
        f"The planted answers of this study, found {len(results)} times with other seeds "
        f"({seeds}). Primary metric {escape(study.primary)}, margin {study.margin:g}. Brackets: "
        "exact 95% interval (Clopper-Pearson) of the share. Right is the expected sign, or of an "
        "arm that makes no difference that it is not called; missed is undecided or not trained "
        "enough; wrong is a call the other way, a called null, or `equivalent` where there is a "
        "difference.", "",
        "| arm | expected | right | missed | wrong | verdicts |",
        "| --- | --- | ---: | ---: | ---: | --- |",
    ]  # fmt: skip
    for arm, row in found["arms"].items():
        verdicts = ", ".join(WORDS[v] for v in row["verdicts"])
        lines.append(f"| {escape(arm)} | {_SIGN[row['expected']]} | {_three(row)} | {verdicts} |")
    lines += [
        f"| all arms | | {_three(found['all'])} | |", "",
        "Arms of one repetition share its baseline: the intervals of the last row take them as "
        "independent, which they are not quite.", "",
        "## Differences from the baseline", "",
        "Mean over seeds with its 95% paired t interval; positive is better.", "",
        "| arm | " + " | ".join(f"repetition {i + 1}" for i in range(len(results))) + " |",
        "| --- |" + " --- |" * len(results),
    ]  # fmt: skip
    for arm in found["arms"]:
        lines.append(
            f"| {escape(arm)} | " + " | ".join(_difference(r, arm) for r in results) + " |"
        )
    lines += ["", "How to reproduce:", "", "```", _command(results), "```"]
    return "\n".join(lines) + "\n"


def _three(row: dict[str, Any]) -> str:
    return " | ".join(_share(row[outcome], row["n"]) for outcome in OUTCOMES)


def _share(cell: dict[str, Any], n: int) -> str:
    low, high = cell["interval"]
    return f"{cell['count']} of {n} [{low:.2f}, {high:.2f}]"


def _difference(result: StudyResult, arm: str) -> str:
    here, digits = result.decisions[arm], digits_of(result)
    if here.n == 0:
        return "–"
    return f"{digits.signed(here.difference)} ({digits.interval(here.low, here.high)})"


def _command(results: Sequence[StudyResult]) -> str:
    study = results[0].study
    scale = f" scale={study.scale}" if study.scale else ""
    return f"python -m ablate.study repeat {study.name}{scale} times={len(results)}"
