"""A number of rows -> seconds and memory that planning one epoch of them takes, format by format.

Planning reads where sentences and documents begin and no text, so a made-up store of lengths
stands for a corpus of any size: documents of 10 to 40 sentences of 5 to 40 tokens. Each format is
planned in a process of its own, first small (which compiles its loops and tells how many documents
make a row), then in full.
"""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import numpy as np

from ablate import rng
from ablate.bench.processes import peak_megabytes, resident_megabytes, run_alone

SECONDS_BAR, MEMORY_BAR_MB = 10.0, 500.0
MAX_LENGTH = 128
_SMALL = 200  # documents of the first plan


def measure(num_rows: int, only: tuple[str, ...]) -> dict[str, Any]:
    """One row of results a format.

    Raises:
        ValueError: fewer than 1 row asked for, an unknown format, or memory ran out.
    """
    from ablate.inputs.formats import FORMATS

    if num_rows < 1:
        raise ValueError(f"--rows {num_rows} must be at least 1; type for example --rows 1000000")
    for name in only:
        if name not in FORMATS:
            raise ValueError(
                f"--only {name}: allowed are {', '.join(FORMATS)}; "
                f"type for example --only {FORMATS[0]}"
            )
    return {
        "max_length": MAX_LENGTH,
        "seconds_bar": SECONDS_BAR,
        "memory_bar_mb": MEMORY_BAR_MB,
        "rows": [run_alone(plan_one, name, num_rows) for name in only or FORMATS],
    }


def store_of(num_documents: int) -> SimpleNamespace:
    """Starts of sentences and documents, made in place so that nothing is held beside them."""
    generator = rng.generator(0, "bench", "planning")
    sizes = generator.integers(10, 41, num_documents)  # sentences
    sentence_starts = np.zeros(int(sizes.sum()) + 1, dtype=np.int64)
    for begin in range(1, len(sentence_starts), 1 << 16):
        part = sentence_starts[begin : begin + (1 << 16)]
        part[:] = generator.integers(5, 41, len(part))
    np.cumsum(sentence_starts, out=sentence_starts)
    np.cumsum(sizes, out=sizes)
    document_starts = np.concatenate([[0], sentence_starts[sizes]])
    return SimpleNamespace(sentence_starts=sentence_starts, document_starts=document_starts)


def plan_one(input_format: str, num_rows: int) -> dict[str, Any]:
    """Plan about `num_rows` rows; what is said of memory is beyond the store and the small plan."""
    from ablate.inputs.formats import plan_epoch

    def plan(store: SimpleNamespace) -> Any:
        return plan_epoch(
            store,  # type: ignore[arg-type]
            np.arange(len(store.document_starts) - 1),
            input_format=input_format,
            max_length=MAX_LENGTH,
            seed=0,
            epoch=0,
        )

    small = plan(store_of(_SMALL)).num_rows
    store = store_of(max(2, round(_SMALL * num_rows / small)))
    before = resident_megabytes()
    begin = time.perf_counter()
    planned = plan(store)
    seconds = time.perf_counter() - begin
    extra = max(0.0, peak_megabytes() - before)
    return {
        "name": input_format,
        "rows": planned.num_rows,
        "sentences": len(store.sentence_starts) - 1,
        "seconds": seconds,
        "extra_mb": extra,
        "pass": seconds <= SECONDS_BAR and extra <= MEMORY_BAR_MB,
    }


def table(found: dict[str, Any]) -> list[str]:
    """The result as lines for people."""
    lines = [
        f"planning one epoch, rows of {found['max_length']} tokens; bars {SECONDS_BAR:.0f} s and "
        f"{MEMORY_BAR_MB:.0f} MB beyond the store; compiling not counted",
        f"{'format':<18}{'rows':>11}{'sentences':>12}{'seconds':>9}{'MB':>7}",
    ]
    for row in found["rows"]:
        lines.append(
            f"{row['name']:<18}{row['rows']:>11,}{row['sentences']:>12,}{row['seconds']:>9.2f}"
            f"{row['extra_mb']:>7.0f}  {'pass' if row['pass'] else 'short'}"
        )
    return lines
