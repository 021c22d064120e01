"""`python -m ablate.sweep FILE [--count N] [--jobs J] [key=value ...]`: a W&B sweep, no server.

Bad input ends in one message and exit code 2, failed points in exit code 1, a signal in 128 + its
number; the same command continues.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from ablate.config.commands import exit_code
from ablate.sweep.options import Options, find_file, parse


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    failed: list[int] = []
    code = exit_code(lambda: failed.append(_work(parse(sys.argv[1:] if argv is None else argv))))
    if code == 130:
        print("ablate: stopped; the same command continues", file=sys.stderr)
    return code or int(bool(failed[0]))


def _work(options: Options) -> int:
    """Run the sweep; returns how many points failed."""
    from ablate.sweep.files import load
    from ablate.sweep.runner import drive, table

    sweep = load(find_file(options.file))
    driven = drive(sweep, options, lambda text: print(text, flush=True))
    print(*table(driven.states, sweep.metric), sep="\n")
    print(f"report: python -m ablate.report sweep:{driven.folder.name}")
    return driven.failed


if __name__ == "__main__":
    sys.exit(main())
