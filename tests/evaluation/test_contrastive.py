"""Contrastive training: loss by hand, no false negatives, and sentence similarity end to end."""

import json
import pickle
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from ablate import rng
from ablate.encoder.backends import resolve
from ablate.encoder.config import EncoderConfig
from ablate.encoder.heads import MaskedLanguageModel
from ablate.encoder.initialization import initialize
from ablate.evaluation import contrastive, kinds, predictions, protocol, stored
from ablate.evaluation.contrastive import ContrastiveSettings, info_nce, negatives_of
from ablate.evaluation.encoding import encode
from ablate.evaluation.fitting import FinetuneSettings
from ablate.evaluation.texts import text_numbers

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


def test_loss_is_the_cross_entropy_of_a_hand_made_case():
    rows = torch.eye(2)
    columns = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]])
    negatives = torch.tensor([[False, True, True], [True, False, False]])
    loss = info_nce(rows, columns, torch.tensor([0, 1]), negatives, temperature=0.5)
    first = -2.0 + np.log(np.exp(2.0) + np.exp(0.0) + np.exp(1.2))
    second = -2.0 + np.log(np.exp(2.0) + np.exp(0.0))  # the third column is masked for it
    assert float(loss) == pytest.approx(first + second, rel=1e-6)


def test_copies_and_other_positives_of_a_text_are_no_negatives():
    texts, numbers = text_numbers(["a b", "c", "A  B", "d", "e", "f"])
    assert texts == ["a b", "c", "d", "e", "f"]  # "A  B" is a copy of "a b"
    pairs = numbers.reshape(-1, 2)  # (0, 1), (0, 2), (3, 4)
    right = contrastive.right_in_one_space(pairs)
    columns = np.unique(pairs[:, 1])
    assert columns.tolist() == [1, 2, 4]
    wrong = negatives_of(pairs[:, 0], columns, right.of_first)
    assert wrong.tolist() == [[False, False, True], [False, False, True], [True, True, False]]
    back = negatives_of(np.array([1, 4]), np.array([0, 1, 3]), right.of_second)
    assert back.tolist() == [[False, False, True], [True, True, False]]


@pytest.mark.parametrize("symmetric", [False, True])
def test_a_batch_of_copies_alone_has_nothing_to_learn_from(symmetric):
    model, rows = make_model(), encode(LetterTokenizer(), [("a",), ("b",)], max_length=16)
    settings = FinetuneSettings(**SETTINGS)
    encoder = contrastive.new_bi_encoder(model, settings, "mean", longest=16, task="t")
    pairs = np.array([[0, 1], [0, 1], [1, 0]])
    right = contrastive.right_in_one_space(pairs)
    how = ContrastiveSettings(symmetric=symmetric)
    loss, count = contrastive.contrastive_loss(encoder, (rows, rows), pairs, right, how)
    assert (loss.item(), count) == (0.0, 3)


def test_vectors_are_means_of_their_own_tokens_whatever_stands_beside():
    model = make_model()
    texts = [("a b c",), ("d",), ("e f",)]
    settings = FinetuneSettings(**SETTINGS)
    encoder = contrastive.new_bi_encoder(model, settings, "mean", longest=16, task="t")
    rows = encode(LetterTokenizer(), texts, max_length=16)
    together = encoder.embed(rows)
    for number, text in enumerate(texts):
        own = encode(LetterTokenizer(), [text], max_length=16)
        batch = own.batch(np.array([0]))
        hidden = model(batch).hidden.mean(0)
        expected = (hidden / hidden.norm()).detach().numpy()
        assert together[number] == pytest.approx(expected, abs=1e-6)
    assert encoder.new_weights == ()
    assert encoder.tokens_seen == 0


def test_a_frozen_encoder_begins_at_the_zero_shot_geometry_and_keeps_its_weights():
    model = make_model()
    rows = encode(LetterTokenizer(), [("a b",), ("c",)], max_length=16)
    tuned, frozen = (
        contrastive.new_bi_encoder(
            model, FinetuneSettings(**SETTINGS, frozen=value), "mean", longest=16, task="t"
        )
        for value in (False, True)
    )
    assert frozen.embed(rows) == pytest.approx(tuned.embed(rows), abs=1e-6)
    assert frozen.new_weights == ("projection.weight",)
    assert not any(p.requires_grad for p in frozen.encoder.parameters())


def test_a_causal_encoder_refuses_the_first_token():
    model = make_model(causal=True)
    settings = FinetuneSettings(**SETTINGS)
    with pytest.raises(ValueError, match="pooling=cls reads a row's first token"):
        contrastive.new_bi_encoder(model, settings, "cls", longest=16, task="t")
    contrastive.new_bi_encoder(model, settings, "last", longest=16, task="t")


