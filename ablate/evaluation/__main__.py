"""`python -m ablate.evaluation RUN [--rule NAME]`: a finished run's numbers from its predictions.

Nothing is trained, and neither torch nor the data is needed. Bad input ends in one message and exit
code 2; numbers that are not the record's are flagged, and the exit code is 1.
"""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from collections.abc import Sequence
from typing import Any

from ablate.config.commands import exit_code
from ablate.evaluation import submission
from ablate.evaluation.averages import RULES
from ablate.evaluation.options import Options, parse
from ablate.evaluation.stored import Rescored, StoredRun, open_run, score_again
from ablate.tracking import fine_tuning, scores


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    differing: list[str] = []
    words = sys.argv[1:] if argv is None else argv
    code = exit_code(lambda: differing.extend(show(parse(words, list(RULES)))))
    return code or int(bool(differing))


def show(options: Options) -> list[str]:
    """Read, score, print; returns the names of the numbers that are not the record's."""
    run = open_run(options.run, () if options.submission is not None else options.task)
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
    for name, (before, now) in found.sizes.items():
        print(
            f"ablate: {name} is of n {now} from the predictions and {before} in record.json",
            file=sys.stderr,
        )
    return [*found.differences, *found.sizes]


def _flags(found: Rescored) -> dict[str, str]:
    """What the record says instead, by name of the score."""
    said = {name: f"record says {value:.3f}" for name, (value, _) in found.differences.items()}
    for name, (n, _) in found.sizes.items():
        said[name] = f"{said[name]}, n {n}" if name in said else f"record says n {n}"
    return said


def selected(found: Rescored, options: Options) -> dict[str, Any]:
    """Scores and averages that were asked for.

    Raises:
        ValueError: an average that lacks scores.
    """
    details, averages = found.result.details, found.result.averages
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
        "protocol": fine_tuning.protocol(shown["details"]),
        "notes": scores.notes(shown["details"]),
        "scores": metrics,
        "averages": shown["averages"],
        "as_recorded": found.as_recorded,
        "differences": {name: list(pair) for name, pair in found.differences.items()},
        "differences_in_n": {name: list(pair) for name, pair in found.sizes.items()},
    }


def _print(run: StoredRun, found: Rescored, shown: dict[str, Any]) -> None:
    rows = scores.rows(shown["scores"], shown["details"], shown["averages"], _flags(found))
    print(f"arm {run.record['arm']}, seed {run.record['seed']}: {run.folder}")
    for line in fine_tuning.protocol(shown["details"]):
        print(f"  {line}")
    print()
    for line in _table([scores.COLUMNS, *rows]):
        print(line)
    print(f"\n{scores.legend(shown['details'])}")
    for line in scores.notes(shown["details"]):
        print(line)
    for line in scores.formulas(shown["averages"], found.result.scores):
        print(line)
    taken = [name for name in found.as_recorded if name in shown["details"]]
    if taken:
        print(f"taken from record.json, not scored again: {', '.join(taken)}")


def _table(table: Sequence[Sequence[str]]) -> list[str]:
    """Aligned lines; in a terminal the flags, the last column, go on below themselves."""
    widths = [max(len(row[i]) for row in table) for i in range(len(table[0]))]
    begin = sum(widths[:-1]) + 2 * (len(widths) - 1)
    room = sys.maxsize
    if sys.stdout.isatty():
        room = max(shutil.get_terminal_size().columns - begin, scores.NARROWEST_FLAGS)
    lines = []
    for row in table:
        first = row[0].ljust(widths[0])
        cells = [text.rjust(width) for text, width in zip(row[1:-1], widths[1:-1], strict=True)]
        flags = textwrap.wrap(row[-1], room, break_on_hyphens=False) or [""]
        lines.append("  ".join([first, *cells, flags[0]]).rstrip())
        lines += [" " * begin + flag for flag in flags[1:]]
    return lines


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
