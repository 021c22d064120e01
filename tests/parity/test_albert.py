"""Ours == transformers' ALBERT: factorised embeddings and shared layers; logits and gradients."""

import pytest
import torch
from torch.nn import functional as F
from transformers import AlbertConfig, AlbertForMaskedLM

from ablate.encoder.backends import resolve
from ablate.encoder.config import EncoderConfig, parameter_count
from ablate.encoder.heads import MaskedLanguageModel
from ablate.encoder.initialization import load_weights
from ablate.inputs.batches import Batch

SIZES = {
    "vocab_size": 37,
    "embedding_size": 8,
    "hidden_size": 16,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 24,
    "max_position_embeddings": 40,
}
LAYER = "albert.encoder.albert_layer_groups.0.albert_layers.0."
NAMES = {  # ours -> theirs
    "encoder.embeddings.token": "albert.embeddings.word_embeddings",
    "encoder.embeddings.position": "albert.embeddings.position_embeddings",
    "encoder.embeddings.token_type": "albert.embeddings.token_type_embeddings",
    "encoder.embeddings.norm": "albert.embeddings.LayerNorm",
    "encoder.embeddings.projection": "albert.encoder.embedding_hidden_mapping_in",
    "encoder.layers.0.attention.output": LAYER + "attention.dense",
    "encoder.layers.0.attention_norm": LAYER + "attention.LayerNorm",
    "encoder.layers.0.mlp.input": LAYER + "ffn",
    "encoder.layers.0.mlp.output": LAYER + "ffn_output",
    "encoder.layers.0.mlp_norm": LAYER + "full_layer_layer_norm",
    "mlm_head.dense": "predictions.dense",
    "mlm_head.norm": "predictions.LayerNorm",
}


def translated(theirs):
    """Their values or gradients by our names."""
    out = {"mlm_head.decoder_bias": theirs["predictions.bias"]}
    for kind in ("weight", "bias"):
        for ours, name in NAMES.items():
            if f"{name}.{kind}" in theirs:
                out[f"{ours}.{kind}"] = theirs[f"{name}.{kind}"]
        parts = [theirs[f"{LAYER}attention.{p}.{kind}"] for p in ("query", "key", "value")]
        out[f"encoder.layers.0.attention.qkv.{kind}"] = torch.cat(parts)
    return out


@pytest.mark.parametrize("backend", ["eager", "sdpa"])
@pytest.mark.parametrize("lengths", [(8, 8, 8), (7, 1, 12, 3)])
def test_masked_lm_equals_hf(backend, lengths):
    torch.manual_seed(0)
    hf_config = AlbertConfig(
        **SIZES, hidden_act="gelu_new", hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
        attn_implementation="eager",
    )  # fmt: skip
    theirs = AlbertForMaskedLM(hf_config).eval()
    with torch.no_grad():
        for name, parameter in theirs.named_parameters():
            parameter.normal_(1.0 if "orm.weight" in name else 0.0, 0.2)
    config = EncoderConfig(
        **SIZES, shared_layers="all", activation="gelu_tanh", norm_eps=hf_config.layer_norm_eps
    )
    chosen = resolve(backend, device="cpu", dtype=torch.float32, max_length=40)
    ours = MaskedLanguageModel(config, chosen).eval()
    names = dict(theirs.named_parameters(remove_duplicate=False))
    assert load_weights(ours, translated({n: p.detach() for n, p in names.items()})) == []
    assert sum(p.numel() for p in theirs.parameters()) == parameter_count(config)

    rows = [torch.randint(5, 37, (n,)) for n in lengths]
    types = [(torch.arange(n) >= n // 2).long() for n in lengths]
    pad = torch.nn.utils.rnn.pad_sequence
    labels = pad(rows, batch_first=True, padding_value=-100)
    expected = theirs(
        input_ids=pad(rows, batch_first=True),
        token_type_ids=pad(types, batch_first=True),
        attention_mask=(labels != -100).long(),
        labels=labels,
        output_hidden_states=True,
    )
    flat = torch.cat(rows)
    out = ours(
        Batch(
            input_ids=flat,
            token_type_ids=torch.cat(types),
            position_ids=torch.cat([torch.arange(n) for n in lengths]),
            cu_seqlens=torch.tensor([0, *lengths]).cumsum(0).int(),
            max_seqlen=max(lengths),
            predict_positions=torch.arange(len(flat)),
            labels=flat,
            pair_labels=torch.zeros(len(lengths), dtype=torch.long),
        )
    )
    real = labels != -100
    close = {"atol": 1e-5, "rtol": 1e-5}
    torch.testing.assert_close(out.hidden, expected.hidden_states[-1][real], **close)
    torch.testing.assert_close(out.mlm_logits, expected.logits[real], **close)
    loss = F.cross_entropy(out.mlm_logits, flat)
    torch.testing.assert_close(loss, expected.loss, **close)
    loss.backward()
    expected.loss.backward()
    grads = {n: p.grad for n, p in names.items() if p.grad is not None}
    for name, grad in translated(grads).items():
        torch.testing.assert_close(ours.get_parameter(name).grad, grad, **close, msg=name)
