"""Words of the command line of `python -m ablate.predict`; nothing heavy is imported."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NoReturn

PROGRAM = "python -m ablate.predict"
_EPILOG = f"""\
At [MASK] (or the tokenizer's own mask token) the most probable tokens are printed. For a text
without one, each token is printed with its probability and rank at its own place while the model
sees it, unmasked; a star marks where another token comes first. The text - stands for the lines of
standard input.

RUN is a run (runs/single/NAME, runs/pretrained/FINGERPRINT), or a folder that
`python -m ablate.interop` or transformers wrote.

Examples:
  {PROGRAM} RUN "the quick [MASK] fox" "the [MASK] dog" --top 3
  {PROGRAM} RUN "the quick brown fox jumps"
  {PROGRAM} RUN - < texts.txt
  {PROGRAM} RUN --pair "she opened the door ." "the [MASK] was dark ." --json
"""


@dataclass(frozen=True)
class Options:
    """`texts` as given; with `pair` there are two, the sides of one row."""

    run: str
    texts: list[str]
    top: int = 5
    json: bool = False
    pair: bool = False


class _Parser(argparse.ArgumentParser):
    """Mistakes are messages of ours, with exit code 2, and no usage lines around them."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{message}; {PROGRAM} --help shows what can be typed")


def _whole(least: int, example: int) -> Callable[[str], int]:
    def convert(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(
                f"{text!r} is no whole number from {least} on; type for example {example}"
            )
        return int(text)

    return convert


def _with_standard_input(texts: list[str]) -> list[str]:
    """The texts, with the lines of standard input that are not blank in the place of `-`."""
    if texts.count("-") > 1:
        raise ValueError("- is given more than once, and standard input is read once; type one -")
    if "-" not in texts:
        return texts
    try:
        lines = [line.strip() for line in sys.stdin if line.strip()]
    except UnicodeDecodeError as error:
        raise ValueError(
            f"standard input is no text in UTF-8 ({error}); give such a text"
        ) from None
    if not lines:
        raise ValueError('standard input has no text; type for example echo "the [MASK] fox" | ...')
    place = texts.index("-")
    return [*texts[:place], *lines, *texts[place + 1 :]]


def parse(argv: Sequence[str]) -> Options:
    """Options, in any order.

    Raises:
        ValueError: an unknown option, a bad value, no text, an empty one, `--pair` without two,
            nothing on standard input where `-` asks for it.
    """
    parser = _Parser(
        prog=PROGRAM,
        description="What a finished encoder predicts in a text.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("run", metavar="RUN", help="the folder of a finished run or of weights")
    parser.add_argument("texts", nargs="*", metavar="TEXT", help="one or more, each in quotes")
    parser.add_argument(
        "--top", type=_whole(1, 5), default=5, metavar="K", help="tokens shown a place (default 5)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object, nothing else")
    parser.add_argument("--pair", action="store_true", help="two texts are the sides of one row")
    options = Options(**vars(parser.parse_intermixed_args(list(argv))))
    if not options.texts:
        raise ValueError(
            f'no text was given; type for example {PROGRAM} RUN "the [MASK] fox", or - as the text '
            "to read lines from standard input"
        )
    options = replace(options, texts=_with_standard_input(options.texts))
    if not all(text.strip() for text in options.texts):
        raise ValueError('a text is empty; type for example "the [MASK] fox"')
    if options.pair and len(options.texts) != 2:
        raise ValueError(
            f"--pair takes two texts, {len(options.texts)} were given; type for example "
            '--pair "first text" "second [MASK] text"'
        )
    return options
