"""A text file -> how fast and in how much memory its token store is built and read.

The store is built in a process of its own in an empty cache (the file itself may be in the system's
memory), once scanned and once encoded, as the first run on a corpus does. The time outside
`Tokenizer.encode_texts` is reading, splitting into sentences, hashing and writing; what the bare
library `tokenizers` encodes a second stands beside, since building can be expected to keep up with
it. Another process opens the finished store and draws masked batches from all over it. With `jobs`
the store is also built by so many worker processes, in turns with one process and its threads.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ablate.bench import made_up_text
from ablate.bench.processes import (
    children_peaks,
    peak_megabytes,
    private_megabytes,
    resident_megabytes,
    run_alone,
)
from ablate.pretraining.machine import available_cores

PEAK_BAR_MB = 1500.0
VOCAB_SIZE = 16_384
SAMPLE_CHARACTERS = 4_000_000  # to train the tokenizer on, and to time the bare library with
DRAWN_BATCHES, ROWS, LENGTH = 100, 64, 128
TURNS = 2  # of each side, where processes are compared


def measure(
    corpus: str | None, *, megabytes: float, text_field: str = "text", jobs: int = 1
) -> dict[str, Any]:
    """Build and read the store of `corpus` (as `corpus.path`), or of made-up text of a size.

    Raises:
        ValueError: the corpus cannot be read, the disk is too small, or memory ran out.
    """
    if jobs < 1:
        raise ValueError(f"--jobs {jobs} must be at least 1; type for example --jobs 2")
    with tempfile.TemporaryDirectory(prefix="ablate-bench-") as name:
        folder = Path(name)
        if corpus is None:
            _check_disk(folder, megabytes)
            path = folder / "text.txt"
            made_up_text.write(path, megabytes)
        else:
            path = Path(corpus)
        cache = folder / "cache"
        sample = prepare(path, text_field, cache)
        tokenizer = sample.pop("tokenizer")
        built = run_alone(build, path, text_field, cache, tokenizer)
        drawn = run_alone(draw, built.pop("folder"), tokenizer)
        sides = {} if jobs == 1 else compare(path, text_field, cache, tokenizer, jobs)
    where = corpus or "made-up text"
    found = {"corpus": where, **built, **sample, "peak_bar_mb": PEAK_BAR_MB, "drawing": drawn}
    return found | sides


def compare(
    path: Path, text_field: str, cache: Path, tokenizer_file: Path, jobs: int
) -> dict[str, Any]:
    """One process with its threads against `jobs` workers: seconds of the build alone, in turns."""
    sides: dict[str, list[dict[str, Any]]] = {"one process": [], f"{jobs} workers": []}
    for _ in range(TURNS):
        for side, count in zip(sides, (1, jobs), strict=True):
            shutil.rmtree(cache / "stores", ignore_errors=True)
            turn = run_alone(build, path, text_field, cache, tokenizer_file, count)
            sides[side].append(turn)
    best = [min(turn["build_seconds"] for turn in turns) for turns in sides.values()]
    return {
        "jobs": jobs,
        "times_as_fast": best[0] / best[1],
        "sides": {
            side: {
                "build_seconds": [turn["build_seconds"] for turn in turns],
                "peak_mb": max(turn["peak_mb"] for turn in turns),
                "worker_peak_mb": max(turn["worker_peak_mb"] for turn in turns),
            }
            for side, turns in sides.items()
        },
    }


def _check_disk(folder: Path, megabytes: float) -> None:
    if not megabytes > 0:
        raise ValueError(
            f"--megabytes {megabytes} must be above 0; type for example --megabytes 72"
        )
    free = shutil.disk_usage(folder).free / 1e6
    needed = 2.5 * megabytes + 100  # the text, 3 bytes a token, 8 a sentence
    if free < needed:
        raise ValueError(
            f"--megabytes {megabytes} needs {needed:.0f} MB of temporary disk, {folder.parent} has "
            f"{free:.0f} MB; type a smaller number or set TMPDIR to another disk"
        )


def prepare(path: Path, text_field: str, cache: Path) -> dict[str, Any]:
    """Train a tokenizer on the beginning of the text, and time the bare library on it."""
    import tokenizers

    from ablate.corpus import files
    from ablate.corpus.sentences import split_sentences
    from ablate.tokens import training

    found, _ = files.find_files(path)
    texts = files.read_texts(found, text_field=text_field, cache_dir=cache)
    documents = list(beginning(texts, SAMPLE_CHARACTERS))
    trained = training.train(
        "wordpiece", documents, vocab_size=VOCAB_SIZE, lowercase=True, cache_dir=cache
    )
    sentences = [sentence for text in documents for sentence in split_sentences(text)]
    size = sum(len(sentence.encode()) for sentence in sentences) / 1e6
    bare = tokenizers.Tokenizer.from_file(str(trained.file))
    begin = time.perf_counter()
    for at in range(0, len(sentences), 10_000):
        bare.encode_batch(sentences[at : at + 10_000], add_special_tokens=False)
    seconds = time.perf_counter() - begin
    return {"tokenizer": trained.file, "bare_tokenizers_mb_per_s": size / seconds}


def beginning(texts: Iterator[str | None], characters: int) -> Iterator[str]:
    """Texts until they hold `characters`."""
    left = characters
    for text in filter(None, texts):
        yield text
        left -= len(text)
        if left <= 0:
            return


def build(
    path: Path, text_field: str, cache: Path, tokenizer_file: Path, jobs: int = 1
) -> dict[str, Any]:
    """Scan the corpus and build its store; seconds by part, and the peaks of memory.

    `tokenizer_seconds` is what this process spends there: nothing where workers encode.
    """
    import datasets  # noqa: F401  its import is no part of the time

    from ablate.corpus import sources
    from ablate.tokens import store
    from ablate.tokens.tokenizer import Tokenizer

    tokenizer = _Timed(Tokenizer(tokenizer_file))
    before = resident_megabytes()
    begin = time.perf_counter()
    corpus = sources.load_files(
        path, text_field=text_field, validation_fraction=0.05, cache_dir=cache
    )
    scanned = time.perf_counter()
    peaks = [0.0]
    made = store.build(
        corpus,
        tokenizer,  # type: ignore[arg-type]
        cache_dir=cache,
        jobs=jobs,
        progress=lambda _: peaks.extend(children_peaks()),
    )
    end = time.perf_counter()
    text_mb = corpus.counts["text_bytes"] / 1e6
    return {
        "folder": made.folder,
        "text_mb": text_mb,
        "documents": corpus.counts["documents"],
        "sentences": len(made.sentence_starts) - 1,
        "tokens": len(made.tokens),
        "seconds": end - begin,
        "mb_per_s": text_mb / (end - begin),
        "scan_seconds": scanned - begin,
        "build_seconds": end - scanned,
        "tokenizer_seconds": tokenizer.seconds,
        "share_outside_tokenizer": 1 - tokenizer.seconds / (end - begin),
        "memory_before_mb": before,
        "peak_mb": peak_megabytes(),
        "worker_peak_mb": max(peaks),
    }


class _Timed:
    """A tokenizer whose `encode_texts` is timed."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer, self.seconds = tokenizer, 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tokenizer, name)

    def encode_texts(self, texts: list[str]) -> Any:
        begin = time.perf_counter()
        encoded = self._tokenizer.encode_texts(texts)
        self.seconds += time.perf_counter() - begin
        return encoded


