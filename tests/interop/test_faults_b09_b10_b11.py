"""FAULTS.md B09 (wrapped names), B10 (tied embeddings), B11 (untrained heads), with its toy BERT.

Vocabulary 37, width 16, 2 layers. Exported files and their loading: test_export.py; the heads of an
arm that starts from a folder: test_import.py.
"""

import copy

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.nn import functional as F
from transformers import BertConfig, BertForMaskedLM, BertForPreTraining

from ablate.encoder.backends import resolve
from ablate.encoder.config import EncoderConfig
from ablate.encoder.heads import MaskedLanguageModel
from ablate.encoder.initialization import initialize, load_weights, num_parameters
from ablate.inputs.batches import from_segments
from ablate.interop import bert, pretrained
from ablate.interop.checkpoint import Source, open_source

CONFIG = EncoderConfig(
    vocab_size=37, hidden_size=16, num_hidden_layers=2, num_attention_heads=4,
    intermediate_size=24, max_position_embeddings=40,
)  # fmt: skip
NEW_HEAD = [
    "pair_head.classifier.bias", "pair_head.classifier.weight", "pair_head.dense.bias",
    "pair_head.dense.weight",
]  # fmt: skip


def toy(config=CONFIG, pair_classes=0):
    backend = resolve("eager", device="cpu", dtype=torch.float32, max_length=40)
    model = MaskedLanguageModel(config, backend, pair_classes)
    initialize(model, config, lambda name: sum(name.encode()))
    return model


def logits(model):
    batch, _ = from_segments([[[5, 6, 7]], [[8, 9]]], cls_token_id=2, sep_token_id=3, max_length=40)
    batch.predict_positions, batch.labels = torch.arange(9), batch.input_ids
    return model(batch).mlm_logits


def folder_of(tmp_path, state):
    BertConfig(
        vocab_size=37, hidden_size=16, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=24, max_position_embeddings=40,
    ).save_pretrained(tmp_path)  # fmt: skip
    save_file({name: v.clone() for name, v in state.items()}, tmp_path / "model.safetensors")
    return tmp_path


@pytest.mark.parametrize("prefix", ["", "_orig_mod.", "model._orig_mod.", "model."])
def test_b09_wrapped_names_of_theirs_load_whole(tmp_path, prefix):
    torch.manual_seed(0)
    theirs = BertForMaskedLM(bert.config_to_hf(CONFIG)).eval()
    state = {f"{prefix}{name}": value for name, value in theirs.state_dict().items()}
    ours = toy()
    assert load_weights(ours, open_source(folder_of(tmp_path, state)).load()) == []
    expected = theirs(input_ids=torch.tensor([[2, 5, 6, 7, 3]])).logits[0]
    torch.testing.assert_close(logits(ours.eval())[:5], expected, atol=1e-6, rtol=0)


def test_b09_foreign_names_are_an_error_that_lists_them(tmp_path):
    theirs = BertForMaskedLM(bert.config_to_hf(CONFIG))
    state = {f"foo.{name}": value for name, value in theirs.state_dict().items()}
    source = open_source(folder_of(tmp_path, state))
    with pytest.raises(ValueError, match=r"Unexpected: .*foo\.bert\.embeddings"):
        source.load()


def test_b09_no_weight_of_the_encoder_may_be_missing(tmp_path):
    state = toy().state_dict()
    state.pop("encoder.layers.1.mlp.input.weight")
    with pytest.raises(ValueError, match=r"encoder\.layers\.1\.mlp\.input\.weight"):
        load_weights(toy(), state, allow_missing=(pretrained.PAIR_HEAD,))


def decoder_follows_the_embedding(model):
    """One step changes both together; there is no second copy to fall behind."""
    assert model.mlm_head.decoder_weight is None
    assert num_parameters(model) == num_parameters(toy())
    before = model.encoder.embeddings.token.weight.detach().clone()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    F.cross_entropy(logits(model), torch.arange(9)).backward()
    optimizer.step()
    weight = model.encoder.embeddings.token.weight
    assert not torch.equal(weight, before)
    handed = []
    model.mlm_head.register_forward_pre_hook(lambda _, args: handed.append(args[1]))
    logits(model)
    assert handed[0].data_ptr() == weight.data_ptr()


def test_b10_tied_weights_stay_tied_through_every_copy(tmp_path):
    model = toy()
    save_file(model.state_dict(), tmp_path / "m.safetensors")
    loaded = toy()
    loaded.load_state_dict(load_file(tmp_path / "m.safetensors"))
    theirs = bert.state_dict_to_hf(model.state_dict(), CONFIG)
    back = toy()
    load_weights(back, bert.state_dict_from_hf(theirs, CONFIG))
    for made in (copy.copy(model), copy.deepcopy(model), model.to("cpu"), loaded, back):
        decoder_follows_the_embedding(made)


def test_b10_tied_values_count_once_and_are_saved_once():
    import dataclasses

    untied = dataclasses.replace(CONFIG, tie_word_embeddings=False)
    assert num_parameters(toy(untied)) - num_parameters(toy()) == 37 * 16 == 592
    assert sum(v.numel() for v in toy().state_dict().values()) == num_parameters(toy())


def test_b10_untied_weights_are_both_kept_and_stay_different(tmp_path):
    import dataclasses

    config = dataclasses.replace(CONFIG, tie_word_embeddings=False)
    model = toy(config)
    state = bert.state_dict_from_hf(bert.state_dict_to_hf(model.state_dict(), config), config)
    assert torch.equal(state["mlm_head.decoder_weight"], model.mlm_head.decoder_weight)
    assert not torch.equal(
        state["mlm_head.decoder_weight"], state["encoder.embeddings.token.weight"]
    )


@pytest.mark.parametrize(
    ("cls", "loss", "new"),
    [
        (BertForMaskedLM, None, []),
        (BertForMaskedLM, "nsp", NEW_HEAD),
        (BertForPreTraining, "nsp", []),
        (BertForPreTraining, "sop", NEW_HEAD),
        (BertForPreTraining, None, []),
    ],
)
def test_b11_heads_that_were_never_trained_are_listed(tmp_path, cls, loss, new):
    folder = folder_of(tmp_path, {})
    cls(bert.config_to_hf(CONFIG)).save_pretrained(folder)
    source = open_source(folder)
    model = toy(pair_classes=2 if loss else 0)
    drawn = {name: value.clone() for name, value in model.state_dict().items()}
    assert pretrained.start_from(model, source, loss) == new
    assert pretrained.identity(source, loss)["new_weights"] == new
    for name in NEW_HEAD if loss else []:
        if "weight" in name:
            assert torch.equal(model.state_dict()[name], drawn[name]) is bool(new)


def test_sources_compare_by_what_they_are(tmp_path):
    assert Source(tmp_path, "ablate", CONFIG, None) == Source(tmp_path, "ablate", CONFIG, None)
