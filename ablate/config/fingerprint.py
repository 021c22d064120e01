"""Resolved settings and what they were applied to -> the name of a result.

The pretraining fingerprint holds everything that can change a weight; the run's adds everything
that can change a score. Paths, trackers, names and logging intervals are in neither, data and
tokenizer are in by their content, and `RESULT_VERSION` is raised whenever a golden loss changes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from ablate.config.evaluation_rules import plan_fields
from ablate.config.schema import Settings

RESULT_VERSION = 2
_TRAINING_GROUPS = ("replicate", "input_format", "masking", "objective", "optimizer", "schedule")
_TRAINER_KEYS = ("devices", "global_batch_size", "micro_batch_size", "validation_rows")


def fingerprint(identity: Mapping[str, Any]) -> str:
    """12 hexadecimal digits of a nested mapping of plain values."""
    text = json.dumps(identity, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def pretraining_identity(
    settings: Settings, *, encoder: Mapping[str, Any], data: Mapping[str, Any], machine: Mapping
) -> dict[str, Any]:
    """What decides the weights.

    Args:
        settings: resolved.
        encoder: arguments of `EncoderConfig`.
        data: corpus fingerprint, held-out threshold, validation seed, tokenizer hash.
        machine: device, precision, threads, attention backend and kernel.
    """
    return {
        "result_version": RESULT_VERSION,
        "seed": settings.seed,
        "nsp": settings.nsp,
        "sop": settings.sop,
        **{name: dict(vars(getattr(settings, name))) for name in _TRAINING_GROUPS},
        "budget": {"clock": settings.budget.clock, "amount": settings.budget.amount},
        "trainer": {name: getattr(settings.trainer, name) for name in _TRAINER_KEYS},
        "encoder": dict(encoder),
        "data": dict(data),
        "machine": dict(machine),
    }


def run_identity(settings: Settings, *, pretraining: str, tasks: Mapping[str, str]) -> dict:
    """What decides the scores: the weights, the evaluation's settings, the content of its data."""
    evaluation = dict(vars(settings.evaluation))
    evaluation["finetune"] = dict(vars(settings.evaluation.finetune))
    for name in ("path", "jobs"):
        evaluation.pop(name)
    evaluation["tasks"] = sorted(evaluation["tasks"])
    evaluation |= plan_fields(settings.evaluation)
    if settings.evaluation.kind == "none":
        del evaluation["finetune"]
    return {
        "result_version": RESULT_VERSION,
        "pretraining": pretraining,
        "evaluation": evaluation,
        "tasks": dict(tasks),
    }
