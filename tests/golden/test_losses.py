"""Ten losses of a deterministic run of each corner.

If a change moves them beyond rounding it changes results: raise RESULT_VERSION in
ablate/config/fingerprint.py, put the new numbers here and say why in the commit. The tolerance
covers other CPUs' order of summation, nothing more.
"""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from ablate import rng
from ablate.encoder import backends
from ablate.encoder.config import EncoderConfig
from ablate.encoder.heads import MaskedLanguageModel
from ablate.encoder.initialization import initialize
from ablate.inputs.formats import plan_epoch
from ablate.inputs.masked_rows import MaskedRows
from ablate.inputs.masking import MaskingPolicy
from ablate.objectives.mlm import masked_lm_loss
from ablate.objectives.sentence_pair import sentence_pair_loss
from ablate.pretraining.optimizers import adamw

SIZES = {
    "vocab_size": 60, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
    "intermediate_size": 64, "max_position_embeddings": 32, "init_std": 0.05,
}  # fmt: skip
MODERN = {
    "norm_position": "pre", "norm_bias": False, "norm_eps": 1e-5, "position_embedding": "rope",
    "mlp": "glu", "attention_bias": False, "mlp_bias": False, "head_dense_bias": False,
    "first_layer_norm": False, "final_norm": True, "type_vocab_size": 0,
    "global_attention_every_n": 2, "local_attention": 8, "init_scheme": "megatron",
}  # fmt: skip
TOKENIZER = SimpleNamespace(
    file=Path("golden"), cls_token_id=2, sep_token_id=3, mask_token_id=4, knows_words=True,
    special_ids=np.arange(5), ordinary_ids=np.arange(5, 60), vocab_size=60,
)  # fmt: skip
GOLDEN = {
    "bert": [
        4.82822,
        4.779076,
        4.663442,
        4.730626,
        4.503363,
        4.950608,
        4.778785,
        4.849185,
        5.038927,
        4.620512,
    ],
    "modernbert": [
        4.814413,
        4.776692,
        4.681369,
        4.721457,
        4.523932,
        4.924197,
        4.717776,
        4.806348,
        4.997602,
        4.643185,
    ],
}


def counting_store():
    """40 documents of 6 sentences in which each token is the one before it plus 1, 2 or 3."""
    random = rng.generator(0, "golden")
    tokens = 5 + np.cumsum(random.integers(1, 4, 40 * 6 * 7)) % 55
    return SimpleNamespace(
        tokens=tokens.astype(np.uint16),
        word_starts=np.arange(len(tokens)) % 3 > 0,
        sentence_starts=np.arange(0, len(tokens) + 1, 7),
        document_starts=np.arange(0, len(tokens) + 1, 42),
    )


def losses(axes):
    store = counting_store()
    config = EncoderConfig(**SIZES, **axes)
    backend = backends.resolve("eager", device="cpu", dtype=torch.float32, max_length=32)
    model = MaskedLanguageModel(config, backend, pair_classes=2)
    initialize(model, config, lambda name: rng.torch_seed(0, "init", 0, name))
    plan = plan_epoch(
        store, np.arange(40), input_format="segment_pair", max_length=32, seed=0, epoch=0
    )
    policy = MaskingPolicy("whole_word", 0.3)
    rows = MaskedRows(store, TOKENIZER, policy, max_length=32, seed=0)
    optimizer = adamw(model, learning_rate=3e-3, weight_decay=0.01, betas=(0.9, 0.98), eps=1e-6)
    found = []
    for step in range(10):
        batch, _ = rows.batch(plan, np.arange(step * 8, step * 8 + 8), epoch=0)
        output = model(batch)
        mlm = masked_lm_loss(output.mlm_logits, batch.labels)
        nsp = sentence_pair_loss(output.pair_logits, batch.pair_labels)
        loss = mlm.loss_sum / mlm.count + nsp.loss_sum / nsp.count
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        found.append(float(loss.detach()))
    return found


@pytest.mark.parametrize(("corner", "axes"), [("bert", {}), ("modernbert", MODERN)])
def test_ten_losses_have_not_moved(corner, axes):
    assert losses(axes) == pytest.approx(GOLDEN[corner], rel=2e-4)
