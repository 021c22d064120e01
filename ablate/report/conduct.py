"""How a study was done: what moved, what stayed, what failed, what to doubt, how to do it again."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from ablate.report import wording
from ablate.report.content import Block, Bullets, Cell, Code, Paragraph, Table
from ablate.study.collect import StudyResult
from ablate.study.designs import key_of
from ablate.study.guard import DERIVED, NEUTRAL
from ablate.tracking import fine_tuning, scores


def records_of(result: StudyResult) -> Iterator[tuple[str, int, Mapping[str, Any]]]:
    """(arm, seed, record) of every complete run."""
    for arm in result.arms.values():
        for seed, record in sorted(arm.records.items()):
            yield arm.name, seed, record


def at(record: Mapping[str, Any], path: Sequence[str]) -> Any:
    """What a record holds under these keys, None where it lacks one."""
    value: Any = record
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def moved(result: StudyResult) -> list[Block]:
    """Settings of each arm against the baseline's, and quantities that differ with them."""
    rows = []
    for name in wording.ordered(result):
        arm = result.arms[name]
        rows.append(
            [
                Cell(name),
                Cell(_changes(arm.moved) or wording.NONE),
                Cell(_changes(arm.consequences) or wording.NONE),
            ]
        )
    if not rows:
        return []
    columns = ("arm", "settings moved", "what followed")
    caption = (
        f"Baseline {result.study.baseline} → arm. What followed is read from the records, at the "
        "first seed that both have."
    )
    return [Table(columns, rows, frozenset(columns), caption)]


def _changes(found: Mapping[str, tuple[Any, Any]]) -> str:
    return "; ".join(
        f"{key}: {wording.setting(was)} → {wording.setting(now)}"
        for key, (was, now) in found.items()
    )


def held_fixed(result: StudyResult) -> list[Block]:
    """What the study declares, what the guard checked, and what the records show to be equal."""
    blocks: list[Block] = [Bullets(result.study.held_fixed)] if result.study.held_fixed else []
    keys = list(dict.fromkeys(key for arm in result.arms.values() for key in arm.moved))
    if wording.is_descriptive(result):
        blocks.append(
            Paragraph(
                "Nothing was declared. Settings that differ between these arms: "
                f"{wording.listed(keys, most=40) if keys else 'none was found'}."
            )
        )
    else:
        blocks.append(
            Paragraph(
                "All resolved settings of every arm were compared with the baseline's before "
                "anything ran. Equal in all arms is everything but: "
                f"{wording.listed(keys, most=40) if keys else 'nothing'}. The same seed gives the "
                "same documents in the same order and the same draws."
            )
        )
    same = []
    for label, path in DERIVED.items():
        found = [at(record, path) for _, _, record in records_of(result)]
        if found and found[0] is not None and all(value == found[0] for value in found):
            same.append(f"{label} {wording.setting(found[0])}")
    if same:
        blocks.append(Paragraph(f"Equal in the records of all runs: {', '.join(same)}."))
    return blocks


def caveats(result: StudyResult) -> list[Block]:
    """Scale, seeds, data and fine-tuning: what a reader must not forget."""
    records = list(records_of(result))
    if not records:
        return []
    lines = [_scale([record for _, _, record in records])]
    counts = sorted({len(arm.records) for arm in result.arms.values()})
    few = f"{counts[0]} to {counts[-1]}" if len(counts) > 1 else str(counts[0])
    lines.append(
        f"Pretraining seeds an arm: {few}. The interval is over pretraining seeds; fine-tuning "
        "seeds are averaged inside each."
    )
    stores = {at(r, ("data", "store")) for _, _, r in records}
    words = {at(r, ("data", "tokenizer")) for _, _, r in records}
    if len(stores) == 1 and len(words) == 1:
        lines.append("One corpus and one tokenizer: nothing is known of others.")
    base = result.arms.get(result.study.baseline)
    shown = next(iter(base.records.values())) if base and base.records else records[0][2]
    details = shown.get("evaluation") or {}
    protocol = fine_tuning.protocol(details)
    if protocol:
        lines.append(
            "One fine-tuning protocol, the same for all arms: another may rank them otherwise."
        )
        lines += protocol
    lines += scores.notes(details)
    averages = shown.get("averages") or {}
    used = {
        name: average
        for name, average in averages.items()
        if name in (result.study.primary, *result.study.secondary)
    }
    return [Bullets([*lines, *scores.formulas(used, shown.get("scores", {}))])]


