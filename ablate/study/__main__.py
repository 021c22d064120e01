"""`python -m ablate.study status|plan|lock|repeat NAME [scale=...] [overrides]`: before and after.

`status` compares what a study expects with what is there, `plan` says what it would run and cost,
`lock` fixes its arms and its decision rule without running anything. `repeat NAME times=6` runs a
study whose answers are known six times with other seeds, and counts right and wrong verdicts.
"""

from __future__ import annotations

import datetime
import sys
from collections.abc import Sequence
from pathlib import Path

from ablate.config.commands import exit_code

COMMANDS = ("status", "plan", "lock", "repeat")
_USAGE = "python -m ablate.study status|plan|lock|repeat NAME [scale=SCALE] [key=value ...]"


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    if not words or words[0] in ("-h", "--help"):
        print(f"{_USAGE}\n\n{__doc__}")
        return 0 if words else 2
    return exit_code(lambda: _work(words))


def _work(words: Sequence[str]) -> None:
    from ablate.study.guard import compose_arms
    from ablate.study.options import open_study, parse
    from ablate.study.plan import (
        costs,
        evaluation_seconds,
        measured_speed,
        plan_lines,
        status_lines,
    )  # fmt: skip
    from ablate.study.states import StudyFolder

    if words[0] not in COMMANDS or len(words) < 2 or "=" in words[1]:
        raise ValueError(f"{' '.join(words)} is not possible; type {_USAGE}")
    if words[0] == "repeat":
        _repeat(words[1], words[2:])
        return
    options = parse([f"study={words[1]}", *words[2:]])
    study = open_study(options.study, options.scale)
    composed = compose_arms(study, options.overrides)
    runs_dir = Path(composed[study.baseline].settings.paths.runs_dir)
    folder = StudyFolder(runs_dir, study)
    seeds = folder.asked(study)
    if words[0] == "plan":
        known = costs(study, composed), measured_speed(study, options.overrides)
        took = evaluation_seconds(study, folder)
        print(*plan_lines(study, composed, *known, len(study.seeds), took), sep="\n")
        return
    if words[0] == "lock":
        folder.take_lock(study, composed, datetime.date.today().isoformat())
        print(f"locked: {folder.path / 'lock.json'}")
    changes = folder.changes(study, composed)
    if changes:
        print("exploratory: the study was edited after its lock")
        print(*(f"  {change}" for change in changes), sep="\n")
    if words[0] == "status":
        print(*status_lines(study, folder, seeds)[0], sep="\n")


def _repeat(name: str, words: Sequence[str]) -> None:
    from ablate.report.build import write
    from ablate.report.repetitions import write_repetitions
    from ablate.study.collect import StudyResult
    from ablate.study.design import Study
    from ablate.study.options import open_study, parse
    from ablate.study.repeat import repeat, repetition
    from ablate.study.runner import drive

    asked = [word.partition("=")[2] for word in words if word.startswith("times=")]
    if len(asked) != 1 or not asked[0].isdecimal() or int(asked[0]) < 1:
        raise ValueError(f"type python -m ablate.study repeat {name} times=6")
    options = parse([f"study={name}", *(w for w in words if not w.startswith("times="))])
    if options.more_seeds:
        raise ValueError(
            "study.more_seeds adds to one study; repetitions have the seeds of its file"
        )
    study = open_study(options.study, options.scale)
    repetition(study, 0)
    paths, failed = [], 0

    def run(again: Study) -> StudyResult:
        nonlocal failed
        driven = drive(options, today=datetime.date.today().isoformat(), study=again)
        where = driven.composed[study.baseline].settings.paths
        failed += driven.failed
        paths.append((Path(where.reports_dir), Path(where.runs_dir)))
        return driven.result()

    results = repeat(study, int(asked[0]), run)
    write(results[0], *paths[0])
    print(f"report {write_repetitions(results, paths[0][0])}")
    if failed:
        print(f"ablate: {failed} runs failed", file=sys.stderr)
        raise SystemExit(1)


if __name__ == "__main__":
    sys.exit(main())
