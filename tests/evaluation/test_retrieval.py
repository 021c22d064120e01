"""Retrieval: no leak, fixed lists, one draw for both architectures, chance and 100% on toys."""

import json
import pickle
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import yaml

from ablate import rng
from ablate.encoder.backends import resolve
from ablate.encoder.config import EncoderConfig
from ablate.encoder.heads import MaskedLanguageModel
from ablate.encoder.initialization import initialize
from ablate.evaluation import candidates, kinds, predictions, protocol, rankers, stored
from ablate.evaluation import retrieval as module
from ablate.evaluation.bm25 import BM25
from ablate.evaluation.candidates import TrainingPools
from ablate.evaluation.measurement import EvaluationResult, Part, Setup
from ablate.evaluation.retrieval_data import Collection, DataSpec, load_data
from ablate.evaluation.settings import FinetuneSettings

ROOT = Path(__file__).parents[2]
DATA = ROOT.parent / "shared" / "data"
LETTERS, OTHERS, FILLERS = "abcdefgh", "ijklmnop", "qrstuvwxyz"
TRANSLATE = str.maketrans(LETTERS, OTHERS)
QUICK = {"learning_rate": 5e-3, "batch_size": 8, "num_epochs": 6, "min_steps": 0, "dropout": 0.0}
SETTINGS = {"max_length": 16, "pooling": "mean", **QUICK}


class LetterTokenizer:
    """One id a letter, in two alphabets that a model must learn to match."""

    pad_token_id, unk_token_id, cls_token_id, sep_token_id, mask_token_id = range(5)
    vocab_size = 5 + 26
    hash = "letters"

    def encode_batch(self, texts):
        known = LETTERS + OTHERS + FILLERS
        return [SimpleNamespace(ids=[5 + known.index(c) for c in t.split()]) for t in texts]


def make_model(**changes):
    config = EncoderConfig(
        **{
            "vocab_size": LetterTokenizer.vocab_size,
            "hidden_size": 16,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "intermediate_size": 32,
            "max_position_embeddings": 16,
            "init_std": 0.1,
            **changes,
        }
    )
    backend = resolve("auto", device="cpu", dtype=torch.float32, max_length=16)
    model = MaskedLanguageModel(config, backend)
    initialize(model, config, lambda name: rng.torch_seed(0, "init", name))
    return model.eval()


PAIRS = DataSpec(
    "pairs", "toy", query="question", document="sentence", labels=("yes", "no"), relevant=("yes",)
)


def write(folder, name, rows):
    folder.mkdir(exist_ok=True, parents=True)
    (folder / f"{name}.jsonl").write_text("\n".join(json.dumps(row) for row in rows))


def pair(question, sentence, label):
    return {"question": question, "sentence": sentence, "label": label}


def test_pairs_become_a_collection_of_different_texts(tmp_path):
    write(tmp_path / "toy", "train", [pair("q", "x", 0), pair("r", "y", 1)])
    write(
        tmp_path / "toy",
        "validation",
        [
            pair("who", "one", 0),
            pair("who", "two", "yes"),
            pair("Who ", "ONE", 0),
            pair("?", "3", 1),
        ],
    )
    data = load_data(PAIRS, name="toy", path=tmp_path)
    assert data.test.documents == ["one", "two", "3"]
    assert data.test.queries == ["who"]
    assert data.test.relevance == [{0: 1.0, 1: 1.0}]


def test_no_text_of_the_test_part_is_trained_on(tmp_path):
    train = [pair("a", "doc a", 0), pair("b", "Doc  Shared", 0), pair("WHO", "doc c", 0)]
    train += [pair("d", "doc d", 0), pair("d", "doc shared", 0)]
    write(tmp_path / "toy", "train", train)
    write(tmp_path / "toy", "validation", [pair("who", "one", 0), pair("x", "doc shared", 1)])
    data = load_data(PAIRS, name="toy", path=tmp_path)
    assert data.train.queries == ["a", "d"]  # b lost its only document, WHO is a test query
    assert data.train.documents == ["doc a", "doc c", "doc d"]
    assert data.train.relevance == [{0: 1.0}, {2: 1.0}]
    assert data.notes == {"train_queries_dropped": 2, "train_documents_dropped": 1}


