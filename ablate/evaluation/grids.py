"""Points of a grid -> the one that is best on examples held out of *train*.

Every point is fitted on the rest of train and scored on the held-out part by the task's first
metric; of equal points the first is taken. The chosen one is then fitted again on all training
examples and reported, never the fit that was selected on. (With early stopping the second fit needs
held-out examples itself, and keeps those of its selection.) Each point is stored as soon as there
is one, so that a kill costs one fit. A score found so is another quantity than that of one declared
setting, and stands in a suite of its own, `<suite>-grid`.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ablate.evaluation.settings import FinetuneSettings

SUITE_SUFFIX = "-grid"
# what all points share: the examples, what is held out, and how a number is computed
NOT_IN_GRIDS = (
    "max_length", "max_train_examples", "max_scored_examples", "selection_fraction",
    "sample_seed", "precision", "num_seeds",
)  # fmt: skip
Point = Mapping[str, Any]


def points(grid: Mapping[str, Sequence[Any]]) -> tuple[dict[str, Any], ...]:
    """Every combination of the values, the last key varying fastest; none for no grid.

    Raises:
        ValueError: a key without values, one that no point may change, or a value given twice.
    """
    for name, values in grid.items():
        where = f"evaluation.grid.{name}={list(values)}"
        if not values or len(set(map(repr, values))) < len(values):
            raise ValueError(f"{where} must hold one or more different values, as [1e-5, 3e-5]")
        if name in NOT_IN_GRIDS:
            raise ValueError(
                f"{where}: all points share {name}; type evaluation.finetune.{name}={values[0]}"
            )
    if not grid:
        return ()
    return tuple(
        dict(zip(grid, combination, strict=True))
        for combination in itertools.product(*grid.values())
    )


@dataclass(frozen=True)
class Choice:
    """The chosen settings, and what the record says of how they were chosen."""

    settings: FinetuneSettings
    facts: dict[str, Any]


def choose(
    candidates: Sequence[Point],
    settings: FinetuneSettings,
    fit: Callable[[FinetuneSettings], dict[str, Any]],
    *,
    folder: Path,
    key: Mapping[str, Any],
    on_point: Callable[[int], None] = lambda done: None,
) -> Choice:
    """Fit every point that is not stored, and take the best.

    Args:
        fit: settings of a point -> `Fit.selection`: its score on the held-out examples and more.
        folder: where points are stored.
        key: all that decides a score beside the settings of the point.
        on_point: called with the number of points that are done.
    """
    scores: list[dict[str, Any]] = []
    for number, point in enumerate(candidates):
        changed = settings.changed(point, where="evaluation.grid")
        made = functools.partial(fit, changed)
        scores.append(_stored(folder, {**key, "settings": vars(changed)}, made))
        on_point(number + 1)
    best = max(range(len(scores)), key=lambda i: scores[i]["score"])  # the first of equal ones
    again = "train without the held-out examples (early stopping)"
    return Choice(
        settings.changed(candidates[best], where="evaluation.grid"),
        {
            "selected_on": "examples held out of train",
            "held_out_examples": scores[0]["held_out_examples"],
            "metric": scores[0]["metric"],
            "num_points": len(candidates),
            "points": [
                {**point, "held_out_score": found["score"]}
                for point, found in zip(candidates, scores, strict=True)
            ],
            "chosen": dict(candidates[best]),
            "fitted_again_on": again if settings.early_stopping else "all training examples",
        },
    )


def _stored(
    folder: Path, key: dict[str, Any], make: Callable[[], dict[str, Any]]
) -> dict[str, Any]:
    """The content under this key, made and written where there is none."""
    text = json.dumps(key, sort_keys=True)
    mark = hashlib.blake2b(text.encode(), digest_size=12).hexdigest()
    file = folder / f"{mark}.json"
    try:
        stored = json.loads(file.read_text(encoding="utf-8"))
        if stored["key"] == json.loads(text):
            found: dict[str, Any] = stored["found"]
            return found
    except (OSError, ValueError, KeyError, TypeError):
        pass
    made = make()
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_name(f".{file.name}.{os.getpid()}")
    temporary.write_text(json.dumps({"key": json.loads(text), "found": made}), encoding="utf-8")
    os.replace(temporary, file)
    return made
