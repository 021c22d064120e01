"""Masked batches of 64 full rows: ours against the torch collators of transformers.

Lists in and tensors out for theirs, row numbers of a plan in and a `Batch` with its counts out for
ours: what each one's training loop pays for a batch. Both sides run in one process on the same
rows, A B A B: a turn is some batches one after the other, as a loader's worker makes them (`turn=1`
goes to the other side after each, which measures ours with the processor's caches full of theirs).
Figures are medians over all batches, so that one the system interrupted does not count. What runs
once in a training (imports, numba's compiling, the first turn) is not measured.
"""

from __future__ import annotations

import itertools
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ablate.bench import material, theirs
from ablate.inputs.candidates import by_frequency
from ablate.inputs.masked_rows import MaskedRows
from ablate.inputs.masking import MaskingPolicy
from ablate.inputs.pmi import build_list
from ablate.inputs.rows import assemble

ROWS, LENGTHS = 64, (128, 512)
NUM_BATCHES = 8  # different ones
SPAN_BAR = 0.6  # speed of ours for spans, as a share of ours for tokens
BARS = {"token": {128: 6.0, 512: 15.0}, "whole_word": {128: 20.0, 512: 60.0}}
OPPONENTS = {"token": "token", "whole_word": "whole_word", "span": "token"}
POLICIES = {  # the presets of conf/masking
    "token": MaskingPolicy(),
    "whole_word": MaskingPolicy(selection="whole_word"),
    "span": MaskingPolicy(
        selection="span",
        budget_rule="exact",
        corruption_unit="unit",
        random_candidates="frequency",
    ),
    "ngram": MaskingPolicy(selection="ngram", budget_rule="exact"),
    "pmi": MaskingPolicy(selection="pmi", budget_rule="exact", corruption_unit="unit"),
    "exact": MaskingPolicy(budget_rule="exact", budget_base="row"),
}
NOTES = {
    "whole_word": "their whole words all become [MASK], ours 80/10/10 as theirs for tokens",
    "span": "they have no spans: span is beside their token masking",
}
NAMES = {f"{kind}_{ROWS}x{length}": (kind, length) for kind in POLICIES for length in LENGTHS}
Batcher = Callable[[int], Any]  # number of a batch -> the batch


def measure(
    names: tuple[str, ...],
    *,
    repeats: int,
    threads: int,
    turn: int = NUM_BATCHES,
    corpus: str | None = None,
    text_field: str = "text",
) -> dict[str, Any]:
    """One row of results a name (those with an opponent, unless `names` says which).

    Raises:
        ValueError: a bad number or name, a corpus that cannot be read, or transformers is missing.
    """
    for option, given in (("--repeats", repeats), ("--threads", threads), ("--turn", turn)):
        if given < 1:
            raise ValueError(f"{option} {given} must be at least 1; type for example {option} 1")
    for name in names:
        if name not in NAMES:
            raise ValueError(
                f"--only {name}: allowed are {', '.join(NAMES)}; "
                "type for example --only token_64x128"
            )
    chosen = names or tuple(name for name, (kind, _) in NAMES.items() if kind in OPPONENTS)
    library = theirs.transformers_module()
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory(prefix="ablate-bench-") as cache:
        text = material.load(
            corpus,
            num_tokens=ROWS * NUM_BATCHES * max(NAMES[name][1] for name in chosen),
            text_field=text_field,
            cache_dir=Path(cache),
        )
        rows = list(
            itertools.chain.from_iterable(
                _of_length(
                    text, length, [n for n in chosen if NAMES[n][1] == length], repeats, turn
                )
                for length in LENGTHS
                if any(NAMES[name][1] == length for name in chosen)
            )
        )
    rows.sort(key=lambda row: chosen.index(row["name"]))
    return {
        "unit": "milliseconds a batch, median",
        "rows": rows,
        "text": text.name,
        "repeats": repeats,
        "batches_in_a_turn": turn,
        "torch_threads": torch.get_num_threads(),
        "warm_up_excluded": True,
        "notes": [note for kind, note in NOTES.items() if any(NAMES[n][0] == kind for n in chosen)],
        "same_ids": True,
        "versions": {"torch": torch.__version__, "transformers": library.__version__},
    }


def _of_length(
    text: material.Material, length: int, names: list[str], repeats: int, turn: int
) -> list[dict[str, Any]]:
    """All names of one length, measured in turn."""
    hf_tokenizer = theirs.wrap(text.tokenizer)
    rows = material.full_rows(text, hf_tokenizer, max_length=length, count=ROWS * NUM_BATCHES)
    kinds = [NAMES[name][0] for name in names]
    batchers: dict[str, Batcher] = {}
    for kind in kinds:
        if kind in OPPONENTS:
            batchers[f"ours {kind}"] = ours_of(text, rows, kind, length)
            opponent = OPPONENTS[kind]
            batchers[f"theirs {opponent}"] = theirs_of(rows, opponent, hf_tokenizer)
        else:
            batchers[f"ours {kind}"] = ours_of(text, rows, kind, length)
    if "span" in kinds:
        batchers.setdefault("ours token", ours_of(text, rows, "token", length))
    if "token" in kinds:
        given = "token_with_special_tokens_mask"
        batchers[f"theirs {given}"] = theirs_of(rows, given, hf_tokenizer)
    if "whole_word" in kinds:
        _check_whole_words(text, rows, batchers["theirs whole_word"](0))
    medians = in_turn(batchers, repeats, turn)
    return [_row(name, medians) for name in names]


