"""Ours, written as a config and weights of transformers == ours, at points beside the corners too.

Random values everywhere, so that a bias, theta, window or activation that the config does not carry
over shows. The same through files and trained models: tests/interop/test_export.py.
"""

import dataclasses

import pytest
import torch
from transformers import BertForMaskedLM, ModernBertForMaskedLM

from ablate.encoder.backends import resolve
from ablate.encoder.config import EncoderConfig
from ablate.encoder.heads import MaskedLanguageModel
from ablate.inputs.batches import from_segments
from ablate.interop import bert, modernbert

SIZES = {
    "vocab_size": 37,
    "hidden_size": 16,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "intermediate_size": 24,
    "max_position_embeddings": 40,
}
MODERN = {
    "norm_position": "pre",
    "position_embedding": "rope",
    "mlp": "glu",
    "first_layer_norm": False,
    "final_norm": True,
    "type_vocab_size": 0,
    "local_attention": 8,
}
BERTS = [
    {},
    {"activation": "relu", "norm_eps": 0.1},
    {"activation": "gelu_tanh", "norm_bias": False},
    {"activation": "silu", "attention_bias": False, "mlp_bias": False},
    {"head_bias": False, "head_dense_bias": False, "type_vocab_size": 0},
    {"head_bias": False, "tie_word_embeddings": False},
    {"embedding_size": 16, "pad_token_id": 1},
]
MODERNBERTS = [
    {},
    {"activation": "silu", "norm_eps": 0.1},
    {"activation": "relu", "global_attention_every_n": 2, "local_attention": 4},
    {"global_attention_every_n": 3, "global_rope_theta": 50.0, "local_rope_theta": 5.0},
    {"attention_bias": False, "mlp_bias": False, "head_dense_bias": False},
    {"norm_bias": False, "head_bias": False, "tie_word_embeddings": False},
]
POINTS = [(bert, BertForMaskedLM, options) for options in BERTS]
POINTS += [(modernbert, ModernBertForMaskedLM, MODERN | options) for options in MODERNBERTS]


@pytest.mark.parametrize(("family", "cls", "options"), POINTS)
def test_written_config_and_weights_are_the_same_function(family, cls, options):
    config = EncoderConfig(**SIZES, **options)
    backend = resolve("eager", device="cpu", dtype=torch.float32, max_length=40)
    ours = MaskedLanguageModel(config, backend).eval()
    torch.manual_seed(0)
    with torch.no_grad():
        for name, parameter in ours.named_parameters():
            parameter.normal_(1.0 if "norm.weight" in name else 0.0, 0.2)
    hf_config = family.config_to_hf(config)
    hf_config._attn_implementation = "eager"
    theirs = cls(hf_config).eval()
    theirs.load_state_dict(family.state_dict_to_hf(ours.state_dict(), config), strict=True)
    sides = [list(range(5, 17)), list(range(20, 36))]
    batch, _ = from_segments([sides], cls_token_id=2, sep_token_id=3, max_length=40)
    batch.predict_positions, batch.labels = torch.arange(batch.num_tokens), batch.input_ids
    inputs = {"input_ids": batch.input_ids[None]}
    if family is bert:
        inputs["token_type_ids"] = batch.token_type_ids[None]
    expected = theirs(**inputs).logits[0]
    torch.testing.assert_close(ours(batch).mlm_logits, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(("family", "options"), [(bert, {}), (modernbert, MODERN)])
def test_config_goes_there_and_back(family, options):
    given = EncoderConfig(
        **SIZES, **options, activation="silu", norm_eps=1e-3, pad_token_id=3,
        tie_word_embeddings=False, attention_dropout=0.25, embedding_dropout=0.125,
        hidden_dropout=0.125 if family is bert else 0.0,
    )  # fmt: skip
    back = family.config_from_hf(family.config_to_hf(given))
    assert dataclasses.replace(back, init_scheme=given.init_scheme, init_std=given.init_std) == (
        dataclasses.replace(
            given, **({} if family is modernbert else {"local_attention": back.local_attention})
        )
    )