def _scale(records: Sequence[Mapping[str, Any]]) -> str:
    parts = []
    for label, path in (("parameters", DERIVED["parameters"]), ("tokens", DERIVED["tokens"])):
        found = sorted(v for r in records if (v := at(r, path)) is not None)
        if found:
            low, high = f"{found[0]:,}", f"{found[-1]:,}"
            parts.append(f"{low} {label}" if low == high else f"{low} to {high} {label}")
    scale = " and ".join(parts) or "this size"
    return f"Scale: {scale}. A verdict holds at this scale; larger models or budgets may differ."


def failures(result: StudyResult) -> list[Block]:
    """Every run that is not complete, with its reason."""
    missing = result.failures
    if not missing:
        return [Paragraph("None: every run that was asked for is complete.")]
    rows = [
        [
            Cell(arm),
            Cell(str(seed), seed),
            Cell(state.status),
            Cell(state.error or wording.NONE),
            Cell(state.run or wording.NONE),
        ]
        for arm, seed, state in missing
    ]
    columns = ("arm", "seed", "status", "error", "run")
    caption = "A gap shifts no pair: seeds that one side lacks are left out of that comparison."
    return [Table(columns, rows, frozenset({"arm", "status", "error", "run"}), caption)]


def reproduce(result: StudyResult, rule: str | None = None) -> list[Block]:
    """The command, then commits, versions and machines of the runs; what is mixed is said."""
    study = result.study
    words = f" scale={study.scale}" if study.scale else ""
    named = study.file or study.name
    extra = [o for o in study.common if "=" in o]
    blocks: list[Block] = []
    if wording.is_descriptive(result):
        lines = [f"python -m ablate {shlex.join(arm.overrides)}" for arm in result.arms.values()]
        blocks.append(Code("\n".join(lines)))
    else:
        blocks.append(
            Code(
                f"python -m ablate study={shlex.quote(named)}{words}{_typed(result)}\n"
                f"python -m ablate.report {shlex.quote(named)}"
                + (f" --scale {study.scale}" if study.scale else "")
                + (f" --rule {rule}" if rule else "")
                + _typed(result, threads=False)
            )
        )
        if extra:
            blocks.append(Paragraph(f"Common overrides of the study: {' '.join(extra)}"))
        if study.source:
            blocks.append(Paragraph(f"Source of the question: {study.source}"))
    lines = _commits(result)
    for label, key in (
        ("versions", "versions"),
        ("platform", "platform"),
        ("processor", "processor"),
        ("GPU", "gpu"),
    ):
        lines += _mixed(result, label, ("provenance", key))
    for key in ("device", "kernel", "precision", "threads"):
        lines += _mixed(result, key, ("machine", key))
    return [*blocks, *([Bullets(lines)] if lines else [])]


def _typed(result: StudyResult, *, threads: bool = True) -> str:
    """What was typed beside the study's name and decides numbers; threads, since they are part of a
    run, from the records."""
    study, baseline = result.study, result.baseline
    own = {*study.common, *study.arms[study.baseline]}
    hidden = (*NEUTRAL, "tracking", "trainer.threads")
    words = [
        word
        for word in baseline.overrides
        if word not in own and not any(fnmatchcase(key_of(word), name) for name in hidden)
    ]
    there = {at(record, ("machine", "threads")) for _, _, record in records_of(result)}
    if threads and len(there) == 1 and None not in there:
        words.append(f"trainer.threads={there.pop()}")
    return "".join(f" {shlex.quote(word)}" for word in words)


def _commits(result: StudyResult) -> list[str]:
    found: dict[str, int] = {}
    for _, _, record in records_of(result):
        git = at(record, ("provenance", "git"))
        name = "no commit (not run from a checkout)"
        if git:
            name = str(git["commit"]) + (" with uncommitted changes" if git["modified"] else "")
        found[name] = found.get(name, 0) + 1
    if not found:
        return []
    text = "; ".join(f"{name} ({wording.counted(count, 'run')})" for name, count in found.items())
    mixed = "MIXED COMMITS, arms may differ by code: " if len(found) > 1 else "commit: "
    return [mixed + text]


def _mixed(result: StudyResult, label: str, path: Sequence[str]) -> list[str]:
    found: dict[str, int] = {}
    for _, _, record in records_of(result):
        value = at(record, path)
        if value is not None:
            if isinstance(value, Mapping):
                value = ", ".join(f"{name} {version}" for name, version in value.items())
            found[str(value)] = found.get(str(value), 0) + 1
    if not found:
        return []
    if len(found) == 1:
        return [f"{label}: {next(iter(found))}"]
    text = "; ".join(f"{value} ({wording.counted(n, 'run')})" for value, n in found.items())
    return [f"MIXED {label}: {text}"]
