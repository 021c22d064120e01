"""A study before it is run: arms, what they move, what they cost; and its state: expected, found.

The time is an estimate from a short measured run of the baseline, scaled by each arm's FLOPs; what
fine-tuning takes is not in it.
"""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ablate.config.compose import compose_settings
from ablate.study.design import Study, merged
from ablate.study.guard import Composed
from ablate.study.states import STATES, StudyFolder

PROBE_STEPS = 30
_BYTES_A_WEIGHT = 4


@dataclass(frozen=True)
class Cost:
    """Of one run of an arm. `tokens` None: the budget is no number of tokens."""

    parameters: int
    flops_per_token: float  # forward
    tokens: int | None


def costs(study: Study, composed: Mapping[str, Composed]) -> dict[str, Cost]:
    """Of every arm: opens corpus and tokenizer, trains nothing."""
    from ablate.run.arm import prepare
    from ablate.run.models import build_model, encoder_facts

    found = {}
    for arm, what in composed.items():
        prepared = prepare(copy.deepcopy(what.settings))
        model = build_model(prepared)
        rows = prepared.settings.input_format.max_length
        facts = encoder_facts(prepared, model, rows, prepared.settings.masking.mask_rate)
        budget = prepared.settings.budget
        found[arm] = Cost(
            sum(p.numel() for p in model.parameters()),
            facts["forward_flops_per_token"],
            int(budget.amount) if budget.clock == "tokens" else None,
        )
    return found


def measured_speed(study: Study, extra: list[str]) -> float | None:
    """Tokens a second of the baseline, in pretraining, from a short run that is thrown away."""
    from ablate.run.single import run

    with tempfile.TemporaryDirectory(prefix="ablate-plan-") as folder:
        probe = [
            "budget.clock=steps", f"budget.amount={PROBE_STEPS}", "evaluation=none",
            "tracking=none", "trainer.progress_bar=false", "trainer.num_validations=0",
            f'paths.runs_dir="{folder}"',
        ]  # fmt: skip
        overrides = [
            word
            for word in study.overrides(study.baseline, extra)
            if not word.startswith(("evaluation", "budget"))
        ]
        overrides = merged(overrides, probe)
        record: dict[str, Any] = run(compose_settings(overrides), overrides=overrides, quiet=True)
    speed = record["timings"]["pretraining"]["tokens_per_second"]
    return float(speed) if speed else None


def plan_lines(
    study: Study,
    composed: Mapping[str, Composed],
    found: Mapping[str, Cost],
    speed: float | None,
    num_seeds: int,
) -> list[str]:
    """The plan, for people."""
    base = found[study.baseline]
    lines = [
        f"study {study.name}{f', scale {study.scale}' if study.scale else ''}: {study.question}",
        f"{len(study.arms)} arms x {num_seeds} seeds = {len(study.arms) * num_seeds} runs; primary "
        f"{study.primary}, margin {study.margin:g}",
    ]
    seconds = 0.0
    for arm, cost in found.items():
        moved = composed[arm].moved
        said = "; ".join(f"{k} {was} -> {now}" for k, (was, now) in moved.items()) or "the baseline"
        share = cost.flops_per_token / base.flops_per_token
        line = (
            f"  {arm}: {said}. {cost.parameters:,} parameters, "
            f"{cost.flops_per_token:.3g} FLOPs a token forward"
        )
        if speed and cost.tokens is not None:
            of_run = cost.tokens * share / speed
            seconds += of_run * num_seeds
            line += f", about {of_run / 60:.1f} min of pretraining a run"
        lines.append(line)
    weights = sum(cost.parameters for cost in found.values()) * _BYTES_A_WEIGHT * num_seeds
    lines.append(
        f"about {weights / 1e6:,.0f} MB of weights"
        + (
            f"; about {seconds / 3600:.1f} h of pretraining one run after another ({speed:,.0f} "
            f"tokens/s measured on {PROBE_STEPS} steps of {study.baseline}; fine-tuning comes on "
            "top)"
            if speed and seconds
            else ""
        )
    )
    return lines


def status_lines(
    study: Study, folder: StudyFolder, seeds: Mapping[str, list[int]]
) -> tuple[list[str], dict[str, int]]:
    """Expected against found, a line an arm; and how many runs are in each state."""
    counts = dict.fromkeys(STATES, 0)
    lines = []
    for arm in study.arms:
        states = {seed: folder.state(arm, seed) for seed in seeds[arm]}
        for state in states.values():
            counts[state.status] += 1
        done = sum(state.status == "complete" for state in states.values())
        other = ", ".join(
            f"seed {seed} {state.status}" + (f" ({state.error})" if state.error else "")
            for seed, state in states.items()
            if state.status != "complete"
        )
        lines.append(f"  {arm}: {done} of {len(states)} complete" + (f"; {other}" if other else ""))
    total = sum(counts.values())
    lines.insert(0, f"study {study.name}: {counts['complete']} of {total} runs complete")
    return lines, counts
