"""What the group `masking` may say: the policy's own checks, and no setting without effect."""

from __future__ import annotations

from ablate.config.limits import refuse_ignored
from ablate.config.schema import MaskingSettings, Settings
from ablate.inputs.masking import BUDGET_RULES, SCHEDULES, SELECTIONS, MaskingPolicy

_SPAN = ("span_geometric_p", "span_max_words")
_PMI = ("pmi_num_ngrams", "pmi_max_words", "pmi_min_count")
_SELECTION_UNUSED = {
    "token": ("corruption_unit", "overshoot", *_SPAN, "ngram_weights", *_PMI),
    "whole_word": (*_SPAN, "ngram_weights", *_PMI),
    "span": ("ngram_weights", *_PMI),
    "ngram": (*_SPAN, *_PMI),
    "pmi": (*_SPAN, "ngram_weights"),
}
_RULE_UNUSED = {"bernoulli": ("budget_base", "budget_rounding", "overshoot")}
_SCHEDULE_UNUSED = dict.fromkeys(("constant", "linear", "cosine"), ("mask_rate_step_at",))


def check_masking(settings: Settings) -> None:
    """Refuse a masking policy that is impossible, or that says something nothing reads.

    Raises:
        ValueError: naming the setting, what was given, what is allowed and what to type.
    """
    masking, defaults = settings.masking, MaskingSettings()
    MaskingPolicy(**vars(masking))
    for switch, kinds, unused in (
        ("selection", SELECTIONS, _SELECTION_UNUSED),
        ("budget_rule", BUDGET_RULES, _RULE_UNUSED),
        ("mask_rate_schedule", SCHEDULES, _SCHEDULE_UNUSED),
    ):
        kind = getattr(masking, switch)
        refuse_ignored(
            "masking", kind, masking, defaults, unused, kinds, switch=f"masking.{switch}"
        )
    repeats = settings.input_format.copies
    if masking.copies is not None and (not repeats or masking.copies % repeats):
        given = "null" if repeats is None else repeats
        raise ValueError(
            f"masking.copies={masking.copies} repeats masks, and rows that repeat as often are "
            f"needed under them: input_format.copies={given} must be set and divide it; type "
            f"input_format.copies={masking.copies} masking.copies={masking.copies} (static), or "
            "masking.copies=null (a new mask every epoch)"
        )
