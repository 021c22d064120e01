"""Composed arms -> what each moves against the baseline; anything that was not declared is refused.

Two checks: of settings, before anything runs, and of what follows from them (parameters, tokens,
steps, kernel ...), which is no refusal but a line of the report: a factor has consequences, and the
reader has to see them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from ablate.config.compose import compose_settings
from ablate.config.encoder_rules import check_unread
from ablate.config.encoder_source import named_settings
from ablate.config.rules import resolve
from ablate.config.schema import Settings
from ablate.study.design import Study

# what no arm may be said to move: where a run is kept and watched, not what it is
_NEUTRAL = ("arm", "force", "paths.*", "tracking.*", "trainer.progress_bar", "evaluation.jobs")
# of a record, compared with the baseline's: name -> path in record.json
DERIVED = {
    "parameters": ("derived", "parameters"),
    "forward FLOPs a token": ("derived", "forward_flops_per_token"),
    "tokens": ("clocks", "tokens"),
    "steps": ("clocks", "steps"),
    "predictions": ("clocks", "predictions"),
    "FLOPs": ("clocks", "flops"),
    "epochs": ("derived", "epochs"),
    "fill of the rows": ("derived", "fill"),
    "real tokens a row": ("derived", "attention_length"),
    "learning rate": ("derived", "learning_rate"),
    "initial deviation": ("derived", "init_std"),
    "mask rate achieved": ("derived", "achieved", "mask_rate"),
    "prediction rate achieved": ("derived", "achieved", "prediction_rate"),
    "kernel": ("machine", "kernel"),
    "precision": ("machine", "precision"),
    "threads": ("machine", "threads"),
    "tokenizer": ("data", "tokenizer"),
    "vocabulary": ("data", "vocab_size"),
}


@dataclasses.dataclass(frozen=True)
class Composed:
    """An arm's settings, resolved, and what it sets otherwise than the baseline."""

    settings: Settings
    moved: Mapping[str, tuple[Any, Any]]  # dotted name -> (baseline, arm)


def compose_arms(study: Study, extra: Sequence[str] = ()) -> dict[str, Composed]:
    """Every arm of a study at its first seed, checked against the baseline.

    Raises:
        ValueError: an arm that does not compose, that moves what it did not declare, or that moves
            nothing.
    """
    found = {}
    for arm in study.arms:
        overrides = study.overrides(arm, extra)
        try:
            settings = compose_settings(overrides)
            if settings.encoder.kind == "native":
                check_unread(settings, named_settings(overrides))
        except ValueError as error:
            raise ValueError(f"study {study.name}, arm {arm}: {error}") from None
        found[arm] = flat(resolve(settings)), settings
    baseline = found[study.baseline][0]
    composed = {}
    for arm, (values, settings) in found.items():
        moved = {k: (baseline.get(k), v) for k, v in values.items() if baseline.get(k) != v}
        composed[arm] = Composed(settings, moved)
        if arm != study.baseline:
            _check(study, arm, moved)
    return composed


def _check(study: Study, arm: str, moved: Mapping[str, tuple[Any, Any]]) -> None:
    allowed = study.moves[arm]
    undeclared = {k: v for k, v in moved.items() if not any(fnmatchcase(k, a) for a in allowed)}
    if undeclared:
        said = "; ".join(f"{k} from {was} to {now}" for k, (was, now) in undeclared.items())
        keys = ", ".join(undeclared)
        raise ValueError(
            f"study {study.name}: arm {arm} also moves {said} against the baseline "
            f"{study.baseline}, and declares {', '.join(allowed) or 'nothing'}. Hold it fixed "
            f"(common: [...]), or declare it: moves: {{{arm}: [{keys}]}}"
        )
    if not moved:
        raise ValueError(
            f"study {study.name}: arm {arm} sets nothing otherwise than the baseline "
            f"{study.baseline}; take it out. (A null arm draws other streams: "
            "[replicate.data=1, replicate.masks=1])"
        )


def check_fingerprints(study: Study, marks: Mapping[str, str]) -> None:
    """Refuse two arms that are one run; `marks` are fingerprints at one seed.

    Raises:
        ValueError: naming the arms.
    """
    seen: dict[str, str] = {}
    for arm, mark in marks.items():
        if mark in seen:
            raise ValueError(
                f"study {study.name}: the arms {seen[mark]} and {arm} are one and the same run "
                f"({mark}); take one out"
            )
        seen[mark] = arm


def flat(settings: Settings) -> dict[str, Any]:
    """Dotted names of all settings that say what a run is."""
    found: dict[str, Any] = {}

    def walk(node: Mapping[str, Any], prefix: str) -> None:
        for name, value in node.items():
            if isinstance(value, dict) and value:
                walk(value, f"{prefix}{name}.")
            else:
                found[prefix + name] = value

    walk(dataclasses.asdict(settings), "")
    return {k: v for k, v in found.items() if not any(fnmatchcase(k, n) for n in _NEUTRAL)}


def consequences(baseline: Mapping[str, Any], arm: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """What differs between two records beside the settings: name -> (baseline, arm)."""
    found = {}
    for name, path in DERIVED.items():
        was, now = (_at(record, path) for record in (baseline, arm))
        if was != now:
            found[name] = (was, now)
    return found


def _at(record: Mapping[str, Any], path: Sequence[str]) -> Any:
    value: Any = record
    for key in path:
        if not isinstance(value, Mapping) or key not in value:
            return None
        value = value[key]
    return value