def test_squad_goes_by_article_to_one_side_or_the_other(tmp_path):
    rows = [
        {
            "id": f"{t}{p}{q}",
            "title": f"t{t}",
            "context": f"text {t} {p}",
            "question": f"q {t} {p} {q}",
        }
        for t in range(6)
        for p in range(2)
        for q in range(3)
    ]
    write(tmp_path / "qa" / "toy", "validation", rows)
    spec = DataSpec("squad", "toy", suite="qa", train=None)
    data = load_data(spec, name="toy", path=tmp_path)
    sides = [{text.split()[1] for text in part.documents} for part in (data.train, data.test)]
    assert len(sides[0]) == len(sides[1]) == 3
    assert not sides[0] & sides[1]
    assert len(data.test.queries) == 18
    assert data.notes["train_queries_dropped"] == 0
    for part in (data.train, data.test):
        for text, found in zip(part.queries, part.relevance, strict=True):
            (document,) = found
            assert part.documents[document].split()[1:] == text.split()[1:3]


def test_files_keep_grades_and_what_answers_training_queries_alone_is_for_training(tmp_path):
    folder = tmp_path / "mine"
    write(folder, "documents", [{"id": f"d{i}", "text": f"text {i}"} for i in range(6)])
    splits = ["train", "test", "test", "train", "dev"]
    queries = [{"id": f"q{i}", "text": f"query {i}", "split": s} for i, s in enumerate(splits)]
    write(folder, "queries", queries)
    graded = [("q0", "d0", 1), ("q0", "d1", 1), ("q1", "d1", 2), ("q1", "d2", 1), ("q2", "d3", 0)]
    graded += [("q3", "d4", 1), ("q4", "d5", 1)]
    write(folder, "relevance", [dict(zip(("query", "document", "grade"), g)) for g in graded])  # noqa: B905
    spec = DataSpec("files", "mine", train="train", test="test")
    data = load_data(spec, name="mine", path=tmp_path)
    assert data.train.document_ids == ["d0", "d4"]  # d1 answers a test query too
    assert data.train.relevance == [{0: 1.0}, {1: 1.0}]
    assert data.test.document_ids == ["d1", "d2", "d3", "d5"]
    assert data.test.query_ids == ["q1"]
    assert data.test.relevance == [{0: 2.0, 1: 1.0}]
    assert data.notes["queries_without_relevant_document"] == 1
    assert data.notes["queries_of_other_splits"] == 1


def test_two_queries_of_one_id_are_refused(tmp_path):
    """Scores are means over ids: nine questions would be scored as three."""
    rows = [{**pair(f"q {i}", f"text {i}", "yes"), "idx": i % 3} for i in range(9)]
    write(tmp_path / "toy", "train", toy_rows(0, 4, 2))
    write(tmp_path / "toy", "validation", rows)
    with pytest.raises(ValueError, match=r"toy/validation: two queries have the id '0': 'q 0' and"):
        load_data(PAIRS, name="toy", path=tmp_path)
    write(tmp_path / "toy", "validation", [{**row, "idx": None} for row in rows])
    assert load_data(PAIRS, name="toy", path=tmp_path).test.query_ids == [str(i) for i in range(9)]
    squad = [{"id": i % 3, "title": f"t{i}", "context": f"text {i}", "question": f"q {i}"}
             for i in range(9)]  # fmt: skip
    write(tmp_path / "qa", "validation", squad)
    spec = DataSpec("squad", "qa", train=None, test_fraction=0.9)
    with pytest.raises(ValueError, match="two queries have the id"):
        load_data(spec, name="qa", path=tmp_path)
    folder = tmp_path / "mine"
    write(folder, "documents", [{"id": "d", "text": "x"}, {"id": "d", "text": "y"}])
    with pytest.raises(ValueError, match="mine/documents: two rows have the id 'd'"):
        load_data(DataSpec("files", "mine"), name="mine", path=tmp_path)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (DataSpec("web", "toy"), "source=web is unknown"),
        (DataSpec("pairs", "toy", labels=("a", "b")), "must name some of"),
        (DataSpec("files", "toy"), "no file documents.jsonl"),
    ],
)
def test_bad_sources_are_refused(tmp_path, spec, message):
    with pytest.raises(ValueError, match=message):
        load_data(spec, name="toy", path=tmp_path)
    with pytest.raises(ValueError, match=r"source=web|evaluation\.path=FOLDER"):
        load_data(spec, name="toy", path=None)


