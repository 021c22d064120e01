"""A record -> what a person sees at the start and the end of a run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

_COUNTED = {  # score -> what counting has, and by which neighbours
    "val/token_mask/accuracy": ("val/token_mask/trigram_accuracy", "two-sided trigram"),
    "val/clm/accuracy": ("val/clm/trigram_accuracy", "left-sided trigram"),
}
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
    for column, justify in (("score", "left"), ("value", "right"), ("baseline", "right")):
        table.add_column(column, justify=justify)  # type: ignore[arg-type]
    table.add_column("n", justify="right")
    table.add_column("note")
    for name, value, baseline, count, note in rows(record):
        table.add_row(name, value, baseline, count, note)
    console.print(table)
    console.print(
        "One seed: no interval. Baseline: what the majority class of the training labels (their "
        "mean, for a correlation) scores on the n examples; for the accuracy on tokens, counting.",
        style="dim",
    )
    for line in facts(record):
        console.print(line, highlight=False)
    console.print(f"folder {folder}", soft_wrap=True, highlight=False)


def rows(record: Mapping[str, Any]) -> list[tuple[str, str, str, str, str]]:
    """(score, value, baseline, number of examples, note) for each score."""
    scores = record["scores"]
    measured = {
        name: (entry, task.get("collapsed", {}))
        for task in record.get("evaluation", {}).values()
        for name, entry in task["metrics"].items()
    }
    found = []
    for name, value in scores.items():
        entry, collapsed = measured.get(name, (None, {}))
        if name.endswith(("gram_accuracy",)):
            continue
        baseline, count, note = "", "", ""
        if entry is not None:
            baseline, count = f"{entry['majority']:.3f}", str(entry["n"])
            flags = {flag for flag in entry["flags"] if flag}
            if any(any(split) for split in collapsed.values()):
                flags.add("constant prediction")
            note = ", ".join(sorted(flags))
        elif name in _COUNTED and (trigram := scores.get(_COUNTED[name][0])) is not None:
            baseline, note = f"{trigram:.3f}", f"baseline: {_COUNTED[name][1]}"
        found.append((name, f"{value:.3f}", baseline, count, note))
    return found


def facts(record: Mapping[str, Any]) -> list[str]:
    """What was trained, in three lines."""
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
    for name, task in record.get("evaluation", {}).items():
        lines += [f"{name}: {split} {note}" for split, note in task.get("notes", {}).items()]
    for rule, average in record.get("averages", {}).items():
        if average["value"] is None:
            lines.append(f"{rule}: no average, missing {', '.join(average['missing'])}")
        else:
            lines.append(f"{rule} = {average['formula']}")
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
