import pytest
import torch

from ablate.encoder import backends
from ablate.encoder.config import EncoderConfig
from ablate.encoder.heads import MaskedLanguageModel
from ablate.pretraining.optimizers import decay_groups, group_sizes

SIZES = {
    "vocab_size": 37, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
    "intermediate_size": 32, "max_position_embeddings": 16,
}  # fmt: skip
MODERN = {
    "norm_position": "pre", "norm_bias": False, "position_embedding": "rope", "mlp": "glu",
    "attention_bias": False, "mlp_bias": False, "head_dense_bias": False, "final_norm": True,
    "first_layer_norm": False, "type_vocab_size": 0, "norm_eps": 1e-5,
}  # fmt: skip


@pytest.mark.parametrize("axes", [{}, MODERN], ids=["bert", "modernbert"])
def test_every_parameter_is_in_one_group_and_vectors_never_decay(axes):
    backend = backends.resolve("eager", device="cpu", dtype=torch.float32, max_length=16)
    model = MaskedLanguageModel(EncoderConfig(**SIZES, **axes), backend, pair_classes=2)
    groups = decay_groups(model, 0.01)
    members = [p for group in groups for p in group["params"]]
    assert len({id(p) for p in members}) == len(members) == len(list(model.parameters()))
    for group in groups:
        assert all((p.ndim >= 2) == (group["weight_decay"] > 0) for p in group["params"])
    sizes = group_sizes(model)
    total = sum(p.numel() for p in model.parameters())
    assert sizes["decayed_parameters"] + sizes["undecayed_parameters"] == total
