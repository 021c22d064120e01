"""A study before it is run: arms, what they move, what they cost; and its state: expected, found.

Parameters and FLOPs come from closed forms (tests/encoder/test_axes.py), so that hundreds of arms
take seconds; corpus and tokenizer are opened once for all arms that share them. Time is an estimate
from a short measured run of the baseline, scaled by each arm's FLOPs; what evaluation takes is told
where a run of the study has measured it.
"""

from __future__ import annotations

import copy
import dataclasses
import json
import statistics
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ablate.config.compose import compose_settings
from ablate.config.schema import Settings
from ablate.study import tuning
from ablate.study.design import Study, merged
from ablate.study.guard import Composed
from ablate.study.states import STATES, StudyFolder

PROBE_STEPS, PROBE_SECONDS = (4, 100), 10.0  # of a short run and of a longer one, at most
_BYTES_A_WEIGHT = 4
_CHECKPOINTS = 3  # two are kept while a third is written, each of weights and two moments of Adam
# groups and settings that move neither the number of parameters nor the FLOPs of a token; the mask
# rate moves FLOPs and is taken apart from the rest
_FREE = (
    "masking", "optimizer", "schedule", "budget", "trainer", "evaluation", "tracking", "paths",
    "replicate", "seed", "arm", "force",
)  # fmt: skip


@dataclass(frozen=True)
class Cost:
    """Of one run of an arm. `tokens` None: its budget is counted in something else."""

    parameters: int
    flops_per_token: float  # forward
    tokens: int | None
    rows_a_step: int = 0  # times their length = tokens a step, if every row were full
    steps: int | None = None


@dataclass(frozen=True)
class Probe:
    """What the short run of the baseline measured."""

    tokens_per_second: float
    tokens_per_step: float
    steps: int
    seconds: float


def costs(study: Study, composed: Mapping[str, Composed]) -> dict[str, Cost]:
    """Of every arm: opens corpus and tokenizer, trains nothing."""
    sizes: dict[str, Callable[[float], tuple[int, float]]] = {}
    found = {}
    for arm, what in composed.items():
        settings = what.settings
        kept = {k: v for k, v in dataclasses.asdict(settings).items() if k not in _FREE}
        key = json.dumps(kept, sort_keys=True)
        if key not in sizes:
            sizes[key] = _size_of(settings)
        parameters, flops = sizes[key](_prediction_rate(settings))
        budget = settings.budget
        rows = settings.trainer.global_batch_size * settings.input_format.max_length
        steps = int(budget.amount) if budget.clock == "steps" else None
        tokens = int(budget.amount) if budget.clock == "tokens" else None
        found[arm] = Cost(parameters, flops, tokens, rows, steps)
    return found


def _size_of(settings: Settings) -> Callable[[float], tuple[int, float]]:
    """share of predicted tokens -> (parameters, forward FLOPs a token), for arms of this encoder.

    A class of transformers has no closed form: its model is built, once for all of them.
    """
    from ablate.encoder.config import parameter_count
    from ablate.inputs.pairs import LOSSES, loss_name
    from ablate.run.arm import prepare
    from ablate.run.models import build_model, encoder_facts

    prepared = prepare(copy.deepcopy(settings))
    length = prepared.settings.input_format.max_length
    if settings.encoder.kind == "hf":
        model = build_model(prepared)
        parameters = sum(p.numel() for p in model.parameters())
    else:
        loss = loss_name(nsp=settings.nsp, sop=settings.sop)
        model = None
        classes = len(LOSSES[loss]) if loss else 0
        parameters = parameter_count(prepared.encoder, pair_classes=classes)

    def size(rate: float) -> tuple[int, float]:
        facts = encoder_facts(prepared, model, length, rate)
        return parameters, facts["forward_flops_per_token"]

    return size


def _prediction_rate(settings: Settings) -> float:
    """Share of the tokens that reach the head, as the settings ask for it."""
    if settings.objective.name == "clm":
        return 1.0
    masking = settings.masking
    return masking.mask_rate if masking.prediction_rate is None else masking.prediction_rate


def measured_speed(study: Study, extra: list[str]) -> Probe | None:
    """Of the baseline's pretraining, from two short runs that are thrown away.

    The longer one less the shorter one: what a run takes before its first step and after its last
    cancels. A large model takes fewer steps of the longer one.
    """
    few, most = PROBE_STEPS
    short = _probe(study, extra, few)
    a_step = short["timings"]["pretraining"]["seconds"] / few
    steps = few + max(few, min(most, round(PROBE_SECONDS / max(a_step, 1e-3))))
    long = _probe(study, extra, steps)
    seconds = _seconds(long) - _seconds(short)
    tokens = long["clocks"]["tokens"] - short["clocks"]["tokens"]
    if seconds <= 0 or tokens <= 0:  # too short to tell; then what the longer one says of itself
        seconds, tokens = _seconds(long), long["clocks"]["tokens"]
    if not seconds or not tokens:
        return None
    return Probe(tokens / seconds, long["clocks"]["tokens"] / steps, steps, seconds)


def _seconds(record: Mapping[str, Any]) -> float:
    """Of training, unrounded."""
    found = record["timings"]["pretraining"]
    speed = found["tokens_per_second"]
    return float(record["clocks"]["tokens"] / speed if speed else found["seconds"])


