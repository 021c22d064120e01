"""Ours == transformers' ModernBERT: hidden states, logits, loss, every gradient, float32, ragged.

The window (8 tokens) is smaller than most rows, so that sliding and full layers differ.
"""

import pytest
import torch
from torch.nn import functional as F
from transformers import ModernBertConfig, ModernBertForMaskedLM

from ablate.encoder import layouts
from ablate.encoder.backends import resolve
from ablate.encoder.config import EncoderConfig
from ablate.encoder.heads import MaskedLanguageModel
from ablate.encoder.initialization import load_weights
from ablate.inputs.batches import Batch
from ablate.interop import modernbert

VOCAB = 37
SIZES = {
    "vocab_size": VOCAB,
    "hidden_size": 16,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "intermediate_size": 24,
    "max_position_embeddings": 512,
}
IDS = {
    "pad_token_id": 0,
    "cls_token_id": 2,
    "sep_token_id": 3,
    "bos_token_id": 2,
    "eos_token_id": 3,
}
LENGTHS = [(5,), (24, 24, 24), (7, 1, 30, 3), (40, 2, 33)]


def theirs_and_ours(backend, **options):
    torch.manual_seed(0)
    options = {"local_attention": 8, **options}
    hf_config = ModernBertConfig(**SIZES, **IDS, attn_implementation="eager", **options)
    theirs = ModernBertForMaskedLM(hf_config).eval()
    with torch.no_grad():  # values at which every parameter matters
        for name, parameter in theirs.named_parameters():
            parameter.normal_(1.0 if "norm.weight" in name else 0.0, 0.2)
    config = modernbert.config_from_hf(hf_config)
    chosen = resolve(backend, device="cpu", dtype=torch.float32, max_length=512)
    ours = MaskedLanguageModel(config, chosen)
    missing = load_weights(ours, modernbert.state_dict_from_hf(theirs.state_dict(), config))
    assert missing == []
    return theirs, ours.eval()


def ragged(lengths):
    """(their padded inputs, our batch) for the same rows; a third of the tokens is predicted."""
    generator = torch.Generator().manual_seed(sum(lengths))
    rows = [torch.randint(5, VOCAB, (n,), generator=generator) for n in lengths]
    positions = [torch.arange(n) for n in lengths]
    labels = [torch.where(p % 3 == 0, row, -100) for p, row in zip(positions, rows, strict=True)]

    def pad(parts, value=0):
        return torch.nn.utils.rnn.pad_sequence(parts, batch_first=True, padding_value=value)

    padded = {
        "input_ids": pad(rows),
        "attention_mask": pad([torch.ones_like(p) for p in positions]),
        "labels": pad(labels, -100),
    }
    flat = torch.cat(labels)
    predicted = (flat != -100).nonzero().squeeze(1)
    batch = Batch(
        input_ids=torch.cat(rows),
        token_type_ids=torch.zeros(sum(lengths), dtype=torch.long),
        position_ids=torch.cat(positions),
        cu_seqlens=torch.tensor([0, *lengths]).cumsum(0).int(),
        max_seqlen=max(lengths),
        predict_positions=predicted,
        labels=flat[predicted],
    )
    return padded, batch


def same(ours, theirs, what="", atol=1e-5):
    torch.testing.assert_close(
        ours, theirs, atol=atol, rtol=1e-5, msg=lambda text: f"{what}: {text}"
    )


def compare(theirs, ours, lengths):
    padded, batch = ragged(lengths)
    expected = theirs(**padded, output_hidden_states=True)
    out = ours(batch)
    real = padded["attention_mask"].bool()
    same(out.hidden, expected.hidden_states[-1][real], "hidden")
    same(out.mlm_logits, expected.logits[padded["labels"] != -100], "logits")
    loss = F.cross_entropy(out.mlm_logits, batch.labels)
    same(loss, expected.loss, "loss")
    expected.loss.backward()
    loss.backward()
    grads = {name: p.grad for name, p in theirs.named_parameters()}
    for name, grad in modernbert.state_dict_from_hf(grads, ours.config).items():
        same(ours.get_parameter(name).grad, grad, name)


@pytest.mark.parametrize("backend", ["eager", "sdpa"])
@pytest.mark.parametrize("lengths", LENGTHS)
def test_masked_lm_equals_hf(backend, lengths):
    compare(*theirs_and_ours(backend), lengths)


@pytest.mark.parametrize("lengths", [(500,), (450, 400), (400, 400)])
def test_long_rows_go_by_blocks_and_equal_hf(lengths, monkeypatch):
    used = []
    monkeypatch.setattr(
        layouts.WindowBlocks,
        "attend",
        lambda self, *a, f=layouts.WindowBlocks.attend: used.append(1) or f(self, *a),
    )
    compare(*theirs_and_ours("sdpa"), lengths)
    assert len(used) == 2  # layers 1 and 2 of 4 slide, 0 and 3 see whole rows


def test_all_biases_and_other_thetas_equal_hf():
    options = {
        "attention_bias": True,
        "mlp_bias": True,
        "norm_bias": True,
        "classifier_bias": True,
        "decoder_bias": False,
        "tie_word_embeddings": False,
        "rope_parameters": {
            "full_attention": {"rope_type": "default", "rope_theta": 500.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 50.0},
        },
    }
    compare(*theirs_and_ours("sdpa", **options), (24, 9))


@pytest.mark.parametrize("tied", [True, False])
def test_names_go_there_and_back(tied):
    theirs, ours = theirs_and_ours("eager", tie_word_embeddings=tied)
    state = modernbert.state_dict_to_hf(ours.state_dict(), ours.config)
    assert set(state) == set(theirs.state_dict())
    for name, value in theirs.state_dict().items():
        assert torch.equal(state[name], value), name
    theirs.load_state_dict(state, strict=True)


def test_config_takes_windows_thetas_and_kinds():
    config = modernbert.config_from_hf(ModernBertConfig())
    assert config.layer_types[:5] == (
        "full_attention",
        "sliding_attention",
        "sliding_attention",
        "full_attention",
        "sliding_attention",
    )
    assert (config.local_attention, config.half_window) == (128, 64)
    assert (config.global_rope_theta, config.local_rope_theta) == (160_000, 10_000)
    assert config.intermediate_size == 1152
    assert (config.first_layer_norm, config.final_norm, config.norm_bias) == (False, True, False)


def test_wrapped_names_are_stripped_and_missing_ones_listed():
    theirs, ours = theirs_and_ours("eager")
    wrapped = {f"model._orig_mod.{name}": v for name, v in theirs.state_dict().items()}
    state = modernbert.state_dict_from_hf(wrapped, ours.config)
    assert all(torch.equal(state[name], value) for name, value in ours.state_dict().items())
    wrapped.pop("model._orig_mod.model.final_norm.weight")
    with pytest.raises(ValueError, match=r"Missing: model\.final_norm\.weight\."):
        modernbert.state_dict_from_hf(wrapped, ours.config)


def test_points_that_modernbert_cannot_express_name_their_axes():
    with pytest.raises(ValueError, match=r"norm_position=post.*final_norm=False"):
        modernbert.state_dict_to_hf({}, EncoderConfig(**SIZES))


def test_options_that_ours_lacks_are_refused():
    kinds = ["sliding_attention", "full_attention"] * 2
    with pytest.raises(ValueError, match="no period"):
        modernbert.config_from_hf(ModernBertConfig(**SIZES, **IDS, layer_types=kinds))
    with pytest.raises(ValueError, match="one activation"):
        modernbert.config_from_hf(ModernBertConfig(**SIZES, **IDS, classifier_activation="silu"))
