"""Words of the command line -> `Options` and the overrides, which are those of `python -m ablate`.

Nothing heavy is imported here, so that `--help` and a mistyped option answer at once.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

PROGRAM = "python -m ablate.inspect"
COLORS = ("auto", "always", "never")
OPTIONS = (
    "--rows", "--tokens", "--epoch", "--progress", "--color", "--json", "--html", "--config-dir",
    "--help",
)  # fmt: skip
_EPILOG = f"""\
Overrides are those of `python -m ablate` (its --help lists groups and settings). Nothing is trained
and nothing is written but the cache and the page of --html.

Examples:
  {PROGRAM} masking=bert_80_10_10
  {PROGRAM} masking=span masking.mask_rate=0.4 --rows 3 --html span.html
  {PROGRAM} masking=whole_word corpus=files corpus.path=text.txt --tokens 1000000 --json
"""


@dataclass(frozen=True)
class Options:
    """What to show. `progress` is None where nobody gave one."""

    rows: int = 6
    tokens: int = 200_000
    epoch: int = 0
    progress: float | None = None
    color: str = "auto"
    json: bool = False
    html: Path | None = None
    config_dir: Path | None = None
    overrides: list[str] = field(default_factory=list)

    @property
    def command(self) -> str:
        """The command that shows the same numbers; where they are written is left out."""
        words = list(self.overrides)
        for name in ("rows", "tokens", "epoch", "progress", "config_dir"):
            given = getattr(self, name)
            if given != getattr(Options, name):
                words += [f"--{name.replace('_', '-')}", str(given)]
        return shlex.join([*PROGRAM.split(), *words])

    def all_overrides(self) -> list[str]:
        """For `compose_settings`: the given ones, the folder of --config-dir, and no evaluation.

        Masks do not depend on the evaluation, and a corpus of one's own would need another one.
        """
        words = list(self.overrides)
        if not any(word.lstrip("+~").startswith("evaluation") for word in words):
            words.insert(0, "evaluation=none")
        if self.config_dir is not None:
            words.append(f"hydra.searchpath=[file://{self.config_dir.resolve()}]")
        return words


class _Parser(argparse.ArgumentParser):
    """Errors become one message, as everywhere in this package."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{message}; type {PROGRAM} --help for the options")


def _whole(low: int, example: int) -> Callable[[str], int]:
    def convert(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = low - 1
        if number < low:
            raise argparse.ArgumentTypeError(
                f"{text} is not a whole number of at least {low}, for example {example}"
            )
        return number

    return convert


def _share(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0.0 <= number <= 1.0:
        raise argparse.ArgumentTypeError(f"{text} is not a number from 0 to 1, for example 0.5")
    return number


def _parser() -> _Parser:
    parser = _Parser(
        prog=PROGRAM,
        usage=f"{PROGRAM} [group=option] [key=value] ... [options]",
        description="Shows masked rows and the shares that a masking policy achieves.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )

    def add(name: str, text: str, **how: Any) -> None:
        default = getattr(Options, name[2:].replace("-", "_"))
        parser.add_argument(name, help=text, default=default, **how)

    add("--rows", "rows to show (default 6)", type=_whole(0, 6), metavar="K")
    add(
        "--tokens",
        "eligible tokens to count over, in whole rows, from the epoch on (default 200000)",
        type=_whole(1, 200_000),
        metavar="N",
    )
    add("--epoch", "epoch to begin with (default 0)", type=_whole(0, 1), metavar="E")
    add(
        "--progress",
        "share of the training that is over, for mask-rate schedules (default 0)",
        type=_share,
        metavar="P",
    )
    add("--color", "auto, always or never; without colour brackets say the same", choices=COLORS)
    add("--json", "print one JSON object and nothing else", action="store_true")
    add("--html", "also write one self-contained page", type=Path, metavar="FILE")
    add("--config-dir", "a folder of your own configuration", type=Path, metavar="DIR")
    return parser


def parse(argv: Sequence[str]) -> Options:
    """Options and overrides, in any order.

    Raises:
        ValueError: an unknown option, a bad value, a folder that is not there.
    """
    parser = _parser()
    known, rest = parser.parse_known_args(list(argv))
    unknown = [word for word in rest if word.startswith("-")]
    if unknown:
        raise ValueError(
            f"there is no option {unknown[0]}; allowed: {', '.join(OPTIONS)}. "
            f"Settings are typed without dashes, for example masking=all_mask"
        )
    if known.html is not None and not known.html.absolute().parent.is_dir():
        raise ValueError(
            f"--html {known.html}: there is no folder {known.html.parent}; "
            "type for example --html page.html"
        )
    if known.html is not None and known.html.is_dir():
        raise ValueError(f"--html {known.html} is a folder; type for example --html page.html")
    if known.config_dir is not None and not known.config_dir.is_dir():
        raise ValueError(
            f"--config-dir {known.config_dir} is no folder; give one that holds masking/NAME.yaml"
        )
    return Options(**vars(known), overrides=rest)
