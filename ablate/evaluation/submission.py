"""Stored predictions of GLUE's test sets -> the files that its server takes.

One file a test set with the columns `index` and `prediction`: names for MNLI, QNLI, RTE and AX,
numbers for the others, STS-B clipped to 0..5. Of several fine-tuning seeds one is written, the
first unless another is asked for: never the best, which would be chosen on what it is judged by.
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ablate.evaluation.measurement import Part


@dataclass(frozen=True)
class _File:
    """Which splits of which tasks a file may come from (the first there is); names or numbers."""

    sources: tuple[tuple[str, str], ...]
    names: bool = False


FILES: dict[str, _File] = {
    "CoLA": _File((("cola", "test"),)),
    "SST-2": _File((("sst2", "test"),)),
    "MRPC": _File((("mrpc", "test"),)),
    "STS-B": _File((("stsb", "test"),)),
    "QQP": _File((("qqp", "test"),)),
    "MNLI-m": _File((("mnli", "test_matched"),), names=True),
    "MNLI-mm": _File((("mnli", "test_mismatched"),), names=True),
    "QNLI": _File((("qnli", "test"),), names=True),
    "RTE": _File((("rte", "test"),), names=True),
    "WNLI": _File((("wnli", "test"),)),
    "AX": _File((("mnli", "ax"), ("ax", "test")), names=True),
}
ZIP = "submission.zip"


@dataclass(frozen=True)
class Written:
    """What `write` left: files, those there was no prediction for, and what to know."""

    files: list[Path]
    missing: list[str]
    notes: list[str]


def write(parts: Mapping[str, Sequence[Part]], folder: str | Path, *, seed: int = 0) -> Written:
    """Write a file for each test set that was predicted, and `submission.zip` of them all.

    Raises:
        ValueError: nothing was predicted, no such fine-tuning seed, or a folder that cannot be
            written.
    """
    folder = Path(folder).expanduser()
    texts, notes = {}, []
    for name, file in FILES.items():
        for task, split in file.sources:
            if task in parts and split in parts[task][0].table["split"]:
                text, note = _text(_of_seed(parts[task], seed, task), split, names=file.names)
                texts[name] = text
                notes += [f"{name}: {note}"] if note else []
                break
    if not texts:
        raise ValueError(
            "no test set was predicted, so there is nothing to submit: put test.jsonl (or parquet, "
            "tsv; labels are not needed) into the folders of the tasks, MNLI's as "
            "test_matched.jsonl and test_mismatched.jsonl, leave "
            "evaluation.finetune.max_scored_examples=null, type evaluation.predict_test=true and "
            "run again"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        files = [folder / f"{name}.tsv" for name in texts]
        for path, text in zip(files, texts.values(), strict=True):
            path.write_text(text, encoding="utf-8")
        with zipfile.ZipFile(folder / ZIP, "w", zipfile.ZIP_DEFLATED) as archive:
            for path in files:
                archive.write(path, path.name)
    except OSError as error:
        raise ValueError(f"--submission {folder} cannot be written ({error.strerror})") from None
    return Written([*files, folder / ZIP], [name for name in FILES if name not in texts], notes)


def _of_seed(parts: Sequence[Part], seed: int, task: str) -> Part:
    for part in parts:
        if part.table["finetune_seed"][0] == seed:
            return part
    there = [part.table["finetune_seed"][0] for part in parts]
    raise ValueError(f"--seed {seed}: task {task} has the fine-tuning seeds {there}")


def _text(part: Part, split: str, *, names: bool) -> tuple[str, str]:
    """A file's content, in the order of its index; and a note where ids are no index."""
    here = np.flatnonzero(np.array(part.table["split"]) == split)
    ids = [part.table["example_id"][i] for i in here]
    found = [part.table["prediction"][i] for i in here]
    note = ""
    if sorted(map(str, ids)) == sorted(map(str, range(len(ids)))):
        order = np.argsort(np.array(ids, dtype=np.int64))
    else:
        order = np.arange(len(ids))
        note = f"ids are not 0 to {len(ids) - 1}, so rows are numbered in the order of the file"
    spec = part.facts["task"]
    shown = [_shown(found[i], spec, names=names) for i in order]
    rows = "".join(f"{index}\t{value}\n" for index, value in enumerate(shown))
    return f"index\tprediction\n{rows}", note


def _shown(value: Any, spec: Mapping[str, Any], *, names: bool) -> str:
    if not spec["labels"]:
        return f"{min(max(float(value), 0.0), 5.0):.3f}"
    return str(spec["labels"][int(value)]) if names else str(int(value))