def draw(folder: Path, tokenizer_file: Path) -> dict[str, Any]:
    """Open a store and draw masked batches from all over it; what that adds to memory.

    Mapped pages count as resident until the system wants them back, private memory does not go.
    """
    from ablate.inputs.formats import plan_epoch
    from ablate.inputs.masked_rows import MaskedRows
    from ablate.inputs.masking import MaskingPolicy
    from ablate.inputs.plan import Plan
    from ablate.tokens.store import ARRAYS, TokenStore
    from ablate.tokens.tokenizer import Tokenizer

    tokenizer, opened = Tokenizer(tokenizer_file), TokenStore(folder)
    arrays = {name: getattr(opened, name) for name in ARRAYS}
    not_mapped = [name for name, array in arrays.items() if not isinstance(array, np.memmap)]
    if not_mapped:
        raise ValueError(f"{', '.join(not_mapped)} of {folder} are read into memory, not mapped")
    num_documents = len(opened.document_starts) - 1
    sample = np.unique(np.linspace(0, num_documents - 1, 20_000).astype(np.int64))

    def plan_of(documents: np.ndarray) -> Plan:
        return plan_epoch(
            opened, documents, input_format="full_sentences", max_length=LENGTH, seed=0, epoch=0
        )

    plan_of(sample[:20])  # compiles the loop
    before = private_megabytes()
    plan = plan_of(sample)
    rows = MaskedRows(opened, tokenizer, MaskingPolicy(), max_length=LENGTH, seed=0)
    rows.batch(plan, np.arange(1), epoch=0)
    planned = private_megabytes()
    begin = time.perf_counter()
    for number in range(DRAWN_BATCHES):
        wanted = np.arange(number * ROWS, (number + 1) * ROWS) % plan.num_rows
        rows.batch(plan, wanted, epoch=0)
    seconds = time.perf_counter() - begin
    drawn = private_megabytes()
    return {
        "arrays_mb": sum(array.nbytes for array in arrays.values()) / 1e6,
        "mapped": True,
        "batches": DRAWN_BATCHES,
        "ms_per_batch": 1000 * seconds / DRAWN_BATCHES,
        "private_mb_added_by_plan": _added(before, planned),
        "private_mb_added_by_batches": _added(planned, drawn),
        "resident_mb": resident_megabytes(),
        "private_mb": drawn,
        "peak_mb": peak_megabytes(),
    }


