"""`python -m ablate.bench COMMAND`: measured speed and memory beside the bars.

A table for people, or with `--json` one JSON object and nothing else. The exit code says whether
the measurement ran, not whether a bar was met: machines differ. Bad input ends in one message and
exit code 2. Nothing heavy is imported before the command line is understood.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

PROGRAM = "python -m ablate.bench"
COMMANDS = {
    "encoder": "training steps and forward passes against the classes of transformers",
    "device": "flash against eager, and training in bf16 on a machine with CUDA",
    "jobs": "runs side by side, as compute=joblib has them, against one alone",
    "inputs": "masked batches a second against the collators of transformers",
    "planning": "seconds and memory of planning an epoch, format by format",
    "store": "seconds and memory of building a token store, and of reading it",
}


class _Parser(argparse.ArgumentParser):
    """Says what was given and what to type, in one message."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{message}; type {self.prog} --help")


def _help() -> str:
    width = max(map(len, COMMANDS))
    commands = [f"  {name:<{width}}  {what}" for name, what in COMMANDS.items()]
    return "\n".join(
        [
            f"usage: {PROGRAM} COMMAND [--json] [options]; {PROGRAM} COMMAND --help tells them",
            "",
            "Measured speed and memory beside the bars they are held to:",
            *commands,
        ]
    )


def _options(command: str) -> argparse.ArgumentParser:
    parser = _Parser(prog=f"{PROGRAM} {command}", description=COMMANDS[command], allow_abbrev=False)
    parser.add_argument("--json", action="store_true", help="print one JSON object only")
    if command == "device":
        parser.add_argument("--device", default="cuda", help="cuda, or cpu with --tiny (cuda)")
        parser.add_argument("--family", default="modernbert", help="bert or modernbert")
        parser.add_argument("--tiny", action="store_true", help="toy sizes, to try the script")
    if command == "encoder":
        parser.add_argument("--only", help="rows, with commas between")
        parser.add_argument("--repeats", type=int, default=5, help="turns of each side (5)")
        parser.add_argument("--threads", type=int, default=2, help="torch threads (2)")
        parser.add_argument("--scale", default="full", help="full, or tiny to try it out (full)")
        parser.add_argument("--figure", help="measure lengths instead, and draw FILE.svg")
    if command == "inputs":
        parser.add_argument("--only", help="rows, with commas between")
        parser.add_argument("--repeats", type=int, default=20, help="turns of each side (20)")
        parser.add_argument("--turn", type=int, default=8, help="batches in a turn (8)")
        parser.add_argument("--threads", type=int, default=1, help="torch threads (1)")
    if command == "jobs":
        parser.add_argument("--jobs", type=int, default=2, help="runs side by side (2)")
        parser.add_argument("--steps", type=int, default=200, help="of a turn (200)")
        parser.add_argument("--repeats", type=int, default=5, help="turns of each side (5)")
        parser.add_argument("--override", action="append", default=[], help="key=value of the arm")
    if command == "planning":
        parser.add_argument("--rows", type=int, default=1_000_000, help="about so many (1000000)")
        parser.add_argument("--only", help="formats, with commas")
    if command == "store":
        parser.add_argument("--megabytes", type=float, default=72.0, help="of made-up text (72)")
        parser.add_argument("--jobs", type=int, default=1, help="workers, beside one process (1)")
    if command in ("inputs", "store"):
        parser.add_argument("--corpus", help="a text file, as corpus.path, instead of made-up text")
        parser.add_argument("--text-field", default="text", help="of the corpus (text)")
    return parser


def _names(given: str | None) -> tuple[str, ...]:
    """Names after `--only`; none where it was not typed, which stands for all rows."""
    names = tuple(name for name in (given or "").split(",") if name)
    if given is not None and not names:
        raise ValueError(f"--only {given!r} names no row; type names, or leave --only out for all")
    return names


def _measure(command: str, options: argparse.Namespace) -> tuple[dict[str, Any], list[str]]:
    """(what was found, the same as a table)"""
    found: dict[str, Any]
    if command == "device":
        from ablate.bench import device

        found = device.measure(device=options.device, family=options.family, tiny=options.tiny)
        return found, device.table(found)
    if command == "encoder":
        return _measure_encoder(options)
    if command == "jobs":
        from ablate.bench import jobs

        found = jobs.measure(
            jobs=options.jobs,
            steps=options.steps,
            repeats=options.repeats,
            overrides=tuple(options.override),
        )
        return found, jobs.table(found)
    if command == "planning":
        from ablate.bench import planning

        found = planning.measure(options.rows, _names(options.only))
        return found, planning.table(found)
    if command == "store":
        from ablate.bench import store

        found = store.measure(
            options.corpus,
            megabytes=options.megabytes,
            text_field=options.text_field,
            jobs=options.jobs,
        )
        return found, store.table(found)
    from ablate.bench import inputs

    found = inputs.measure(
        _names(options.only),
        repeats=options.repeats,
        threads=options.threads,
        turn=options.turn,
        corpus=options.corpus,
        text_field=options.text_field,
    )
    return found, inputs.table(found)


def _measure_encoder(options: argparse.Namespace) -> tuple[dict[str, Any], list[str]]:
    from ablate.bench import encoder, encoder_lengths

    settings = {key: getattr(options, key) for key in ("repeats", "threads", "scale")}
    if options.figure is not None:
        if options.only is not None:
            raise ValueError(
                f"--only {options.only} has no effect on --figure, which measures lengths and no "
                "rows; type one of the two"
            )
        found = encoder_lengths.measure(options.figure, **settings)
        return found, encoder_lengths.table(found)
    found = encoder.measure(_names(options.only), **settings)
    return found, encoder.table(found)


def run(arguments: Sequence[str]) -> None:
    """Understand the command line, measure, print.

    Raises:
        ValueError: what was typed means nothing, or cannot be measured.
    """
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_help())
        return
    command = arguments[0]
    if command not in COMMANDS:
        raise ValueError(
            f"{command!r} is not one of {', '.join(COMMANDS)}; type for example {PROGRAM} inputs"
        )
    options = _options(command).parse_args(arguments[1:])
    found, lines = _measure(command, options)
    print(json.dumps(found, indent=1) if options.json else "\n".join(lines))


def _in_our_words(message: str) -> str:
    """Messages about a corpus name its keys in `conf/`; here they are options."""
    words = {
        "corpus.path": "--corpus",
        "corpus=files": "--corpus",
        "corpus.text_field": "--text-field",
    }
    for key, option in words.items():
        message = message.replace(key, option)
    return message


def main() -> int:
    """Entry point; returns the exit code."""
    try:
        run(sys.argv[1:])
    except ValueError as error:
        from ablate.config.failures import raised_by_us

        if not raised_by_us(error):
            raise
        print(f"ablate.bench: {_in_our_words(str(error))}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
