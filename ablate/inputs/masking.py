"""A masking policy: which positions are predicted, how many, and what stands there instead.

Selection and corruption are two questions with two uniforms a position, drawn before any rate or
probability is known. So the positions at 15% are a subset of those at 40%, and 80/10/10 and
all-[MASK] arms of one seed hide the same tokens. BERT (Devlin et al. 2019, sec. 3.1) shows [MASK]
at 80% of the selected positions, a random token at 10% and the original at 10%; `all_mask` is the
same policy with (1.0, 0.0). Units are made in `units`, drawn in `selection`, replaced here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ablate.inputs.candidates import Candidates

SELECTIONS = ("token", "whole_word", "span", "ngram", "pmi")
SCHEDULES = ("constant", "linear", "cosine", "step")
BUDGET_RULES = ("bernoulli", "exact")
BUDGET_BASES = ("eligible", "row")
ROUNDINGS = ("nearest", "stochastic")
OVERSHOOTS = ("stop", "skip")
CORRUPTION_UNITS = ("token", "unit")
RANDOM_CANDIDATES = ("uniform", "frequency")
_LARGEST = 10_000_000


@dataclass(frozen=True)
class MaskingPolicy:
    """Every choice that a published masking rule makes, one field each.

    Attributes:
        selection: what is selected whole or not at all: a `token`, a `whole_word`, a `span` of
            words with a geometric length (SpanBERT), an `ngram` of words, or (`pmi`) an n-gram of
            the corpus's collocation list, else a word. Units tile the text, so every position has
            the same chance, row edges included.
        mask_rate: share of the tokens to corrupt, at the start of training where it is scheduled.
        mask_rate_schedule, final_mask_rate, mask_rate_step_at: `linear` and `cosine` go from
            `mask_rate` to `final_mask_rate` over the training progress, `step` changes at
            `mask_rate_step_at`. Validation does not follow.
        prediction_rate: share of the tokens to predict; None = those corrupted. Below the mask rate
            some corrupted tokens are not predicted, above it some predicted ones are visible
            (after Wettig et al. 2023, sec. 5, who duplicate the row for the latter).
        budget_rule: `bernoulli` selects each unit by itself with probability `mask_rate` (a short
            row can have none, and then has no loss); `exact` gives each row its count, which
            units of several tokens miss by less than one unit, in the mean by nothing.
        budget_base: the rate is a share of the `eligible` tokens, or of all tokens of the `row`
            with [CLS] and [SEP], as BERT counts.
        budget_rounding: an exact count is rounded to the `nearest`, at least 1 (BERT), or up and
            down at random (`stochastic`, fairseq), which keeps the rate of short rows. Where units
            have several tokens, a row can still get none: its window fell inside one unit.
        max_predictions_per_row: hard limit of a row's count (BERT's `max_predictions_per_seq`);
            for single tokens, or with `skip`: cutting units off would favour short ones.
        overshoot: where a unit of several tokens would pass an exact count, `stop` ends there and
            `skip` goes on with the next one that fits (BERT's whole words). `skip` is not nested:
            its positions at 15% are no subset of those at 40%.
        mask_replace_prob, random_replace_prob: shares of the selected tokens shown as [MASK] and as
            a random ordinary token, which may be the original one. The rest is shown unchanged.
        corruption_unit: the three-way draw is made for each `token` or once a `unit` (SpanBERT).
        random_candidates: `uniform` over the ordinary ids or by corpus `frequency` (SpanBERT).
        copies: None = a new mask at every epoch (dynamic); k = epoch e repeats the masks of epoch
            e mod k (static; rows must repeat too, see `formats`).
        span_geometric_p, span_max_words: span lengths in words, Geo(p) cut at the maximum and
            renormalised.
        ngram_weights: weights of n = 1, 2, ...; [1, 1/2, 1/3] is ALBERT's, [0, 0, 1] only trigrams.
        pmi_num_ngrams, pmi_max_words, pmi_min_count: size of the collocation list, longest n-gram,
            fewest occurrences (Levine et al. 2021: 800,000, 5, over 10).

    Raises:
        ValueError: a value or a combination that means nothing.
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
    pmi_min_count: int = 11

    def __post_init__(self) -> None:
        self._check_names()
        self._check_rates()
        self._check_units()
        self._check_together()

    def _check_names(self) -> None:
        for name, allowed in _CHOICES.items():
            given = getattr(self, name)
            if given not in allowed:
                raise ValueError(
                    f"masking.{name}={given!r} is not one of {', '.join(allowed)}; "
                    f"type for example masking.{name}={allowed[0]}"
                )

    def _check_rates(self) -> None:
        rates = {"mask_rate": self.mask_rate, "final_mask_rate": self.final_mask_rate}
        rates["prediction_rate"] = self.prediction_rate
        for name, rate in rates.items():
            if rate is not None and not 0.0 < rate <= 1.0:
                raise ValueError(
                    f"masking.{name}={rate} is outside (0, 1]; type for example masking.{name}=0.15"
                )
        if (self.mask_rate_schedule == "constant") != (self.final_mask_rate is None):
            raise ValueError(
                f"masking.mask_rate_schedule={self.mask_rate_schedule} and "
                f"masking.final_mask_rate={self.final_mask_rate} do not go together; type for "
                "example masking.mask_rate_schedule=linear masking.final_mask_rate=0.15, or leave "
                "both out"
            )
        if not 0.0 < self.mask_rate_step_at < 1.0:
            raise ValueError(
                f"masking.mask_rate_step_at={self.mask_rate_step_at} is a share of the training "
                "between 0 and 1; type for example masking.mask_rate_step_at=0.5"
            )
        shares = (self.mask_replace_prob, self.random_replace_prob)
        if not min(shares) >= 0.0 or not sum(shares) <= 1.0 + 1e-9:
            raise ValueError(
                f"masking.mask_replace_prob={shares[0]} and "
                f"masking.random_replace_prob={shares[1]} must be shares from 0 to 1 whose sum is "
                "at most 1; the rest is shown unchanged"
            )

    def _check_together(self) -> None:
        skips = self.budget_rule == "exact" and self.overshoot == "skip"
        if self.max_predictions_per_row is not None and self.selection != "token" and not skips:
            raise ValueError(
                f"masking.max_predictions_per_row={self.max_predictions_per_row} would lower the "
                f"rate of masking.selection={self.selection} and favour short units; it goes with "
                "masking.selection=token, or with masking.budget_rule=exact masking.overshoot=skip "
                "(BERT's); type masking.max_predictions_per_row=null"
            )
        if self.prediction_rate is not None and skips:
            raise ValueError(
                f"masking.prediction_rate={self.prediction_rate} with masking.overshoot=skip: what "
                "is predicted would be no subset of what is corrupted; type masking.overshoot=stop"
            )

    def _check_units(self) -> None:
        for name in ("max_predictions_per_row", "copies", "span_max_words", "pmi_num_ngrams"):
            given = getattr(self, name)
            if given is not None and not 1 <= given <= _LARGEST:
                raise ValueError(
                    f"masking.{name}={given} must be from 1 to {_LARGEST}; "
                    f"type for example masking.{name}=10"
                )
        if not 0.0 < self.span_geometric_p <= 1.0:
            raise ValueError(
                f"masking.span_geometric_p={self.span_geometric_p} is outside (0, 1]; "
                "type for example masking.span_geometric_p=0.2"
            )
        weights = list(self.ngram_weights)
        if not weights or not min(weights) >= 0 or not 0 < sum(weights) < math.inf:
            raise ValueError(
                f"masking.ngram_weights={weights} must be weights of n = 1, 2, ... words, none "
                "negative and not all 0; type for example 'masking.ngram_weights=[1,0.5,0.333]'"
            )
        if not 2 <= self.pmi_max_words <= 5 or not 1 <= self.pmi_min_count <= _LARGEST:
            raise ValueError(
                f"masking.pmi_max_words={self.pmi_max_words} goes from 2 to 5 and "
                f"masking.pmi_min_count={self.pmi_min_count} from 1 to {_LARGEST}; type for "
                "example masking.pmi_max_words=5 masking.pmi_min_count=11"
            )

    def rate_at(self, progress: float) -> float:
        """The mask rate when the share `progress` of the budget is spent."""
        if self.final_mask_rate is None:
            return self.mask_rate
        first, last = self.mask_rate, self.final_mask_rate
        if self.mask_rate_schedule == "step":
            return first if progress < self.mask_rate_step_at else last
        done = progress
        if self.mask_rate_schedule == "cosine":
            done = (1.0 - math.cos(math.pi * progress)) / 2.0
        return first + (last - first) * done

    def length_distribution(self) -> np.ndarray:
        """Probabilities of units of 1, 2, ... words, for `span` and `ngram`."""
        weights: np.ndarray = np.asarray(self.ngram_weights, dtype=np.float64)
        if self.selection == "span":
            weights = (1.0 - self.span_geometric_p) ** np.arange(self.span_max_words)
        return weights / weights.sum()


_CHOICES: dict[str, tuple[str, ...]] = {
    "selection": SELECTIONS,
    "mask_rate_schedule": SCHEDULES,
    "budget_rule": BUDGET_RULES,
    "budget_base": BUDGET_BASES,
    "budget_rounding": ROUNDINGS,
    "overshoot": OVERSHOOTS,
    "corruption_unit": CORRUPTION_UNITS,
    "random_candidates": RANDOM_CANDIDATES,
}


def corrupt(
    policy: MaskingPolicy,
    input_ids: np.ndarray,
    positions: np.ndarray,
    fate: np.ndarray,
    candidate: np.ndarray,
    *,
    mask_token_id: int,
    candidates: Candidates,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Replace the ids at `positions` (M,) by [MASK], by a random ordinary id, or leave them.

    `fate` and `candidate` hold one uniform for each of the M positions: two arms with the same seed
    disagree only where their probabilities disagree. Returns a new array (N,), and which of the
    positions (M,) show [MASK] and which a random token.
    """
    masked = fate < policy.mask_replace_prob
    random = ~masked & (fate < policy.mask_replace_prob + policy.random_replace_prob)
    out = input_ids.copy()
    out[positions[masked]] = mask_token_id
    out[positions[random]] = candidates.draw(candidate[random])
    return out, masked, random