def _probe(study: Study, extra: list[str], steps: int) -> dict[str, Any]:
    """The record of a run of so many steps, which validates almost nothing and evaluates nothing"""
    from ablate.run.single import run

    with tempfile.TemporaryDirectory(prefix="ablate-plan-") as folder:
        probe = [
            "budget.clock=steps", f"budget.amount={steps}", "evaluation=none", "tracking=none",
            "evaluation.ngram_baseline=false", "trainer.progress_bar=false",
            "trainer.num_validations=1", "trainer.validation_rows=1", f'paths.runs_dir="{folder}"',
        ]  # fmt: skip
        overrides = [
            word
            for word in study.overrides(study.baseline, extra)
            if not word.startswith(("evaluation", "budget"))
        ]
        overrides = merged(overrides, probe)
        return run(compose_settings(overrides), overrides=overrides, quiet=True)


def evaluation_seconds(study: Study, folder: StudyFolder) -> float | None:
    """Median over the complete runs of the study; None before the first."""
    records = [folder.record(folder.state(arm, seed)) for arm in study.arms for seed in study.seeds]
    found = [
        sum(record["timings"]["evaluation_seconds"].values())
        for record in records
        if record is not None and record["status"] == "complete"
    ]
    return statistics.median(found) if found else None


def plan_lines(
    study: Study,
    composed: Mapping[str, Composed],
    found: Mapping[str, Cost],
    probe: Probe | None,
    num_seeds: int,
    evaluation: float | None = None,
) -> list[str]:
    """The plan, for people. `evaluation`: seconds of a run's, where they are known."""
    lines = [
        f"study {study.name}{f', scale {study.scale}' if study.scale else ''}: {study.question}",
        f"{len(study.arms)} arms x {num_seeds} seeds = {len(study.arms) * num_seeds} runs; primary "
        f"{study.primary}, margin {study.margin:g}",
    ]
    of_tuning = tuning.runs_of_arm(study)
    if study.tune is not None:
        lines.append(
            f"tuning first: {len(study.arms)} arms x {len(study.tune.points)} points x "
            f"{len(study.tune.seeds)} seeds = {len(study.arms) * of_tuning} runs more, best mean "
            f"{study.tune.metric} of {', '.join(study.tune.grid)}"
        )
    num_runs = num_seeds + of_tuning
    pretraining: dict[str, float] = {}
    for arm, cost in found.items():
        moved = composed[arm].moved
        said = "; ".join(f"{k} {was} -> {now}" for k, (was, now) in moved.items()) or "the baseline"
        line = (
            f"  {arm}: {said}. {cost.parameters:,} parameters, "
            f"{cost.flops_per_token:.3g} FLOPs a token forward"
        )
        seconds = _pretraining_seconds(cost, found[study.baseline], probe)
        if seconds is not None:
            pretraining[arm] = seconds
            line += f", about {seconds / 60:.1f} min of pretraining a run"
        lines.append(line)
    lines += _disk_lines(found, num_runs)
    if probe is not None:
        lines.append(
            f"measured: {probe.tokens_per_second:,.0f} tokens/s, {probe.tokens_per_step:,.0f} "
            f"tokens a step, over {probe.steps} steps ({probe.seconds:.1f} s) of "
            f"{study.baseline}; other arms are scaled by their FLOPs"
        )
    lines += _time_lines(pretraining, found, num_runs, evaluation)
    return lines


def _pretraining_seconds(cost: Cost, base: Cost, probe: Probe | None) -> float | None:
    """Of one run; None where nothing was measured, or the budget is on another clock."""
    if probe is None:
        return None
    tokens: float | None = cost.tokens
    if cost.steps is not None:
        tokens = cost.steps * probe.tokens_per_step * cost.rows_a_step / base.rows_a_step
    if tokens is None:
        return None
    return tokens * cost.flops_per_token / base.flops_per_token / probe.tokens_per_second


def _disk_lines(found: Mapping[str, Cost], num_runs: int) -> list[str]:
    weights = [cost.parameters * _BYTES_A_WEIGHT / 1e6 for cost in found.values()]
    held = max(weights) * (1 + 3 * _CHECKPOINTS)
    return [
        f"disk: about {sum(weights) * num_runs:,.0f} MB of weights in the end; a run in progress "
        f"holds up to {held:,.0f} MB (checkpoints with the optimizer's state, removed when its "
        "pretraining is complete); token store, predictions and metrics come on top"
    ]


def _time_lines(
    pretraining: Mapping[str, float],
    found: Mapping[str, Cost],
    num_runs: int,
    evaluation: float | None,
) -> list[str]:
    lines = []
    if pretraining:
        hours = sum(pretraining.values()) * num_runs / 3600
        lines.append(f"time: about {hours:.1f} h of pretraining, one run after another")
    else:
        lines.append("time: not estimated")
    if len(pretraining) < len(found):
        lines[-1] += f", of {len(pretraining)} of {len(found)} arms"
    if evaluation is None:
        lines[-1] += (
            "; start-up, validation and evaluation (fine-tuning, minimal pairs) come on top and "
            "are not measured: they are told here once a run of the study is complete"
        )
    else:
        hours = evaluation * len(found) * num_runs / 3600
        lines[-1] += (
            f"; evaluation about {hours:.1f} h more ({evaluation:.0f} s a run, as complete runs of "
            "this study took); start-up and validation come on top"
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
    lines += tuning.status_lines(study, folder)
    return lines, counts
