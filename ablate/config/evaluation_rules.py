"""What `evaluation` may say: kinds and tasks, one set of hyper-parameters, single tasks, grids.

A protocol is judged whole before anything is pretrained: every task's settings and every point of
its grid are built here once, without torch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ablate.config.limits import in_range, one_of, refuse_ignored
from ablate.config.objective_rules import resolve_pooling
from ablate.config.schema import EvaluationSettings, Settings
from ablate.evaluation import synthetic_tasks
from ablate.evaluation.grids import points
from ablate.evaluation.settings import FinetuneSettings

EVALUATIONS = ("synthetic", "tasks", "none")
_PLAN = ("per_task", "grid", "grid_per_task", "start_from", "start_from_tasks")
_UNUSED = {"synthetic": ("path",), "none": ("path", *_PLAN)}
_AT_64 = 2e-3  # learning rate of fine-tuning at width 64


def resolve_evaluation(settings: Settings) -> None:
    """Put numbers where `evaluation` says null, in place.

    The peak rate falls faster than 1 / width, from 2e-3 at 64 to the published 2e-5 to 5e-5 at 768
    and 1024.
    """
    finetune = settings.evaluation.finetune
    rate = float(f"{_AT_64 * (64 / settings.size.hidden_size) ** 1.6:.2g}")
    if finetune.learning_rate is None:
        finetune.learning_rate = rate
    finetune.pooling = resolve_pooling(finetune.pooling, objective=settings.objective.name)
    if finetune.max_length is None:
        finetune.max_length = settings.input_format.max_length
    for changes in (settings.evaluation.per_task or {}).values():
        if "learning_rate" in changes and changes["learning_rate"] is None:
            changes["learning_rate"] = rate


def check_evaluation(settings: Settings, resolved: Settings) -> None:
    """Refuse what cannot be measured or would not mean what it says.

    Raises:
        ValueError: naming the setting, what was given, what is allowed and what to type.
    """
    evaluation = settings.evaluation
    one_of("evaluation.kind", evaluation.kind, EVALUATIONS)
    refuse_ignored(
        "evaluation", evaluation.kind, evaluation, EvaluationSettings(), _UNUSED,
        ("synthetic", "glue", "none"),
    )  # fmt: skip
    if evaluation.kind == "synthetic":
        for name in evaluation.tasks:
            one_of("evaluation.tasks", name, synthetic_tasks.TASKS)
    in_range("evaluation.pairs_per_paradigm", evaluation.pairs_per_paradigm, 0, 10_000, 60)
    for name in ("num_train_examples", "num_validation_examples"):
        in_range(f"evaluation.{name}", getattr(evaluation, name), 8, 10**7, 800)
    in_range("evaluation.threads", evaluation.threads, 1, 1024, 1)
    if evaluation.jobs is not None:
        in_range("evaluation.jobs", evaluation.jobs, 1, 1024, 2)
    if evaluation.kind == "synthetic" and settings.corpus.kind != "synthetic":
        raise ValueError(
            "evaluation=synthetic asks in the built-in language, which corpus="
            f"{settings.corpus.kind} does not teach; type evaluation=glue evaluation.path=DIR, or "
            "evaluation=none"
        )
    if evaluation.pairs_per_paradigm % 2:
        raise ValueError(
            f"evaluation.pairs_per_paradigm={evaluation.pairs_per_paradigm} must be even: pairs "
            f"come with their mirrors. For example evaluation.pairs_per_paradigm=60"
        )
    _check_lengths(settings, resolved)
    duplicated = {name for name in evaluation.tasks if evaluation.tasks.count(name) > 1}
    if duplicated:
        names = ",".join(dict.fromkeys(evaluation.tasks))
        raise ValueError(
            f"evaluation.tasks names {', '.join(sorted(duplicated))} twice; "
            f"type 'evaluation.tasks=[{names}]'"
        )
    if evaluation.kind != "none":
        _check_plan(resolved)


def _check_lengths(settings: Settings, resolved: Settings) -> None:
    """No row is longer than the learned positions."""
    if settings.encoder.position_embedding != "learned":
        return
    longest = resolved.encoder.max_position_embeddings or 0
    lengths = {
        "input_format.max_length": settings.input_format.max_length,
        "evaluation.finetune.max_length": settings.evaluation.finetune.max_length or 0,
    }
    for task, changes in (settings.evaluation.per_task or {}).items():
        lengths[f"evaluation.per_task.{task}.max_length"] = changes.get("max_length") or 0
    for name, length in lengths.items():
        if length > longest:
            raise ValueError(
                f"{name}={length} is longer than the {longest} learned positions; "
                f"type encoder.max_position_embeddings={length}"
            )


def _check_plan(settings: Settings) -> None:
    evaluation = settings.evaluation
    known = _known_tasks(evaluation)
    for group in ("per_task", "grid_per_task"):
        for name in getattr(evaluation, group) or {}:
            if name not in known:
                raise ValueError(
                    f"evaluation.{group} names {name}, which is no task; allowed: "
                    f"{', '.join(sorted(known))}. For example "
                    f"'evaluation.{group}={{{min(known)}: {{...}}}}'"
                )
    for where, found in _all_settings(evaluation):
        _check_with_encoder(where, found, settings)
    _check_start(evaluation)


def _all_settings(evaluation: EvaluationSettings) -> Iterator[tuple[str, FinetuneSettings]]:
    """Every set of hyper-parameters of the protocol, with where it was written."""
    shared = finetune_settings(evaluation)
    in_range("evaluation.finetune.num_seeds", evaluation.finetune.num_seeds, 1, 1000, 3)
    yield "evaluation.finetune", shared
    per_task, grid = evaluation.per_task or {}, evaluation.grid or {}
    grid_per_task = evaluation.grid_per_task or {}
    for name in dict.fromkeys([*evaluation.tasks, *per_task, *grid_per_task]):
        where = f"evaluation.per_task.{name}"
        changes = dict(per_task.get(name, {}))
        if "num_seeds" in changes:
            in_range(f"{where}.num_seeds", changes.pop("num_seeds"), 1, 1000, 3)
        own = shared.changed(changes, where=where)
        yield where, own
        for point in points({**grid, **grid_per_task.get(name, {})}):
            yield "evaluation.grid", own.changed(point, where="evaluation.grid")


def _check_with_encoder(where: str, found: FinetuneSettings, settings: Settings) -> None:
    """What the hyper-parameters need of the encoder."""
    if settings.objective.name == "clm" and found.pooling in ("cls", "cls_mean"):
        raise ValueError(
            f"{where}: pooling={found.pooling} reads a row's first token, which sees no other "
            f"token in a causal encoder; type {where}.pooling=last_mean"
        )
    shared = settings.encoder.shared_layers != "none"
    if found.layerwise_decay != 1 and (shared or settings.encoder.kind == "hf"):
        raise ValueError(
            f"{where}: layerwise_decay={found.layerwise_decay} needs layers with parameters of "
            "their own; with shared layers or encoder=hf type "
            f"evaluation.finetune.layerwise_decay=1"
        )


def _check_start(evaluation: EvaluationSettings) -> None:
    source = evaluation.start_from
    if source is None:
        return
    found = [name for name in evaluation.start_from_tasks if name in evaluation.tasks]
    if found and source not in evaluation.tasks:
        tasks = ",".join([source, *evaluation.tasks])
        raise ValueError(
            f"evaluation.start_from={source} needs {source} in evaluation.tasks, for the fits "
            f"that {', '.join(found)} start from; type 'evaluation.tasks=[{tasks}]', or "
            "evaluation.start_from=null"
        )
    if source in evaluation.start_from_tasks:
        others = [name for name in evaluation.start_from_tasks if name != source]
        raise ValueError(
            f"evaluation.start_from_tasks={evaluation.start_from_tasks} names {source} itself; "
            f"type 'evaluation.start_from_tasks=[{','.join(others)}]'"
        )
    if evaluation.finetune.frozen:
        raise ValueError(
            f"evaluation.start_from={source} has no effect on a frozen encoder: every task starts "
            "from the same one; type evaluation.start_from=null, or "
            "evaluation.finetune.frozen=false"
        )


def _known_tasks(evaluation: EvaluationSettings) -> set[str]:
    """Names that settings may be given for: tasks there are, and those of the files named."""
    from ablate.config.task_files import SUFFIXES, task_definition, task_names

    known = {*task_names(), *synthetic_tasks.TASKS}
    for name in evaluation.tasks if evaluation.kind == "tasks" else ():
        known.add(str(task_definition(name)["name"]) if name.endswith(SUFFIXES) else name)
    return known


def finetune_settings(evaluation: EvaluationSettings, precision: str = "fp32") -> FinetuneSettings:
    """The one declared set of hyper-parameters.

    Raises:
        ValueError: a value out of range.
    """
    fields: Mapping[str, Any] = {
        name: value for name, value in vars(evaluation.finetune).items() if name != "num_seeds"
    }
    return FinetuneSettings(**fields, precision=precision)


def plan_fields(evaluation: EvaluationSettings) -> dict[str, Any]:
    """Fields of `evaluation.plan.Plan`, without what is said of tasks that are not measured.

    (What they are called by is their name; a task given by its file keeps what is said of it.)
    """
    names = {*evaluation.tasks}
    files = any("." in name for name in names)

    def measured(given: Mapping[str, Any] | None) -> dict[str, Any]:
        kept = (given or {}).items()
        return {name: dict(value) for name, value in kept if files or name in names}

    starts = [name for name in evaluation.start_from_tasks if files or name in names]
    source = evaluation.start_from if starts else None
    return {
        "per_task": measured(evaluation.per_task),
        "grid": {name: list(values) for name, values in (evaluation.grid or {}).items()},
        "grid_per_task": measured(evaluation.grid_per_task),
        "start_from": source,
        "start_from_tasks": sorted(starts) if source else [],
    }
