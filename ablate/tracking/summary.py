"""A record -> what a person sees at the start and the end of a run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ablate.tracking import scores

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
    from rich.table import Table

    console = Console(width=None if Console().is_terminal else 100)
    if again:
        console.print("This run is complete; force=true runs it again.")
    table = Table(title=f"arm {record['arm']}, seed {record['seed']}", title_justify="left")
    for column in scores.COLUMNS:
        left = column in ("score", "flags")
        table.add_column(column, justify="left" if left else "right", no_wrap=column != "flags")
    details, averages = record.get("evaluation", {}), record.get("averages", {})
    for row in scores.rows(record["scores"], details, averages):
        table.add_row(*row)
    console.print(table)
    console.print(
        f"One pretraining seed: no interval. {scores.STANDARD_ERROR}{scores.BASELINE}", style="dim"
    )
    for line in facts(record):
        console.print(line, highlight=False)
    console.print(f"folder {folder}", soft_wrap=True, highlight=False)


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
    lines += scores.protocol(details) + scores.notes(details)
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
