"""A task's definition (a mapping, from YAML) -> the measurement that it describes.

`kind` in the definition says which; without one it is classification (regression, with no labels).
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ablate.evaluation.measurement import Measurement

# kind -> module with `load(spec, path=, cache_dir=) -> Measurement`
KINDS = {
    "classification": "ablate.evaluation.classification",
    "minimal_pairs": "ablate.evaluation.pair_task",
    "mlm_quality": "ablate.evaluation.mlm_quality",
    "tagging": "ablate.evaluation.tagging",
    "question_answering": "ablate.evaluation.question_answering",
    "sentence_similarity": "ablate.evaluation.embedding_task",
    "retrieval": "ablate.evaluation.retrieval",
}


def load(
    definition: Mapping[str, Any],
    *,
    path: str | Path | None = None,
    cache_dir: str | Path | None = None,
) -> Measurement:
    """Read what a definition names from files under `path`, or from the hub without one.

    A definition's own `path` comes before that of the call.

    Raises:
        ValueError: unknown kind, bad definition, missing or malformed data.
    """
    given = dict(definition)
    kind = given.pop("kind", "classification")
    path = given.pop("path", None) or path
    if kind not in KINDS:
        raise ValueError(
            f"task {given.get('name', '(no name)')!r}: kind={kind} is unknown; allowed: "
            f"{', '.join(KINDS)}. For example kind: classification"
        )
    found: Measurement = importlib.import_module(KINDS[kind]).load(
        given, path=path, cache_dir=cache_dir
    )
    return found
