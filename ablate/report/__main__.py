"""`python -m ablate.report NAME|FOLDER ...`: write a report from local records.

Trains nothing and asks no network. Bad input ends in one message and exit code 2.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path

from ablate.config.commands import exit_code
from ablate.report.options import PROGRAM, Options, parse


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return exit_code(lambda: show(parse(sys.argv[1:] if argv is None else argv)))


def show(options: Options) -> None:
    """Write the report and say where it is."""
    first = options.what[0]
    if len(options.what) == 1 and first.startswith("sweep:"):
        folder = _of_sweep(options, first.removeprefix("sweep:"))
    else:
        folder = _of_runs(options) if _is_runs(options.what) else _of_study(options)
    print(f"written: {folder / 'README.md'}, report.html and the files beside them")


def _is_runs(what: Sequence[str]) -> bool:
    """Several words, a pattern or a folder are runs; the name of a study goes first."""
    from ablate.config.compose import conf_dir

    first = what[0]
    if (conf_dir() / "study" / f"{first}.yaml").is_file() and len(what) == 1:
        return False
    return len(what) > 1 or re.search(r"[*?\[]", first) is not None or Path(first).is_dir()


def _of_sweep(options: Options, name: str) -> Path:
    from ablate.sweep.report import report_sweep

    for option in ("scale", "rule", "baseline", "name"):
        if getattr(options, option) is not None:
            raise ValueError(f"--{option} has no place in a sweep's report; leave it out")
    if options.publish:
        raise ValueError("--publish belongs to a study; leave it out for a sweep")
    return report_sweep(name, options)


def _of_runs(options: Options) -> Path:
    from ablate.report.build import write
    from ablate.report.plain import plain_result, run_folders, runs_dir_of

    for name in ("scale", "rule", "runs_dir"):
        if getattr(options, name) is not None:
            flag = f"--{name.replace('_', '-')}"
            raise ValueError(f"{flag} belongs to a study; leave it out for folders of runs")
    if options.publish:
        raise ValueError("--publish belongs to a study; leave it out for folders of runs")
    if options.overrides:
        raise ValueError(f"{options.overrides[0]} has no effect on runs that there are")
    runs = run_folders(options.what)
    name = options.name or (Path(options.what[0]).name if len(options.what) == 1 else "")
    name = re.sub(r"[^A-Za-z0-9._-]+", "", name).strip("._-") or "plain_runs"
    result = plain_result(runs, name=name, baseline=options.baseline, metric=options.metric)
    return write(result, options.reports_dir or Path("reports"), runs_dir_of(runs))


def _of_study(options: Options) -> Path:
    import dataclasses

    from ablate.report.build import write
    from ablate.report.publish import blocks_of_wandb, publish
    from ablate.report.rules import by_rule
    from ablate.study.collect import collect
    from ablate.study.guard import compose_arms
    from ablate.study.options import open_study
    from ablate.study.states import StudyFolder

    for name in ("baseline", "metric", "name"):
        if getattr(options, name) is not None:
            raise ValueError(
                f"--{name} belongs to plain runs; a study's file says it. Type {PROGRAM} "
                f"{options.what[0]}"
            )
    if options.publish:  # said before the work and not after it
        blocks_of_wandb()
    study = open_study(options.what[0], options.scale)
    composed = compose_arms(study, options.overrides)
    settings = composed[study.baseline].settings
    paths = settings.paths
    runs_dir = options.runs_dir or Path(paths.runs_dir)
    folder = StudyFolder(runs_dir, study)
    result = collect(study, composed, folder, extra=options.overrides)
    result = dataclasses.replace(result, changes=folder.changes(study, composed))
    if options.rule is not None:
        result = by_rule(result, folder, options.rule)
    reports_dir = options.reports_dir or Path(paths.reports_dir)
    written = write(result, reports_dir, runs_dir, rule=options.rule)
    if options.publish:
        address = publish(result, written, tracking=settings.tracking, rule=options.rule)
        print(f"published: {address}")
    return written


if __name__ == "__main__":
    sys.exit(main())
