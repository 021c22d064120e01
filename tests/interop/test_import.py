"""Folders of transformers -> ours and into arms: the same function, nothing silently new."""

import json
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForPreTraining,
    BertModel,
    ModernBertConfig,
    ModernBertForMaskedLM,
    RobertaConfig,
    RobertaForMaskedLM,
)

from ablate.config.compose import compose_settings
from ablate.interop.__main__ import main as interop
from ablate.interop.checkpoint import open_source
from ablate.interop.importing import compare
from ablate.interop.tokenizer_files import keep_tokenizer
from ablate.run import arm as arms
from ablate.run.models import build_model
from ablate.run.saved import open_saved

SIZES = {
    "vocab_size": 37,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 24,
    "max_position_embeddings": 40,
}
MODERN = {"pad_token_id": 0, "cls_token_id": 2, "sep_token_id": 3, "local_attention": 8}
MODERN |= {"bos_token_id": 2, "eos_token_id": 3}
MODELS = {
    "bert": lambda: BertForMaskedLM(BertConfig(**SIZES)),
    "bert_untied": lambda: BertForMaskedLM(BertConfig(**SIZES, tie_word_embeddings=False)),
    "bert_pretraining": lambda: BertForPreTraining(BertConfig(**SIZES)),
    "roberta": lambda: RobertaForMaskedLM(
        RobertaConfig(**SIZES, type_vocab_size=1, pad_token_id=1, bos_token_id=0, eos_token_id=2)
    ),
    "roberta_two_types": lambda: RobertaForMaskedLM(
        RobertaConfig(**SIZES, type_vocab_size=2, pad_token_id=1, bos_token_id=0, eos_token_id=2)
    ),
    "modernbert": lambda: ModernBertForMaskedLM(ModernBertConfig(**SIZES, **MODERN)),
}


@pytest.fixture(scope="module")
def theirs(tmp_path_factory):
    """Name -> a folder of transformers, at values where every parameter matters."""
    root = tmp_path_factory.mktemp("theirs")

    def get(name):
        place = root / name
        if not place.exists():
            torch.manual_seed(0)
            model = MODELS[name]().eval()
            with torch.no_grad():
                for key, parameter in model.named_parameters():
                    parameter.normal_(1.0 if "orm.weight" in key else 0.0, 0.2)
            model.save_pretrained(place)
        return place

    return get


@pytest.mark.parametrize("name", MODELS)
def test_folder_of_transformers_is_the_same_function(theirs, tmp_path, capsys, name):
    out = tmp_path / "out"
    assert interop(["import", str(theirs(name)), str(out)]) == 0
    printed = capsys.readouterr().out
    assert "no tokenizer.json" in printed
    config = json.loads((out / "config.json").read_text())
    assert config["imported"]["largest_difference_of_logits"] <= 1e-4
    assert config["pair_loss"] == ("nsp" if name == "bert_pretraining" else None)
    direct, ours = open_source(theirs(name)), open_source(out)
    assert direct.encoder == ours.encoder
    assert ours.load().keys() == direct.load().keys()
    assert all(torch.equal(value, ours.load()[key]) for key, value in direct.load().items())


@pytest.mark.parametrize("corner", ["bert", "bert_nsp", "bert_untied_no_types", "modernbert"])
def test_round_trip_gives_the_same_logits_to_the_bit(exported, tmp_path, corner):
    run, folder, _ = exported(corner)
    assert interop(["import", str(folder), str(tmp_path / "out")]) == 0
    first = open_saved(run)
    row = first.tokenizer.encode_batch(["the zebra", "a"])
    from ablate.inputs.batches import from_segments

    batch, _ = from_segments(
        [[row[0].ids, row[1].ids]], cls_token_id=2, sep_token_id=3, max_length=64
    )
    batch.predict_positions, batch.labels = torch.arange(batch.num_tokens), batch.input_ids
    for place in (folder, tmp_path / "out"):
        again = open_saved(place)
        assert torch.equal(again.model(batch).mlm_logits, first.model(batch).mlm_logits)
        if corner == "bert_nsp":
            assert torch.equal(again.model(batch).pair_logits, first.model(batch).pair_logits)


def test_conversion_that_is_another_function_is_refused(theirs):
    source = open_source(theirs("bert"))
    state = source.load()
    state["mlm_head.dense.weight"] = state["mlm_head.dense.weight"] * 1.01
    with pytest.raises(ValueError, match="not the same function"):
        compare(source, state)