def collection(number=30):
    random = np.random.default_rng(3)
    words = [f"w{i}" for i in range(12)]
    documents = [" ".join(random.choice(words, 6)) + f" n{i}" for i in range(number)]
    queries = [" ".join(random.choice(words, 3)) + f" u{i}" for i in range(number)]
    relevance = [{i: 1.0, (i + 1) % number: 2.0} for i in range(number)]
    ids = [f"{i}" for i in range(number)]
    return Collection(ids, documents, ids, queries, relevance)


def test_lists_hold_the_relevant_the_hard_and_others_and_are_always_the_same():
    given = collection()
    how = {"size": 10, "num_hard": 4, "max_queries": 12, "seed": 0, "name": "toy"}
    found, again = candidates.test_lists(given, **how), candidates.test_lists(given, **how)
    index = BM25(given.documents)
    assert len(found.queries) == 12
    for row, query in enumerate(found.queries.tolist()):
        chosen = found.candidates[row]
        assert chosen.tolist() == again.candidates[row].tolist() == sorted(set(chosen.tolist()))
        relevant = set(given.relevance[query])
        assert len(chosen) == 10
        assert relevant <= set(chosen.tolist())
        ranked = index.ranked(given.queries[query], 30)
        hard = [i for i in ranked.tolist() if i not in relevant][:4]
        assert set(hard) <= set(chosen.tolist())
        assert found.bm25[row] == pytest.approx(index.scores(given.queries[query])[chosen])
    other = candidates.test_lists(given, **{**how, "seed": 1})
    assert [c.tolist() for c in other.candidates] != [c.tolist() for c in found.candidates]


def test_fewer_queries_are_a_part_of_more_with_the_same_lists():
    given = collection()
    how = {"size": 10, "num_hard": 4, "seed": 0, "name": "toy"}
    few = candidates.test_lists(given, max_queries=5, **how)
    more = candidates.test_lists(given, max_queries=20, **how)
    place = {query: row for row, query in enumerate(more.queries.tolist())}
    for row, query in enumerate(few.queries.tolist()):
        assert few.candidates[row].tolist() == more.candidates[place[query]].tolist()


def test_drawn_negatives_are_wrong_different_and_named_by_their_stream():
    given = collection()
    queries = np.array([3, 7, 20])
    pools = TrainingPools.build(given, queries, 6)
    training = rankers.Training(queries, pools, 5, (0, "finetune", "toy", 0))
    state = np.random.get_state()[1].copy()
    drawn = [training.draw(step, np.array([2, 0])) for step in range(20)]
    for step in drawn:
        for query, positive, negatives in step:
            assert positive in given.relevance[query]
            assert len(set(negatives.tolist())) == 5
            assert not set(negatives.tolist()) & set(given.relevance[query])
            hard = set(pools.hard[queries.tolist().index(query)].tolist())
            assert len(hard & set(negatives.tolist())) >= 3
    same = training.draw(0, np.array([2, 0]))
    for (query, positive, negatives), mine in zip(drawn[0], same, strict=True):
        assert (query, positive, negatives.tolist()) == (*mine[:2], mine[2].tolist())
    assert {positive for step in drawn for _, positive, _ in step} > {20}
    assert (np.random.get_state()[1] == state).all()


def test_a_collection_too_small_for_the_negatives_gives_what_there_is():
    small = Collection(["a", "b", "c"], ["x", "y", "z"], ["q"], ["x"], [{0: 1.0}])
    pools = TrainingPools.build(small, np.array([0]), 5)
    _, negatives = pools.draw(0, 0, 7, np.random.default_rng(0))
    assert sorted(negatives.tolist()) == [1, 2]


def test_list_loss_is_the_softmax_of_each_list_of_its_own_length():
    answers = torch.tensor([1.0, 0.0, 2.0, 0.5, -1.0])
    expected = [-1 + np.log(np.exp([1.0, 0.0, 2.0]).sum()), -0.5 + np.log(np.exp([0.5, -1]).sum())]
    assert rankers.list_loss(answers, [3, 2]).item() == pytest.approx(sum(expected), rel=1e-6)


