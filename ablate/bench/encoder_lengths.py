"""Forward passes over one row of 512 to 8192 tokens: ModernBERT's style against DeBERTa's class.

The claim of the figure: local attention and rotary positions make long rows affordable, where
DeBERTa's disentangled attention is quadratic with a large constant. Three encoders of one size take
turns at each length, all with the malloc settings: ours and two classes of transformers. A length
at which DeBERTa would not fit memory, judged by four times its peak at half the length, is left out
for it and said so.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ablate.bench import encoder
from ablate.bench.encoder_rows import forward_row
from ablate.bench.turns import Worker, median_seconds, take_turns

LENGTHS = (512, 1024, 2048, 4096, 8192)
TINY_LENGTHS = (64, 128)
LABELS = {
    "deberta": "DeBERTa-v2 class",
    "modernbert": "ModernBERT class",
    "ours": "ours (ModernBERT's style)",
}
MEMORY_SHARE = 0.8  # of what is free, that a worker may be expected to need


def measure(figure: str, *, repeats: int, threads: int, scale: str = "full") -> dict[str, Any]:
    """One row of results a length, drawn to the file `figure`.

    Raises:
        ValueError: the file is no .svg or its folder does not exist, or as `encoder.measure`.
    """
    encoder.check((), repeats=repeats, threads=threads, scale=scale)
    path = Path(figure)
    if path.suffix != ".svg" or not path.parent.is_dir():
        raise ValueError(
            f"--figure {figure} must be an .svg file in a folder that exists; "
            "type for example --figure lengths.svg"
        )
    rows: list[dict[str, Any]] = []
    for length in LENGTHS if scale == "full" else TINY_LENGTHS:
        skip = _too_large(rows[-1]) if rows else None
        rows.append(_one_length(length, skip, repeats=repeats, threads=threads, scale=scale))
    found = {"unit": "tokens a second, median", "rows": rows, "repeats": repeats,
             "torch_threads": threads, "figure": figure, **encoder.machine()}  # fmt: skip
    draw(found, path)
    return found


def _too_large(before: dict[str, Any]) -> str | None:
    """Why DeBERTa is left out at twice the length of the row before."""
    if before["deberta"] is None:
        return before["left_out"]
    needed = 4 * before["deberta_peak_mb"]
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1e6
    if needed > MEMORY_SHARE * free:
        return f"DeBERTa needs about {needed:,.0f} MB and {free:,.0f} MB are free"
    return None


def _one_length(
    length: int, skip: str | None, *, repeats: int, threads: int, scale: str
) -> dict[str, Any]:
    against = {name: forward_row(name, length, scale=scale) for name in ("modernbert", "deberta")}
    sides = {"ours": against["modernbert"].ours}
    sides |= {name: row.theirs for name, row in against.items() if name != "deberta" or not skip}
    workers: dict[str, Worker] = {}
    row: dict[str, Any] = {"length": length, "deberta": None, "left_out": skip}
    try:
        for name, side in sides.items():
            workers[name] = Worker(side, threads)
            row[f"{name}_parameters"] = workers[name].about()["parameters"]
        patience = encoder.PATIENCE if scale == "full" else 0.0
        take_turns(list(workers.values()), repeats, patience=patience)
        for name, worker in workers.items():
            row[name] = length / median_seconds(worker.turns)[0]
            row[f"{name}_peak_mb"] = worker.end()
    finally:
        for worker in workers.values():
            worker.kill()
    for name in ("modernbert", "deberta"):
        row[f"ratio_{name}"] = None if row[name] is None else row["ours"] / row[name]
    return row


def draw(found: dict[str, Any], path: Path) -> None:
    """Tokens a second by length, one line an encoder, to an SVG file."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    axes = figure.subplots()
    for name, label in LABELS.items():
        points = [(row["length"], row[name]) for row in found["rows"] if row[name] is not None]
        axes.plot(*zip(*points, strict=True), marker="o", label=label)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    axes.yaxis.set_major_formatter("{x:,.0f}")
    lengths = [row["length"] for row in found["rows"]]
    axes.set_xticks(lengths, [str(length) for length in lengths])
    axes.set_xlabel("tokens in the row")
    axes.set_ylabel("tokens a second, forward, fp32")
    axes.set_title(
        f"6 layers, 384 wide, {found['torch_threads']} CPU threads, same malloc settings"
    )
    axes.grid(visible=True, alpha=0.3)
    axes.legend()
    figure.savefig(path, format="svg", metadata={"Date": None})


def table(found: dict[str, Any]) -> list[str]:
    """The result as lines for people."""
    lines = [
        "forward passes over one row, tokens a second, fp32, the malloc settings on all sides",
        f"{'tokens':>7}{'ours':>9}{'ModernBERT':>12}{'ratio':>7}{'DeBERTa':>9}{'ratio':>7}"
        f"{'MB ours':>9}{'DeBERTa':>9}",
    ]
    for row in found["rows"]:
        line = f"{row['length']:>7}{row['ours']:>9,.0f}{row['modernbert']:>12,.0f}"
        line += f"{row['ratio_modernbert']:>7.2f}"
        if row["deberta"] is None:
            lines.append(f"{line}  {row['left_out']}")
            continue
        lines.append(
            f"{line}{row['deberta']:>9,.0f}{row['ratio_deberta']:>7.2f}"
            f"{row['ours_peak_mb']:>9,.0f}{row['deberta_peak_mb']:>9,.0f}"
        )
    return [*lines, f"drawn to {found['figure']}"]
