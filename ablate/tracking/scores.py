"""Scores with their details -> what a person must see beside them: the same for every command.

A row a score: its standard error from the number of examples, the baseline of an answer that reads
nothing, flags. Then what these are, and the averages, each under the name and with the formula of
its rule. How the fine-tuning was done: `fine_tuning`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from ablate.evaluation.averages import CAPPED

_COUNTED = {  # score -> what counting has, and by which neighbours
    "val/token_mask/accuracy": ("val/token_mask/trigram_accuracy", "two-sided trigram"),
    "val/clm/accuracy": ("val/clm/trigram_accuracy", "left-sided trigram"),
}
NARROWEST_FLAGS = 13  # characters: the longest word of flags, `below_chance,`
COLUMNS = ("score", "value", "s.e.", "baseline", "n", "seeds", "flags")
_UNITS = ("sentences", "paragraphs", "queries")  # methods that draw something else than examples
_NO_ERROR = 1e-12  # rounding of resamples that are all equal


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
    further_flags: Mapping[str, str] = MappingProxyType({}),
) -> list[Row]:
    """One for each score, in their order; no error where all examples are alike."""
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
        flags = ", ".join(filter(None, (flags, further_flags.get(name))))
        shown = "" if error is None or error < _NO_ERROR else f"{error:.3f}"
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


def legend(details: Mapping[str, Any]) -> str:
    """What the columns s.e. and baseline are, with the units that are drawn for these tasks."""
    drawn: dict[str, list[str]] = {}
    for name, task in details.items():
        methods = {e.get("standard_error_method") for e in task.get("metrics", {}).values()}
        units = [unit for unit in _UNITS if unit in methods]
        units += ["pairs within paradigms"] if "paradigms" in task else []
        for unit in units:
            drawn.setdefault(unit, []).append(name)
    others = "".join(f"; drawn are {unit} for {', '.join(names)}" for unit, names in drawn.items())
    return (
        "s.e.: standard error of the value from the n examples (binomial, or 1000 resamples of the "
        f"examples, jointly over fine-tuning seeds{others}; blank where no draw changes the value "
        "or it is unknown); nothing of other pretraining seeds is in it. Baseline: what the "
        "majority class "
        "of the training labels (their mean, for a correlation) scores on the n examples; for the "
        "accuracy on tokens, counting (tasks of other kinds: see their notes)."
    )


def notes(details: Mapping[str, Any]) -> list[str]:
    """What the baseline is, and what was absent, stood in for something else or was predicted."""
    return [
        f"{name}: {split} {note}"
        for name, task in details.items()
        for split, note in {**_baseline(task), **(task.get("notes") or {})}.items()
    ]


def _baseline(task: Mapping[str, Any]) -> dict[str, str]:
    """Of kinds whose baseline is no majority class; what a task's own notes say goes before it."""
    said = ""
    if "by_architecture" in task:
        said = "is a random order of the same documents (BM25's score: `bm25` in the record)"
    elif "contrastive" in task:
        said = "is 0, the correlation of one cosine for all pairs"
    elif "tags" in task:
        said = f"is the commonest training tag, {task.get('nothing')}, for every word"
    elif "paragraphs" in {m.get("standard_error_method") for m in task.get("metrics", {}).values()}:
        said = f"is one answer to all questions: {task.get('nothing')}"
    return {"baseline": said} if said else {}


def formulas(averages: Mapping[str, Mapping[str, Any]], scores: Mapping[str, float]) -> list[str]:
    """Each average's formula; where there is none, what is missing, for all such rules at once.

    What all of them rest on is said once; which examples are capped stands in the protocol.
    """
    there = {name: a for name, a in averages.items() if a["value"] is not None}
    said = {name: _without_caps(average.get("notes", [])) for name, average in there.items()}
    first = next(iter(said.values()), [])
    common = [note for note in first if all(note in notes for notes in said.values())]
    lines = [
        f"{name} = {average['formula']}"
        + "".join(f"; {note}" for note in said[name] if note not in common)
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


def _without_caps(notes: Sequence[str]) -> list[str]:
    short = ("capped, see above" if note.endswith(CAPPED) else note for note in notes)
    return list(dict.fromkeys(short))


def _missing(names: Sequence[str], scores: Mapping[str, float]) -> tuple[str, ...]:
    """Whole tasks by their name, single scores of others by theirs."""
    there = {score.rsplit("/", 1)[0] for score in scores}
    short = (name if name.rsplit("/", 1)[0] in there else name.split("/")[1] for name in names)
    return tuple(sorted(dict.fromkeys(short)))
