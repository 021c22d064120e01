"""Folders with something odd in them: the same function, or one message that says what it is."""

import dataclasses
import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    BertConfig,
    BertForMaskedLM,
    ModernBertConfig,
    ModernBertForMaskedLM,
)

from ablate.__main__ import main as ablate
from ablate.config.compose import compose_settings
from ablate.interop import importing
from ablate.interop.__main__ import main as interop
from ablate.interop.checkpoint import open_source
from ablate.interop.importing import compare
from ablate.run import arm as arms

SIZES = {
    "vocab_size": 37, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4,
    "intermediate_size": 24, "max_position_embeddings": 40,
}  # fmt: skip
WEIGHTS, NORM = "model.safetensors", "bert.embeddings.LayerNorm.weight"


def save(folder, model):
    torch.manual_seed(0)
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            parameter.normal_(1.0 if "orm.weight" in key else 0.0, 0.2)
    model.eval().save_pretrained(folder)
    return folder


@pytest.fixture
def bert(tmp_path):
    """Options of the config -> a folder of BertForMaskedLM."""
    return lambda **options: save(
        tmp_path / "bert", BertForMaskedLM(BertConfig(**SIZES, **options))
    )


def rewrite(folder, change):
    state = load_file(folder / WEIGHTS)
    save_file(change(state), folder / WEIGHTS, metadata={"format": "pt"})


def settings(place, *overrides):
    return compose_settings(
        [
            "encoder=pretrained", f"encoder.path={place}", "evaluation=none", "tracking=none",
            "corpus.num_documents=200", "corpus.validation_fraction=0.1", "trainer.threads=1",
            "trainer.progress_bar=false", "trainer.precision=fp32", *overrides,
        ]
    )  # fmt: skip


# one token type


def test_one_token_type_is_folded_into_the_positions(bert, tmp_path):
    folder = bert(type_vocab_size=1)
    source = open_source(folder)
    assert source.encoder.type_vocab_size == 0
    assert not any("token_type" in name for name in source.load())
    assert compare(source, source.load()) <= 1e-5
    assert interop(["import", str(folder), str(tmp_path / "out")]) == 0


@pytest.mark.parametrize("rows", ["segment_pair", "full_sentences"])
def test_one_token_type_is_refused_and_says_what_to_type(rows):
    with pytest.raises(ValueError, match=r"type encoder\.type_vocab_size=2, or 0"):
        compose_settings(["encoder=bert", "encoder.type_vocab_size=1", f"input_format={rows}"])


# names and values of weights


@pytest.mark.parametrize("prefix", ["_orig_mod.", "model._orig_mod.", "model."])
def test_wrapped_weights_are_imported_and_compared(bert, tmp_path, prefix):
    """FAULTS.md B09: transformers alone would compare with new values."""
    folder = bert()
    rewrite(folder, lambda state: {f"{prefix}{name}": v for name, v in state.items()})
    assert interop(["import", str(folder), str(tmp_path / "out")]) == 0
    facts = json.loads((tmp_path / "out" / "config.json").read_text())["imported"]
    assert facts["largest_difference_of_logits"] <= 1e-5


def test_weights_that_transformers_does_not_find_are_named(bert, monkeypatch):
    source = open_source(bert())
    state = source.load()
    found = importing.read_state

    def without(folder):
        return {name: value for name, value in found(folder).items() if name != NORM}

    monkeypatch.setattr(importing, "read_state", without)
    with pytest.raises(ValueError, match=f"does not find {NORM}"):
        compare(source, state)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_named(bert, tmp_path, refused, value):
    """FAULTS.md B12: where NaN appears the run stops and says where."""
    folder = bert()
    rewrite(
        folder, lambda state: state | {NORM: state[NORM].index_fill(0, torch.tensor([3]), value)}
    )
    assert f"NaN or infinite: {NORM};" in refused("import", folder, tmp_path / "out")


def test_arm_of_weights_that_are_not_finite_is_one_message(exported, tmp_path, capsys, monkeypatch):
    _, folder, _ = exported("bert")
    place = shutil.copytree(folder, tmp_path / "broken")
    rewrite(place, lambda state: state | {NORM: state[NORM] * float("nan")})
    words = [
        "encoder=pretrained", f"encoder.path={place}", "budget.amount=0", "budget.clock=steps",
        "corpus.num_documents=200", "corpus.validation_fraction=0.1", "trainer.threads=1",
        "evaluation=none", "tracking=none", f"paths.runs_dir={tmp_path / 'runs'}",
    ]  # fmt: skip
    monkeypatch.setattr("sys.argv", ["ablate", *words])
    assert ablate() == 2
    assert f"NaN or infinite: {NORM};" in capsys.readouterr().err


def test_tensor_of_another_shape_is_one_message(bert, tmp_path, refused):
    folder = bert()
    rewrite(folder, lambda state: state | {NORM: torch.zeros(3)})
    said = refused("import", folder, tmp_path / "out")
    assert "encoder.embeddings.norm.weight (3,) for (16,)" in said


@pytest.mark.parametrize(
    ("file", "content", "says"),
    [
        ("config.json", "[]", "no JSON object but a list"),
        ("config.json", '{"model_type": "ablate"}', "describes no encoder"),
        ("config.json", '{"model_type": "ablate", "encoder": {"foo": 1}}', "describes no encoder"),
        ("record.json", "7", "no JSON object but a int"),
        ("pytorch_model.bin", "garbage garbage", "cannot be read"),
        ("pytorch_model.bin", "", "cannot be read"),
        ("pytorch_model.bin.index.json", "[]", "no JSON object"),
        ("pytorch_model.bin.index.json", "{}", "no weight_map"),
    ],
)
def test_broken_files_are_one_message(bert, tmp_path, refused, file, content, says):
    folder = bert()
    if file.startswith("pytorch"):
        (folder / WEIGHTS).unlink()
    (folder / file).write_text(content)
    said = refused("import", folder, tmp_path / "out")
    assert says in said
    assert "weights_only" not in said  # torch's advice is to trust the file


