"""The lesson's first exercise: 20 words, 200 sentences, a 2-layer encoder with a masked-LM head."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import binom

from ablate import rng
from ablate.corpus import sources
from ablate.encoder import backends
from ablate.encoder.config import EncoderConfig
from ablate.encoder.heads import MaskedLanguageModel
from ablate.encoder.initialization import initialize
from ablate.inputs.formats import plan_epoch
from ablate.inputs.masked_rows import MaskedRows
from ablate.inputs.masking import MaskingPolicy
from ablate.objectives.mlm import masked_lm_loss
from ablate.tokens import store, training

NAMES = ["anna", "ben", "carl", "dora", "ella", "finn"]
VERBS = ["sees", "hears", "likes", "helps"]
THINGS = ["dogs", "cats", "birds", "trees", "songs", "boats"]
PLACES = ["here", "there", "today"]
WORDS = [*NAMES, *VERBS, *THINGS, *PLACES, "."]


@pytest.fixture(scope="module")
def lesson(tmp_path_factory):
    """200 distinct sentences of 5 words, 10 to a document, as a text file."""
    assert len(WORDS) == 20
    folder = tmp_path_factory.mktemp("lesson")
    all_of_them = [
        f"{name} {verb} {thing} {place} ."
        for name in NAMES for verb in VERBS for thing in THINGS for place in PLACES
    ]  # fmt: skip
    order = rng.generator(0, "lesson").permutation(len(all_of_them))[:200]
    sentences = [all_of_them[i] for i in order]
    documents = ["\n".join(sentences[i : i + 10]) for i in range(0, 200, 10)]
    (folder / "lesson.txt").write_text("\n\n".join(documents) + "\n")
    corpus = sources.load_files(
        folder / "lesson.txt", validation_fraction=0.1, cache_dir=folder / "cache"
    )
    tokenizer = training.from_morphemes(WORDS, cache_dir=folder / "cache")
    return corpus, tokenizer, store.build(corpus, tokenizer, cache_dir=folder / "cache")


def batches(lesson, policy, seed=0, epochs=13):
    """Every row of several epochs, at least 10,000 content tokens."""
    _, tokenizer, tokens = lesson
    rows = MaskedRows(tokens, tokenizer, policy, max_length=32, seed=seed)
    for epoch in range(epochs):
        plan = plan_epoch(
            tokens, np.arange(20), input_format="doc_sentences", max_length=32, seed=seed,
            epoch=epoch,
        )  # fmt: skip
        yield rows.batch(plan, np.arange(plan.num_rows), epoch=epoch)


def test_two_hundred_sentences_of_a_twenty_word_vocabulary(lesson):
    corpus, tokenizer, tokens = lesson
    assert corpus.counts["documents"] == 20
    assert tokens.meta["sentences"] == 200
    assert len(tokens.tokens) == 1000
    assert tokenizer.vocab_size == 25  # with five special tokens
    assert tokens.meta["unk_tokens"] == 0


@pytest.mark.parametrize("share", [0.8, 1.0])
def test_ten_thousand_tokens_are_masked_as_told(lesson, share):
    policy = MaskingPolicy(mask_replace_prob=share, random_replace_prob=(1 - share) / 2)
    selected = masked = eligible = 0
    for batch, counts in batches(lesson, policy):
        eligible += counts.eligible
        selected += counts.selected
        chosen = batch.input_ids[batch.predict_positions]
        masked += int((chosen == 4).sum())
        assert not torch.isin(batch.labels, torch.arange(5)).any()
    assert eligible == 13_000
    low, high = binom.ppf([5e-6, 1 - 5e-6], eligible, 0.15)
    assert low <= selected <= high
    low, high = binom.ppf([5e-6, 1 - 5e-6], selected, share)
    assert low <= masked <= high


def test_loss_before_training_is_the_logarithm_of_the_vocabulary(lesson):
    _, tokenizer, _ = lesson
    config = EncoderConfig(
        vocab_size=tokenizer.vocab_size, hidden_size=64, num_hidden_layers=2,
        num_attention_heads=4, intermediate_size=256, max_position_embeddings=32, init_std=0.02,
    )  # fmt: skip
    backend = backends.resolve("auto", device="cpu", dtype=torch.float32, max_length=32)
    model = MaskedLanguageModel(config, backend).eval()
    initialize(model, config, lambda name: rng.torch_seed(0, "init", name))
    loss_sum, count = 0.0, 0
    with torch.no_grad():
        for batch, _ in batches(lesson, MaskingPolicy()):
            part = masked_lm_loss(model(batch).mlm_logits, batch.labels)
            loss_sum, count = loss_sum + float(part.loss_sum), count + part.count
    assert loss_sum / count == pytest.approx(math.log(tokenizer.vocab_size), abs=0.1)
