"""Pseudo-log-likelihood == plain transformers on the exported checkpoint."""

import itertools

import numpy as np
import pytest
import torch

from ablate import rng
from ablate.encoder.backends import resolve
from ablate.encoder.config import EncoderConfig
from ablate.encoder.heads import MaskedLanguageModel
from ablate.encoder.initialization import initialize
from ablate.evaluation.minimal_pairs import score_pairs


def pair(good, bad):
    return {"sentence_good": good, "sentence_bad": bad, "paradigm": "p"}


@pytest.fixture(scope="module")
def in_transformers(built_in, tmp_path_factory):
    """(our model, our tokenizer, the exported model and tokenizer in transformers)."""
    from transformers import AutoModelForMaskedLM, AutoTokenizer

    from ablate.interop.exporting import export

    tokenizer = built_in[1]
    config = EncoderConfig(
        vocab_size=tokenizer.vocab_size,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=48,
        max_position_embeddings=64,
        init_std=0.2,
    )
    backend = resolve("auto", device="cpu", dtype=torch.float32, max_length=64)
    model = MaskedLanguageModel(config, backend)
    initialize(model, config, lambda name: rng.torch_seed(0, "init", name))
    folder = tmp_path_factory.mktemp("exported") / "model"
    export(folder, config=config, state=model.state_dict(), pair_loss=None, tokenizer=tokenizer)
    theirs = AutoModelForMaskedLM.from_pretrained(folder).eval()
    return model, tokenizer, theirs, AutoTokenizer.from_pretrained(folder)


@pytest.mark.parametrize("likelihood", ["original", "within_word_l2r"])
def test_likelihood_equals_plain_transformers_on_the_exported_checkpoint(
    in_transformers, built_in, likelihood
):
    """One mask at a time (with the later pieces of its word), nothing shared, nothing packed."""
    ours, tokenizer, theirs, their_tokenizer = in_transformers
    texts = [line for text, _ in zip(built_in[0].open(), range(4), strict=False)
             for line in text.split(".")][:8]  # fmt: skip
    texts = [text.strip() + " ." for text in texts if text.strip()]
    pairs = [pair(text, " ".join(reversed(text.split()))) for text in texts]
    found = score_pairs(ours, tokenizer, pairs, likelihood=likelihood, max_length=64)

    def direct(text):
        encoded = their_tokenizer(text, return_tensors="pt")
        words, ids, total = encoded.word_ids(0), encoded["input_ids"][0], 0.0
        for place in range(1, len(ids) - 1):
            hidden = [place]
            if likelihood == "within_word_l2r":
                hidden = [i for i in range(place, len(ids)) if words[i] == words[place]]
            shown = ids.clone()
            shown[hidden] = their_tokenizer.mask_token_id
            with torch.no_grad():
                logits = theirs(input_ids=shown[None]).logits[0, place]
            total += float(logits.log_softmax(-1)[ids[place]])
        return total

    assert any(len(w) > 1 for w in multi_piece_words(tokenizer, texts))
    for column, values in (("sentence_good", found.good), ("sentence_bad", found.bad)):
        wanted = [direct(p[column]) for p in pairs]
        np.testing.assert_allclose(values, wanted, atol=2e-4)


def multi_piece_words(tokenizer, texts):
    for encoded in tokenizer.encode_batch(texts):
        borders = [*np.flatnonzero(encoded.word_starts), len(encoded.ids)]
        yield from (encoded.ids[a:b] for a, b in itertools.pairwise(borders))
