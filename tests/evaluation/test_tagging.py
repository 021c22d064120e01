"""Tagging: labels on first pieces, every word counted, scores as conlleval's, a toy learned."""

import dataclasses
import json
import pickle
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
import yaml

from ablate import rng
from ablate.encoder.backends import resolve
from ablate.encoder.config import EncoderConfig
from ablate.encoder.heads import MaskedLanguageModel
from ablate.encoder.initialization import initialize
from ablate.evaluation import kinds, tagging_scores, token_fitting
from ablate.evaluation.fitting import FinetuneSettings
from ablate.evaluation.measurement import EvaluationResult, Setup, Subject, weights_hash
from ablate.evaluation.protocol import evaluate
from ablate.evaluation.ratio_error import ratio_error
from ablate.evaluation.tagging import Tagging, _encoded
from ablate.evaluation.tagging_data import TaggingSpec, from_rows, load_tagging
from ablate.evaluation.tagging_encoding import encode_words
from ablate.evaluation.token_fitting import finetune_tokens
from ablate.tokens.tokenizer import Tokenizer

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT.parent / "shared" / "data"
PIECES = ["un", "##do", "##ing", "do", "go", "new", "york", "!", "[", "]", "mask", "e", *"abcdefgh"]
QUICK = {"learning_rate": 1e-2, "batch_size": 8, "num_epochs": 5, "min_steps": 0, "max_length": 24}
SPEC = {"name": "toy", "suite": "x", "tag_column": "tags", "metrics": ["accuracy"]}


