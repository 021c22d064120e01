"""Retrieval as a measurement: a bi-encoder and a cross-encoder on the same candidate lists.

Each part is one fit of one architecture (`architectures`, in turn) and holds a row for each
candidate of each test query (split `candidates`) and, of the bi-encoder, a row for each relevant
document of a query in the whole collection (split `collection`): how many documents stand above it
and beside it, which is all that a metric needs (`ranking`). BM25's scores of the same documents
stand in the table too. Reading the whole collection for every query is what a cross-encoder is too
dear for, so it has no such split.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ablate.evaluation import candidates as lists
from ablate.evaluation import contrastive, rankers, retrieval_scores
from ablate.evaluation.candidates import TrainingPools
from ablate.evaluation.fitting import FinetuneSettings
from ablate.evaluation.measurement import EvaluationResult, Part, Setup, Subject, Table
from ablate.evaluation.ranking import places
from ablate.evaluation.retrieval_data import RetrievalData, load_data
from ablate.evaluation.retrieval_spec import RetrievalSpec
from ablate.evaluation.texts import sampled


@dataclass(frozen=True)
class Retrieval:
    """A collection that is measured with each architecture, once a fine-tuning seed."""

    spec: RetrievalSpec
    data: RetrievalData

    @property
    def name(self) -> str:
        return self.spec.name

    def hash(self) -> str:
        return self._hash

    @functools.cached_property
    def _hash(self) -> str:
        content = json.dumps([dataclasses.asdict(self.spec), self.data.hash()])
        return hashlib.blake2b(content.encode(), digest_size=8).hexdigest()

    @functools.cached_property
    def test_lists(self) -> lists.TestLists:
        """The candidates of the test queries, made from the data and the spec alone."""
        spec = self.spec
        return lists.test_lists(
            self.data.test, size=spec.candidates, num_hard=spec.hard_candidates,
            max_queries=spec.max_test_queries, seed=spec.candidate_seed, name=spec.name,
        )  # fmt: skip

    def key(self, setup: Setup) -> dict[str, Any]:
        return {
            "data": self.hash(),
            "seed": setup.seed,
            "settings": dataclasses.asdict(setup.settings),
        }

    def num_parts(self, setup: Setup) -> int:
        return setup.num_seeds * len(self.spec.architectures)

    def measure(
        self, subject: Subject, setup: Setup, number: int, on_progress: Callable[[int, int], None]
    ) -> Part:
        seed, which = divmod(number, len(self.spec.architectures))
        architecture, settings = self.spec.architectures[which], setup.settings
        queries = sampled(
            len(self.data.train.queries), settings.max_train_examples, settings.sample_seed,
            self.name,
        )  # fmt: skip
        pools = TrainingPools.build(self.data.train, queries, self.spec.hard_pool)
        stream = (setup.seed, "finetune", self.name, seed)
        training = rankers.Training(queries, pools, self.spec.negatives, stream)
        device = next(subject.model.parameters()).device
        run = self._bi_encoder if architecture == "biencoder" else self._cross_encoder
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            scores, collection, trained, cut = run(subject, settings, training, on_progress)
        unused = ("head", "pooling") if architecture == "biencoder" else ()
        facts = {
            "name": self.name,
            "suite": self.spec.suite,
            "architecture": architecture,
            "recall_at": list(self.spec.recall_at),
            "loss": "softmax of the positive against its negatives, mean over queries",
            "negatives_per_query": self.spec.negatives,
            "in_batch_negatives": architecture == "biencoder",
            "unused_settings": contrastive.unused_settings(settings, *unused),
            "steps": trained.steps,
            "new_weights": trained.new_weights,
            "attention_kernel": trained.kernel,
            "num_train_examples": len(queries),
            "num_train_available": len(self.data.train.queries),
            "num_scored_available": {"candidates": len(self.data.test.queries)},
            "num_test_documents": len(self.data.test.documents),
            "counted": dict(self.data.notes),
            "train_tokens": trained.tokens_seen,
            "truncated_tokens": {**trained.truncated_tokens, **cut},
            "train_loss": trained.loss,
        }
        table = _joined([self._candidates(scores, architecture, seed), collection])
        table["part"] = [number] * len(table["split"])
        return Part(table, facts)

    def _bi_encoder(
        self, subject: Subject, settings: FinetuneSettings, training: rankers.Training,
        on_progress: Callable[[int, int], None],
    ) -> tuple[dict[str, np.ndarray], Table, rankers.Trained, dict[str, int]]:  # fmt: skip
        data, found = self.data, self.test_lists
        sides = rankers.texts_of(data.train, subject.tokenizer, settings.max_length)
        queries, documents = rankers.texts_of(data.test, subject.tokenizer, settings.max_length)
        model = contrastive.new_bi_encoder(
            subject.model, settings, self.spec.pooling, task=self.name,
            longest=max(int(rows.lengths.max()) for rows in (*sides, queries, documents)),
        )  # fmt: skip

        def cosines() -> np.ndarray:  # (chosen queries, documents)
            return model.embed(queries)[found.queries] @ model.embed(documents).T

        before = cosines()
        trained = rankers.train_bi_encoder(
            model, sides, training, self.spec.contrastive, on_progress
        )
        after = cosines()
        scores = {
            name: np.concatenate([row[c] for row, c in zip(all_, found.candidates, strict=True)])
            for name, all_ in (("prediction", after), ("zero_shot", before))
        }
        cut = {"queries": queries.truncated_tokens, "documents": documents.truncated_tokens}
        seed = int(training.stream[-1])
        return scores, self._collection(after, seed), trained, cut

    def _cross_encoder(
        self, subject: Subject, settings: FinetuneSettings, training: rankers.Training,
        on_progress: Callable[[int, int], None],
    ) -> tuple[dict[str, np.ndarray], Table, rankers.Trained, dict[str, int]]:  # fmt: skip
        found = self.test_lists
        own = rankers.PairRows(self.data.train, subject.tokenizer, settings.max_length)
        scored = rankers.PairRows(self.data.test, subject.tokenizer, settings.max_length)
        model = rankers.CrossEncoder(
            subject.model, settings, task=self.name, stream=training.stream,
            longest=max(own.longest, scored.longest),
        )  # fmt: skip
        trained = model.train(own, training, on_progress)
        pairs = [
            (query, document)
            for query, chosen in zip(found.queries.tolist(), found.candidates, strict=True)
            for document in chosen.tolist()
        ]
        rows = scored.rows(pairs)
        return {"prediction": model.scores(rows)}, {}, trained, {"pairs": rows.truncated_tokens}

    def _candidates(self, scores: dict[str, np.ndarray], architecture: str, seed: int) -> Table:
        """A row for each candidate of each query."""
        data, found = self.data.test, self.test_lists
        owner = np.repeat(found.queries, [len(chosen) for chosen in found.candidates])
        documents = np.concatenate(found.candidates)
        pairs = list(zip(owner.tolist(), documents.tolist(), strict=True))
        n = len(pairs)
        return {
            "example_id": [data.query_ids[query] for query, _ in pairs],
            "document_id": [data.document_ids[document] for _, document in pairs],
            "label": [data.relevance[query].get(document, 0.0) for query, document in pairs],
            "prediction": _ordered(scores["prediction"]),
            "split": ["candidates"] * n,
            "finetune_seed": [seed] * n,
            "architecture": [architecture] * n,
            "zero_shot": _ordered(scores["zero_shot"]) if "zero_shot" in scores else [None] * n,
            "bm25": np.concatenate(found.bm25).tolist(),
            **{name: [None] * n for name in retrieval_scores.PLACES},
        }

    def _collection(self, cosines: np.ndarray, seed: int) -> Table:
        """A row for each relevant document of each query."""
        data, found = self.data.test, self.test_lists
        tables: list[Table] = []
        for row, query in enumerate(found.queries.tolist()):
            relevant = np.array(sorted(data.relevance[query]))
            grades = [data.relevance[query][i] for i in relevant.tolist()]
            own = places(cosines[row], relevant, np.array(grades))
            by_bm25 = found.bm25_places[row]
            n = len(relevant)
            tables.append({
                "example_id": [data.query_ids[query]] * n,
                "document_id": [data.document_ids[i] for i in relevant.tolist()],
                "label": grades,
                "prediction": _ordered(cosines[row][relevant]),
                "split": ["collection"] * n,
                "finetune_seed": [seed] * n,
                "architecture": ["biencoder"] * n,
                "zero_shot": [None] * n,
                "bm25": [None] * n,
                "above": own.above.tolist(),
                "tied": own.tied.tolist(),
                "bm25_above": by_bm25.above.tolist(),
                "bm25_tied": by_bm25.tied.tolist(),
            })  # fmt: skip
        return _joined(tables)

    def add_to(self, result: EvaluationResult, parts: Sequence[Part], setup: Setup) -> None:
        retrieval_scores.add(result, parts, dataclasses.asdict(setup.settings))


def _ordered(scores: np.ndarray) -> list[float]:
    """What is not a number (a diverged fit) stands last, tied with its like."""
    values: list[float] = np.where(np.isnan(scores), -np.inf, scores).astype(np.float64).tolist()
    return values


def _joined(tables: Sequence[Table]) -> Table:
    tables = [table for table in tables if table]
    return {name: [v for table in tables for v in table[name]] for name in tables[0]}


def load(
    definition: Mapping[str, Any], *, path: str | Path | None, cache_dir: str | Path | None
) -> Retrieval:
    """The measurement of a definition (see `RetrievalSpec` and `retrieval_data.DataSpec`).

    Raises:
        ValueError: a bad definition, or data that cannot be used.
    """
    spec = RetrievalSpec.from_dict(definition)
    return Retrieval(spec, load_data(spec.collection, name=spec.name, path=path))
