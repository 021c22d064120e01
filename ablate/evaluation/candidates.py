"""Documents, queries, relevance -> what each query's answers compete with.

A test query has one fixed list, the same for every arm and architecture: what is relevant, the
best that BM25 offers of the rest (hard), and others at random. As the hard ones are BM25's best,
BM25 stands in a list about where it stands in the collection. For training each query has a pool of
hard documents and all others; negatives are drawn from both in halves.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ablate import rng
from ablate.evaluation.bm25 import BM25
from ablate.evaluation.ranking import Places, places
from ablate.evaluation.retrieval_data import Collection


@dataclass(frozen=True)
class TestLists:
    """For each chosen query (its number in `queries`): candidate numbers in the order of the
    collection, their BM25 scores, and where BM25 puts the relevant ones in the whole collection."""

    queries: np.ndarray
    candidates: list[np.ndarray]
    bm25: list[np.ndarray]
    bm25_places: list[Places]


def test_lists(
    collection: Collection,
    *,
    size: int,
    num_hard: int,
    max_queries: int | None,
    seed: int,
    name: str,
) -> TestLists:
    """Lists of `size` (more where more are relevant, fewer where the collection is smaller)."""
    index = BM25(collection.documents)
    queries = np.arange(len(collection.queries))
    if max_queries is not None and max_queries < len(queries):
        draw = rng.generator(seed, "retrieval_queries", name)
        queries = np.sort(draw.permutation(len(queries))[:max_queries])
    lists, scores, found = [], [], []
    for query in queries.tolist():
        relevant = np.array(sorted(collection.relevance[query]))
        score = index.scores(collection.queries[query])
        order = np.argsort(-score, kind="stable")
        rest = order[~np.isin(order, relevant)]
        room = max(size - len(relevant), 0)
        hard = rest[: min(num_hard, room)]
        others = np.sort(rest[len(hard) :])
        draw = rng.generator(seed, "retrieval_candidates", name, collection.query_ids[query])
        random = draw.permutation(others)[: room - len(hard)]
        chosen = np.sort(np.concatenate([relevant, hard, random]))
        lists.append(chosen)
        scores.append(score[chosen])
        grades = np.array([collection.relevance[query][i] for i in relevant.tolist()])
        found.append(places(score, relevant, grades))
    return TestLists(queries, lists, scores, found)


@dataclass(frozen=True)
class TrainingPools:
    """For each training query the BM25 numbers of hard documents, best first, none relevant."""

    collection: Collection
    hard: list[np.ndarray]

    @classmethod
    def build(cls, collection: Collection, queries: np.ndarray, depth: int) -> TrainingPools:
        """Pools of `depth` for the queries numbered `queries`."""
        index = BM25(collection.documents)
        hard = []
        for query in queries.tolist():
            relevant = list(collection.relevance[query])
            best = index.ranked(collection.queries[query], depth + len(relevant))
            hard.append(best[~np.isin(best, relevant)][:depth])
        return cls(collection, hard)

    def draw(
        self, query: int, place: int, number: int, random: np.random.Generator
    ) -> tuple[int, np.ndarray]:
        """One positive of a query (its number, and its place among the pools) and `number`
        different negatives: half of them hard, the rest any, never a relevant one."""
        relevant = sorted(self.collection.relevance[query])
        positive = relevant[int(random.integers(len(relevant)))]
        hard = random.permutation(self.hard[place])[: (number + 1) // 2]
        taken = {*relevant, *hard.tolist()}
        negatives = hard.tolist()
        available = len(self.collection.documents) - len(taken)
        while len(negatives) < number and available:
            other = int(random.integers(len(self.collection.documents)))
            if other not in taken:
                taken.add(other)
                negatives.append(other)
                available -= 1
        return positive, np.array(negatives, dtype=np.int64)