def ours_of(text: material.Material, rows: material.Rows, kind: str, max_length: int) -> Batcher:
    """Our batches of the rows, under the policy of this name."""
    policy, candidates, ngrams = POLICIES[kind], None, None
    if policy.random_candidates == "frequency":
        counts = np.bincount(text.store.tokens, minlength=text.tokenizer.vocab_size)
        candidates = by_frequency(text.tokenizer.ordinary_ids, counts)
    if policy.selection == "pmi":
        ngrams = build_list(
            text.store,
            np.arange(len(text.store.document_starts) - 1),
            num_ngrams=policy.pmi_num_ngrams,
            max_words=policy.pmi_max_words,
            min_count=policy.pmi_min_count,
            cache_dir=text.cache_dir,
            special_ids=text.tokenizer.special_ids,
        )
    source = MaskedRows(
        text.store,
        text.tokenizer,
        policy,
        max_length=max_length,
        seed=0,
        candidates=candidates,
        ngrams=ngrams,
    )
    parts = np.split(rows.numbers, NUM_BATCHES)
    return lambda number: source.batch(rows.plan, parts[number], epoch=0)


def theirs_of(rows: material.Rows, kind: str, hf_tokenizer: Any) -> Batcher:
    """Their batches of the same rows."""
    collate = theirs.collator(kind, hf_tokenizer)
    examples = theirs.examples_for(kind, rows.examples)
    parts = [examples[begin : begin + ROWS] for begin in range(0, len(examples), ROWS)]
    return lambda number: collate(parts[number])


def in_turn(batchers: dict[str, Batcher], repeats: int, turn: int) -> dict[str, float]:
    """Median milliseconds a batch: `turn` batches of each in turn, after a turn not counted."""
    taken: dict[str, list[float]] = {name: [] for name in batchers}
    for repeat in range(repeats + 1):
        numbers = [(repeat * turn + k) % NUM_BATCHES for k in range(turn)]
        for name, batcher in batchers.items():
            for number in numbers:
                begin = time.perf_counter()
                batcher(number)
                taken[name].append(1000 * (time.perf_counter() - begin))
    return {name: statistics.median(values[turn:]) for name, values in taken.items()}


def _check_whole_words(text: material.Material, rows: material.Rows, batch: dict[str, Any]) -> None:
    flat = assemble(text.store, text.tokenizer, rows.plan, rows.numbers[:ROWS])
    begins = flat.word_starts.reshape(ROWS, -1).copy()
    begins[:, [0, 1, -1]] = True  # [CLS], what a row's edge left of a word, [SEP]
    theirs.check_whole_words(batch, begins)


def _row(name: str, medians: dict[str, float]) -> dict[str, Any]:
    kind, length = NAMES[name]
    ours = medians[f"ours {kind}"]
    row: dict[str, Any] = {"name": name, "ours": ours, "theirs": None, "ratio": None}
    if kind in OPPONENTS:
        row["theirs"] = medians[f"theirs {OPPONENTS[kind]}"]
        row["ratio"] = row["theirs"] / ours
    row["bar"] = BARS.get(kind, {}).get(length)
    if row["bar"] is not None:
        row["pass"] = row["ratio"] >= row["bar"]
    if kind == "token":
        row["theirs_given_special_tokens_mask"] = medians["theirs token_with_special_tokens_mask"]
    if kind == "span":
        row["relative_to_token"] = medians["ours token"] / ours
        row["relative_bar"] = SPAN_BAR
        row["pass"] = row["relative_to_token"] >= SPAN_BAR
    return row


def table(found: dict[str, Any]) -> list[str]:
    """The result as lines for people."""
    versions = found["versions"]
    lines = [
        f"masking {ROWS} full rows, milliseconds a batch: median of {found['repeats']} turns of "
        f"{found['batches_in_a_turn']} batches",
        f"torch threads: {found['torch_threads']}; text: {found['text']}",
        f"theirs: torch collators of transformers {versions['transformers']}, torch "
        f"{versions['torch']}, lists of the same ids; warm-up of both sides left out",
        f"{'':<18}{'ours':>9}{'theirs':>9}{'ratio':>8}{'bar':>7}",
    ]
    return lines + [_line(row) for row in found["rows"]] + found["notes"]


def _line(row: dict[str, Any]) -> str:
    line = f"{row['name']:<18}{row['ours']:>9.3f}"
    if row["theirs"] is not None:
        line += f"{row['theirs']:>9.3f}{row['ratio']:>7.1f}x"
    if row["bar"] is not None:
        line += f"{row['bar']:>6.0f}x  {'pass' if row['pass'] else 'short'}"
    if "relative_to_token" in row:
        line += (
            f"{'':>7}  {'pass' if row['pass'] else 'short'}: {row['relative_to_token']:.2f} of "
            f"token's speed, bar {row['relative_bar']}"
        )
    if "theirs_given_special_tokens_mask" in row:
        given = row["theirs_given_special_tokens_mask"]
        line += f"  (theirs {given:.3f} where the dataset holds special_tokens_mask)"
    return line
