"""Token store -> the plan of one epoch: which slices of the store make which row.

Row = [CLS] slice [SEP] (slice [SEP] ...). A pair has two slices with token types 0 and 1; a row
of a stream has as many slices as it touches documents, all of type 0 (RoBERTa sec. 4.2: a separator
between documents). The plan is a pure function of (store, documents, format, seed, epoch) and holds
no token, so an epoch of millions of rows is planned in seconds; the loops are sequential by
definition (BERT puts unused sentences back) and compiled by numba on first use.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field

import numpy as np

from ablate import rng
from ablate.inputs import planning
from ablate.inputs.compiled import compiled
from ablate.tokens.store import TokenStore

PAIR_FORMATS = ("segment_pair",)
STREAM_FORMATS = ("full_sentences", "doc_sentences", "single_document")
FORMATS = (*PAIR_FORMATS, *STREAM_FORMATS)


@dataclass(frozen=True)
class Plan:
    """One epoch of rows, in the order in which they are trained on.

    Row r takes the slices `row_starts[r] : row_starts[r + 1]`; slice s is
    `store.tokens[slice_starts[s] : slice_stops[s]]`. `pair_labels` is None for streams.
    """

    slice_starts: np.ndarray  # (S,) int64
    slice_stops: np.ndarray  # (S,) int64
    row_starts: np.ndarray  # (R + 1,) int64
    pair_labels: np.ndarray | None  # (R,) int64, 0 = B follows A, 1 = random B
    max_length: int
    counts: dict[str, int] = field(default_factory=dict)

    @property
    def num_rows(self) -> int:
        return len(self.row_starts) - 1

    @functools.cached_property
    def row_lengths(self) -> np.ndarray:
        """(R,) tokens of each row, [CLS] and [SEP] included."""
        running = np.concatenate([[0], np.cumsum(self.slice_stops - self.slice_starts + 1)])
        return np.diff(running[self.row_starts]) + 1

    @functools.cached_property
    def statistics(self) -> dict[str, float]:
        """Rows, fill of the rows (mean length / max_length), share of random pairs, tokens lost."""
        found: dict[str, float] = {"rows": self.num_rows, **self.counts}
        found["row_fill"] = float(self.row_lengths.mean() / self.max_length)
        if self.pair_labels is not None:
            found["random_pair_share"] = float((self.pair_labels == 1).mean())
        return found


def check_partners(input_format: str, num_documents: int) -> None:
    """Refuse a pair format without a second document to draw partners from.

    Raises:
        ValueError: pairs are asked of fewer than two documents.
    """
    if input_format in PAIR_FORMATS and num_documents < 2:
        raise ValueError(
            f"input_format={input_format} draws random partners from other documents and needs at "
            f"least 2 training documents, the corpus has {num_documents}; give a larger corpus or "
            "type input_format=full_sentences nsp=false"
        )


def plan_epoch(
    store: TokenStore,
    documents: np.ndarray,
    *,
    input_format: str,
    max_length: int,
    seed: int,
    epoch: int,
    replicate: int = 0,
    short_seq_prob: float = 0.1,
    shuffle: bool = True,
) -> Plan:
    """Plan the rows of `documents` (document numbers of the store) for one epoch.

    The order of the documents, the cuts, the random partners and the order of the rows come from
    the stream ("plan", epoch): arms that share seed, format and data see the same rows in the same
    order.

    Raises:
        ValueError: unknown format, too few documents, or no room for a token.
    """
    if input_format not in FORMATS:
        raise ValueError(
            f"input_format={input_format!r} is not one of {', '.join(FORMATS)}; "
            "type for example input_format=segment_pair"
        )
    if max_length < 8:
        raise ValueError(f"input_format.max_length={max_length} must be at least 8 tokens")
    check_partners(input_format, len(documents))
    generator = rng.generator(seed, "plan", epoch, replicate)
    order = generator.permutation(documents) if shuffle else np.asarray(documents)
    sentence_starts = np.asarray(store.sentence_starts, dtype=np.int64)
    first = np.searchsorted(sentence_starts, store.document_starts[:-1])[order].astype(np.int64)
    last = np.searchsorted(sentence_starts, store.document_starts[1:])[order].astype(np.int64)
    first, last = first[last > first], last[last > first]
    if input_format in PAIR_FORMATS:
        loop = compiled(planning.segment_pairs)
        starts, stops, labels, dropped, cut = loop(
            generator, sentence_starts, first, last, max_length - 3, short_seq_prob
        )
        row_starts = np.arange(0, len(starts) + 1, 2)
        counts = {"tokens_dropped": int(dropped), "partner_tokens_cut": int(cut)}
        plan = Plan(starts, stops, row_starts, labels, max_length, counts)
    else:
        loop = compiled(planning.sentence_streams)
        starts, stops, row_starts = loop(
            sentence_starts, first, last, max_length, input_format == "full_sentences",
            input_format == "single_document",
        )  # fmt: skip
        plan = Plan(starts, stops, row_starts, None, max_length, {"tokens_dropped": 0})
    if plan.num_rows == 0:
        raise ValueError("the corpus gives no row: it has no token after tokenization")
    return reorder(plan, generator.permutation(plan.num_rows)) if shuffle else plan


def reorder(plan: Plan, order: np.ndarray) -> Plan:
    """The same rows in another order."""
    counts = np.diff(plan.row_starts)[order]
    row_starts = np.concatenate([[0], np.cumsum(counts)])
    within = np.arange(row_starts[-1]) - np.repeat(row_starts[:-1], counts)
    slices = np.repeat(plan.row_starts[:-1][order], counts) + within
    labels = None if plan.pair_labels is None else plan.pair_labels[order]
    return Plan(
        plan.slice_starts[slices], plan.slice_stops[slices], row_starts, labels, plan.max_length,
        plan.counts,
    )  # fmt: skip
