"""Details of evaluated tasks -> how they were fine-tuned, one fact a line, and what was capped.

A setting stands in the line that tasks share only where it was used by all of them: what a grid
chose is told by task and fine-tuning seed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ablate.evaluation.averages import scored_of_available

_ONLY_FOR_CHOICES = ("evaluations_per_epoch", "selection_fraction")  # idle where nothing is chosen


def protocol(details: Mapping[str, Any]) -> list[str]:
    """Nothing where nothing was fine-tuned."""
    tuned = {name: task for name, task in details.items() if task.get("hyper_parameters")}
    if not tuned:
        return []
    lines = [*_settings(tuned), *_grids(tuned)]
    starts: dict[str, list[str]] = {}
    for name, task in tuned.items():
        for start in (task.get("start_from") or [])[:1]:
            starts.setdefault(str(start["task"]), []).append(name)
    lines += [
        f"{', '.join(names)} start from the encoder that was fine-tuned on {source}"
        for source, names in starts.items()
    ] or ["every task starts from the pretrained encoder (none from the MNLI checkpoint)"]
    stopped = [name for name, task in tuned.items() if task.get("early_stopping_by_seed")]
    if stopped:
        lines.append(f"early stopping on examples held out of train: {', '.join(stopped)}")
    return lines + _caps(tuned)


def _settings(tuned: Mapping[str, Any]) -> list[str]:
    """Those that all tasks share, then each task's own; without what its grid chose."""
    chosen = any(
        task.get("early_stopping_by_seed") or task.get("grid_by_seed") for task in tuned.values()
    )
    in_grids = {name: _grid_values(task) for name, task in tuned.items()}
    given = {
        name: {
            key: value
            for key, value in task["hyper_parameters"].items()
            if key not in in_grids[name] and (chosen or key not in _ONLY_FOR_CHOICES)
        }
        for name, task in tuned.items()
    }
    shared = {
        key: value
        for key in dict.fromkeys(key for values in given.values() for key in values)
        if not any(key in values for values in in_grids.values())
        for value in [next(values[key] for values in given.values() if key in values)]
        if all(values.get(key, value) == value for values in given.values())
    }
    tasks = f", the same for {len(tuned)} tasks" if len(tuned) > 1 else ""
    lines = [f"fine-tuning{tasks}: {_listed(shared)}"]
    for name, values in given.items():
        own = {k: v for k, v in values.items() if k not in {*shared, *_ONLY_FOR_CHOICES}}
        if own:
            pairs = (f"{key} {value}" for key, value in own.items())
            lines.append(f"{name} has its own {', '.join(pairs)}")
    return lines


def _listed(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in values.items() if value is not None)


def _grid_values(task: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Setting -> the values that the points of the task's grid give it, in their order."""
    found: dict[str, list[Any]] = {}
    for grid in task.get("grid_by_seed") or []:
        for key in grid.get("chosen", {}):
            values = found.setdefault(key, [])
            points = [point[key] for point in grid.get("points", []) if key in point]
            values += [value for value in dict.fromkeys(points) if value not in values]
    return found


def _grids(tuned: Mapping[str, Any]) -> list[str]:
    grids = {name: task["grid_by_seed"] for name, task in tuned.items() if task.get("grid_by_seed")}
    if not grids:
        return ["grid: none, settings were declared beforehand"]
    lines = [
        f"grid: settings chosen on examples held out of train for {', '.join(grids)}; such a score "
        "is not comparable with one of declared settings"
    ]
    for name, by_seed in grids.items():
        tried = ", ".join(
            f"{key} of {{{', '.join(map(str, values))}}}"
            for key, values in _grid_values(tuned[name]).items()
        )
        chosen: dict[str, list[str]] = {}
        for seed, grid in enumerate(by_seed):
            values = ", ".join(map(str, grid.get("chosen", {}).values()))
            chosen.setdefault(values, []).append(str(seed))
        said = ", ".join(
            f"{values} (seed{'s' * (len(seeds) > 1)} {', '.join(seeds)})"
            for values, seeds in chosen.items()
        )
        lines += [f"{name}: {tried}; chosen {said}"] if tried else []
    return lines


def _caps(tuned: Mapping[str, Any]) -> list[str]:
    trained, scored = [], []
    for name, task in tuned.items():
        used, there = task.get("num_train_examples"), task.get("num_train_available")
        if used is not None and there is not None and used < there:
            trained.append(f"{name} {used:,} of {there:,}")
        for split, (count, available) in scored_of_available(task).items():
            if count < available:
                scored.append(f"{name} {split} {count:,} of {available:,}")
    return [
        *([f"training examples capped: {', '.join(trained)}"] if trained else []),
        *([f"scored examples capped: {', '.join(scored)}"] if scored else []),
    ]
