"""`python -m ablate.evaluation RUN [--rule NAME]`: a finished run's numbers from its predictions.

Nothing is trained, and neither torch nor the data is needed. Bad input ends in one message and exit
code 2.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

from ablate.config.commands import exit_code
from ablate.evaluation import submission
from ablate.evaluation.averages import RULES
from ablate.evaluation.options import Options, parse
from ablate.evaluation.stored import Rescored, StoredRun, open_run, score_again
from ablate.tracking import scores


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return exit_code(lambda: show(parse(sys.argv[1:] if argv is None else argv, list(RULES))))


def show(options: Options) -> None:
    """Read, score, print."""
    run = open_run(options.run)
    found = score_again(run)
    shown = selected(found, options)
    written = None
    if options.submission is not None:
        written = submission.write(run.parts, options.submission, seed=options.seed)
    if options.json:
        out = as_json(run, found, shown)
        if written is not None:
            out["submission"] = {
                "files": [str(file) for file in written.files],
                "missing": written.missing,
                "finetune_seed": options.seed,
                "notes": written.notes,
            }
        print(json.dumps(out, indent=1, allow_nan=False))
    else:
        _print(run, found, shown)
        for line in _submission_lines(written, options) if written is not None else []:
            print(line)
    for name, (recorded, again) in found.differences.items():
        print(
            f"ablate: {name} is {again:.6f} from the predictions and {recorded:.6f} in record.json",
            file=sys.stderr,
        )


def selected(found: Rescored, options: Options) -> dict[str, Any]:
    """Scores and averages that were asked for.

    Raises:
        ValueError: a task that the run has not, or an average that lacks scores.
    """
    details, averages = found.result.details, found.result.averages
    unknown = [name for name in options.task if name not in details]
    if unknown:
        raise ValueError(
            f"--task {unknown[0]}: the run has no such task; allowed: {', '.join(details)}"
        )
    tasks = {name: details[name] for name in options.task or details}
    names = [name for task in tasks.values() for name in task.get("metrics", {})]
    if options.rule is None and options.task:
        averages = {}
    elif options.rule not in (None, "all"):
        averages = {k: v for k, v in averages.items() if k.split("/")[1] == options.rule}
        values = [average["value"] for average in averages.values()]
        if not any(value is not None for value in values):
            missing = next(iter(averages.values()))["missing"] if averages else ["every score"]
            raise ValueError(
                f"--rule {options.rule} has no value for this run, missing: {', '.join(missing)}; "
                "an average of fewer tasks is another quantity. --rule all shows what there is"
            )
    names += [name for name, average in averages.items() if average["value"] is not None]
    return {
        "scores": {name: found.result.scores[name] for name in names},
        "details": tasks,
        "averages": averages,
    }


def as_json(run: StoredRun, found: Rescored, shown: dict[str, Any]) -> dict[str, Any]:
    """One object with everything that the table shows, unrounded."""
    metrics = {
        name: {"value": shown["scores"][name], **entry}
        for task in shown["details"].values()
        for name, entry in task.get("metrics", {}).items()
    }
    return {
        "run": str(run.folder),
        "arm": run.record["arm"],
        "seed": run.record["seed"],
        "protocol": scores.protocol(shown["details"]),
        "notes": scores.notes(shown["details"]),
        "scores": metrics,
        "averages": shown["averages"],
        "as_recorded": found.as_recorded,
        "differences": {name: list(pair) for name, pair in found.differences.items()},
    }


def _print(run: StoredRun, found: Rescored, shown: dict[str, Any]) -> None:
    rows = scores.rows(shown["scores"], shown["details"], shown["averages"])
    print(f"arm {run.record['arm']}, seed {run.record['seed']}: {run.folder}")
    for line in scores.protocol(shown["details"]):
        print(f"  {line}")
    print()
    table = [scores.COLUMNS, *rows]
    widths = [max(len(row[i]) for row in table) for i in range(len(scores.COLUMNS))]
    for row in table:
        cells = [
            text.ljust(width) if i in (0, len(row) - 1) else text.rjust(width)
            for i, (text, width) in enumerate(zip(row, widths, strict=True))
        ]
        print("  ".join(cells).rstrip())
    print(f"\n{scores.STANDARD_ERROR}{scores.BASELINE}")
    for line in scores.notes(shown["details"]):
        print(line)
    for line in scores.formulas(shown["averages"], found.result.scores):
        print(line)
    taken = [name for name in found.as_recorded if name in shown["details"]]
    if taken:
        print(f"taken from record.json, not scored again: {', '.join(taken)}")


def _submission_lines(written: submission.Written, options: Options) -> list[str]:
    lines = [f"wrote {', '.join(str(file) for file in written.files)}"]
    lines.append(f"predictions of fine-tuning seed {options.seed} (one of them, never the best)")
    if written.missing:
        lines.append(
            f"not predicted by this run, and the server wants: {', '.join(written.missing)}"
        )
    return lines + written.notes


if __name__ == "__main__":
    sys.exit(main())
