"""A record -> what a person sees at the start and the end of a run."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ablate.tracking import fine_tuning, scores

if TYPE_CHECKING:
    from rich.table import Table

_PAIR_SHARES = {"random_pair_share": "random", "swapped_pair_share": "swapped"}
_PAIR_LOSSES = {
    "nsp": "next-sentence",
    "sop": "sentence-order",
    "nsp_sop": "next, random or swapped:",
}


def print_plan(machine: Mapping[str, Any], *, name: str, seed: int, folder: Path) -> None:
    """What every `auto` became."""
    print(
        f"arm {name}, seed {seed}: {machine['device']}, {machine['threads']} thread"
        f"{'s' * (machine['threads'] != 1)}, {machine['precision']}, attention "
        f"{machine['attention_backend']} with the {machine['kernel']} kernel"
        + (f"\n{machine['window']}" if "window" in machine else "")
        + f"\nfolder {folder}",
        flush=True,
    )


def print_summary(record: Mapping[str, Any], folder: Path, *, again: bool = False) -> None:
    """The table of scores, what they rest on, and where the run lies."""
    from rich.console import Console

    console = Console(width=None if Console().is_terminal else 100)
    if again:
        console.print("This run is complete; force=true runs it again.")
    details, averages = record.get("evaluation", {}), record.get("averages", {})
    title = f"arm {record['arm']}, seed {record['seed']}"
    console.print(_table(scores.rows(record["scores"], details, averages), title, console.width))
    console.print(f"One pretraining seed: no interval. {scores.legend(details)}", style="dim")
    for line in facts(record):
        console.print(line, highlight=False)
    console.print(f"folder {folder}", soft_wrap=True, highlight=False)


def _table(rows: Sequence[scores.Row], title: str, width: int) -> Table:
    """Nothing is cut: where a terminal is narrow, rules go, flags wrap and names go on below."""
    from rich import box
    from rich.table import Table

    longest = [max(map(len, column)) for column in zip(scores.COLUMNS, *rows, strict=True)]
    words = [word for row in rows for word in row.flags.split()]
    longest[-1] = max(map(len, ["flags", *words]))
    narrow = sum(longest) + 3 * len(longest) + 1 > width
    room = max(width - sum(longest[1:]) - 2 * len(longest), 16) if narrow else longest[0]
    table = Table(
        title=title,
        title_justify="left",
        box=box.SIMPLE_HEAD if narrow else box.HEAVY_HEAD,
        padding=(0, 1, 0, 0) if narrow else (0, 1),
        pad_edge=not narrow,
    )
    for column in scores.COLUMNS:
        left = column in ("score", "flags")
        table.add_column(
            column,
            justify="left" if left else "right",
            no_wrap=column != "flags",
            overflow="fold",
        )
    for row in rows:
        table.add_row(_broken(row.score, room), *row[1:])
    return table


def _broken(name: str, room: int) -> str:
    """A name in lines of at most `room` characters, if its parts are not longer."""
    lines = [""]
    for part in re.split("(?<=[/_])", name):
        if lines[-1].strip() and len(lines[-1] + part) > room:
            lines.append("  ")
        lines[-1] += part
    return "\n".join(lines)


def facts(record: Mapping[str, Any]) -> list[str]:
    """What was trained, how it was fine-tuned, and by which rules scores are averaged."""
    clocks, derived = record["clocks"], record["derived"]
    achieved, timings = derived["achieved"], record["timings"]["pretraining"]
    rate = timings["tokens_per_second"]
    lines = [
        f"pretrained on {clocks['tokens']:,} tokens in {clocks['steps']:,} steps "
        f"({derived['epochs']:.2f} epochs), {timings['seconds']:.0f} s"
        + (f", {rate / 1000:.1f}k tokens/s" if rate else "")
        + f"; {derived['parameters']:,} parameters"
    ]
    if clocks["steps"] and derived.get("objective") == "clm":
        lines.append(
            f"nothing masked; the next token predicted for {achieved['prediction_rate']:.1%} of "
            "the tokens of text, never [CLS] or [SEP]"
        )
        lines[-1] += "".join(_shares_of_pairs(derived))
    elif clocks["steps"]:
        lines.append(
            f"masking achieved: {achieved['mask_rate']:.1%} of the tokens; of these "
            f"{achieved['mask_replace_share']:.1%} [MASK], "
            f"{achieved['random_replace_share']:.1%} random, {achieved['keep_share']:.1%} kept"
        )
        if achieved["unpredicted_share"] or achieved["visible_prediction_share"]:
            lines[-1] += f"; predicted {achieved['prediction_rate']:.1%} of the tokens"
        lines[-1] += "".join(_shares_of_pairs(derived))
    details = record.get("evaluation", {})
    lines += fine_tuning.protocol(details) + scores.notes(details)
    lines += scores.formulas(record.get("averages", {}), record["scores"])
    for loss, name in _PAIR_LOSSES.items():
        accuracy = derived["last_window"].get(f"train/{loss}_accuracy")
        if accuracy is not None:
            shares = [derived[share] for share in _PAIR_SHARES if share in derived]
            shares.append(1.0 - sum(shares))
            lines.append(
                f"{name} accuracy over the last logged training steps: {accuracy:.3f} (the most "
                f"frequent kind of pair: {max(shares):.3f})"
            )
    return lines


def _shares_of_pairs(derived: Mapping[str, Any]) -> list[str]:
    return [
        f"; {name} pairs {derived[share]:.1%}"
        for share, name in _PAIR_SHARES.items()
        if share in derived
    ]
