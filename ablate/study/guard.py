"""Composed arms -> what each moves against the baseline; anything that was not declared is refused.

So is a primary metric that an arm trains on and the baseline does not (which positions are
predicted, what stands there, the objective): it would be decided by definition.

Two checks: of settings, before anything runs, and of what follows from them (parameters, tokens,
steps, kernel ...), which is no refusal but a line of the report: a factor has consequences, and the
reader has to see them.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from ablate.config.compose import compose_settings
from ablate.config.encoder_rules import check_unread
from ablate.config.encoder_source import named_settings
from ablate.config.rules import resolve
from ablate.config.schema import Settings
from ablate.study.design import NULL_PREFIX, Study, Tune
from ablate.study.designs import key_of

# what no arm may be said to move: where a run is kept and watched, not what it is
NEUTRAL = (
    "arm", "force", "paths.*", "tracking.*", "trainer.progress_bar", "corpus.jobs",
    "evaluation.jobs",
)  # fmt: skip
# settings that decide masked-LM loss by definition: validation masks are 15% of single tokens or of
# whole words, all of them [MASK]; a mask rate alone may be judged by them
_OWN_OBJECTIVE = (
    "masking.selection", "masking.span_*", "masking.ngram_*", "masking.pmi_*",
    "masking.mask_replace_prob", "masking.random_replace_prob", "objective.*", "encoder.causal",
)  # fmt: skip
_NO_CHANGE = ("replicate.*", "attention_backend", "trainer.*")  # what a null arm may move
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
    "corpus": ("data", "corpus_fingerprint"),
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
        ValueError: an arm that does not compose, that moves what it did not declare, that moves
            nothing, or whose own objective is the primary metric.
    """
    if study.tune is not None:
        _check_tune(study, study.tune, extra)
    found = {arm: compose_arm(study, arm, extra) for arm in study.arms}
    baseline = found[study.baseline][0]
    marks = {
        arm: json.dumps(values, sort_keys=True, default=str) for arm, (values, _) in found.items()
    }
    composed = {}
    for arm, (values, settings) in found.items():
        moved = {k: (baseline.get(k), v) for k, v in values.items() if baseline.get(k) != v}
        composed[arm] = Composed(settings, moved)
        if arm != study.baseline:
            _check(study, arm, moved)
            _check_metric(study, f"arm {arm} moves", "primary", study.primary, moved)
    check_fingerprints(study, marks)
    return composed


def compose_arm(
    study: Study, arm: str, extra: Sequence[str] = ()
) -> tuple[dict[str, Any], Settings]:
    """One arm at its first seed: resolved settings by dotted name, and the settings as asked for.

    Raises:
        ValueError: it does not compose.
    """
    overrides = study.overrides(arm, extra)
    try:
        settings = compose_settings(overrides)
        if settings.encoder.kind == "native":
            check_unread(settings, named_settings(overrides))
    except ValueError as error:
        raise ValueError(f"study {study.name}, arm {arm}: {error}") from None
    return flat(resolve(settings)), settings


def _check(study: Study, arm: str, moved: Mapping[str, tuple[Any, Any]]) -> None:
    allowed = [*study.moves[arm], *(study.tune.grid if study.tune else ())]
    undeclared = {k: v for k, v in moved.items() if not any(fnmatchcase(k, a) for a in allowed)}
    if undeclared:
        said = "; ".join(f"{k} from {was} to {now}" for k, (was, now) in undeclared.items())
        keys = ", ".join(undeclared)
        raise ValueError(
            f"study {study.name}: arm {arm} also moves {said} against the baseline "
            f"{study.baseline}, and declares {', '.join(allowed) or 'nothing'}. Hold it fixed "
            f"(common: [...]), or declare it: moves: {{{arm}: [{keys}]}}"
        )
    real = [key for key in moved if not any(fnmatchcase(key, name) for name in _NO_CHANGE)]
    if arm.startswith(NULL_PREFIX) and real:
        raise ValueError(
            f"study {study.name}: arm {arm} moves {', '.join(real)}, and the name of an arm that "
            f"begins with {NULL_PREFIX} says that it draws other streams or computes the same by "
            "other means (replicate.*, attention_backend, trainer.*); give it another name"
        )
    if not moved:
        raise ValueError(
            f"study {study.name}: arm {arm} sets nothing otherwise than the baseline "
            f"{study.baseline}; take it out. (A null arm draws other streams: "
            "[replicate.data=1, replicate.masks=1])"
        )


def _check_metric(study: Study, who: str, key: str, metric: str, moved: Mapping[str, Any]) -> None:
    """Refuse validation loss as the judge of what is predicted, and of what stands there."""
    own = [k for k in moved if any(fnmatchcase(k, name) for name in _OWN_OBJECTIVE)]
    if own and metric.startswith("val/"):
        raise ValueError(
            f"study {study.name}: {who} {', '.join(own)}, and {key}: {metric} is measured on masks "
            "of one kind (15% of the tokens, all of them [MASK]), so it is better for whoever "
            f"trains on such masks: decided by definition. Type {key}: a downstream score or "
            "minimal pairs, for example synthetic/minimal_pairs/accuracy; val/ scores may stand in "
            "secondary"
        )


def _check_tune(study: Study, tune: Tune, extra: Sequence[str]) -> None:
    """Refuse a grid of what is no setting of a run, or of what the command line sets."""
    known = flat(Settings())
    for key in tune.grid:
        if key not in known or key == "seed" or key.startswith("replicate."):
            raise ValueError(
                f"study {study.name}: tune.grid: {key} is no setting that can be tuned; give one "
                "by its full name, for example optimizer.learning_rate (python -m ablate --cfg job "
                "shows all)"
            )
    given = [override for override in extra if key_of(override) in tune.grid]
    if given:
        raise ValueError(
            f"study {study.name}: {' '.join(given)} has no effect, as every arm's is tuned; leave "
            "it out, or change tune.grid in the study's file"
        )
    _check_metric(study, "tune.grid moves", "tune.metric", tune.metric, tune.grid)
    _check_metric(study, "tune.grid moves", "primary", study.primary, tune.grid)


def check_fingerprints(study: Study, marks: Mapping[str, str]) -> None:
    """Refuse two arms that are one run; `marks` say of each what it is, at one seed.

    Settings that differ and come to the same run are found when it has run (`study.runner`).

    Raises:
        ValueError: naming the arms.
    """
    seen: dict[str, str] = {}
    for arm, mark in marks.items():
        if mark in seen:
            raise ValueError(
                f"study {study.name}: the arms {seen[mark]} and {arm} are one and the same run; "
                "take one out"
            )
        seen[mark] = arm


def flat(settings: Settings) -> dict[str, Any]:
    """Dotted names of all settings that say what a run is."""
    return flat_of(dataclasses.asdict(settings))


def flat_of(settings: Mapping[str, Any]) -> dict[str, Any]:
    """`flat` of settings as mappings, as a run's config.yaml has them."""
    found: dict[str, Any] = {}

    def walk(node: Mapping[str, Any], prefix: str) -> None:
        for name, value in node.items():
            if isinstance(value, dict) and value:
                walk(value, f"{prefix}{name}.")
            else:
                found[prefix + name] = value

    walk(settings, "")
    if found.get("evaluation.tasks"):
        found["evaluation.tasks"] = sorted(found["evaluation.tasks"])  # their order decides nothing
    return {k: v for k, v in found.items() if not any(fnmatchcase(k, n) for n in NEUTRAL)}


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
