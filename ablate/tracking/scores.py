"""Scores with their details -> what a person must see beside them: the same for every command.

A row a score: its standard error from the number of examples, the baseline of an answer that reads
nothing, flags. Then how the fine-tuning was done, and the averages, each under the name and with
the formula of its rule.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

_COUNTED = {  # score -> what counting has, and by which neighbours
    "val/token_mask/accuracy": ("val/token_mask/trigram_accuracy", "two-sided trigram"),
    "val/clm/accuracy": ("val/clm/trigram_accuracy", "left-sided trigram"),
}
_ONLY_FOR_CHOICES = ("evaluations_per_epoch", "selection_fraction")  # idle where nothing is chosen
COLUMNS = ("score", "value", "s.e.", "baseline", "n", "seeds", "flags")
STANDARD_ERROR = (
    "s.e.: standard error of the value from the n examples (binomial, or 1000 resamples of the "
    "examples, jointly over fine-tuning seeds); nothing of other pretraining seeds is in it. "
)
BASELINE = (
    "Baseline: what the majority class of the training labels (their mean, for a correlation) "
    "scores on the n examples; for the accuracy on tokens, counting."
)


class Row(NamedTuple):
    """One line of the table, as text; its fields are `COLUMNS`."""

    score: str
    value: str
    standard_error: str
    baseline: str
    n: str
    seeds: str
    flags: str


def rows(
    scores: Mapping[str, float],
    details: Mapping[str, Any],
    averages: Mapping[str, Mapping[str, Any]],
) -> list[Row]:
    """One for each score, in their order."""
    measured = {
        name: (task, entry)
        for task in details.values()
        for name, entry in task.get("metrics", {}).items()
    }
    found = []
    for name, value in scores.items():
        error, baseline, count, seeds, flags = None, "", "", "", ""
        if name.endswith("gram_accuracy"):
            continue
        if name in measured:
            task, entry = measured[name]
            error, seeds = entry.get("standard_error"), str(len(entry["by_seed"]))
            baseline, count = f"{entry['majority']:.3f}", str(entry["n"])
            flags = ", ".join(_flags(task, entry, name))
        elif name in averages:
            error = averages[name].get("standard_error")
            flagged = averages[name].get("flagged") or []
            flags = f"rests on {len(flagged)} flagged score{'s' * (len(flagged) != 1)}"
            flags = flags if flagged else ""
        elif name in _COUNTED and (trigram := scores.get(_COUNTED[name][0])) is not None:
            baseline, flags = f"{trigram:.3f}", f"baseline: {_COUNTED[name][1]}"
        shown = "" if error is None else f"{error:.3f}"
        found.append(Row(name, f"{value:.3f}", shown, baseline, count, seeds, flags))
    return found


def _flags(task: Mapping[str, Any], entry: Mapping[str, Any], name: str) -> list[str]:
    """What is wrong with a score, and in how many of the fits."""
    fits = len(entry["by_seed"])
    counted: dict[str, int] = {}
    for flag in entry["flags"]:
        if flag:
            counted[flag] = counted.get(flag, 0) + 1
    split = _split(task, name)
    for key, word in (("collapsed", "collapsed"), ("not_finite", "diverged")):
        by_split = task.get(key, {})
        here = by_split.get(split) if split in by_split else _worst(by_split)
        if here and any(here):
            counted[word] = sum(map(bool, here))
    return [
        flag if number == fits else f"{flag} ({number} of {fits} seeds)"
        for flag, number in sorted(counted.items())
    ]


def _split(task: Mapping[str, Any], name: str) -> str | None:
    """The split whose short name stands before the metric: `matched_accuracy`."""
    splits = sorted(task.get("collapsed", {}), key=len, reverse=True)
    last = name.rsplit("/", 1)[-1]
    for split in splits:
        part = split.removeprefix("validation").strip("_")
        if part and last.startswith(f"{part}_"):
            return str(split)
    return next((str(split) for split in splits if split == "validation"), None)


def _worst(by_split: Mapping[str, Sequence[bool]]) -> Sequence[bool] | None:
    return max(by_split.values(), key=sum, default=None)


def protocol(details: Mapping[str, Any]) -> list[str]:
    """How the fine-tuning was done, one fact a line; nothing where nothing was fine-tuned."""
    tuned = {name: task for name, task in details.items() if task.get("hyper_parameters")}
    if not tuned:
        return []
    given = {name: dict(task["hyper_parameters"]) for name, task in tuned.items()}
    keys = dict.fromkeys(key for values in given.values() for key in values)
    chosen = any(
        task.get("early_stopping_by_seed") or task.get("grid_by_seed") for task in tuned.values()
    )
    shared = {
        key: value
        for key in keys
        if chosen or key not in _ONLY_FOR_CHOICES
        for value in [next(values[key] for values in given.values() if key in values)]
        if all(values.get(key, value) == value for values in given.values())
    }
    tasks = f"the same for {len(tuned)} tasks: " if len(tuned) > 1 else ""
    lines = [f"fine-tuning, {tasks}" if tasks else "fine-tuning: "]
    lines[0] += ", ".join(f"{key} {value}" for key, value in shared.items() if value is not None)
    own = {
        name: {k: v for k, v in values.items() if k not in shared and k not in _ONLY_FOR_CHOICES}
        for name, values in given.items()
    }
    lines += [
        f"{name} has its own {', '.join(f'{key} {value}' for key, value in values.items())}"
        for name, values in own.items()
        if values
    ]
    grids = [name for name, task in tuned.items() if task.get("grid_by_seed")]
    lines.append(
        f"grid: settings chosen on examples held out of train for {', '.join(grids)}; such a score "
        "is not comparable with one of declared settings"
        if grids
        else "grid: none, settings were declared beforehand"
    )
    starts: dict[str, list[str]] = {}
    for name, task in tuned.items():
        for start in (task.get("start_from") or [])[:1]:
            starts.setdefault(str(start["task"]), []).append(name)
    lines += [
        f"{', '.join(names)} start from the encoder that was fine-tuned on {source}"
        for source, names in starts.items()
    ] or ["every task starts from the pretrained encoder (none from the MNLI checkpoint)"]
    stopped = [name for name, task in tuned.items() if task.get("early_stopping_by_seed")]
    if stopped:
        lines.append(f"early stopping on examples held out of train: {', '.join(stopped)}")
    lines += _caps(tuned)
    return lines


def _caps(tuned: Mapping[str, Any]) -> list[str]:
    trained, scored = [], []
    for name, task in tuned.items():
        used, there = task.get("num_train_examples"), task.get("num_train_available")
        if used is not None and there is not None and used < there:
            trained.append(f"{name} {used:,} of {there:,}")
        available = task.get("num_scored_available", {})
        for split, count in task.get("n", {}).items():
            if count < available.get(split, count):
                scored.append(f"{name} {split} {count:,} of {available[split]:,}")
    return [
        *([f"training examples capped: {', '.join(trained)}"] if trained else []),
        *([f"scored examples capped: {', '.join(scored)}"] if scored else []),
    ]


def notes(details: Mapping[str, Any]) -> list[str]:
    """What of a task was absent, stood in for something else or was predicted only."""
    return [
        f"{name}: {split} {note}"
        for name, task in details.items()
        for split, note in (task.get("notes") or {}).items()
    ]


def formulas(averages: Mapping[str, Mapping[str, Any]], scores: Mapping[str, float]) -> list[str]:
    """Each average's formula; where there is none, what is missing, for all such rules at once.

    What all of them rest on, such as caps, is said once.
    """
    there = {name: a for name, a in averages.items() if a["value"] is not None}
    said = [dict.fromkeys(average.get("notes", [])) for average in there.values()]
    common = [note for note in said[0] if all(note in notes for notes in said)] if said else []
    lines = [
        f"{name} = {average['formula']}"
        + "".join(f"; {note}" for note in average.get("notes", []) if note not in common)
        for name, average in there.items()
    ]
    if common:
        lines.append(f"of all averages: {'; '.join(common)}")
    lacking: dict[tuple[str, ...], list[str]] = {}
    for name, average in averages.items():
        if average["value"] is None:
            lacking.setdefault(_missing(average["missing"], scores), []).append(name)
    return lines + [
        f"no average by {', '.join(names)}: missing {', '.join(missing)}"
        for missing, names in lacking.items()
    ]


def _missing(names: Sequence[str], scores: Mapping[str, float]) -> tuple[str, ...]:
    """Whole tasks by their name, single scores of others by theirs."""
    there = {score.rsplit("/", 1)[0] for score in scores}
    short = (name if name.rsplit("/", 1)[0] in there else name.split("/")[1] for name in names)
    return tuple(sorted(dict.fromkeys(short)))
