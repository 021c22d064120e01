"""Token store -> the plan of one epoch: which slices of the store make which row.

A pair format gives [CLS] A [SEP] B [SEP] with token types 0 and 1 (`pairs` says what B is); a
stream gives [CLS] slice [SEP] slice [SEP] ..., a slice for each document it touches, all of type 0
(RoBERTa, Liu et al. 2019, sec. 4.2: a separator between documents); packed documents have a [CLS]
each. The plan is a pure function of (store, documents, format, seed, epoch) and holds no token, so
an epoch of millions of rows is planned in seconds; the loops are sequential by definition (BERT
puts unused sentences back) and compiled by numba on first use.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ablate import rng
from ablate.inputs import packing, planning
from ablate.inputs.compiled import compiled
from ablate.inputs.pairs import NO_PAIR, PAIRINGS, RANDOM, SAMPLINGS
from ablate.inputs.plan import Plan
from ablate.tokens.store import TokenStore

PAIR_FORMATS = ("segment_pair", "sentence_pair")
SHARED_FORMATS = ("full_sentences", "packed_documents")  # a row may hold several documents
FORMATS = (*PAIR_FORMATS, *SHARED_FORMATS, "doc_sentences", "single_document")
BOUNDARIES = ("none", "block")
SHORTEST = 8  # tokens: the least max_length, and the least random limit of a row


def check_partners(input_format: str, num_documents: int, pairing: str = "next_or_random") -> None:
    """Refuse random partners without a second document to draw them from.

    Raises:
        ValueError: random pairs are asked of fewer than two documents.
    """
    if input_format in PAIR_FORMATS and RANDOM in PAIRINGS[pairing] and num_documents < 2:
        raise ValueError(
            f"input_format={input_format} draws random partners from other documents and needs at "
            f"least 2 training documents, the corpus has {num_documents}; give a larger corpus or "
            "type input_format=full_sentences nsp=false, or "
            "input_format.pairing=ordered_or_swapped nsp=false"
        )


def check_boundary(input_format: str, document_boundary: str) -> None:
    """Refuse `block` where it hides nothing, or B from A.

    Raises:
        ValueError: naming the formats whose rows hold several documents.
    """
    if document_boundary == "block" and input_format not in SHARED_FORMATS:
        pair = input_format in PAIR_FORMATS
        why = "would hide B from A" if pair else "has no effect, a row is of one document"
        raise ValueError(
            f"input_format.document_boundary=block with input_format={input_format} {why}; type "
            f"input_format.document_boundary=none, or input_format={' or '.join(SHARED_FORMATS)}"
        )


class Text(NamedTuple):
    """Documents in training order and the limits of a row: what every loop begins with."""

    generator: np.random.Generator
    sentence_starts: np.ndarray
    first: np.ndarray  # sentence number, of each document
    last: np.ndarray
    max_length: int
    short_seq_prob: float


def plan_epoch(
    store: TokenStore,
    documents: np.ndarray,
    *,
    input_format: str,
    max_length: int,
    seed: int,
    epoch: int,
    replicate: int = 0,
    short_seq_prob: float = 0.0,
    pairing: str = "next_or_random",
    pair_sampling: str = "bert",
    document_boundary: str = "none",
    copies: int | None = None,
    shuffle: bool = True,
) -> Plan:
    """Plan the rows of `documents` (document numbers of the store) for one epoch.

    The order of the documents, the cuts, the random partners and the order of the rows come from
    the stream ("plan", epoch): arms that share seed, format and data see the same rows in the same
    order. With `copies`, epoch e repeats the rows of epoch e mod copies, from the second pass on in
    another order (BERT's `dupe_factor`). Pair settings are not read where rows are no pairs.

    Raises:
        ValueError: an unknown word, too few documents, no room for a token, or `block` where a row
            is a pair or of one document.
    """
    _check_words(input_format, pairing, pair_sampling, document_boundary)
    check_boundary(input_format, document_boundary)
    if max_length < SHORTEST:
        raise ValueError(
            f"input_format.max_length={max_length} must be at least {SHORTEST} tokens; "
            "type for example input_format.max_length=128"
        )
    if copies is not None and copies < 1:
        raise ValueError(f"input_format.copies={copies} must be at least 1, or null for no copies")
    planned = epoch if copies is None else epoch % copies
    generator = rng.generator(seed, "plan", planned, replicate)
    order = generator.permutation(documents) if shuffle else np.asarray(documents)
    sentence_starts = np.asarray(store.sentence_starts, dtype=np.int64)
    first = np.searchsorted(sentence_starts, store.document_starts[:-1])[order].astype(np.int64)
    last = np.searchsorted(sentence_starts, store.document_starts[1:])[order].astype(np.int64)
    first, last = first[last > first], last[last > first]
    check_partners(input_format, len(first), pairing)
    text = Text(generator, sentence_starts, first, last, max_length, short_seq_prob)
    if input_format in PAIR_FORMATS:
        plan = _pairs(text, input_format, pairing, pair_sampling)
    elif input_format == "packed_documents":
        plan = _packed(text)
    else:
        plan = _streams(text, input_format)
    if plan.num_rows == 0:
        raise ValueError("the corpus gives no row: it has no token after tokenization")
    if shuffle:
        plan = plan.reordered(generator.permutation(plan.num_rows))
    plan = replace(plan, row_ids=np.arange(plan.num_rows), block=document_boundary == "block")
    if shuffle and planned != epoch:
        again = rng.generator(seed, "plan order", epoch, replicate)
        plan = plan.reordered(again.permutation(plan.num_rows))
    return plan


def _check_words(
    input_format: str, pairing: str, pair_sampling: str, document_boundary: str
) -> None:
    words: dict[str, tuple[str, Iterable[str]]] = {
        "input_format": (input_format, FORMATS),
        "input_format.document_boundary": (document_boundary, BOUNDARIES),
    }
    if input_format in PAIR_FORMATS:
        words["input_format.pairing"] = (pairing, PAIRINGS)
        words["input_format.pair_sampling"] = (pair_sampling, SAMPLINGS)
    for name, (given, allowed) in words.items():
        if given not in allowed:
            raise ValueError(
                f"{name}={given!r} is not one of {', '.join(allowed)}; "
                f"type for example {name}={next(iter(allowed))}"
            )


def _pairs(text: Text, input_format: str, pairing: str, pair_sampling: str) -> Plan:
    kinds = PAIRINGS[pairing]
    starts, stops, row_starts, row_kinds, tokens = compiled(planning.pair_rows)(
        *text, np.array(kinds), pair_sampling == "exact", input_format == "sentence_pair"
    )
    labels = np.full(len(row_kinds), NO_PAIR)
    for label, kind in enumerate(kinds):
        labels[row_kinds == kind] = label
    dropped, shown, partner_cut = (int(number) for number in tokens)
    return Plan(
        slice_starts=starts, slice_stops=stops, row_starts=row_starts,
        row_ids=np.arange(len(labels)), max_length=text.max_length,
        pairing=pairing, pair_labels=labels,
        counts={
            "tokens_dropped": dropped, "tokens_dropped_truncation": dropped,
            "partner_tokens": shown, "partner_tokens_cut": partner_cut,
        },
    )  # fmt: skip


def _streams(text: Text, input_format: str) -> Plan:
    starts, stops, row_starts, documents_cut = compiled(planning.stream_rows)(
        *text, SHORTEST, input_format == "full_sentences", input_format == "single_document"
    )
    return Plan(
        slice_starts=starts, slice_stops=stops, row_starts=row_starts,
        row_ids=np.arange(len(row_starts) - 1), max_length=text.max_length,
        counts={"tokens_dropped": 0, "documents_cut": int(documents_cut)},
    )  # fmt: skip


def _packed(text: Text) -> Plan:
    """Documents, those longer than a row cut as `doc_sentences` cuts them, by best fit into rows.

    Inside a row they stand in training order, so that a place tells nothing about length.
    """
    pieces = _streams(text._replace(short_seq_prob=0.0), "doc_sentences")
    sizes = pieces.row_lengths
    row_of, num_rows = compiled(packing.best_fit)(
        text.generator, sizes, np.argsort(-sizes, kind="stable"), text.max_length,
        text.short_seq_prob, SHORTEST,
    )  # fmt: skip
    order = np.argsort(row_of, kind="stable")
    per_row = np.bincount(row_of, minlength=num_rows)
    per_row = per_row[per_row > 0]
    return replace(
        pieces,
        slice_starts=pieces.slice_starts[order],
        slice_stops=pieces.slice_stops[order],
        row_starts=np.concatenate([[0], np.cumsum(per_row)]),
        row_ids=np.arange(len(per_row)),
        cls_per_slice=True,
    )
