"""A saved model and texts -> for each text the distribution at its masks, or at every token.

Rows are [CLS] text [SEP] (text [SEP]), as in pretraining. A mask token stands for the word with the
blank before it. Probabilities are over the whole vocabulary, special tokens included.

Legend: M predicted places, V vocabulary.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ablate.inputs.batches import Batch, from_segments

if TYPE_CHECKING:
    from torch import Tensor

    from ablate.run.saved import Saved
    from ablate.tokens.tokenizer import Tokenizer

MASK = "[MASK]"


@dataclass(frozen=True)
class Choice:
    """A token of the vocabulary and its probability at a place."""

    token: str
    id: int
    probability: float


@dataclass(frozen=True)
class Place:
    """One place of a row.

    `probability` and `rank` (1 = first) are of the token that stands there, None at a mask.
    """

    position: int  # in the row, [CLS] is 0
    token: str
    top: list[Choice]
    probability: float | None = None
    rank: int | None = None

    @property
    def differs(self) -> bool:
        """Whether the model would put another token here than the one it sees."""
        return self.rank is not None and self.rank > 1


@dataclass(frozen=True)
class Filled:
    """A text (or the two of a pair); its masks, or, where it has none, all its tokens."""

    texts: list[str]
    tokens: list[str]
    masked: bool
    places: list[Place]
    notes: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        found = dataclasses.asdict(self)
        for place, entry in zip(self.places, found["places"], strict=True):
            if self.masked:
                del entry["probability"], entry["rank"]
            else:
                entry["differs"] = place.differs
        return found


def fill(saved: Saved, rows: Sequence[Sequence[str]], *, top: int) -> list[Filled]:
    """Predict for each row of one or two texts.

    Raises:
        ValueError: an encoder that does not fill masks, a row that is too long.
    """
    if saved.objective == "clm" or getattr(saved.encoder, "causal", False):
        raise ValueError(
            "this encoder sees the left side only (objective=clm): it predicts the next token and "
            "fills no [MASK]; give a run of objective=mlm"
        )
    return [_fill_one(saved, list(texts), top) for texts in rows]


def _fill_one(saved: Saved, texts: list[str], top: int) -> Filled:
    import torch

    tokenizer = saved.tokenizer
    sides = [encode_with_masks(tokenizer, text) for text in texts]
    length = sum(map(len, sides)) + 1 + len(sides)
    batch, cut = from_segments(
        [sides],
        cls_token_id=tokenizer.cls_token_id,
        sep_token_id=tokenizer.sep_token_id,
        max_length=length,
    )
    assert cut == 0, "rows are as long as their tokens"
    notes = _length_notes(saved, length)
    ids = batch.input_ids.numpy()
    ordinary = np.ones(length, dtype=bool)
    ends = np.cumsum([0, *(len(side) + 1 for side in sides)])
    ordinary[ends] = False  # [CLS] and each [SEP]
    masked = bool((ids == tokenizer.mask_token_id).any())
    wanted = ids == tokenizer.mask_token_id if masked else ordinary
    positions = np.flatnonzero(wanted)
    if not len(positions):
        raise ValueError(f"{' | '.join(texts)!r} has no token of this tokenizer; give other words")
    batch = dataclasses.replace(
        batch,
        predict_positions=torch.from_numpy(positions),
        labels=batch.input_ids[torch.from_numpy(positions)],
    )
    notes += _lower_case_notes(texts, tokenizer)
    unknown = [i for i in ids[ordinary] if i == tokenizer.unk_token_id]
    if unknown:
        notes.append(f"read as unknown, not in the vocabulary: {len(unknown)} of the pieces")
    places = _places(probabilities(saved.model, batch), batch, tokenizer, masked, top)
    return Filled(texts, [_name(tokenizer, i) for i in ids], masked, places, notes)


def _lower_case_notes(texts: list[str], tokenizer: Tokenizer) -> list[str]:
    names = {MASK, tokenizer.id_to_token(tokenizer.mask_token_id) or MASK}
    pattern = "|".join(re.escape(name) for name in sorted(names))
    found = [m.group() for text in texts for m in re.finditer(pattern, text, re.IGNORECASE)]
    words = sorted(set(found) - names)
    return [f"{', '.join(words)} is read as text; a mask is written {MASK}"] if words else []


def encode_with_masks(tokenizer: Tokenizer, text: str) -> list[int]:
    """Ids of a text in which "[MASK]" or the tokenizer's own mask token is the mask."""
    own = tokenizer.id_to_token(tokenizer.mask_token_id) or MASK
    pieces = re.split(rf"\s*(?:{re.escape(MASK)}|{re.escape(own)})", text)
    ids: list[int] = []
    for number, encoded in enumerate(tokenizer.encode_batch(pieces)):
        ids += [tokenizer.mask_token_id] * (number > 0) + encoded.ids
    return ids


def probabilities(model: Any, batch: Batch) -> Tensor:
    """(M, V) float32."""
    import torch

    with torch.inference_mode():
        return torch.softmax(model(batch).mlm_logits.float(), dim=-1)


def _places(
    values: Tensor, batch: Batch, tokenizer: Tokenizer, masked: bool, top: int
) -> list[Place]:
    best, which = values.topk(min(top, values.shape[1]), dim=-1)
    own = values.gather(1, batch.labels[:, None])
    ranks = 1 + (values > own).sum(dim=1)
    found = []
    for row, position in enumerate(batch.predict_positions.tolist()):
        choices = [
            Choice(_name(tokenizer, i), i, p)
            for i, p in zip(which[row].tolist(), best[row].tolist(), strict=True)
        ]
        name = _name(tokenizer, int(batch.labels[row]))
        seen = {} if masked else {"probability": float(own[row]), "rank": int(ranks[row])}
        found.append(Place(position, name, choices, **seen))  # type: ignore[arg-type]
    return found


def _name(tokenizer: Tokenizer, token_id: int) -> str:
    return tokenizer.id_to_token(token_id) or f"[id {token_id}]"


def _length_notes(saved: Saved, length: int) -> list[str]:
    config = saved.encoder
    limit = getattr(config, "max_position_embeddings", None)
    if limit and length > limit and getattr(config, "position_embedding", "learned") == "learned":
        raise ValueError(
            f"the text is {length} tokens long with [CLS] and [SEP], and the encoder has {limit} "
            "positions; give a shorter text"
        )
    if saved.seen_max_length and length > saved.seen_max_length:
        return [f"{length} tokens; the encoder was trained on rows of {saved.seen_max_length}"]
    return []
