"""`python -m ablate.study status|plan|lock NAME [scale=...] [overrides]`: look, before and after.

`status` compares what a study expects with what is there, `plan` says what it would run and cost,
`lock` fixes its arms and its decision rule without running anything.
"""

from __future__ import annotations

import datetime
import sys
from collections.abc import Sequence
from pathlib import Path

from ablate.config.commands import exit_code

COMMANDS = ("status", "plan", "lock")
_USAGE = "python -m ablate.study status|plan|lock NAME [scale=SCALE] [key=value ...]"


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
    from ablate.study.plan import costs, measured_speed, plan_lines, status_lines
    from ablate.study.states import StudyFolder

    if words[0] not in COMMANDS or len(words) < 2 or "=" in words[1]:
        raise ValueError(f"{' '.join(words)} is not possible; type {_USAGE}")
    options = parse([f"study={words[1]}", *words[2:]])
    study = open_study(options.study, options.scale)
    composed = compose_arms(study, options.overrides)
    runs_dir = Path(composed[study.baseline].settings.paths.runs_dir)
    folder = StudyFolder(runs_dir, study)
    seeds = {arm: sorted({*study.seeds, *folder.seeds()}) for arm in study.arms}
    if words[0] == "plan":
        speed = measured_speed(study, options.overrides)
        print(
            *plan_lines(study, composed, costs(study, composed), speed, len(study.seeds)), sep="\n"
        )
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


if __name__ == "__main__":
    sys.exit(main())
