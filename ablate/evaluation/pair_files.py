"""A folder of minimal pairs in BLiMP's layout -> pairs with paradigm, phenomenon and field.

One file a paradigm or all in one; columns are named in the task's YAML, so that any suite in this
layout is a task. The `fast` tier is a fixed sample of each paradigm: the pairs whose content has
the lowest hashes, so it is the same for every arm and part of the full set, whatever the order of
the files. Warstadt et al. 2020.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from ablate.evaluation.example_files import FORMATS, read_rows
from ablate.evaluation.pair_scores import LIKELIHOODS

TIERS = ("full", "fast")
Pair = dict[str, Any]


@dataclass(frozen=True)
class PairSpec:
    """A suite of minimal pairs. `folder` is looked for under the path that is given, else the path
    itself is taken; a `paradigm_column` that is null means the file's name. `phenomenon_names` and
    `field_names` rename values (BLiMP's paper counts its s-selection as argument structure)."""

    name: str
    suite: str = "blimp"
    folder: str | None = None
    good_column: str = "sentence_good"
    bad_column: str = "sentence_bad"
    paradigm_column: str | None = "UID"
    phenomenon_column: str | None = "linguistics_term"
    field_column: str | None = "field"
    id_column: str | None = "pairID"
    phenomenon_names: Mapping[str, str] = field(default_factory=dict)
    field_names: Mapping[str, str] = field(default_factory=dict)
    likelihood: str = "original"
    tier: str = "full"
    fast_pairs_per_paradigm: int = 100

    def __post_init__(self) -> None:
        where = f"task {self.name!r}: "
        if self.likelihood not in LIKELIHOODS:
            raise ValueError(
                f"{where}likelihood={self.likelihood} is unknown; allowed: "
                f"{', '.join(LIKELIHOODS)}. For example likelihood: original"
            )
        if self.tier not in TIERS:
            raise ValueError(
                f"{where}tier={self.tier} is unknown; allowed: {', '.join(TIERS)}. For example "
                "tier: fast"
            )
        if self.fast_pairs_per_paradigm < 1:
            raise ValueError(
                f"{where}fast_pairs_per_paradigm={self.fast_pairs_per_paradigm} is not possible: "
                "give 1 or more, for example 100"
            )

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> PairSpec:
        """The spec of a YAML file's mapping; a column given as null is not read.

        Raises:
            ValueError: an unknown key, no name, or values out of range.
        """
        allowed = [f.name for f in fields(cls)]
        unknown = sorted(set(values) - set(allowed))
        if unknown or not values.get("name"):
            problem = f"unknown keys {unknown}" if unknown else "missing key name"
            raise ValueError(
                f"task {values.get('name', '(no name)')!r}: {problem}; allowed are {allowed}"
            )
        optional = ("paradigm_column", "phenomenon_column", "field_column", "id_column")
        return cls(**{k: v for k, v in values.items() if v is not None or k in optional})


def load_pairs(spec: PairSpec, path: str | Path | None) -> list[Pair]:
    """All pairs of the tier, by file name and then in the file's order.

    Each has `idx` (paradigm/id, unique), `paradigm`, `sentence_good`, `sentence_bad`, `phenomenon`
    and `field` (the last two empty where the suite has none).

    Raises:
        ValueError: no folder, no files, missing columns, or two pairs of one id.
    """
    found: list[Pair] = []
    for file in _files(spec, path):
        found += [_pair(spec, file, number, row) for number, row in enumerate(read_rows(file))]
    ids = [pair["idx"] for pair in found]
    if len(set(ids)) < len(ids):
        twice = Counter(ids).most_common(1)[0][0]
        raise ValueError(
            f"task {spec.name!r}: two pairs have the id {twice}; give another id_column, or "
            "id_column: null to count them by line"
        )
    if not found:
        raise ValueError(f"task {spec.name!r}: the files under {path} hold no pairs")
    return fast_sample(found, spec.fast_pairs_per_paradigm) if spec.tier == "fast" else found


def fast_sample(pairs: list[Pair], per_paradigm: int) -> list[Pair]:
    """The `per_paradigm` pairs of each paradigm with the lowest hashes of their content."""
    groups: dict[str, list[Pair]] = {}
    for pair in pairs:
        groups.setdefault(pair["paradigm"], []).append(pair)
    kept = {
        pair["idx"]
        for group in groups.values()
        for pair in sorted(group, key=_content_hash)[:per_paradigm]
    }
    return [pair for pair in pairs if pair["idx"] in kept]


def _content_hash(pair: Pair) -> bytes:
    content = "\x1f".join(pair[key] for key in ("paradigm", "sentence_good", "sentence_bad", "idx"))
    return hashlib.blake2b(content.encode(), digest_size=16).digest()


def _files(spec: PairSpec, path: str | Path | None) -> list[Path]:
    folder = spec.folder or spec.name
    if path is None:
        raise ValueError(
            f"task {spec.name!r}: minimal pairs are read from files; give evaluation.path=FOLDER "
            f"that holds {folder}/*.jsonl, or the .jsonl files themselves"
        )
    root = Path(path).expanduser()
    for place in (root / spec.suite / folder, root / folder, root):
        found = [file for suffix in FORMATS for file in place.glob(f"*.{suffix}")]
        if found:
            return sorted(found)
    raise ValueError(
        f"task {spec.name!r}: no .jsonl (or {', '.join(FORMATS[1:])}) file in {root / folder} nor "
        f"in {root}; give evaluation.path=FOLDER that holds {folder}/*.jsonl"
    )


def _pair(spec: PairSpec, file: Path, number: int, row: Mapping[str, Any]) -> Pair:
    wanted = [spec.good_column, spec.bad_column]
    optional = (spec.paradigm_column, spec.phenomenon_column, spec.field_column, spec.id_column)
    wanted += [column for column in optional if column is not None]
    missing = [column for column in wanted if row.get(column) is None]
    if missing:
        raise ValueError(
            f"task {spec.name!r}: {file} row {number} has no {missing}; it has "
            f"{sorted(row)}. Name the columns in the task's file, e.g. phenomenon_column: null"
        )
    paradigm = str(row[spec.paradigm_column]) if spec.paradigm_column else file.stem
    own = str(row[spec.id_column]) if spec.id_column else f"{file.stem}:{number}"
    return {
        "idx": f"{paradigm}/{own}",
        "paradigm": paradigm,
        "sentence_good": str(row[spec.good_column]),
        "sentence_bad": str(row[spec.bad_column]),
        "phenomenon": _renamed(row, spec.phenomenon_column, spec.phenomenon_names),
        "field": _renamed(row, spec.field_column, spec.field_names),
    }


def _renamed(row: Mapping[str, Any], column: str | None, names: Mapping[str, str]) -> str:
    if column is None:
        return ""
    value = str(row[column])
    return str(names.get(value, value)).replace("/", "_")  # a slash would cut the score's name
