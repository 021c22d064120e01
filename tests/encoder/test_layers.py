"""Norms, residual blocks and embeddings by hand: order of norm and dropout, eps, bias."""

import warnings

import pytest
import torch
from torch.nn import functional as F

from ablate import rng
from ablate.encoder.backends import resolve
from ablate.encoder.config import EncoderConfig
from ablate.encoder.encoder import Encoder
from ablate.encoder.heads import MaskedLanguageModel
from ablate.encoder.initialization import initialize
from ablate.encoder.layers import Norm
from ablate.inputs.batches import collate

SIZES = {
    "vocab_size": 37, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
    "intermediate_size": 32, "max_position_embeddings": 16,
}  # fmt: skip


def encoder_of(**options):
    config = EncoderConfig(**SIZES, **options)
    backend = resolve("sdpa", device="cpu", dtype=torch.float32, max_length=16)
    encoder = Encoder(config, backend)
    initialize(encoder, config, lambda name: rng.torch_seed(0, "init", name))
    return encoder


def numbers(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def test_rms_norm_by_hand_with_eps_and_bias():
    config = EncoderConfig(**SIZES, norm_type="rms", norm_bias=True, norm_eps=1e-5)
    norm = Norm(config)
    weight, bias = numbers(16), numbers(16) + 3
    norm.load_state_dict({"weight": weight, "bias": bias})
    for x in (numbers(3, 16), numbers(3, 16) * 1e-4):
        by_hand = x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt() * weight + bias
        torch.testing.assert_close(norm(x), by_hand)


def test_rms_norm_in_half_precision_is_near_and_warns_of_nothing():
    norm = Norm(EncoderConfig(**SIZES, norm_type="rms", norm_bias=False))
    norm.load_state_dict({"weight": numbers(16)})
    x = numbers(3, 16)
    with warnings.catch_warnings(), torch.autocast("cpu", torch.bfloat16):
        warnings.simplefilter("error")
        found = norm(x.bfloat16())
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.float(), norm(x), atol=3e-2, rtol=2e-2)


@pytest.mark.parametrize("block", ["attend", "feed_forward"])
def test_sandwich_by_hand_with_dropout_on_what_is_added(block, monkeypatch):
    encoder = encoder_of(norm_position="sandwich", hidden_dropout=0.5, attention_dropout=0.0)
    layer, x = encoder.layers[1].train(), numbers(6, 16)
    doubled = torch.nn.Linear(16, 16)
    part = "attention" if block == "attend" else "mlp"
    for name in (f"{part}_norm", f"{part}_output_norm"):
        getattr(layer, name).weight.data = numbers(16) * (2 if "output" in name else 1)
    if block == "attend":
        monkeypatch.setattr(layer.attention, "forward", lambda y, view: doubled(y))
    else:
        monkeypatch.setattr(layer.mlp, "forward", lambda y: doubled(y))
    before, after = getattr(layer, f"{part}_norm"), getattr(layer, f"{part}_output_norm")
    torch.manual_seed(3)
    found = layer.attend(x, None) if block == "attend" else layer.feed_forward(x)
    torch.manual_seed(3)
    torch.testing.assert_close(found, x + F.dropout(after(doubled(before(x))), 0.5))


def test_embeddings_drop_what_is_normed():
    embeddings = encoder_of(embedding_dropout=0.5).embeddings
    ids = torch.arange(1, 13)
    arguments = (ids, torch.zeros_like(ids), torch.arange(12), 12)
    whole = embeddings.eval()(*arguments)
    torch.manual_seed(3)
    found = embeddings.train()(*arguments)
    torch.manual_seed(3)
    torch.testing.assert_close(found, F.dropout(whole, 0.5))
    assert 0.3 < (found == 0).float().mean() < 0.7


@pytest.mark.parametrize(
    "options",
    [{"norm_position": "sandwich"}, {"norm_type": "rms", "norm_bias": True}, {"final_norm": True}],
)
def test_every_parameter_gets_a_gradient(options):
    config = EncoderConfig(**SIZES, **options)
    backend = resolve("sdpa", device="cpu", dtype=torch.float32, max_length=16)
    model = MaskedLanguageModel(config, backend)
    initialize(model, config, lambda name: rng.torch_seed(0, "init", name))
    batch = collate(
        torch.arange(1, 13).numpy(), [7, 5], token_type_ids=torch.tensor([0, 1] * 6).numpy(),
        predict_positions=[1, 9], labels=[4, 5],
    )  # fmt: skip
    F.cross_entropy(model(batch).mlm_logits, batch.labels).backward()
    assert [n for n, p in model.named_parameters() if p.grad is None or not p.grad.any()] == []
