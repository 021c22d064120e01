"""Planned rows -> refused where they could not show what they are for, before the first step.

What settings alone can tell is refused earlier, by `config.rules`; this needs the data.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from typing import Any

from ablate.config.schema import Settings

_ADVICE = (
    "documents need two sentences or more (in a .txt file a blank line ends a document), and rows "
    "room for two of them (input_format.max_length)"
)


def check_rows(settings: Settings, data: Any) -> None:
    """Refuse rows of `data` (a `PretrainingData`) that say nothing about the arm's factor.

    Raises:
        ValueError: nothing to predict in validation, pairs of one kind, copies that repeat nothing.
    """
    for name, batches in zip(data.validation_names, data.validation_batches, strict=True):
        if not any(batch.num_predictions for batch in batches):
            raise ValueError(
                f"the held-out documents are too short: val/{name} has nothing to predict; type a "
                "larger corpus.validation_fraction, or give a larger corpus"
            )
    rows = data.statistics()
    _check_pairs(settings, rows)
    _check_copies(settings, float(rows["epochs"]))


def warn_of_unknown(meta: Mapping[str, Any], limit: float = 0.01) -> None:
    """Say so where more than `limit` of a store's characters lie in unknown tokens."""
    lost = meta["unk_characters"] / max(meta["characters"], 1)
    if lost > limit:
        print(
            f"warning: the tokenizer does not know {lost:.1%} of the corpus's characters, "
            "which are [UNK] to the model; type tokenizer=byte_bpe, or train it on this corpus",
            file=sys.stderr,
        )


def _check_pairs(settings: Settings, rows: dict[str, Any]) -> None:
    share = rows.get("random_pair_share", 0.5)
    if settings.nsp and not 0.05 <= share <= 0.95:
        raise ValueError(
            f"nsp=true, and {share:.1%} of the pairs are random: {_ADVICE}; type nsp=false"
        )
    if settings.sop:
        pairs = rows["rows"] - rows["rows_without_pair"]
        readable = pairs * (1 - rows.get("random_pair_share", 0.0)) / rows["rows"]
        if readable < 0.05:
            raise ValueError(
                f"sop=true, and only {readable:.1%} of the rows are two segments of one document, "
                f"in order or swapped: {_ADVICE}; type sop=false"
            )
    if (settings.nsp or settings.sop) and settings.input_format.pair_sampling == "exact":
        equal = 1 / 3 if "swapped_pair_share" in rows and "random_pair_share" in rows else 1 / 2
        slack = 0.01 + 3 / math.sqrt(rows["rows"])
        for name in ("random_pair_share", "swapped_pair_share"):
            if abs(rows.get(name, equal) - equal) > slack:
                raise ValueError(
                    f"input_format.pair_sampling=exact cannot give equal shares here: {name} is "
                    f"{rows[name]:.1%}, since so many chunks have one sentence; type "
                    "input_format.pair_sampling=bert, or give documents of more sentences"
                )


def _check_copies(settings: Settings, epochs: float) -> None:
    """Copies that are not used up give the very run that has none."""
    for group in ("masking", "input_format"):
        copies = getattr(settings, group).copies
        if copies is not None and 0 < epochs <= copies:
            fewer = math.ceil(epochs) - 1
            raise ValueError(
                f"{group}.copies={copies} repeats nothing in the {epochs:.2f} epochs of this "
                f"budget: it is the same run as {group}.copies=null; type a larger budget.amount"
                + (f", or {group}.copies={fewer}" if fewer else "")
            )