@pytest.fixture(scope="module")
def rust():
    """A lower-casing WordPiece with BERT's normalizer, as bytes of its file."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

    entries = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *PIECES]
    made = Tokenizer(models.WordPiece({e: i for i, e in enumerate(entries)}, unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.add_special_tokens(entries[:5])
    return made


@pytest.fixture(scope="module")
def tokenizer(rust, tmp_path_factory):
    file = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    rust.save(str(file))
    return Tokenizer(file)


def make_model(tokenizer, seed=0, **changes):
    config = EncoderConfig(
        **{
            "vocab_size": tokenizer.vocab_size,
            "hidden_size": 32,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "intermediate_size": 64,
            "max_position_embeddings": 32,
            "init_std": 0.1,
            **changes,
        }
    )
    backend = resolve("auto", device="cpu", dtype=torch.float32, max_length=32)
    model = MaskedLanguageModel(config, backend)
    initialize(model, config, lambda name: rng.torch_seed(seed, "init", name))
    return model


def setup_of(tmp_path, num_seeds=1, **settings):
    return Setup(0, FinetuneSettings(**{**QUICK, **settings}), num_seeds, tmp_path)


def subject_of(model, tokenizer):
    return Subject(model, tokenizer, weights_hash(model))


def task_of(train, scored, **spec):
    spec = TaggingSpec.from_dict({**SPEC, **spec})
    return Tagging(from_rows(spec, (train, "train"), {"validation": (scored, "validation")}))


def measure(task, model, tokenizer, setup):
    parts = [
        task.measure(subject_of(model, tokenizer), setup, n, lambda done, total: None)
        for n in range(task.num_parts(setup))
    ]
    result = EvaluationResult()
    task.add_to(result, parts, setup)
    return result, parts


def letters(number, seed):
    """Words of one or two letters; the tag of a word is what follows from its first letter."""
    random = np.random.default_rng(seed)
    rows = []
    for _ in range(number):
        words = random.choice(list("abcdefgh"), random.integers(1, 8)).tolist()
        rows.append({"tokens": words, "tags": ["XYZ"["abcdefgh".index(w) % 3] for w in words]})
    return rows


def test_first_pieces_are_those_of_the_words(tokenizer):
    words = encode_words(tokenizer, [["undoing", "New", "York", "!"], ["go"]], max_length=12)
    ids = words.asked.rows.input_ids[words.asked.asked]
    assert [tokenizer.id_to_token(i) for i in ids] == ["un", "new", "york", "!", "go"]
    assert words.word_of_asked.tolist() == [0, 1, 2, 3, 4]
    assert (words.num_words, words.vanished, words.cut) == (5, 0, 0)
    batch = words.asked.batch(np.array([1, 0]))
    ids = batch.input_ids[batch.predict_positions]
    assert [tokenizer.id_to_token(i) for i in ids] == ["go", "un", "new", "york", "!"]


def test_a_word_that_names_a_special_token_stays_text(tokenizer):
    words = encode_words(tokenizer, [["[MASK]", "go"]], max_length=12)
    pieces = [tokenizer.id_to_token(i) for i in words.asked.rows.input_ids]
    assert pieces == ["[CLS]", "[", "mask", "]", "go", "[SEP]"]
    assert words.asked.asked.tolist() == [1, 4]


def test_words_that_vanish_and_words_that_are_cut_are_counted(tokenizer):
    words = encode_words(
        tokenizer, [["go", "\u00ad", "do", "\u200d"], [], ["\u200b"]], max_length=12
    )
    assert words.word_of_asked.tolist() == [0, 2]
    assert (words.num_words, words.vanished, words.cut) == (5, 3, 0)
    cut = encode_words(tokenizer, [["go"] * 9], max_length=8)
    assert (len(cut.word_of_asked), cut.vanished, cut.cut) == (6, 0, 3)
    assert cut.asked.rows.lengths.tolist() == [8]


def test_labels_are_on_the_pieces_that_word_ids_of_transformers_says(rust, tokenizer):
    from transformers import PreTrainedTokenizerFast

    theirs = PreTrainedTokenizerFast(
        tokenizer_object=rust, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]",
        sep_token="[SEP]", mask_token="[MASK]",
    )  # fmt: skip
    random = np.random.default_rng(0)
    vocabulary = ["undoing", "DOING", "go", "new", "York", "\u00ad", "é!", "qqq", "a-b", "mask!"]
    for _ in range(50):
        words = random.choice(vocabulary, random.integers(1, 12)).tolist()
        encoded = theirs(words, is_split_into_words=True, truncation=True, max_length=12,
                         add_special_tokens=False)  # fmt: skip
        owners = encoded.word_ids()
        first = [i for i, w in enumerate(owners) if i == 0 or w != owners[i - 1]]
        ours = encode_words(tokenizer, [words], max_length=14)
        assert ours.asked.rows.input_ids[1:-1].tolist() == encoded["input_ids"]
        assert (ours.asked.asked - 1).tolist() == first
        assert ours.word_of_asked.tolist() == [owners[i] for i in first]


@pytest.mark.parametrize("kind", ["byte_level", "metaspace"])
def test_words_of_blank_marking_tokenizers_begin_with_their_marked_piece(kind, tmp_path):
    from tokenizers import Tokenizer as Rust
    from tokenizers import decoders, models, pre_tokenizers, trainers

    if kind == "byte_level":
        made = Rust(models.BPE())
        made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        made.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=300, special_tokens=["<pad>", "<s>", "</s>", "<mask>"], show_progress=False,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        )  # fmt: skip
    else:
        made = Rust(models.Unigram())
        made.pre_tokenizer = pre_tokenizers.Metaspace()
        trainer = trainers.UnigramTrainer(
            vocab_size=60, special_tokens=["<pad>", "<s>", "</s>", "<mask>", "<unk>"],
            unk_token="<unk>", show_progress=False,
        )  # fmt: skip
    made.train_from_iterator(["the cat sat on the mat", "the dog sat on the cat"] * 20, trainer)
    made.save(str(tmp_path / "tokenizer.json"))
    ours = Tokenizer(tmp_path / "tokenizer.json")
    sentence = ["the", "cat", "sat", "ém", "dog"]
    words = encode_words(ours, [sentence], max_length=40)
    assert words.word_of_asked.tolist() == [0, 1, 2, 3, 4]
    ends = [*words.asked.asked[1:], len(words.asked.rows.input_ids) - 1]
    for word, begin, end in zip(sentence, words.asked.asked, ends, strict=True):
        text = ours.decode(words.asked.rows.input_ids[begin:end]).replace("▁", " ").strip()
        assert text == word or kind == "metaspace"  # é is unknown there
    assert (
        ours.encode_with_offsets(["the cat"])[0].ids.tolist()
        == ours.encode_batch(["the cat"])[0].ids
    )


CASES = [  # predicted, gold, correct, predicted entities, gold entities: by conlleval's rules
    ("B-X I-X O", "B-X I-X O", 1, 1, 1),
    ("I-X I-X O", "B-X I-X O", 1, 1, 1),  # I- that continues nothing begins an entity
    ("O I-X O", "O B-X O", 1, 1, 1),
    ("B-X B-X O", "B-X I-X O", 0, 2, 1),
    ("B-X I-Y O", "B-X I-X O", 0, 2, 1),  # another type begins another entity
    ("B-X O O", "B-X I-X O", 0, 1, 1),
    ("B-X I-X B-X", "B-X I-X I-X", 0, 2, 1),
    ("O O O", "B-X I-X O", 0, 0, 1),
    ("B-a-b I-a-b O", "B-a-b I-a-b O", 1, 1, 1),
    ("O O B-X", "O O B-X", 1, 1, 1),
]


@pytest.mark.parametrize(("predicted", "gold", "correct", "found", "wanted"), CASES)
def test_entities_are_those_of_conlleval(predicted, gold, correct, found, wanted):
    tags = [predicted.split()], [gold.split()]
    expected = 2 * correct / (found + wanted)
    assert tagging_scores.score("entity_f1", *tags).value == pytest.approx(expected)
    assert tagging_scores.counts("entity_f1", *tags).tolist() == [[2 * correct, found + wanted]]


def conlleval_chunks(tags):
    """Chunks by the rules of the CoNLL-2000 script for BIO tags, written down again."""
    chunks, begin = [], None
    for i, tag in enumerate([*tags, "O"]):
        kind, name = tag[0], tag[2:]
        last = "O" if i == 0 else tags[i - 1][0]
        last_name = "" if i == 0 else tags[i - 1][2:]
        if begin is not None and (kind in "BO" or name != last_name):
            chunks.append((last_name, begin, i - 1))
            begin = None
        if kind == "B" or (kind == "I" and (last == "O" or name != last_name)):
            begin = i
    return set(chunks)


def test_entity_f1_equals_conlleval_on_random_tags():
    random = np.random.default_rng(0)
    names = ["O", "B-X", "I-X", "B-Y", "I-Y"]
    draw = lambda: [random.choice(names, n).tolist() for n in lengths]  # noqa: E731
    for _ in range(20):
        lengths = random.integers(1, 9, size=30)
        predicted, gold = draw(), draw()
        pairs = [
            (conlleval_chunks(p), conlleval_chunks(g)) for p, g in zip(predicted, gold, strict=True)
        ]
        right = sum(len(p & g) for p, g in pairs)
        expected = 2 * right / sum(len(p) + len(g) for p, g in pairs)
        assert tagging_scores.score("entity_f1", predicted, gold).value == pytest.approx(expected)
        ratio = tagging_scores.counts("entity_f1", predicted, gold).sum(axis=0)
        assert ratio[0] / ratio[1] == pytest.approx(expected)


def test_accuracy_equals_scikit_learn_and_no_entity_is_flagged():
    from sklearn.metrics import accuracy_score

    random = np.random.default_rng(1)
    predicted, gold = ([random.choice(list("XYZ"), 7).tolist() for _ in range(20)] for _ in "pg")
    found = tagging_scores.score("accuracy", predicted, gold).value
    assert found == pytest.approx(accuracy_score(np.ravel(gold), np.ravel(predicted)))
    assert tagging_scores.score("entity_f1", [["O"]], [["O"]]) == (0.0, "degenerate")


def test_standard_error_covers_the_spread_of_repeated_samples():
    random = np.random.default_rng(0)

    def draw():
        rate = random.beta(2, 2, size=60)[:, None]  # words of a sentence go together
        words = random.integers(1, 20, size=60)
        return np.stack([random.binomial(words, rate[:, 0]), words], axis=1)

    samples = [draw() for _ in range(400)]
    spread = np.std([s[:, 0].sum() / s[:, 1].sum() for s in samples])
    stated = np.mean([ratio_error([s]) for s in samples])
    assert stated == pytest.approx(spread, rel=0.12)
    assert ratio_error([samples[0][:1]]) == 0.0


def test_loss_and_gradient_come_from_first_pieces_alone(tokenizer, tmp_path):
    rows = [{"tokens": ["undoing", "go"], "tags": ["V", "N"]}, {"tokens": ["do"], "tags": ["V"]}]
    task = task_of(rows, rows)
    encoded = _encoded(task, subject_of(make_model(tokenizer), tokenizer), setup_of(tmp_path))
    which = np.array([1, 0])
    batch = encoded.train.asked.batch(which)
    hidden = torch.randn(batch.num_tokens, 2, requires_grad=True)
    loss, count = encoded.loss(hidden[batch.predict_positions], None, which)
    loss.backward()
    by_hand = -torch.log_softmax(hidden[batch.predict_positions], -1)[[0, 1, 2], [1, 1, 0]].sum()
    assert count == 3
    assert loss.item() == pytest.approx(by_hand.item())
    touched = hidden.grad.abs().sum(dim=1) > 0
    pieces = [tokenizer.id_to_token(i) for i in batch.input_ids[touched]]
    assert pieces == ["do", "un", "go"]


def test_a_toy_is_learned_completely_and_untrained_tags_are_at_chance(tokenizer, tmp_path):
    task = task_of(letters(150, 0), letters(40, 1))
    result, parts = measure(task, make_model(tokenizer), tokenizer, setup_of(tmp_path, 2))
    entry = result.details["toy"]["metrics"]["x/toy/accuracy"]
    assert result.scores["x/toy/accuracy"] == 1.0
    assert entry["by_seed"] == [1.0, 1.0]
    assert entry["n"] == result.details["toy"]["n"]["validation"] == len(parts[0].table["label"])
    gold = parts[0].table["label"]
    assert entry["majority"] == pytest.approx(gold.count(parts[0].facts["nothing"]) / len(gold))
    assert result.details["toy"]["collapsed"]["validation"] == [False, False]
    random = np.random.default_rng(0)
    noise = [{**r, "tags": random.choice(list("XYZ"), len(r["tags"])).tolist()}
             for r in letters(400, 2)]  # fmt: skip
    task = task_of(noise[:100], noise[100:])
    result, parts = measure(task, make_model(tokenizer), tokenizer, setup_of(tmp_path))
    n = len(parts[0].table["label"])
    assert abs(result.scores["x/toy/accuracy"] - 1 / 3) < 4 * (2 / 9 / n) ** 0.5


def test_a_frozen_encoder_is_probed_and_left_as_it_was(tokenizer, tmp_path):
    model = make_model(tokenizer)
    before = weights_hash(model)
    task = task_of(letters(80, 0), letters(30, 1))
    setup = setup_of(tmp_path, frozen=True, num_epochs=20, learning_rate=3e-2)
    result, parts = measure(task, model, tokenizer, setup)
    assert weights_hash(model) == before
    assert result.scores["x/toy/accuracy"] > 0.9  # the letters are in the embeddings
    assert parts[0].facts["new_weights"] == ["head.classifier.weight", "head.classifier.bias"]


def test_a_causal_encoder_reads_no_word_to_the_right(tokenizer, tmp_path):
    rows = letters(30, 0)
    for row in rows:  # the tag of a word says what the next word is
        row["tags"] = ["XYZ"["abcdefgh".index(w) % 3] for w in [*row["tokens"][1:], "a"]]
    task = task_of(rows, rows)
    model = make_model(tokenizer, causal=True)
    setup = setup_of(tmp_path, num_epochs=30)
    causal, parts = measure(task, model, tokenizer, setup)
    both, _ = measure(task, make_model(tokenizer), tokenizer, setup)
    assert parts[0].facts["reads_to_the_left_only"]
    assert both.scores["x/toy/accuracy"] > causal.scores["x/toy/accuracy"] + 0.1


def test_every_word_is_in_n_and_unread_ones_get_the_commonest_tag(tokenizer, tmp_path):
    train = [{"tokens": ["a", "b", "c"], "tags": ["X", "Y", "Y"]}] * 8
    scored = [
        {"id": "s", "tokens": ["a", "\u00ad", "b"], "tags": ["X", "Y", "NEW"]},
        {"id": "t", "tokens": ["a"] * 30, "tags": ["Y"] * 30},
        {"id": "u", "tokens": [], "tags": []},
    ]
    setup = setup_of(tmp_path, max_length=12, learning_rate=1e-9)
    result, (part,) = measure(task_of(train, scored), make_model(tokenizer), tokenizer, setup)
    facts = part.facts
    assert result.details["toy"]["n"]["validation"] == 33
    assert facts["nothing"] == "Y"
    assert facts["words_without_pieces"] == {"train": 0, "validation": 1}
    assert facts["words_cut"] == {"train": 0, "validation": 20}
    assert facts["words_of_unknown_tags"] == {"validation": 1}
    assert part.table["label"][2] == "NEW"
    assert part.table["prediction"][1] == "Y"
    assert part.table["prediction"][13:] == ["Y"] * 20
    assert part.table["example_id"][:4] == ["s", "s", "s", "t"]
    assert part.table["word"][:5] == [0, 1, 2, 0, 1]


def test_scores_follow_from_the_stored_file_and_runs_agree(tokenizer, tmp_path):
    task = pickle.loads(pickle.dumps(task_of(letters(40, 0), letters(10, 1))))
    arguments = {"measurements": [task], "seed": 0, "num_finetune_seeds": 2, **QUICK}
    model = make_model(tokenizer)
    first = evaluate(model, tokenizer, out_dir=tmp_path / "a", **arguments)
    again = evaluate(model, tokenizer, out_dir=tmp_path / "b", **arguments)
    stored = evaluate(model, tokenizer, out_dir=tmp_path / "a", **arguments)
    assert first.details == again.details == stored.details
    table = pq.read_table(tmp_path / "a" / "predictions" / "toy.parquet")
    assert set(table.column_names) == {
        "example_id", "word", "label", "prediction", "split", "finetune_seed",
    }  # fmt: skip


def test_pooling_is_no_part_of_the_key_and_other_settings_are(tmp_path):
    task = task_of(letters(4, 0), letters(4, 1))
    setup = setup_of(tmp_path)
    changed = dataclasses.replace(
        setup, settings=dataclasses.replace(setup.settings, pooling="cls")
    )
    assert task.key(setup) == task.key(changed)
    changed = dataclasses.replace(setup, settings=dataclasses.replace(setup.settings, frozen=True))
    assert task.key(setup) != task.key(changed)


def test_caps_take_samples_that_every_run_shares(tokenizer, tmp_path):
    task = task_of(letters(30, 0), letters(20, 1))
    setup = setup_of(tmp_path, max_train_examples=7, max_scored_examples=5)
    result, parts = measure(task, make_model(tokenizer), tokenizer, setup)
    again = measure(task, make_model(tokenizer, seed=1), tokenizer, setup)[1]
    assert parts[0].facts["num_train_examples"] == 7
    assert parts[0].facts["num_scored_available"] == {"validation": 20}
    ids = parts[0].table["example_id"]
    assert len(set(ids)) == 5
    assert ids == again[0].table["example_id"]
    assert result.details["toy"]["n"]["validation"] == len(ids)
    assert result.details["toy"]["num_scored"] == {"validation": 5}  # sentences, as the cap


@pytest.mark.parametrize("frozen", [False, True])
def test_early_stopping_holds_out_training_sentences_alone(tokenizer, tmp_path, frozen):
    task = task_of(letters(60, 0), letters(20, 1))
    options = {"early_stopping": 2, "num_epochs": 40, "learning_rate": 3e-2, "frozen": frozen}
    result, parts = measure(task, make_model(tokenizer), tokenizer, setup_of(tmp_path, **options))
    found = parts[0].facts["early_stopping"]
    assert found["held_out_examples"] == 6
    assert found["best_score"] == max(score for _, score in found["evaluations"])
    assert result.scores["x/toy/accuracy"] > 0.8
    assert result.details["toy"]["early_stopping_by_seed"] == [found]


def test_kept_states_of_a_frozen_encoder_are_those_of_the_encoder(tokenizer, tmp_path, monkeypatch):
    task = task_of(letters(30, 0), letters(20, 1))
    setup = setup_of(tmp_path, frozen=True)
    kept = measure(task, make_model(tokenizer), tokenizer, setup)[1][0]
    monkeypatch.setattr(token_fitting, "MAX_BYTES", 0)
    computed = measure(task, make_model(tokenizer), tokenizer, setup)[1][0]
    assert kept.facts["train_loss"] == pytest.approx(computed.facts["train_loss"], rel=1e-5)
    assert kept.table == computed.table


def test_tags_are_named_by_the_source_by_the_definition_or_refused(tmp_path):
    spec = TaggingSpec.from_dict({**SPEC, "labels": ["O", "B-X"], "metrics": ["entity_f1"]})
    numbered = [{"tokens": ["a", "b"], "tags": [1, 0]}]
    data = from_rows(spec, (numbered, "file"), {"validation": (numbered, "file")})
    assert data.train.tags == [["B-X", "O"]]
    with pytest.raises(ValueError, match="no name.*give labels"):
        task_of(numbered, numbered)
    import json

    names = {"info": {"features": {"tags": {"feature": {"names": ["B-X", "O"]}, "_type": "List"}}}}
    table = pa.table({"tokens": [["a", "b"]], "tags": [[1, 0]]})
    folder = tmp_path / "x" / "toy"
    folder.mkdir(parents=True)
    for split in ("train", "validation"):
        pq.write_table(
            table.replace_schema_metadata({"huggingface": json.dumps(names)}),
            folder / f"{split}.parquet",
        )
    found = load_tagging(TaggingSpec.from_dict(SPEC), path=tmp_path)
    assert found.train.tags == [["O", "B-X"]]
    assert found.labels == ("B-X", "O")
    assert load_tagging(TaggingSpec.from_dict(SPEC), path=tmp_path / "x").hash() == found.hash()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"metrics": ["f1"]}, r"\['f1'\] do not fit tagging; allowed: \['accuracy', 'entity_f1'\]"),
        ({"metrics": "accuracy"}, r"must be a list: \[accuracy\]"),
        ({"tag": "x"}, r"unknown keys \['tag'\]"),
        ({"tag_column": None}, r"missing keys \['tag_column'\]"),
        ({"labels": ["X", "X"]}, "names a tag twice"),
    ],
)
def test_bad_definitions_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        TaggingSpec.from_dict({**SPEC, **changes})


def test_bad_data_is_refused(tmp_path):
    good = [{"tokens": ["a"], "tags": ["X"]}]
    with pytest.raises(ValueError, match="row 0 has columns.*lists of equal length"):
        task_of([{"tokens": ["a"], "tags": ["X", "X"]}], good)
    with pytest.raises(ValueError, match="entity_f1 reads O, B-<type> and I-<type>.*'X'"):
        task_of(good, good, metrics=["entity_f1"])
    with pytest.raises(ValueError, match="labels=.*'Q'.* does not name"):
        task_of(good, good, labels=["Q"])
    with pytest.raises(ValueError, match="holds no words"):
        task_of([{"tokens": [], "tags": []}], good)
    with pytest.raises(ValueError, match=r"no such folder.*toy/ or x/toy/"):
        kinds.load({"kind": "tagging", **SPEC}, path=tmp_path)
    with pytest.raises(ValueError, match="names no hub data set"):
        kinds.load({"kind": "tagging", **SPEC})


def test_a_new_head_and_its_dropout_follow_from_the_named_stream(tokenizer, tmp_path):
    task = task_of(letters(20, 0), letters(5, 1))
    model = make_model(tokenizer)
    encoded = _encoded(task, subject_of(model, tokenizer), setup_of(tmp_path))
    scored = {"validation": encoded.scored["validation"].asked}

    def fit(number):
        torch.manual_seed(number)  # the global state must not matter
        return finetune_tokens(
            model, encoded.train.asked, scored, encoded.loss, setup_of(tmp_path).settings,
            name="toy", num_outputs=3, seed=0, finetune_seed=number // 2,
        ).outputs["validation"]  # fmt: skip

    zero, one, two = fit(0), fit(1), fit(2)
    assert np.array_equal(zero, one)
    assert not np.array_equal(zero, two)


@pytest.mark.skipif(not (DATA / "pos").is_dir(), reason="no local data beside the repository")
def test_local_pos_and_ner_read_with_the_counts_of_their_readme():
    wanted = {"pos": (12_544, 2_001, 17), "ner": (3_394, 1_009, 13)}
    for name, counts in wanted.items():
        text = (ROOT / f"conf/evaluation/task/{name}.yaml").read_text()
        data = kinds.load(yaml.safe_load(text), path=DATA).data
        assert (len(data.train), len(data.scored["validation"]), len(data.labels)) == counts


def test_what_is_said_of_pos_reaches_its_fits(tmp_path):
    """The task is `pos`, its measurement `ud_english_ewt`."""
    from ablate.config.compose import compose_settings
    from ablate.config.rules import resolve
    from ablate.run.measurements import measurements, protocol_plan

    definition = yaml.safe_load((ROOT / "conf/evaluation/task/pos.yaml").read_text())
    folder = tmp_path / (definition.get("folder") or definition["name"])
    folder.mkdir()
    for split in ("train", "validation", "test"):
        rows = [{"tokens": ["go"], definition.get("tag_column", "upos"): ["VERB"]}] * 3
        (folder / f"{split}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    common = ["evaluation=glue", "corpus=files", "corpus.path=x.txt", "evaluation.tasks=[pos]"]
    for key in ("pos", "ud_english_ewt"):
        said = f"evaluation.per_task={{{key}:{{learning_rate:1.5e-5,num_seeds:2}}}}"
        settings = resolve(compose_settings([*common, f"evaluation.path={tmp_path}", said]))
        (found,) = measurements(settings, tmp_path)
        setup = protocol_plan(settings).setup_of(found, setup_of(tmp_path))
        assert (setup.settings.learning_rate, setup.num_seeds) == (1.5e-5, 2)
