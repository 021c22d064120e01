"""Words of the command line of `python -m ablate.interop`; nothing heavy is imported."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import NoReturn

PROGRAM = "python -m ablate.interop"
_EPILOG = f"""\
Examples:
  {PROGRAM} export runs/single/default-s0-0123456789ab exported
  {PROGRAM} import google/bert_uncased_L-2_H-128_A-2 bert_tiny
  python -m ablate encoder=pretrained encoder.path=bert_tiny budget.amount=0

A bad word, folder or model ends in one message and exit code 2.
"""


class _Parser(argparse.ArgumentParser):
    """Mistakes are messages of ours, with exit code 2, and no usage lines around them."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{message}; {PROGRAM} --help shows what can be typed")


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """`action` (export or import), `source`, `place`, `force`, and `pair_head` of an export.

    Raises:
        ValueError: an unknown action or option, or a word missing.
    """
    parser = _Parser(
        prog=PROGRAM,
        description="Encoders to and from the folders of transformers.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="export | import")
    export = actions.add_parser(
        "export", help="a run -> a folder for transformers' Auto classes", allow_abbrev=False
    )
    export.add_argument("source", metavar="RUN", help="runs/single/... or runs/pretrained/...")
    export.add_argument("place", metavar="DIR", help="a new folder")
    bring = actions.add_parser(
        "import", help="a transformers folder or hub id -> encoder.path", allow_abbrev=False
    )
    bring.add_argument("source", metavar="DIR", help="a local folder, or a hub id (network)")
    bring.add_argument("place", metavar="OUT", help="a new folder")
    export.add_argument(
        "--pair-head", action="store_true", help="keep a next-sentence head: BertForPreTraining"
    )
    for action in (export, bring):
        action.add_argument("--force", action="store_true", help="replace a model that is there")
    return parser.parse_args(list(argv))
