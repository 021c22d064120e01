"""Words of the command line of `python -m ablate.evaluation`; nothing heavy is imported."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NoReturn

PROGRAM = "python -m ablate.evaluation"
_EPILOG = f"""\
RUN is the folder of a finished run (runs/single/NAME). Its stored predictions are scored again;
nothing is trained, and no model or data is needed.

Examples:
  {PROGRAM} RUN
  {PROGRAM} RUN --rule bert9 --json
  {PROGRAM} RUN --task cola --task mnli
  {PROGRAM} RUN --submission glue_test/
"""


@dataclass(frozen=True)
class Options:
    """`rule` None: every rule that lacks nothing; `seed` is a fine-tuning seed."""

    run: str
    rule: str | None = None
    json: bool = False
    task: list[str] = field(default_factory=list)
    submission: str | None = None
    seed: int = 0


class _Parser(argparse.ArgumentParser):
    """Mistakes are messages of ours, with exit code 2, and no usage lines around them."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{message}; {PROGRAM} --help shows what can be typed")


def parse(argv: Sequence[str], rules: Sequence[str]) -> Options:
    """Options, in any order; `rules` are the names of the averages there are.

    Raises:
        ValueError: an unknown option or rule, or a bad value.
    """
    parser = _Parser(
        prog=PROGRAM,
        description="Scores of a finished run from its stored predictions, with standard errors, "
        "and averages by named rules.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("run", metavar="RUN", help="the folder of a finished run")
    parser.add_argument(
        "--rule", metavar="NAME", help=f"one average, or all: {', '.join(rules)}, all"
    )
    parser.add_argument(
        "--task", action="append", default=[], metavar="T",
        help="this task alone, without averages (may be repeated)",
    )  # fmt: skip
    parser.add_argument(
        "--submission", metavar="DIR", help="write the predictions of GLUE's test sets into DIR"
    )
    parser.add_argument(
        "--seed", type=int, default=0, metavar="N",
        help="which fine-tuning seed --submission writes (default 0, the first)",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print one JSON object, nothing else")
    options = Options(**vars(parser.parse_args(list(argv))))
    if options.rule is not None and options.rule not in (*rules, "all"):
        raise ValueError(
            f"--rule {options.rule} is unknown; allowed: {', '.join(rules)}, all. "
            f"For example --rule {rules[0]}"
        )
    if options.rule is not None and options.task:
        raise ValueError(
            f"--rule {options.rule} with --task {' --task '.join(options.task)}: an average is "
            "over all tasks of its rule, whatever is shown; type one of the two, for example "
            f"{PROGRAM} {options.run} --rule {options.rule}"
        )
    if options.seed and options.submission is None:
        raise ValueError(
            f"--seed {options.seed} chooses what --submission DIR writes; type both, or neither "
            "(scores are means over all fine-tuning seeds)"
        )
    return options