def _added(before: float | None, after: float | None) -> float | None:
    return None if before is None or after is None else after - before


def table(found: dict[str, Any]) -> list[str]:
    """The result as lines for people."""
    drawing, within = found["drawing"], found["peak_mb"] <= PEAK_BAR_MB
    held, private = drawing["private_mb"], drawing["private_mb_added_by_batches"]
    return [
        f"token store of {found['corpus']}: {found['text_mb']:.1f} MB of text, "
        f"{found['documents']:,} documents, {found['tokens']:,} tokens",
        f"  total      {found['seconds']:8.1f} s   {found['mb_per_s']:.1f} MB/s of text",
        f"  scan       {found['scan_seconds']:8.1f} s",
        f"  build      {found['build_seconds']:8.1f} s",
        f"  tokenizer  {found['tokenizer_seconds']:8.1f} s   of the build; "
        f"{found['share_outside_tokenizer']:.0%} of the total is outside it",
        f"  the bare library tokenizers encodes {found['bare_tokenizers_mb_per_s']:.1f} MB/s",
        f"  peak memory{found['peak_mb']:8.0f} MB  bar {PEAK_BAR_MB:.0f} MB: "
        + ("pass" if within else "short"),
        f"  reading: {drawing['arrays_mb']:.0f} MB mapped; {drawing['batches']} masked batches of "
        f"{ROWS} x {LENGTH} from all over it, {drawing['ms_per_batch']:.2f} ms each",
        f"  memory after them: {drawing['resident_mb']:.0f} MB resident with the pages of the maps "
        "that were read"
        + ("" if held is None else f", {held:.0f} MB without them")
        + ("" if private is None else f" ({private:+.1f} MB by the batches)"),
        *_sides(found),
    ]


def _sides(found: dict[str, Any]) -> list[str]:
    if "sides" not in found:
        return []
    lines = [
        f"  {side:<12} {min(turns['build_seconds']):6.1f} s to build (best of {TURNS}), peak "
        f"{turns['peak_mb']:.0f} MB"
        + (f", a worker {turns['worker_peak_mb']:.0f} MB" if turns["worker_peak_mb"] else "")
        for side, turns in found["sides"].items()
    ]
    ratio, cores = found["times_as_fast"], available_cores()
    return [*lines, f"  workers are {ratio:.2f} times as fast as one process, on {cores} cores"]