@pytest.mark.parametrize("wrong", [{"temperature": 0}, {"pooling": "attention"}])
def test_bad_settings_name_the_task(wrong):
    with pytest.raises(ValueError, match="task 'x'"):
        ContrastiveSettings(**wrong).check("x")


def similar(number, seed):
    """Words of the first alphabet beside their translation (5), or beside other words (0)."""
    random = np.random.default_rng(seed)
    rows = []
    for i in range(number):
        first = random.choice(list(LETTERS), 3, replace=False)
        good = i % 2 == 0
        rest = [c for c in LETTERS if c not in first]
        second = first if good else random.choice(rest, 3, replace=False)
        rows.append(
            {
                "sentence1": " ".join(first),
                "sentence2": " ".join(random.permutation(second)).translate(TRANSLATE),
                "label": 5.0 if good else 0.0,
            }
        )
    return rows


DEFINITION = {
    "kind": "sentence_similarity",
    "name": "toy_embedding",
    "scored": {"name": "toy", "fields": ["sentence1", "sentence2"]},
    "positive_from": 4.0,
    "symmetric": True,
}


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / "toy"
    place.mkdir()
    for split, rows in (("train", similar(400, 0)), ("validation", similar(60, 1))):
        lines = "\n".join(json.dumps(row) for row in rows)
        (place / f"{split}.jsonl").write_text(lines)
    return tmp_path


def evaluate(measurement, out, model=None, **settings):
    return protocol.evaluate(
        model or make_model(), LetterTokenizer(), measurements=[measurement], seed=0, out_dir=out,
        **{**SETTINGS, **settings},
    )  # fmt: skip


@pytest.mark.parametrize("frozen", [False, True])
def test_a_leaking_toy_is_learned_and_zero_shot_stands_beside(folder, tmp_path, frozen):
    measurement = pickle.loads(pickle.dumps(kinds.load(DEFINITION, path=folder)))
    model = make_model()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    result = evaluate(measurement, tmp_path / "out", model, num_epochs=8, frozen=frozen)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    score = result.scores["embedding/toy_embedding/spearman"]
    assert score > (0.6 if frozen else 0.85)  # two groups: ties keep a perfect split at .87
    zero = result.scores["embedding/toy_embedding/zero_shot_spearman"]
    assert abs(zero) < 4 / 60**0.5
    details = result.details["toy_embedding"]
    entry = details["metrics"]["embedding/toy_embedding/spearman"]
    assert entry["zero_shot"] == zero
    assert entry["n"] == 60
    assert entry["majority"] == 0.0
    assert entry["flags"] == [None]
    assert details["new_weights"] == (["projection.weight"] if frozen else [])
    again = evaluate(measurement, tmp_path / "out", model, num_epochs=8, frozen=frozen)
    assert again.scores == result.scores
    assert again.seconds["toy_embedding"] == 0


def test_scores_are_those_of_scipy_on_the_stored_table(folder, tmp_path):
    from scipy import stats

    measurement = kinds.load(DEFINITION, path=folder)
    result = evaluate(measurement, tmp_path / "out", max_steps=3)
    part = predictions.read(tmp_path / "out/predictions/toy_embedding.parquet")
    record = {"status": "complete", "evaluation": result.details, "scores": result.scores}
    (tmp_path / "out" / "record.json").write_text(json.dumps(record))
    again = stored.score_again(stored.open_run(tmp_path / "out"))
    assert (again.result.scores, again.as_recorded) == (result.scores, [])
    found, gold = part.table["prediction"], part.table["label"]
    scores = result.scores
    expected = stats.spearmanr(found, gold).statistic
    assert scores["embedding/toy_embedding/spearman"] == pytest.approx(expected, abs=1e-6)
    expected = stats.pearsonr(found, gold).statistic
    assert scores["embedding/toy_embedding/pearson"] == pytest.approx(expected, abs=1e-6)


def test_training_pairs_that_are_scored_are_dropped_and_counted(folder):
    whole = kinds.load(DEFINITION, path=folder)
    place = folder / "toy"
    scored = (place / "validation.jsonl").read_text().splitlines()[0]
    row = json.loads(scored)
    row["sentence1"], row["sentence2"] = row["sentence2"], row["sentence1"]
    with (place / "train.jsonl").open("a") as file:
        file.write("\n" + json.dumps(row) + "\n" + scored)
    measurement = kinds.load(DEFINITION, path=folder)
    assert measurement.num_repeats == whole.num_repeats + 2
    assert measurement.pairs == whole.pairs


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"positive_from": None}, "positive_from"),
        ({"temperatur": 1}, "unknown keys"),
        ({"positive_from": 6.0}, "0 training pairs"),
    ],
)
def test_bad_definitions_are_refused(folder, change, message):
    with pytest.raises(ValueError, match=message):
        kinds.load({**DEFINITION, **change}, path=folder)
