"""Ranking metrics against scikit-learn and over all orders of ties; BM25 by hand."""

import itertools

import numpy as np
import pytest
from sklearn.metrics import ndcg_score

from ablate.evaluation import ranking
from ablate.evaluation.bm25 import BM25, words
from ablate.evaluation.ranking import by_query, places, random_places


def found(scores, grades):
    scores, grades = np.asarray(scores, float), np.asarray(grades, float)
    relevant = np.flatnonzero(grades > 0)
    return places(scores, relevant, grades[relevant])


def over_all_orders(scores, grades, metric):
    """The plain metric, averaged over every order that agrees with the scores."""
    n, values = len(scores), []
    for order in itertools.permutations(range(n)):
        if all(scores[a] >= scores[b] for a, b in itertools.pairwise(order)):
            values.append(metric([grades[i] for i in order]))
    return np.mean(values)


def plain_reciprocal_rank(k):
    return lambda grades: next((1 / r for r, g in enumerate(grades[:k], 1) if g > 0), 0.0)


def plain_recall(k):
    return lambda grades: sum(g > 0 for g in grades[:k]) / sum(g > 0 for g in grades)


@pytest.mark.parametrize("levels", [3, 1000])  # many ties, none
def test_ndcg_is_that_of_scikit_learn(levels):
    random = np.random.default_rng(0)
    for _ in range(200):
        n = int(random.integers(2, 30))
        scores = random.integers(0, levels, n) / 7
        grades = random.integers(0, 4, n) * (random.random(n) < 0.4)
        grades[random.integers(n)] = 1
        ours = ranking.ndcg(found(scores, grades), 10)
        assert ours == pytest.approx(ndcg_score([grades], [scores], k=10), abs=1e-12)


@pytest.mark.parametrize("k", [1, 2, 3, 10])
@pytest.mark.parametrize("levels", [1, 2, 3, 100])
def test_reciprocal_rank_and_recall_are_means_over_the_orders_of_ties(levels, k):
    random = np.random.default_rng(levels)
    for _ in range(8):
        scores = random.integers(0, levels, 6).astype(float)
        grades = (random.random(6) < 0.4).astype(float)
        grades[random.integers(6)] = 2
        ours = found(scores, grades)
        expected = over_all_orders(scores, grades, plain_reciprocal_rank(k))
        assert ranking.reciprocal_rank(ours, k) == pytest.approx(expected)
        expected = over_all_orders(scores, grades, plain_recall(k))
        assert ranking.recall(ours, k) == pytest.approx(expected)


def test_metrics_without_ties_are_those_of_torchmetrics():
    import torch
    from torchmetrics.functional.retrieval import (
        retrieval_normalized_dcg,
        retrieval_recall,
        retrieval_reciprocal_rank,
    )

    random = np.random.default_rng(1)
    for _ in range(50):
        scores = random.permutation(15).astype(float)
        grades = (random.random(15) < 0.3).astype(int)
        grades[random.integers(15)] = 1
        ours = found(scores, grades)
        theirs = torch.tensor(scores), torch.tensor(grades)
        for metric, function in (
            ("ndcg10", retrieval_normalized_dcg),
            ("mrr10", retrieval_reciprocal_rank),
            ("recall10", retrieval_recall),
        ):
            expected = float(function(*theirs, top_k=10))
            assert by_query(metric, [ours])[0] == pytest.approx(expected, abs=1e-6)


def test_a_constant_scorer_gets_chance_and_not_one():
    grades = np.zeros(20)
    grades[0] = 1  # an order that happens to be good
    constant = found(np.zeros(20), grades)
    for metric in ("ndcg10", "mrr10", "recall1", "recall10"):
        chance = by_query(metric, [random_places(20, np.ones(1))])[0]
        assert by_query(metric, [constant])[0] == pytest.approx(chance)
    assert by_query("recall10", [constant])[0] == pytest.approx(0.5)
    assert by_query("mrr10", [constant])[0] == pytest.approx(sum(1 / np.arange(1, 11)) / 20)


def test_chance_is_the_mean_over_random_orders():
    random = np.random.default_rng(2)
    grades = np.array([3.0, 1.0, 1.0, *np.zeros(17)])
    draws = [found(random.permutation(20), grades) for _ in range(4000)]
    for metric in ("ndcg10", "mrr10", "recall10"):
        values = by_query(metric, draws)
        chance = by_query(metric, [random_places(20, grades[:3])])[0]
        assert abs(values.mean() - chance) < 4 * values.std() / len(values) ** 0.5


def test_best_order_scores_one_and_what_is_no_number_stands_last():
    grades = np.array([0.0, 2.0, 1.0])
    assert by_query("ndcg10", [found([0.0, 3.0, 1.0], grades)])[0] == pytest.approx(1.0)
    lost = places(np.array([np.nan, 1.0, np.nan]), np.array([0]), np.ones(1))
    assert (lost.above.tolist(), lost.tied.tolist()) == ([1], [2])


def test_bm25_of_three_documents_by_hand():
    index = BM25(["a a b", "b c", "d"], k1=1.2, b=0.75)
    idf = {"a": np.log(1 + 2.5 / 1.5), "b": np.log(1 + 1.5 / 2.5)}

    def gain(word, times, length):
        return idf[word] * times * 2.2 / (times + 1.2 * (0.25 + 0.75 * length / 2))

    expected = [gain("a", 2, 3) + gain("b", 1, 3), gain("b", 1, 2), 0.0]
    assert index.scores("A b?") == pytest.approx(expected)
    assert index.scores("b b")[1] == pytest.approx(2 * expected[1])
    assert index.scores("unknown").tolist() == [0, 0, 0]


def test_bm25_ranks_ties_in_the_order_of_the_collection():
    index = BM25(["x", "y z", "y z", "y z"])
    assert index.ranked("y", 4).tolist() == [1, 2, 3, 0]
    assert words("Don't stop: 3.5!") == ["don", "t", "stop", "3", "5"]
