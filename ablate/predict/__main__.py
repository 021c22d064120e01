"""`python -m ablate.predict RUN "the quick [MASK] fox"`: what a finished encoder puts there.

Nothing is trained and nothing is written. Bad input ends in one message and exit code 2.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ablate.config.commands import exit_code
from ablate.predict.options import Options, parse

if TYPE_CHECKING:
    from ablate.predict.filling import Filled


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return exit_code(lambda: show(parse(sys.argv[1:] if argv is None else argv)))


def show(options: Options) -> None:
    """Load, predict, print."""
    from ablate.predict.filling import fill
    from ablate.run.saved import open_saved

    rows = [options.texts] if options.pair else [[text] for text in options.texts]
    found = fill(open_saved(options.run), rows, top=options.top)
    if options.json:
        print(json.dumps({"run": options.run, "rows": [row.to_dict() for row in found]}, indent=1))
        return
    if isinstance(sys.stdout, io.TextIOWrapper):  # a terminal that lacks a sign shows another
        sys.stdout.reconfigure(errors="replace")
    print("\n\n".join("\n".join(lines(row)) for row in found))


def lines(row: Filled) -> list[str]:
    """A row as text: a list a mask, or a line a token."""
    out = [" | ".join(row.texts), *(f"  note: {note}" for note in row.notes)]
    if row.masked:
        for number, place in enumerate(row.places, 1):
            out.append(f"  mask {number}" if len(row.places) > 1 else "  mask")
            out += [f"    {100 * c.probability:5.1f}%  {c.token}" for c in place.top]
        return out
    width = max(5, *(len(place.token) for place in row.places))
    out.append("  each token as the model sees it, unmasked; * another token comes first")
    out.append(f"    {'token':{width}}  probability   rank  first choices")
    for place in row.places:
        assert place.probability is not None
        mark = "*" if place.differs else " "
        first = ", ".join(f"{c.token} {100 * c.probability:.1f}%" for c in place.top)
        shown = f"{100 * place.probability:10.1f}%  {place.rank:5d}  {first}"
        out.append(f"  {mark} {place.token:{width}}  {shown}")
    return out


if __name__ == "__main__":
    sys.exit(main())
