"""Early stopping of tagging and questions: what is held out of train is not trained on."""

import numpy as np
import pytest
import torch

from ablate import rng
from ablate.encoder.backends import resolve
from ablate.encoder.config import EncoderConfig
from ablate.encoder.heads import MaskedLanguageModel
from ablate.encoder.initialization import initialize
from ablate.evaluation.encoding import Rows
from ablate.evaluation.settings import FinetuneSettings
from ablate.evaluation.token_fitting import AskedRows, finetune_tokens

LENGTH, NUMBER = 5, 40


def make_model():
    config = EncoderConfig(
        vocab_size=20, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=32, max_position_embeddings=16,
    )  # fmt: skip
    backend = resolve("auto", device="cpu", dtype=torch.float32, max_length=16)
    model = MaskedLanguageModel(config, backend)
    initialize(model, config, lambda name: rng.torch_seed(0, "init", name))
    return model


def asked_rows():
    ids = np.random.default_rng(0).integers(5, 20, NUMBER * LENGTH)
    rows = Rows(ids, np.zeros_like(ids), np.arange(NUMBER + 1) * LENGTH, 0)
    return AskedRows(rows, np.arange(NUMBER) * LENGTH + 1, np.arange(NUMBER + 1))


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("groups", [None, np.repeat(np.arange(10), 4)])
def test_held_out_rows_are_judged_and_not_trained_on(groups, frozen):
    trained, judged, rows = set(), set(), asked_rows()

    def loss(outputs, lengths, which):
        assert len(lengths) == len(which) == len(outputs)
        (judged if torch.is_inference_mode_enabled() else trained).update(which.tolist())
        return outputs.square().sum(), len(which)

    settings = FinetuneSettings(
        learning_rate=1e-3, batch_size=8, num_epochs=3, min_steps=0, early_stopping=3,
        selection_fraction=0.2, frozen=frozen,
    )  # fmt: skip
    fit = finetune_tokens(
        make_model(), rows, {"validation": rows}, loss, settings, name="toy", num_outputs=3,
        seed=0, finetune_seed=0, groups=groups,
    )  # fmt: skip
    assert fit.selection is not None
    assert trained | judged == set(range(NUMBER))
    assert not trained & judged
    assert len(judged) == 8
    if groups is not None:
        assert not {groups[i] for i in trained} & {groups[i] for i in judged}
