"""Tokens a second and peak memory of our encoder and of transformers' classes, against bars.

Each side of a row runs in a worker of its own, in turns (`turns.py`), beside a third worker that
multiplies large matrices: what this machine could do at that moment. A step is forward, backward
and AdamW; the `forward` rows are the encoder alone without gradients. Model FLOPs are those that
the task needs (the vocabulary head at predicted positions), for both sides. Peaks are of whole
workers, libraries included. Where a row says that both sides compute the same, their losses over
the warm-up steps (or hidden states) have been compared.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
from typing import Any

from ablate.bench import encoder_rows
from ablate.bench.encoder_rows import NAMES, Row, Shape, Side, our_config
from ablate.bench.turns import Worker, median_seconds, take_turns
from ablate.encoder.config import flops_per_token

SAME_WITHIN = {"fp32": 1e-3, "bf16": 5e-2}  # absolute, losses in nats and hidden states
PATIENCE = 60.0  # seconds a row may wait for other work on the machine to end
SCALES = ("full", "tiny")
NOTES = (
    "default: theirs is dropout 0.1 (BERT), fp32, torch's AdamW, plain malloc, logits everywhere; "
    "ours what a run resolves here, malloc settings included",
    "like: no dropout, one precision, the malloc settings, one fused AdamW, theirs with "
    "sparse_prediction where the class has it; forward: fp32, the malloc settings",
)


def measure(
    names: tuple[str, ...], *, repeats: int, threads: int, scale: str = "full"
) -> dict[str, Any]:
    """One row of results a name; all of them if `names` is empty.

    Raises:
        ValueError: a bad number or name, transformers is missing, the sides disagree, or memory
            ran out.
    """
    check(names, repeats=repeats, threads=threads, scale=scale)
    rows = [
        measure_row(
            encoder_rows.row(name, scale=scale),
            repeats=repeats,
            threads=threads,
            patience=PATIENCE if scale == "full" else 0.0,
        )
        for name in names or NAMES
    ]
    return {
        "unit": "tokens a second, median",
        "rows": rows,
        "repeats": repeats,
        "torch_threads": threads,
        "warm_up_excluded": True,
        "notes": list(NOTES),
        **machine(),
    }


def check(names: tuple[str, ...], *, repeats: int, threads: int, scale: str) -> None:
    """Raise a ValueError for what cannot be measured, before any worker starts."""
    for option, given in (("--repeats", repeats), ("--threads", threads)):
        if given < 1:
            raise ValueError(f"{option} {given} must be at least 1; type for example {option} 1")
    for name in names:
        if name not in NAMES:
            raise ValueError(
                f"--only {name}: allowed are {', '.join(NAMES)}; type for example --only A_default"
            )
    if importlib.util.find_spec("transformers") is None:
        raise ValueError(
            "the library transformers, the other side of this comparison, is not installed; "
            "type python -m pip install transformers"
        )
    if scale not in SCALES:
        raise ValueError(f"--scale {scale}: allowed are full, tiny; type for example --scale full")


def machine() -> dict[str, Any]:
    """CPU and versions, for the record."""
    from ablate.pretraining import machine

    flags = sorted(flag for flag in machine.cpu_flags() if "bf16" in flag or "amx" in flag)
    versions = {name: importlib.metadata.version(name) for name in ("torch", "transformers")}
    return {"cpu_flags": flags, "cores": machine.available_cores(), "versions": versions}


def measure_row(row: Row, *, repeats: int, threads: int, patience: float = 0.0) -> dict[str, Any]:
    """Run the workers of one row in turns."""
    matmul = Side("matmul", row.ours.shape, row.ours.precision, keep_memory=True)
    workers: list[Worker] = []
    try:
        about = []
        for side in (row.ours, row.theirs, matmul):  # one after the other: warm-ups not disturbed
            workers.append(Worker(side, threads))
            about.append(workers[-1].about())
        difference = _difference(row, *about[:2])
        take_turns(workers, repeats, patience=patience)
        peaks = [worker.end() for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
    return _result(row, workers, about, peaks, difference)


def _difference(row: Row, ours: dict[str, Any], theirs: dict[str, Any]) -> float | None:
    if not row.same:
        return None
    pairs = zip(ours["probe"], theirs["probe"], strict=True)
    difference = max(abs(a - b) for a, b in pairs)
    allowed = SAME_WITHIN[row.ours.precision]
    if not difference <= allowed:
        raise ValueError(
            f"{row.name}: the two sides differ by {difference:.1e} where {allowed:.0e} is allowed, "
            "so there is nothing to compare. Give this version of transformers in a report"
        )
    return difference


def training_flops(shape: Shape) -> float:
    """Operations a token of a training step: a backward pass costs twice its forward pass."""
    rate = shape.predicted / shape.tokens
    return 3 * flops_per_token(our_config(shape), shape.length, predict_rate=rate)


def _needed(side: Side) -> float:
    """Operations a token of a step of this side's task."""
    if side.training:
        return training_flops(side.shape)
    return flops_per_token(our_config(side.shape), side.shape.length, predict_rate=0.0)


