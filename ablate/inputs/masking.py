"""Rows of ids + uniforms -> selected positions -> the ids that the encoder sees.

Selection and corruption are two questions with two uniforms a position, drawn before any rate or
probability is known. So the positions at 15% are a subset of those at 40%, and 80/10/10 and
all-[MASK] arms of one seed hide the same tokens. BERT (Devlin et al. 2019, sec. 3.1) shows [MASK]
at 80% of the selected positions, a random token at 10% and the original at 10%; `all_mask` is the
same function with (1.0, 0.0). Legend: N tokens of the batch end to end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

SELECTIONS = ("token", "whole_word")
SELECTION, FATE, CANDIDATE = 0, 1, 2  # substreams of the masking stream


@dataclass(frozen=True)
class MaskingPolicy:
    """Which positions are predicted, and what stands there instead.

    Attributes:
        selection: `token` = each token by itself; `whole_word` = a word whole or not at all.
        mask_rate: probability of a token (or of a word) to be selected, independently (Bernoulli):
            a short row can have none, and then has no loss.
        mask_replace_prob: share of the selected tokens shown as [MASK].
        random_replace_prob: share shown as a token drawn uniformly from the ordinary ids, which may
            be the original one. The rest is shown unchanged.

    Raises:
        ValueError: a share outside [0, 1] or a sum over 1.
    """

    selection: str = "token"
    mask_rate: float = 0.15
    mask_rate_schedule: str = "constant"
    final_mask_rate: float | None = None
    mask_rate_step_at: float = 0.5
    prediction_rate: float | None = None
    budget_rule: str = "bernoulli"
    budget_base: str = "eligible"
    budget_rounding: str = "nearest"
    max_predictions_per_row: int | None = None
    overshoot: str = "stop"
    mask_replace_prob: float = 0.8
    random_replace_prob: float = 0.1
    corruption_unit: str = "token"
    random_candidates: str = "uniform"
    copies: int | None = None
    span_geometric_p: float = 0.2
    span_max_words: int = 10
    ngram_weights: Sequence[float] = (1.0, 1 / 2, 1 / 3)
    pmi_num_ngrams: int = 800_000
    pmi_max_words: int = 5
    pmi_min_count: int = 10

    def __post_init__(self) -> None:
        if self.selection not in SELECTIONS:
            raise ValueError(
                f"masking.selection={self.selection!r} is not one of {', '.join(SELECTIONS)}; "
                "type for example masking.selection=token"
            )
        if not 0.0 < self.mask_rate <= 1.0:
            raise ValueError(
                f"masking.mask_rate={self.mask_rate} is outside (0, 1]; "
                "type for example masking.mask_rate=0.15"
            )
        shares = (self.mask_replace_prob, self.random_replace_prob)
        if min(shares) < 0.0 or sum(shares) > 1.0 + 1e-9:
            raise ValueError(
                f"masking.mask_replace_prob={shares[0]} and "
                f"masking.random_replace_prob={shares[1]} must be shares from 0 to 1 whose sum is "
                "at most 1; the rest is shown unchanged"
            )


@dataclass
class MaskCounts:
    """What a policy did, in tokens; add up over batches, divide once."""

    eligible: int = 0
    selected: int = 0
    masked: int = 0
    random: int = 0
    kept: int = 0
    rows: int = 0
    rows_without_prediction: int = 0

    def __iadd__(self, other: MaskCounts) -> MaskCounts:
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)
        return self

    def shares(self) -> dict[str, float]:
        """Achieved rates: selected / eligible, and each fate / selected (0.0 where none)."""
        selected = max(self.selected, 1)
        return {
            "mask_rate": self.selected / max(self.eligible, 1),
            "mask_replace_share": self.masked / selected,
            "random_replace_share": self.random / selected,
            "keep_share": self.kept / selected,
            "rows_without_prediction": self.rows_without_prediction / max(self.rows, 1),
        }


def select(
    policy: MaskingPolicy, uniforms: np.ndarray, eligible: np.ndarray, word_starts: np.ndarray
) -> np.ndarray:
    """Selected positions (N,) bool from one uniform a position.

    `eligible` is False at special tokens, which are never selected. In `whole_word`, the uniform of
    a word's first token decides for all of its tokens; a word begins where `word_starts` is True,
    after a special token, and where a slice begins (a word cut off by a row's edge is the word).
    """
    if policy.selection == "whole_word":
        begins = word_starts | ~eligible
        begins[1:] |= ~eligible[:-1]
        begins[:1] = True
        uniforms = uniforms[np.flatnonzero(begins)[np.cumsum(begins) - 1]]
    return (uniforms < policy.mask_rate) & eligible


def corrupt(
    policy: MaskingPolicy,
    input_ids: np.ndarray,
    positions: np.ndarray,
    fate: np.ndarray,
    candidate: np.ndarray,
    *,
    mask_token_id: int,
    ordinary_ids: np.ndarray,
) -> tuple[np.ndarray, MaskCounts]:
    """Replace the ids at `positions` (M,) by [MASK], by a random ordinary id, or leave them.

    `fate` and `candidate` hold one uniform for each of the M positions: two arms with the same seed
    disagree only where their probabilities disagree. Returns a new array (N,) and the counts.
    """
    masked = fate < policy.mask_replace_prob
    random = ~masked & (fate < policy.mask_replace_prob + policy.random_replace_prob)
    out = input_ids.copy()
    out[positions[masked]] = mask_token_id
    drawn = (candidate[random] * len(ordinary_ids)).astype(np.int64)
    out[positions[random]] = ordinary_ids[drawn]
    hits, draws = int(masked.sum()), int(random.sum())
    kept = len(positions) - hits - draws
    return out, MaskCounts(selected=len(positions), masked=hits, random=draws, kept=kept)
