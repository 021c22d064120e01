"""Words of the command line -> what to report, from where, to where. Imports nothing heavy."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

PROGRAM = "python -m ablate.report"
_EPILOG = f"""\
Examples:
  {PROGRAM} replacement_rule
  {PROGRAM} replacement_rule --scale paper --runs-dir /data/runs
  {PROGRAM} nsp --rule electra8
  {PROGRAM} nsp --publish
  {PROGRAM} sweep:mask_rate
  {PROGRAM} 'runs/single/*' --baseline default --metric glue/mean8
"""


@dataclass(frozen=True)
class Options:
    """`what` is one study, or folders of plain runs; None stands for what the study says."""

    what: list[str] = field(default_factory=list)
    scale: str | None = None
    runs_dir: Path | None = None
    reports_dir: Path | None = None
    rule: str | None = None
    baseline: str | None = None
    metric: str | None = None
    name: str | None = None
    publish: bool = False
    overrides: list[str] = field(default_factory=list)


class _Parser(argparse.ArgumentParser):
    """Errors become one message, as everywhere in this package."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{message}; type {PROGRAM} --help for the options")


def parse(argv: Sequence[str]) -> Options:
    """Options and overrides, in any order.

    Raises:
        ValueError: an unknown option, or nothing to report.
    """
    parser = _Parser(
        prog=PROGRAM,
        usage=f"{PROGRAM} NAME|FOLDER ... [options] [key=value ...]",
        description="Writes reports/<study>/ from local records; nothing is trained.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "what", nargs="*", metavar="NAME|FOLDER", help="a study, or folders of runs"
    )
    parser.add_argument("--scale", help="of the study (default: its first)")
    parser.add_argument("--runs-dir", type=Path, metavar="DIR", help="where the runs lie")
    parser.add_argument("--reports-dir", type=Path, metavar="DIR", help="where reports are written")
    parser.add_argument("--rule", help="averages by another rule than the declared one")
    parser.add_argument("--baseline", metavar="ARM", help="of plain runs (default: the first)")
    parser.add_argument("--metric", metavar="SCORE", help="of plain runs")
    parser.add_argument("--name", help="of the report of plain runs")
    parser.add_argument(
        "--publish", action="store_true",
        help="also make a report on W&B (a new one each time; pip install 'ablate[publish]')",
    )  # fmt: skip
    known = parser.parse_intermixed_args(list(argv))
    words = known.what
    known.what = [word for word in words if "=" not in word or Path(word).exists()]
    if not known.what:
        raise ValueError(
            f"nothing to report was given; type for example {PROGRAM} replacement_rule"
        )
    return Options(**vars(known), overrides=[word for word in words if word not in known.what])