def _result(
    row: Row,
    workers: list[Worker],
    about: list[dict[str, Any]],
    peaks: list[float],
    difference: float | None,
) -> dict[str, Any]:
    medians = [median_seconds(worker.turns) for worker in workers]
    ours, theirs, product = (seconds for seconds, _ in medians)
    tokens, needed = row.ours.shape.tokens, _needed(row.ours)
    ceiling = about[2]["flops"] / product
    result: dict[str, Any] = {
        "name": row.name,
        "ours": tokens / ours,
        "theirs": tokens / theirs,
        "ratio": theirs / ours,
        "bar": row.bar,
        "ours_peak_mb": peaks[0],
        "theirs_peak_mb": peaks[1],
        "memory_ratio": peaks[0] / peaks[1],
        "memory_bar": row.memory_bar,
        "ours_gflops_per_s": needed * tokens / ours / 1e9,
        "theirs_gflops_per_s": needed * tokens / theirs / 1e9,
        "ceiling_gflops_per_s": ceiling / 1e9,
        "ceiling_share": needed * tokens / ours / ceiling,
        "ceiling_bar": row.ceiling_bar,
        "ours_precision": row.ours.precision,
        "theirs_precision": row.theirs.precision,
        "ours_kernel": about[0]["kernel"],
        "theirs_kernel": about[1]["kernel"],
        "ours_parameters": about[0]["parameters"],
        "theirs_parameters": about[1]["parameters"],
        "difference": difference,
        "quiet_turns": min(quiet for _, quiet in medians),  # 0: other work disturbed all
    }
    return result | {"pass": _verdict(result)}


def _verdict(result: dict[str, Any]) -> bool | None:
    """Whether all bars of the row are met; None where it has none on this machine."""
    met = []
    if result["bar"] is not None:
        met.append(result["ratio"] >= result["bar"])
    if result["memory_bar"] is not None:
        met.append(result["memory_ratio"] <= result["memory_bar"])
    if result["ceiling_bar"] is not None:
        met.append(result["ceiling_share"] >= result["ceiling_bar"])
    return all(met) if met else None


def table(found: dict[str, Any]) -> list[str]:
    """The result as lines for people."""
    versions = found["versions"]
    flags = ", ".join(found["cpu_flags"]) or "no bf16 instructions"
    return [
        f"training steps and forward passes, tokens a second: median of {found['repeats']} turns "
        "of each worker, ours and theirs alternated",
        f"torch {versions['torch']}, {found['torch_threads']} threads, CPU with {flags}; theirs: "
        f"transformers {versions['transformers']}; warm-up left out",
        f"{'':<24}{'ours':>9}{'theirs':>9}{'ratio':>7}{'bar':>6}{'MB ours':>9}{'theirs':>8}"
        f"{'ratio':>7}{'bar':>6}{'GFLOP/s':>9}{'share':>7}{'bar':>6}",
        *(_line(row) for row in found["rows"]),
        *found["notes"],
    ]


def _line(row: dict[str, Any]) -> str:
    def bar(name: str, pattern: str) -> str:
        return f"{'' if row[name] is None else format(row[name], pattern):>6}"

    verdict = {True: "  pass", False: "  short", None: ""}[row["pass"]]
    verdict += "" if row["quiet_turns"] else "  (disturbed by other work: measure again)"
    return (
        f"{row['name']:<24}{row['ours']:>9,.0f}{row['theirs']:>9,.0f}{row['ratio']:>7.2f}"
        f"{bar('bar', '.1f')}{row['ours_peak_mb']:>9,.0f}{row['theirs_peak_mb']:>8,.0f}"
        f"{row['memory_ratio']:>7.2f}{bar('memory_bar', '.2f')}{row['ours_gflops_per_s']:>9,.0f}"
        f"{row['ceiling_share']:>7.0%}{bar('ceiling_bar', '.0%')} {row['ours_precision']}{verdict}"
    )