@pytest.mark.parametrize("saved", [torch.zeros(2), [1], {"state_dict": {"a": torch.zeros(1)}}])
def test_pickle_of_something_else_is_one_message(bert, tmp_path, refused, saved):
    folder = bert()
    (folder / WEIGHTS).unlink()
    torch.save(saved, folder / "pytorch_model.bin")
    assert "no table of names and weights" in refused("import", folder, tmp_path / "out")


def test_chunks_of_the_feed_forward_do_not_stop_the_comparison(bert, tmp_path):
    folder = bert(chunk_size_feed_forward=8)
    assert interop(["import", str(folder), str(tmp_path / "out")]) == 0


def test_config_that_ours_does_not_express_names_the_folder(tmp_path, refused):
    config = ModernBertConfig(**SIZES, pad_token_id=0, bos_token_id=2, eos_token_id=3,
                              cls_token_id=2, sep_token_id=3, local_attention=7)  # fmt: skip
    folder = save(tmp_path / "mb", ModernBertForMaskedLM(config))
    said = refused("import", folder, tmp_path / "out")
    assert f"{folder} holds a modernbert that this project's encoder does not express" in said
    assert "encoder=hf" in said


# the comparison


def test_tolerance_follows_the_size_of_the_logits(bert):
    """Small logits must be met closely; large ones may round more."""
    folder = bert()
    norm = "cls.predictions.transform.LayerNorm"
    shrink = {f"{norm}.weight", f"{norm}.bias", "cls.predictions.bias"}
    rewrite(folder, lambda s: {n: v * 1e-4 if n in shrink else v for n, v in s.items()})
    source = open_source(folder)
    state = source.load()
    assert compare(source, state) < 1e-7
    name = "mlm_head.norm.weight"
    with pytest.raises(ValueError, match="not the same function"):
        compare(source, state | {name: state[name] * 1.1})


def test_windows_are_compared_in_a_row_that_is_longer(tmp_path):
    ids = {"pad_token_id": 0, "cls_token_id": 2, "sep_token_id": 3, "bos_token_id": 2}
    sizes = {**SIZES, "num_hidden_layers": 3, "max_position_embeddings": 128, "eos_token_id": 3}
    config = ModernBertConfig(**sizes, **ids, local_attention=64)
    source = open_source(save(tmp_path / "mb", ModernBertForMaskedLM(config)))
    state = source.load()
    assert compare(source, state) <= 1e-4
    wrong = dataclasses.replace(source.encoder, local_attention=62)
    with pytest.raises(ValueError, match="not the same function"):
        compare(dataclasses.replace(source, encoder=wrong), state)


# tokenizers


@pytest.mark.parametrize("part", ["normalizer", "pre_tokenizer", "model"])
def test_tokenizer_that_cuts_otherwise_is_refused(exported, tmp_path, part):
    _, folder, _ = exported("bert")
    data = json.loads((folder / "tokenizer.json").read_text())
    if part == "model":
        data["model"]["max_input_chars_per_word"] = 3
    else:
        other = {"type": "Sequence", f"{part}s".replace("pre_tokenizers", "pretokenizers"): []}
        assert data[part] != other
        data[part] = other
    (tmp_path / "tokenizer.json").write_text(json.dumps(data))
    words = ["tokenizer=pretrained", f"tokenizer.path={tmp_path / 'tokenizer.json'}"]
    with pytest.raises(ValueError, match=f"its {part} differ") as caught:
        arms.prepare(settings(folder, *words))
    assert "leave the tokenizer out" in str(caught.value)
    (tmp_path / "tokenizer.json").write_text((folder / "tokenizer.json").read_text())
    arms.prepare(settings(folder, *words))


# runs as sources


def test_run_stands_for_its_pretraining(trained, pretrained_of):
    run = trained("bert")
    assert open_source(run) == open_source(pretrained_of(run))


def test_run_without_its_pretraining_says_so(trained, tmp_path, refused):
    run = shutil.copytree(trained("bert"), tmp_path / "runs" / "single" / "x")
    assert "which is not there" in refused("import", run, tmp_path / "out")


def edited(pretrained, tmp_path, change):
    place = shutil.copytree(pretrained, tmp_path / "runs" / "pretrained" / "x")
    record = json.loads((place / "record.json").read_text())
    change(record["identity"])
    (place / "record.json").write_text(json.dumps(record))
    return place


def test_decoder_is_no_source_and_the_message_does_not_loop(trained, pretrained_of, tmp_path):
    def change(identity):
        identity["objective"]["name"] = "clm"
        identity["encoder"]["causal"] = True

    place = edited(pretrained_of(trained("bert")), tmp_path, change)
    with pytest.raises(ValueError, match="trained left to right") as caught:
        arms.prepare(settings(place))
    assert "train the decoder from scratch" in str(caught.value)


def test_run_of_a_transformers_class_names_ways_forward(trained, pretrained_of, tmp_path, refused):
    def change(identity):
        identity["encoder"] = {"kind": "hf", "class": "ElectraModel"}

    place = edited(pretrained_of(trained("bert")), tmp_path, change)
    said = refused("import", place, tmp_path / "out")
    assert "ElectraModel" in said
    assert "ablate.predict" in said
    assert "encoder=hf encoder.hf_config=FILE" in said