def test_a_pair_is_one_row_of_query_and_document():
    given = Collection(["d"], ["c d e f"], ["q"], ["a b"], [{0: 1.0}])
    pairs = rankers.PairRows(given, LetterTokenizer(), 8)
    rows = pairs.rows([(0, 0)])
    assert rows.input_ids.tolist() == [2, 5, 6, 3, 7, 8, 9, 3]
    assert rows.token_type_ids.tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
    assert rows.truncated_tokens == 1
    assert pairs.longest == 8


def toy_rows(seed, queries_per_key, documents_per_key):
    """A question holds a letter and fillers; every document with the letter's translation answers
    it. Fillers of questions and documents differ, so no question shares a word with its answer."""
    random = np.random.default_rng(seed)

    def texts(word, number, fillers):
        found = set()
        while len(found) < number:
            found.add(" ".join(random.permutation([word, *random.choice(list(fillers), 3)])))
        return sorted(found)

    rows = []
    for letter in LETTERS[:4]:
        documents = texts(letter.translate(TRANSLATE), documents_per_key, FILLERS[:5])
        for question in texts(letter, queries_per_key, FILLERS[5:]):
            rows += [pair(question, document, "yes") for document in documents]
    return rows


DEFINITION = {
    "kind": "retrieval",
    "name": "toy_retrieval",
    "collection": {
        "source": "pairs",
        "folder": "toy",
        "query": "question",
        "document": "sentence",
        "labels": ["yes", "no"],
        "relevant": ["yes"],
    },
    "candidates": 12,
    "hard_candidates": 0,
    "max_test_queries": 40,
    "negatives": 3,
    "hard_pool": 5,
    "recall_at": [1],
}


@pytest.fixture
def measurement(tmp_path):
    write(tmp_path / "toy", "train", toy_rows(0, 40, 12))
    write(tmp_path / "toy", "validation", toy_rows(1, 10, 4))
    return pickle.loads(pickle.dumps(kinds.load(DEFINITION, path=tmp_path)))


def evaluate(measurement, out, model=None, **settings):
    return protocol.evaluate(
        model or make_model(), LetterTokenizer(), measurements=[measurement], seed=0, out_dir=out,
        **{**SETTINGS, **settings},
    )  # fmt: skip


NAME = "retrieval/toy_retrieval/"


@pytest.fixture
def untrained(measurement, tmp_path):
    return evaluate(measurement, tmp_path / "out", learning_rate=1e-12, max_steps=1)


def test_untrained_encoders_rank_at_chance(untrained):
    entries = untrained.details["toy_retrieval"]["metrics"]
    for score in ("biencoder_ndcg10", "crossencoder_ndcg10", "biencoder_zero_shot_ndcg10"):
        entry = entries[NAME + score]
        assert entry["n"] == 40
        # no bound from the queries' standard error: they share their documents
        assert abs(untrained.scores[NAME + score] - entry["majority"]) < 0.15
        assert entry["bm25"] == pytest.approx(entry["majority"])  # no common word: all tied