def test_wrong_activation_is_caught_by_the_comparison(theirs):
    source = open_source(theirs("bert"))
    import dataclasses

    wrong = dataclasses.replace(
        source, encoder=dataclasses.replace(source.encoder, activation="relu")
    )
    with pytest.raises(ValueError, match="not the same function"):
        compare(wrong, source.load())


def test_folders_that_cannot_be_read_get_one_message(theirs, tmp_path, refused, capsys):
    assert "is no folder" in refused("import", tmp_path / "nowhere", tmp_path / "out")
    assert "hub does not give it" in refused("import", "nobody/nothing", tmp_path / "out")
    empty = tmp_path / "empty"
    empty.mkdir()
    assert "no weights" in refused("import", empty, tmp_path / "out")
    BertModel(BertConfig(**SIZES)).save_pretrained(tmp_path / "body")
    capsys.readouterr()
    assert "without its masked-LM head" in refused("import", tmp_path / "body", tmp_path / "out")
    other = tmp_path / "other"
    other.mkdir()
    (other / "config.json").write_text('{"model_type": "gpt2"}')
    save_file({"a": torch.zeros(1)}, other / "model.safetensors")
    assert "type gpt2" in refused("import", other, tmp_path / "out")
    (other / "model.safetensors").write_bytes(b"rubbish")
    (other / "config.json").write_text((theirs("bert") / "config.json").read_text())
    assert "cannot be read" in refused("import", other, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_pooler_without_classifier_is_passed_over(tmp_path):
    """Many a BertForMaskedLM on the hub was saved with the pooler of the model it came from."""
    BertForMaskedLM(BertConfig(**SIZES)).save_pretrained(tmp_path)
    state = load_file(tmp_path / "model.safetensors")
    state |= {
        "bert.pooler.dense.weight": torch.zeros(16, 16),
        "bert.pooler.dense.bias": torch.zeros(16),
    }
    save_file(state, tmp_path / "model.safetensors", metadata={"format": "pt"})
    source = open_source(tmp_path)
    assert source.pair_loss is None
    assert compare(source, source.load()) <= 1e-4


def settings(place, *overrides):
    return compose_settings(
        [
            "encoder=pretrained", f"encoder.path={place}", "evaluation=none", "tracking=none",
            "corpus.num_documents=200", "corpus.validation_fraction=0.1", "trainer.threads=1",
            "trainer.progress_bar=false", "trainer.precision=fp32", *overrides,
        ]
    )  # fmt: skip


@pytest.mark.parametrize("corner", ["bert", "modernbert"])
def test_arm_starts_from_the_folder(exported, corner):
    run, folder, _ = exported(corner)
    arm = arms.prepare(settings(folder))
    assert arm.encoder == open_source(folder).encoder
    assert arm.settings.size.hidden_size == 64
    assert arm.settings.tokenizer.path == str(folder / "tokenizer.json")
    state, expected = build_model(arm).state_dict(), open_saved(run).model.state_dict()
    assert all(torch.equal(state[name], value) for name, value in expected.items())
    assert arm.identity["source"] == {
        "weights": open_source(folder).weights_hash,
        "new_weights": [],
    }


def test_fingerprint_follows_the_weights_and_not_the_place(exported, tmp_path):
    import shutil

    _, folder, _ = exported("bert")
    marks = []
    for name, change in (("a", 0.0), ("b", 0.0), ("c", 1.0)):
        shutil.copytree(folder, tmp_path / name)
        file = tmp_path / name / "model.safetensors"
        state = load_file(file)
        state["bert.embeddings.position_embeddings.weight"] += change
        save_file(state, file, metadata={"format": "pt"})
        marks.append(arms.prepare(settings(tmp_path / name)).pretraining)
    assert marks[0] == marks[1] != marks[2]


@pytest.mark.parametrize(
    ("corner", "overrides", "is_new"),
    [
        ("bert_nsp", ["nsp=true"], False),
        ("bert", ["nsp=true"], True),
        ("bert_nsp", ["sop=true"], True),  # two classes too, of another question
        ("bert_nsp", [], False),
    ],
)
def test_new_heads_are_listed_and_drawn_by_name(exported, corner, overrides, is_new):
    """FAULTS.md B11."""
    _, folder, _ = exported(corner)
    models = [
        build_model(arms.prepare(settings(folder, *overrides, f"seed={n}"))) for n in (0, 0, 1)
    ]
    arm = arms.prepare(settings(folder, *overrides))
    heads = [
        "pair_head.classifier.bias", "pair_head.classifier.weight", "pair_head.dense.bias",
        "pair_head.dense.weight",
    ]  # fmt: skip
    assert arm.identity["source"]["new_weights"] == (heads if is_new else [])
    states = [model.state_dict() for model in models]
    if overrides:
        name = "pair_head.dense.weight"
        assert torch.equal(states[0][name], states[1][name])
        assert torch.equal(states[0][name], states[2][name]) is not is_new
    encoder = [name for name in states[0] if name.startswith("encoder.")]
    assert all(torch.equal(states[0][name], states[2][name]) for name in encoder)


def test_pretrained_run_is_a_folder_to_start_from(trained, pretrained_of, exported):
    run, _, _ = exported("bert")
    place, tokenizer = pretrained_of(trained("bert")), open_saved(run).tokenizer
    keep_tokenizer(tokenizer, place)
    arm = arms.prepare(settings(place))
    assert arm.tokenizer.hash == tokenizer.hash
    state, expected = build_model(arm).state_dict(), open_saved(run).model.state_dict()
    assert all(torch.equal(state[name], value) for name, value in expected.items())


@pytest.mark.parametrize(
    ("overrides", "parts"),
    [
        (["size=tiny"], ["size.hidden_size=128", "encoder.path"]),
        (["encoder.mlp=plain"], ["encoder.mlp=plain", "(glu)"]),
        (["tokenizer=byte_bpe", "tokenizer.vocab_size=300"], ["300 ids", "weights"]),
        (
            [
                "tokenizer=wordpiece", "tokenizer.vocab_size=150",
                "tokenizer.vocabulary=trained",
            ],
            ["not the vocabulary"],
        ),
    ],
)  # fmt: skip
def test_settings_that_the_folder_decides_are_refused(exported, overrides, parts):
    _, folder, _ = exported("modernbert")
    with pytest.raises(ValueError, match="encoder.path|weights") as caught:
        arms.prepare(settings(folder, *overrides))
    assert all(part in str(caught.value) for part in parts), caught.value


def test_rows_longer_than_the_learned_positions_are_refused(exported):
    _, folder, _ = exported("bert")
    with pytest.raises(ValueError, match="longer than the 64 positions"):
        arms.prepare(settings(folder, "input_format.max_length=128"))


def test_folder_without_a_tokenizer_needs_one(theirs):
    with pytest.raises(ValueError, match=r"no tokenizer\.json"):
        arms.prepare(settings(theirs("bert"), "input_format.max_length=32"))


def test_path_is_needed_and_only_read_by_its_kind():
    from ablate.config.encoder_source import check_source

    def given(**values):
        encoder = SimpleNamespace(**{"kind": "native", "path": None, "hf_config": None} | values)
        return SimpleNamespace(encoder=encoder)

    check_source(given())
    for values, part in [
        ({"kind": "pretrained"}, "encoder.path=DIR"),
        ({"path": "x"}, "encoder=pretrained"),
        ({"kind": "pretrained", "path": "x", "hf_config": "y"}, "encoder=hf"),
        ({"kind": "foo"}, "native, pretrained, hf"),
    ]:
        with pytest.raises(ValueError, match=part):
            check_source(given(**values))


def test_arm_is_evaluated_untrained_and_trained_further(exported, tmp_path, monkeypatch):
    from ablate.run.single import run

    _, folder, _ = exported("bert_nsp")
    common = [
        "trainer.validation_rows=16", "trainer.num_validations=1", "budget.clock=steps", "nsp=true",
        f"paths.runs_dir={tmp_path / 'runs'}",
    ]  # fmt: skip
    start = open_saved(folder).model.state_dict()
    for steps in (0, 3):
        record = run(settings(folder, *common, f"budget.amount={steps}"))
        place = next(tmp_path.glob(f"runs/single/*-{record['fingerprint']}"))
        assert record["clocks"]["steps"] == steps
        state = open_saved(place).model.state_dict()
        same = all(torch.equal(state[name], value) for name, value in start.items())
        assert same is (steps == 0)
