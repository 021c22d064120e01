"""Stored predictions of masked pieces -> loss, accuracy, bits per byte, and where they come from.

Everything is (sum, count) over lines of the table, so the lines of a breakdown add up to the whole.
Bits per byte are the bits of the predicted pieces over the utf-8 bytes of text that they stand for;
each piece carries an equal share of its word's bytes, blanks count nowhere. Nothing here looks at
a model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ablate.evaluation.frequency_bands import BANDS
from ablate.evaluation.measurement import EvaluationResult, Part

METRICS = ("loss", "accuracy", "bits_per_byte")
_MOST_PIECES = 4
_ACROSS = (
    "loss and accuracy are of one tokenizer's pieces: across tokenizers only bits per byte may be "
    "compared"
)
_BASELINE = "is the best constant answer, chosen on the scored pieces themselves"
NOTES = {
    "token_mask": f"hides 15% of the pieces, one by one; {_ACROSS}, and here only roughly (the "
    "rest of a word shows, more of it where words have more pieces)",
    "whole_word_mask": f"hides all pieces of 15% of the words, drawn without regard to the "
    "tokenizer; words with a piece that it does not know, and words of none, are not answered and "
    f"are flagged; {_ACROSS} (pieces are guessed independently, their number is given)",
    "clm": f"asks every piece given those before it, which no masked model's number is to be "
    f"compared with; {_ACROSS}",
}


def add_quality(result: EvaluationResult, parts: Sequence[Part]) -> None:
    """Scores `<name>/<split>/<metric>`, and breakdowns by band, position, pieces and tag.

    The baseline is the best constant answer in hindsight: the commonest label, or the labels' own
    distribution.
    """
    (part,) = parts
    facts = dict(part.facts)
    name = facts.pop("name")
    columns = {key: np.array(values) for key, values in part.table.items()}
    metrics: dict[str, Any] = {}
    breakdown: dict[str, Any] = {}
    splits = list(dict.fromkeys(part.table["split"]))
    for split in splits:
        here = {key: values[columns["split"] == split] for key, values in columns.items()}
        whole, errors, nothing = _measured(here), _standard_errors(here), _constant_answer(here)
        for metric in METRICS:
            score = f"{name}/{split}/{metric}"
            result.scores[score] = whole[metric]
            metrics[score] = {
                "metric": metric,
                "n": whole["words" if split == "whole_word_mask" else "n"],
                "pieces": whole["n"],
                "majority": nothing[metric],
                "majority_flag": None,
                "by_seed": [whole[metric]],
                "flags": [_unanswered(split, facts)],
                "standard_error": errors[metric],
            }
        breakdown[split] = _breakdown(here)
    result.details[name] = {
        "metrics": metrics,
        "breakdown": breakdown,
        "notes": {**{split: NOTES[split] for split in splits}, "baseline": _BASELINE},
        **facts,
    }


def _unanswered(split: str, facts: Mapping[str, Any]) -> str | None:
    """A flag where not all words were answered: another arm may have answered others."""
    number = facts.get("unanswered_words", 0) if split != "token_mask" else 0
    return f"{number} of {facts['chosen_words']} words unanswered" if number else None


def _breakdown(columns: dict[str, np.ndarray]) -> dict[str, dict[str, Any]]:
    pieces = np.minimum(columns["pieces"], _MOST_PIECES)
    named = np.where(pieces == _MOST_PIECES, f"{_MOST_PIECES}+", pieces.astype(str))
    found = {
        "frequency_band": _by(columns, columns["band"], list(BANDS)),
        "position_decile": _by(
            columns, columns["decile"].astype(str), list(map(str, range(1, 11)))
        ),
        "pieces_of_word": _by(columns, named, [*map(str, range(1, _MOST_PIECES)), "4+"]),
    }
    if (columns["tag"] != "").any():
        found["part_of_speech"] = _by(columns, columns["tag"], sorted(set(columns["tag"].tolist())))
    return found


def _by(
    columns: dict[str, np.ndarray], values: np.ndarray, order: list[str]
) -> dict[str, dict[str, Any]]:
    """Value -> what is measured on its lines, for values that occur; "" is shown as `other`."""
    return {
        value or "other": _measured({key: lines[values == value] for key, lines in columns.items()})
        for value in order
        if (values == value).any()
    }


def _measured(columns: dict[str, np.ndarray]) -> dict[str, Any]:
    loss, num_bytes = -columns["log_probability"], columns["bytes"]
    return {
        "n": len(loss),
        "words": len(np.unique(columns["word_number"])),
        "bytes": round(float(num_bytes.sum()), 3),
        "loss": float(loss.mean()),
        "accuracy": float((columns["prediction"] == columns["label"]).mean()),
        "bits_per_byte": float(loss.sum() / np.log(2) / num_bytes.sum()),
    }


def _standard_errors(columns: dict[str, np.ndarray]) -> dict[str, float]:
    """The pieces as a sample; of the ratio, by the delta method."""
    loss, num_bytes = -columns["log_probability"], columns["bytes"]
    right = columns["prediction"] == columns["label"]
    root = len(loss) ** 0.5
    over = loss - loss.sum() / num_bytes.sum() * num_bytes
    return {
        "loss": float(loss.std() / root),
        "accuracy": float(right.std() / root),
        "bits_per_byte": float(np.sqrt((over**2).sum()) / num_bytes.sum() / np.log(2)),
    }


def _constant_answer(columns: dict[str, np.ndarray]) -> dict[str, float]:
    _, counts = np.unique(columns["label"], return_counts=True)
    share = counts / counts.sum()
    entropy = float(-(share * np.log(share)).sum())
    return {
        "loss": entropy,
        "accuracy": float(share.max()),
        "bits_per_byte": entropy * counts.sum() / np.log(2) / float(columns["bytes"].sum()),
    }