@pytest.mark.parametrize("causal", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_leaking_toys_are_ranked_without_error_by_both(measurement, tmp_path, causal):
    model = make_model(causal=causal)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    pooling = "last_mean" if causal else "mean"
    result = evaluate(measurement, tmp_path / "out", model, num_epochs=14, pooling=pooling)
    assert result.scores[NAME + "biencoder_ndcg10"] > 0.99
    assert result.scores[NAME + "biencoder_collection_ndcg10"] > 0.99
    assert result.scores[NAME + "crossencoder_ndcg10"] > 0.99
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_frozen_encoders_train_their_new_weights_alone(measurement, tmp_path):
    result = evaluate(measurement, tmp_path / "out", frozen=True, max_steps=3)
    by_architecture = result.details["toy_retrieval"]["by_architecture"]
    assert by_architecture["biencoder"]["new_weights"] == ["projection.weight"]
    new = by_architecture["crossencoder"]["new_weights"]
    assert new
    assert all(name.startswith("head.") for name in new)
    assert by_architecture["biencoder"]["unused_settings"]["pooling"] == "mean"


def test_a_causal_model_refuses_the_first_token(measurement, tmp_path):
    with pytest.raises(ValueError, match=r"evaluation\.finetune\.pooling=last_mean"):
        evaluate(measurement, tmp_path / "out", make_model(causal=True), pooling="cls")


def test_both_architectures_rank_the_same_lists(untrained, tmp_path):
    table = predictions.read(tmp_path / "out/predictions/toy_retrieval.parquet").table
    lists = {}
    for row in zip(
        table["architecture"],
        table["split"],
        table["example_id"],
        table["document_id"],
        strict=True,
    ):
        if row[1] == "candidates":
            lists.setdefault(row[0], []).append(row[2:])
    assert lists["biencoder"] == lists["crossencoder"]
    assert len(lists["biencoder"]) == 40 * 12


def test_scores_follow_from_the_stored_table_and_are_those_of_scikit_learn(untrained, tmp_path):
    from sklearn.metrics import ndcg_score

    table = predictions.read(tmp_path / "out/predictions/toy_retrieval.parquet").table
    for architecture in ("biencoder", "crossencoder"):
        by_query = {}
        for i, own in enumerate(table["architecture"]):
            if own == architecture and table["split"][i] == "candidates":
                rows = by_query.setdefault(table["example_id"][i], ([], []))
                rows[0].append(table["label"][i])
                rows[1].append(table["prediction"][i])
        expected = np.mean([ndcg_score([g], [s], k=10) for g, s in by_query.values()])
        assert untrained.scores[f"{NAME}{architecture}_ndcg10"] == pytest.approx(expected)


def test_a_run_is_scored_again_from_its_parts_and_seeds_are_parts_too(measurement, tmp_path):
    how = {"max_steps": 2, "num_finetune_seeds": 2}
    first = evaluate(measurement, tmp_path / "out", **how)
    entry = first.details["toy_retrieval"]["metrics"][NAME + "crossencoder_mrr10"]
    assert len(entry["by_seed"]) == 2
    assert entry["by_seed"][0] != entry["by_seed"][1]
    again = evaluate(measurement, tmp_path / "out", **how)
    assert (again.scores, again.details) == (first.scores, first.details)
    assert again.seconds["toy_retrieval"] == 0
    json.dumps(first.details)


def test_a_finished_run_is_scored_again_without_model_or_data(untrained, tmp_path):
    record = {"status": "complete", "evaluation": untrained.details, "scores": untrained.scores}
    (tmp_path / "out" / "record.json").write_text(json.dumps(record))
    found = stored.score_again(stored.open_run(tmp_path / "out"))
    assert found.result.scores == untrained.scores
    assert found.result.details == untrained.details
    assert found.as_recorded == []
    assert found.differences == {}


def test_a_diverged_fit_ranks_at_chance_with_a_flag(measurement, untrained, tmp_path):
    parts = [
        predictions.read(file) for file in sorted((tmp_path / "out/fits").glob("toy_retrieval-*"))
    ]
    broken = []
    for part in parts:
        table = {**part.table, "prediction": [-np.inf] * len(part.table["prediction"])}
        broken.append(Part(table, part.facts))
    result = EvaluationResult()
    setup = Setup(0, FinetuneSettings(), 1, tmp_path)
    measurement.add_to(result, broken, setup)
    entry = result.details["toy_retrieval"]["metrics"][NAME + "crossencoder_ndcg10"]
    assert entry["flags"] == ["not_finite"]
    assert result.scores[NAME + "crossencoder_ndcg10"] == pytest.approx(entry["majority"])
    assert module._ordered(np.array([np.nan, 1.0])) == [-np.inf, 1.0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"architectures": ["tower"]}, "give one or both"),
        ({"candidates": 1}, "candidates=1 is too small"),
        ({"negative": 3}, "unknown keys"),
        ({"temperature": -1}, "temperature=-1"),
    ],
)
def test_bad_definitions_are_refused(tmp_path, change, message):
    with pytest.raises(ValueError, match=message):
        kinds.load({**DEFINITION, **change}, path=tmp_path)


@pytest.mark.skipif(not DATA.is_dir(), reason="no local data beside the repository")
@pytest.mark.parametrize(
    ("name", "counts"),
    [("qnli_retrieval", (5027, 2702, 3911)), ("xquad_retrieval", (633, 552, 120))],
)
def test_local_collections_have_the_counts_of_their_files(name, counts):
    values = yaml.safe_load((ROOT / f"conf/evaluation/task/{name}.yaml").read_text())
    data = kinds.load(values, path=DATA).data
    found = len(data.train.queries), len(data.test.queries), len(data.test.documents)
    assert found == counts
    for mine, theirs in zip(data.train.texts(), data.test.texts(), strict=True):
        assert not mine & theirs
