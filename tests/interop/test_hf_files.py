"""A file's keys are read or refused; what a class learns of padding stays out of its rows."""

import dataclasses
import importlib.metadata
import json

import pytest
import torch
from torch.nn import functional as F

from ablate import rng
from ablate.inputs.batches import from_segments
from ablate.interop import hf_config, hf_encoder, hf_trial

SIZES = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48,
}  # fmt: skip
BERT = {"model_type": "bert", **SIZES}
ESM = {"model_type": "esm", **SIZES, "vocab_size": 41, "token_dropout": True}
MOBILE = {
    "model_type": "mobilebert", **SIZES, "embedding_size": 16, "intra_bottleneck_size": 16,
    "initializer_range": 0.1,
}  # fmt: skip
DEBERTA = {
    "model_type": "deberta-v2", **SIZES, "relative_attention": True, "position_buckets": 8,
    "pos_att_type": ["p2c", "c2p"], "share_att_key": True, "conv_kernel_size": 3,
}  # fmt: skip


@pytest.fixture
def described(tmp_path):
    def get(values):
        (tmp_path / "config.json").write_text(json.dumps(values))
        path = str(tmp_path / "config.json")
        backend = hf_config.resolve_backend(path, "auto")
        config = hf_config.describe(
            path, backend, vocab_size=41, pad_token_id=0, mask_token_id=4,
            max_position_embeddings=24,
        )  # fmt: skip
        return config, backend

    return get


@pytest.fixture
def build(described):
    def get(values):
        return hf_encoder.build(
            *described(values), pair_classes=0, seed_of=lambda n: rng.torch_seed(0, "init", n)
        )

    return get


@pytest.mark.parametrize(
    ("extra", "says"),
    [
        ({"position_embedding_type": "relative_key"}, ['"relative_key" (absolute is all it has)']),
        ({"num_layers": 2, "num_hidden_layer": 3}, ["num_layers=2 (write num_hidden_layers",
                                                    "num_hidden_layer=3 (write num_hidden_layers"]),
        ({"foo": None}, ["foo=null"]),
    ],
)  # fmt: skip
def test_keys_that_the_class_does_not_read_are_refused(described, extra, says):
    with pytest.raises(ValueError, match=r"nothing in BertModel of .* reads") as caught:
        described({**BERT, **extra})
    assert all(part in str(caught.value) for part in says), caught.value


@pytest.mark.parametrize(
    "values",
    [
        {**BERT, "position_embedding_type": "absolute", "gradient_checkpointing": False},
        {**ESM, "position_embedding_type": "rotary"},
        DEBERTA,  # `share_att_key` is no field of its config class
        {"model_type": "distilbert", "dim": 32, "num_hidden_layers": 2, "n_heads": 4},
    ],
)
def test_keys_that_it_reads_or_that_say_nothing_pass(described, values):
    config, _ = described(values)
    unread = {"gradient_checkpointing", *(["position_embedding_type"] if values == BERT else [])}
    assert not unread & set(config.values)


def test_leftover_keys_leave_the_fingerprint_alone(described):
    extra = {"position_embedding_type": "absolute", "pooler_type": "first_token_transform"}
    assert described({**BERT, **extra})[0].identity() == described(BERT)[0].identity()


def test_fingerprint_has_what_decides_and_not_what_was_replaced(described):
    one, other = (described({**BERT, "vocab_size": n})[0] for n in (100, 200))
    assert one.overridden != other.overridden
    assert one.identity() == other.identity()
    assert one.identity()["transformers"] == importlib.metadata.version("transformers")


@pytest.mark.parametrize("values", [BERT, DEBERTA, MOBILE, ESM])
def test_identity_gives_the_encoder_back(described, values):
    config, backend = described(values)
    again = hf_config.from_identity(json.loads(json.dumps(config.identity())), backend.name)
    assert again == dataclasses.replace(config, overridden={})


def test_folder_of_import_is_no_file_of_transformers(described, tmp_path):
    with pytest.raises(ValueError, match=f"encoder=pretrained encoder.path={tmp_path}"):
        described({"model_type": "ablate", "encoder": {}})


def batch_of(rows):
    batch, _ = from_segments([[row] for row in rows], cls_token_id=2, sep_token_id=3, max_length=24)
    return dataclasses.replace(
        batch, predict_positions=torch.arange(batch.num_tokens), labels=batch.input_ids
    )


def test_padding_that_training_changed_stays_out_of_the_rows(build):
    """MobileBERT puts the vector to its right into a token, and our decoder trains padding's."""
    model = build(MOBILE).train()
    rows = [[5 + i for i in range(n)] for n in (20, 6, 11)]
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(10):
        batch = batch_of(rows)
        optimizer.zero_grad()
        F.cross_entropy(model(batch).mlm_logits, batch.labels).backward()
        optimizer.step()
    assert model.eval().encoder.embedding_weight[0].abs().max() > 1e-3
    alone = torch.cat([model(batch_of([row])).mlm_logits for row in rows])
    together = model(batch_of(rows)).mlm_logits
    assert (together - alone).abs().max() <= 1e-4 * alone.abs().max()
    hf_trial.check_rows(model.encoder)


def test_trial_finds_a_class_that_reads_vectors_of_padding(build, monkeypatch):
    monkeypatch.setattr(hf_encoder.HFEncoder, "_without_padding", lambda *_: None)
    with pytest.raises(ValueError, match="lets padding change"):
        build(MOBILE)


def test_trial_leaves_the_weights_as_they_were(build):
    model = build(MOBILE)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    hf_trial.check_rows(model.encoder)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_a_switch_is_no_probability_of_dropout(described):
    config, _ = described(ESM)
    assert "token_dropout" not in config.dropout()
    assert config.values["token_dropout"] is True
    without = dataclasses.replace(
        config, attention_dropout=0.0, hidden_dropout=0.0, embedding_dropout=0.0
    )
    assert without.hf_config().token_dropout is True


def test_parameters_that_nothing_reads_are_in_the_record(build):
    squeezed = {"model_type": "squeezebert", **SIZES, "embedding_size": 32}
    found = hf_trial.facts(build(squeezed))["unused_parameters"]
    assert found == {
        "body.pooler.dense.weight": 32 * 32, "body.pooler.dense.bias": 32,
    }  # fmt: skip
    assert hf_trial.facts(build(BERT))["unused_parameters"] == {}
