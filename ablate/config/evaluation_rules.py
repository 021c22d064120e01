"""What `evaluation` may say: kinds and tasks, one set of hyper-parameters, single tasks, grids.

A protocol is judged whole before anything is pretrained: every task's settings and every point of
its grid are built here once, without torch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
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
    for group in ("per_task", "grid_per_task"):
        _check_names(group, getattr(evaluation, group) or {}, names_of_tasks(evaluation))
    for where, found in _all_settings(evaluation):
        _check_with_encoder(where, found, settings)
    _check_start(evaluation)
    _check_effect(evaluation)


def _check_effect(evaluation: EvaluationSettings) -> None:
    """Refuse what nothing in this protocol reads."""
    if evaluation.kind == "tasks" and not evaluation.tasks:
        raise ValueError(
            "evaluation.tasks=[] measures nothing; type evaluation=none, or name tasks: "
            "'evaluation.tasks=[sst2]'"
        )
    finetune, default = evaluation.finetune, EvaluationSettings().finetune
    if finetune.selection_fraction != default.selection_fraction and not (
        evaluation.grid or evaluation.grid_per_task or finetune.early_stopping
    ):
        raise ValueError(
            f"evaluation.finetune.selection_fraction={finetune.selection_fraction} has no effect: "
            "nothing is selected; leave it out, or type evaluation.finetune.early_stopping=3"
        )


def _check_names(group: str, given: Mapping[str, Any], known: Mapping[str, str]) -> None:
    """Every key is a task, and no task has two."""
    keys: dict[str, str] = {}
    for key in given:
        if key not in known:
            raise ValueError(
                f"evaluation.{group} names {key}, which is no task; allowed: "
                f"{', '.join(sorted(known))}. For example "
                f"'evaluation.{group}={{{min(known)}: {{...}}}}'"
            )
        first = keys.setdefault(known[key], key)
        if first != key:
            raise ValueError(
                f"evaluation.{group} names one task twice, as {first} and as {key}; give all that "
                f"is said of it under one of them: 'evaluation.{group}={{{first}: {{...}}}}'"
            )


def _all_settings(evaluation: EvaluationSettings) -> Iterator[tuple[str, FinetuneSettings]]:
    """Every set of hyper-parameters of the protocol, with where it was written."""
    shared = finetune_settings(evaluation)
    in_range("evaluation.finetune.num_seeds", evaluation.finetune.num_seeds, 1, 1000, 3)
    yield "evaluation.finetune", shared
    names, grid = names_of_tasks(evaluation), evaluation.grid or {}
    written = {names[key]: key for key in evaluation.per_task or {}}
    per_task = {names[key]: found for key, found in (evaluation.per_task or {}).items()}
    grid_per_task = {names[key]: found for key, found in (evaluation.grid_per_task or {}).items()}
    tasks = [names[task] for task in evaluation.tasks]
    for name in dict.fromkeys([*tasks, *per_task, *grid_per_task]):
        where = f"evaluation.per_task.{written.get(name, name)}"
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
    from ablate.config.task_files import defined_names

    source = evaluation.start_from
    if source is None:
        return
    names = names_of_tasks(evaluation)
    measured = {names[task] for task in evaluation.tasks}
    found = [name for name in evaluation.start_from_tasks if names.get(name, name) in measured]
    if found and names.get(source, source) not in measured:
        words = {name: task for task, name in defined_names().items()}  # as tasks are asked for
        tasks = ",".join([words.get(names.get(source, source), source), *evaluation.tasks])
        raise ValueError(
            f"evaluation.start_from={source} needs {source} in evaluation.tasks, for the fits "
            f"that {', '.join(found)} start from; type 'evaluation.tasks=[{tasks}]', or "
            "evaluation.start_from=null"
        )
    others = [
        name
        for name in evaluation.start_from_tasks
        if names.get(name, name) != names.get(source, source)
    ]
    if len(others) < len(evaluation.start_from_tasks):
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


def names_of_tasks(evaluation: EvaluationSettings) -> dict[str, str]:
    """Every word that settings may be given for -> the name of the measurement that it means.

    A task goes by what `evaluation.tasks` calls it (`pos`) and by the name in its file
    (`ud_english_ewt`), a file of the user's by its stem too.
    """
    from ablate.config.task_files import SUFFIXES, defined_names, task_definition

    defined = defined_names()
    found = {task: task for task in synthetic_tasks.TASKS}
    found |= {**{name: name for name in defined.values()}, **defined}
    for task in evaluation.tasks if evaluation.kind == "tasks" else ():
        if task.endswith(SUFFIXES):
            name, stem = str(task_definition(task)["name"]), Path(task).stem
            found |= {task: name, name: name}
            if stem not in evaluation.tasks:
                found[stem] = name
    return {**{task: task for task in evaluation.tasks}, **found}


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

    Tasks are called by the names of their measurements here, however they were written.
    """
    said = evaluation.per_task or evaluation.grid_per_task or evaluation.start_from
    names = names_of_tasks(evaluation) if said else {}
    known = {names.get(task, task) for task in evaluation.tasks}

    def measured(given: Mapping[str, Any] | None) -> dict[str, Any]:
        named = {names.get(key, key): dict(value) for key, value in (given or {}).items()}
        return {name: value for name, value in named.items() if name in known}

    starts = {names.get(task, task) for task in evaluation.start_from_tasks} & known
    source = evaluation.start_from if starts else None
    return {
        "per_task": measured(evaluation.per_task),
        "grid": {name: list(values) for name, values in (evaluation.grid or {}).items()},
        "grid_per_task": measured(evaluation.grid_per_task),
        "start_from": None if source is None else names.get(source, source),
        "start_from_tasks": sorted(starts) if source else [],
    }
