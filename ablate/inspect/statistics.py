"""A walk's counts -> the lines of the table: nominal value, count, and why an interval or none.

A line has an interval where its count is a sum of independent draws: tokens where each token is
selected by itself, whole units where units are, fates by token or by unit as the policy draws them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ablate.inputs.masking import MaskingPolicy
from ablate.inspect.lines import Line
from ablate.inspect.plan_lines import pair_lines, row_lines
from ablate.inspect.walk import Walk

_UNITS = {
    "token": "tokens",
    "whole_word": "words",
    "span": "spans",
    "ngram": "n-grams",
    "pmi": "units",
}


def one_by_one(policy: MaskingPolicy) -> bool:
    """Whether each unit is selected by a draw of its own, whatever the others do."""
    return policy.budget_rule == "bernoulli" and policy.max_predictions_per_row is None


def units_name(policy: MaskingPolicy) -> str:
    return _UNITS[policy.selection]


def table(walk: Walk, policy: MaskingPolicy, settings: Any, *, knows_words: bool) -> list[Line]:
    """All lines; `settings` is the group `input_format`."""
    lines = [
        *_selection(walk, policy),
        *_prediction(walk, policy),
        *_fates(walk, policy),
        *_draws(walk, policy),
        *_words(walk, policy, knows_words),
        *pair_lines(walk, settings.pair_sampling),
        *row_lines(walk),
    ]
    return [_certain(line) if line.nominal in (0.0, 1.0) else line for line in lines]


def _certain(line: Line) -> Line:
    """What has probability 0 or 1 is not drawn."""
    return replace(line, independent=False, note="certain, not drawn: no interval")


def _why_none(policy: MaskingPolicy, *, per_unit: bool = False) -> str:
    """Why a count of selected tokens (or units) is no sum of independent draws; empty if it is."""
    if policy.max_predictions_per_row is not None:
        return "rows are cut at max_predictions_per_row: no interval"
    if policy.budget_rule == "exact":
        rounding = "up to a unit" if policy.selection != "token" else "up to rounding"
        return f"each row's count is fixed {rounding}: no interval"
    if policy.selection != "token" and not per_unit:
        return f"tokens of one unit are drawn together, see {units_name(policy)}: no interval"
    return ""


def _selection(walk: Walk, policy: MaskingPolicy) -> list[Line]:
    counts, why, group = walk.counts, _why_none(policy), "selection"
    of_row = policy.budget_rule == "exact" and policy.budget_base == "row"
    lines = [
        Line(
            group, "mask rate", "selected of the eligible tokens", counts.selected, counts.eligible,
            None if of_row else walk.rate, not why, why,
        )
    ]  # fmt: skip
    if of_row:
        note = "the rule counts [CLS] and [SEP] too; " + why
        lines.append(
            Line(
                group, "mask rate of the row", "selected of all tokens", counts.selected,
                walk.row_tokens, walk.rate, False, note,
            )
        )  # fmt: skip
    if policy.selection != "token":
        why = _why_none(policy, per_unit=True)
        skips = policy.budget_rule == "exact" and policy.overshoot == "skip"
        name = units_name(policy)
        lines.append(
            Line(
                group, f"{name} selected", f"of all {name}",
                walk.counts.units_selected, walk.counts.units,
                None if skips or of_row else walk.rate, not why,
                "long units are skipped more often: no interval" if skips else why,
            )
        )  # fmt: skip
    return lines


def _prediction(walk: Walk, policy: MaskingPolicy) -> list[Line]:
    counts, why, group = walk.counts, _why_none(policy), "prediction"
    wanted = policy.prediction_rate
    rate = walk.rate if wanted is None else wanted
    of_row = policy.budget_rule == "exact" and policy.budget_base == "row"
    lines = [
        Line(
            group, "prediction rate", "predicted of the eligible tokens", counts.predicted,
            counts.eligible, None if of_row else rate, wanted is not None and not why,
            "what is selected is predicted: see mask rate" if wanted is None else why,
        )
    ]  # fmt: skip
    if wanted is not None:
        for name, counted, count, total, nominal in (
            ("predicted, not selected", "of the predicted tokens", counts.visible_predicted,
             counts.predicted, max(0.0, 1.0 - walk.rate / wanted)),
            ("selected, not predicted", "of the selected tokens", counts.unpredicted,
             counts.selected, max(0.0, 1.0 - wanted / walk.rate)),
        ):  # fmt: skip
            lines.append(Line(group, name, counted, count, total, nominal, not why, why))
    return [*lines, _empty(walk, policy)]


def _empty(walk: Walk, policy: MaskingPolicy) -> Line:
    """Rows without a prediction; their chance follows from how many units each row has."""
    counts, nominal = walk.counts, None
    note = "no interval"
    if one_by_one(policy):
        nominal = walk.expected_empty / max(counts.rows, 1)
        note = "nominal: mean of (1 - rate)^units; rows differ in length: no interval"
    elif policy.budget_rule == "exact" and policy.selection != "token":
        note = "where the row's count falls into one long unit: no interval"
        if policy.overshoot == "skip":
            note = "where no unit is short enough: no interval"
    elif policy.budget_rule == "exact" and policy.budget_rounding == "nearest":
        note = "the rule gives each row at least one: no interval"
    return Line(
        "prediction", "rows without a prediction", "of the rows", counts.rows_without_prediction,
        counts.rows, nominal, False, note,
    )  # fmt: skip


def _fates(walk: Walk, policy: MaskingPolicy) -> list[Line]:
    """[MASK], random and kept, counted in what the policy draws them for: tokens or units."""
    counts = walk.counts
    shares = (policy.mask_replace_prob, policy.random_replace_prob)
    nominal = dict(zip(("[MASK]", "random", "kept"), (*shares, _rest(policy)), strict=True))
    by_token = {"[MASK]": counts.masked, "random": counts.random, "kept": counts.kept}
    units_kept = counts.units_selected - counts.units_masked - counts.units_random
    by_unit = {
        "[MASK]": walk.counts.units_masked,
        "random": walk.counts.units_random,
        "kept": units_kept,
    }
    together = policy.selection != "token" and policy.corruption_unit == "unit"
    lines = []
    if together:
        name = units_name(policy)
        lines += [
            Line("fate", f"{fate}, {name}", f"of the selected {name}", by_unit[fate],
                 walk.counts.units_selected, nominal[fate], True)
            for fate in by_unit
        ]  # fmt: skip
    why = "one draw for all tokens of a unit: no interval" if together else ""
    lines += [
        Line("fate", f"{fate}, tokens", "of the selected tokens", by_token[fate], counts.selected,
             nominal[fate], not together, why)
        for fate in by_token
    ]  # fmt: skip
    return lines


def _rest(policy: MaskingPolicy) -> float:
    return max(0.0, round(1.0 - policy.mask_replace_prob - policy.random_replace_prob, 12))


def _draws(walk: Walk, policy: MaskingPolicy) -> list[Line]:
    """Random draws that give the original, and so the share that looks unchanged."""
    counts, lines = walk.counts, []
    uniform = policy.random_candidates == "uniform"
    together = policy.selection != "token" and policy.corruption_unit == "unit"
    same = 0.0
    if counts.random:
        same = walk.expected_same / counts.random
        why = "nominal: mean share of the originals; not one probability: no interval"
        if uniform and same:
            why = f"nominal: 1 of {round(1 / same):,} ordinary tokens"
        lines.append(
            Line("fate", "random, the same again", "of the random draws", counts.random_same,
                 counts.random, same, uniform, why)
        )  # fmt: skip
    why = "one draw for all tokens of a unit: no interval" if together else ""
    if not uniform:
        why = why or "not one probability for all tokens: no interval"
    lines.append(
        Line("fate", "looks unchanged", "of the selected tokens", counts.kept + counts.random_same,
             counts.selected, _rest(policy) + policy.random_replace_prob * same, not why,
             why or "kept, and random draws of the same token")
    )  # fmt: skip
    return lines


def _words(walk: Walk, policy: MaskingPolicy, knows_words: bool) -> list[Line]:
    if not knows_words:
        return []
    whole = policy.selection != "token"
    note = "" if whole else "pieces of a word are drawn one by one: no interval"
    return [
        Line("words", "words selected whole", "of the words touched", walk.counts.words_whole,
             walk.counts.words_touched, 1.0 if whole else None, False, note)
    ]  # fmt: skip
