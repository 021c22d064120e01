"""`reports/README.md`: all studies, newest lock first. What people wrote around the list stays."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ablate.report.markdown import escape
from ablate.report.wording import WORDS, counted
from ablate.tracking.record import read_json, write_atomically

BEGIN, END = "<!-- studies: written by ablate.report -->", "<!-- end of studies -->"
_FIRST = "# Reports\n\n`LOG.md` holds measurements made while building, negative ones included.\n\n"
_HEAD = (
    "One line a study, the newest lock first. A verdict compares an arm with the study's baseline "
    "on its primary metric; n counts pairs of pretraining seeds.\n\n"
)
_NONE_YET = "No study has been run yet. "  # as the page began


def write_index(reports_dir: Path) -> Path:
    """Write the list into the index, between its marks or at the end."""
    path = reports_dir / "README.md"
    text = path.read_text(encoding="utf-8") if path.exists() else _FIRST
    text = text.replace(_NONE_YET, "")
    block = f"{BEGIN}\n\n{_HEAD}{_studies(reports_dir)}\n{END}"
    if BEGIN in text and END in text.split(BEGIN, 1)[1]:
        before, rest = text.split(BEGIN, 1)
        text = before + block + rest.split(END, 1)[1]
    else:
        text = f"{text.rstrip()}\n\n{block}\n"
    write_atomically(path, text)
    return path


def _studies(reports_dir: Path) -> str:
    found: list[tuple[str, Mapping[str, Any]]] = []
    for file in sorted(reports_dir.glob("*/metadata.json")):
        content = read_json(file)
        if isinstance(content, dict) and "title" in content:
            found.append((file.parent.name, content))
    # sorts are stable: by name, and within it newest first; studies without a lock come last
    found.sort(key=lambda pair: pair[1].get("locked") or "", reverse=True)
    lines = ["| study | locked | question | verdicts |", "| --- | --- | --- | --- |"]
    lines += [
        f"| {_links(reports_dir, folder, study)} | {study.get('locked') or '–'} | "
        f"{escape(study.get('question') or '')} | {escape(_verdicts(study))} |"
        for folder, study in found
    ]
    return "\n".join(lines) + "\n"


def _links(reports_dir: Path, folder: str, study: Mapping[str, Any]) -> str:
    link = f"[{escape(study['title'])}]({folder}/README.md)"
    again = f"{folder}/repetitions.md"
    return f"{link} ([repetitions]({again}))" if (reports_dir / again).exists() else link


def _verdicts(study: Mapping[str, Any]) -> str:
    counts = study.get("verdicts", {})
    parts = [f"{counts[name]} {words}" for name, words in WORDS.items() if counts.get(name)]
    pairs = study.get("pairs") or [0]
    span = str(pairs[0]) if len(pairs) == 1 else f"{pairs[0]} to {pairs[-1]}"
    text = f"{', '.join(parts) or 'none'} (n = {span} pairs, {study.get('primary')})"
    lacking = study.get("runs_lacking")
    if lacking:
        text += f"; {counted(lacking, 'run is', 'runs are')} not complete"
    return text + ("; exploratory" if study.get("exploratory") else "")
