"""The definition of a retrieval task: its lists, its training draws, its bi-encoder.

The collection itself is described by `retrieval_data.DataSpec`, hyper-parameters of the fit are
those of fine-tuning.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from ablate.evaluation.contrastive import ContrastiveSettings
from ablate.evaluation.retrieval_data import DataSpec

ARCHITECTURES = ("biencoder", "crossencoder")


@dataclass(frozen=True)
class RetrievalSpec:
    """What a task declares. Lists have `candidates` documents, up to `hard_candidates` of them
    BM25's best; a training step draws `negatives` documents a query, half of them from BM25's
    `hard_pool` best. `candidate_seed` names what is random in the lists of the test."""

    name: str
    collection: DataSpec
    suite: str = "retrieval"
    architectures: tuple[str, ...] = ARCHITECTURES
    candidates: int = 20
    hard_candidates: int = 10
    max_test_queries: int | None = 500
    candidate_seed: int = 0
    negatives: int = 4
    hard_pool: int = 20
    recall_at: tuple[int, ...] = (1, 10)
    temperature: float = 0.05
    symmetric: bool = False
    pooling: str = "mean"

    def __post_init__(self) -> None:
        where = f"task {self.name!r}: "
        if not self.architectures or not set(self.architectures) <= set(ARCHITECTURES):
            raise ValueError(
                f"{where}architectures={list(self.architectures)}: give one or both of "
                f"{list(ARCHITECTURES)}"
            )
        least = {"candidates": 2, "hard_candidates": 0, "negatives": 1, "hard_pool": 0}
        wrong = [
            f"{name}={getattr(self, name)}" for name, n in least.items() if getattr(self, name) < n
        ]
        if self.max_test_queries is not None and self.max_test_queries < 1:
            wrong.append(f"max_test_queries={self.max_test_queries}")
        if wrong or min(self.recall_at, default=1) < 1:
            raise ValueError(
                f"{where}{', '.join(wrong) or 'recall_at'} is too small; at least "
                f"{', '.join(f'{name}={n}' for name, n in least.items())}, recall_at=[1]"
            )
        self.contrastive.check(self.name)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> RetrievalSpec:
        """The spec of a YAML file's mapping; `collection` in it is a mapping too.

        Raises:
            ValueError: an unknown or a missing key, or a value that cannot be.
        """
        name = str(values.get("name"))
        collection = _read(DataSpec, dict(values.get("collection") or {}), f"{name}: collection")
        found: RetrievalSpec = _read(cls, {**values, "collection": collection}, name)
        return found

    @property
    def contrastive(self) -> ContrastiveSettings:
        return ContrastiveSettings(self.temperature, self.symmetric, self.pooling)


def _read(kind: Any, values: Mapping[str, Any], where: str) -> Any:
    """A dataclass from a mapping of YAML; lists become tuples."""
    own = {field.name: field for field in fields(kind)}
    needed = [
        name
        for name, field in own.items()
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    ]
    unknown = sorted(set(values) - set(own))
    missing = [name for name in needed if not values.get(name)]
    if unknown or missing:
        raise ValueError(
            f"task {where}: unknown keys {unknown}, missing keys {missing}; allowed: {list(own)}"
        )
    return kind(**{k: tuple(v) if isinstance(v, list) else v for k, v in values.items()})
