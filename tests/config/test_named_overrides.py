"""What is typed is never a mere default: axes, sizes, tokenizer beside an encoder from a folder."""

import json

import pytest
import torch

from ablate.__main__ import main
from ablate.config.compose import compose_settings
from ablate.config.encoder_source import named_settings, with_source
from ablate.run import arm as arms

FAST = [
    "evaluation=none", "tracking=none", "trainer.threads=1", "trainer.progress_bar=false",
    "corpus.num_documents=200", "corpus.validation_fraction=0.1", "trainer.precision=fp32",
]  # fmt: skip


def test_names_of_a_command_line():
    words = ["size=tiny", "encoder=bert", "encoder.mlp=glu", "+x.y=1", "seed=3", "-m"]
    sizes = {f"size.{n}" for n in ("hidden_size", "num_hidden_layers", "num_attention_heads")}
    named = named_settings(words)
    assert {*sizes, "size.intermediate_size", "encoder.mlp", "x.y"} == named


@pytest.fixture
def bert_folder(tmp_path):
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=400, hidden_size=32, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=128, max_position_embeddings=64,
    )  # fmt: skip
    transformers.BertForMaskedLM(config).save_pretrained(tmp_path / "bert")
    return tmp_path / "bert"


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["encoder.position_embedding=rope"], "encoder.position_embedding=rope"),
        (["encoder.mlp=glu"], "encoder.mlp=glu"),
        (["encoder.norm_position=pre"], "encoder.norm_position=pre"),
        (["size=toy"], "size.hidden_size=64"),
    ],
)
def test_a_folder_decides_what_is_typed_beside_it(bert_folder, words, name):
    words = ["encoder=pretrained", f"encoder.path={bert_folder}", *words]
    with pytest.raises(ValueError, match=f"{name} has no effect on encoder=pretrained"):
        with_source(compose_settings(words), named_settings(words))


def test_what_the_folder_has_may_be_typed_and_a_named_tokenizer_is_taken(bert_folder):
    path = [f"encoder.path={bert_folder}", "encoder=pretrained"]
    words = [*path, "size.hidden_size=32", "encoder.norm_position=post", "tokenizer=wordpiece"]
    settings, _ = with_source(compose_settings(words), named_settings(words))
    assert (settings.size.hidden_size, settings.tokenizer.kind) == (32, "wordpiece")


@pytest.mark.parametrize(
    ("words", "name"), [(["encoder.mlp=glu"], "encoder.mlp=glu"), (["size=toy"], "size.hidden")]
)
def test_the_file_of_a_class_decides_what_is_typed_beside_it(tmp_path, words, name):
    file = tmp_path / "config.json"
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    file.write_text(json.dumps({"model_type": "bert", **sizes, "intermediate_size": 64}))
    words = ["encoder=hf", f"encoder.hf_config={file}", *FAST, *words]
    with pytest.raises(ValueError, match=f"{name}.* has no effect on encoder.kind=hf"):
        arms.prepare(compose_settings(words), words)


def test_a_shown_configuration_that_is_refused_ends_in_2(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["ablate", "encoder.body=lstm", "--cfg", "job"])
    assert main() == 2
    shown = capsys.readouterr()
    assert "body: lstm" in shown.out
    assert "type encoder=lstm" in shown.err.replace("Type", "type")
