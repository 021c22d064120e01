"""Heads see the right tokens, the tied decoder is the embedding, the loss begins near ln(V)."""

import copy
import io
import math

import pytest
import torch
from torch.nn import functional as F

from ablate import rng
from ablate.encoder.backends import resolve
from ablate.encoder.config import EncoderConfig
from ablate.encoder.heads import POOLINGS, ClassificationHead, MaskedLanguageModel, pool
from ablate.encoder.initialization import initialize, load_weights, num_parameters
from ablate.inputs.batches import collate

SIZES = {
    "vocab_size": 37,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 16,
}
BATCH = collate([2, 5, 6, 3, 2, 7, 3], [4, 3], predict_positions=[1, 2, 5], labels=[5, 6, 7])


def model_of(pair_classes=0, **options):
    config = EncoderConfig(**{**SIZES, **options})
    backend = resolve("auto", device="cpu", dtype=torch.float32, max_length=16)
    model = MaskedLanguageModel(config, backend, pair_classes)
    initialize(model, config, lambda name: rng.torch_seed(0, "init", name))
    return model


def loss_of(model):
    return F.cross_entropy(model(BATCH).mlm_logits, BATCH.labels)


def assert_tied(model):
    """The decoder follows the embedding: the row of a token moves that token's logit alone."""
    before = model(BATCH).mlm_logits
    with torch.no_grad():
        model.encoder.embeddings.token.weight[30] += 1.0  # 30 is not in the batch
    moved = (model(BATCH).mlm_logits - before).abs().sum(0).nonzero().flatten().tolist()
    assert moved == [30]


def test_a_tied_weight_counts_once():
    tied, untied = num_parameters(model_of()), num_parameters(model_of(tie_word_embeddings=False))
    assert untied - tied == 37 * 16


def test_tying_survives_copy_save_load_and_a_step():
    model = model_of()
    assert_tied(model)
    assert_tied(copy.deepcopy(model))
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    again = model_of(hidden_dropout=0.0)
    load_weights(again, torch.load(file, weights_only=True))
    assert torch.equal(again(BATCH).mlm_logits, model(BATCH).mlm_logits)
    assert_tied(again)
    loss_of(again).backward()
    torch.optim.SGD(again.parameters(), lr=0.1).step()
    assert_tied(again)
    assert_tied(again.to(torch.float64).to(torch.float32))
    assert sum("token.weight" in name or "decoder" in name for name in model.state_dict()) == 2


def test_an_untied_decoder_is_saved_and_stays_apart():
    model = model_of(tie_word_embeddings=False)
    assert "mlm_head.decoder_weight" in model.state_dict()
    before = model(BATCH).mlm_logits
    with torch.no_grad():
        model.encoder.embeddings.token.weight[30] += 1.0
    assert torch.equal(model(BATCH).mlm_logits, before)


def test_only_predicted_positions_reach_the_vocabulary():
    model = model_of(pair_classes=2)
    out = model(BATCH)
    assert (out.hidden.shape, out.mlm_logits.shape, out.pair_logits.shape) == (
        (7, 16),
        (3, 37),
        (2, 2),
    )
    everywhere = model.mlm_head(out.hidden, model.encoder.embeddings.token.weight)
    torch.testing.assert_close(out.mlm_logits, everywhere[[1, 2, 5]])
    nothing = model(collate([2, 5, 3], [3]))
    assert nothing.mlm_logits.shape == (0, 37)
    assert model_of()(BATCH).pair_logits is None


def test_a_fresh_model_guesses_evenly():
    assert loss_of(model_of()).item() == pytest.approx(math.log(37), abs=0.05)


def test_the_pair_head_reads_first_tokens():
    model = model_of(pair_classes=2)
    hidden = torch.randn(7, 16)
    logits = model.pair_head(hidden, BATCH.cu_seqlens)
    hidden[[1, 2, 3, 5, 6]] += 1
    assert torch.equal(model.pair_head(hidden, BATCH.cu_seqlens), logits)
    hidden[4] += 1
    changed = (model.pair_head(hidden, BATCH.cu_seqlens) != logits).any(1)
    assert changed.tolist() == [False, True]


def test_pooling_by_hand():
    hidden = torch.tensor([[1.0], [3.0], [5.0], [10.0]])
    bounds = torch.tensor([0, 3, 4], dtype=torch.int32)
    assert pool(hidden, bounds, "cls").tolist() == [[1], [10]]
    assert pool(hidden, bounds, "mean").tolist() == [[3], [10]]
    assert pool(hidden, bounds, "cls_mean").tolist() == [[1, 3], [10, 10]]
    assert pool(hidden, bounds, "last").tolist() == [[5], [10]]
    assert pool(hidden, bounds, "last_mean").tolist() == [[5, 3], [10, 10]]
    assert pool(-hidden, bounds, "max").tolist() == [[-1], [-10]]
    query = torch.tensor([0.5])
    weights = torch.tensor([0.5, 1.5, 2.5]).softmax(0)
    found = pool(hidden, bounds, "attention", query=query)
    assert found[0].item() == pytest.approx(float(weights @ hidden[:3, 0]))
    assert found[1].item() == pytest.approx(10.0)


@pytest.mark.parametrize("pooling", POOLINGS)
def test_no_pooling_reads_another_row(pooling):
    hidden = torch.randn(7, 4, generator=torch.Generator().manual_seed(0))
    bounds = torch.tensor([0, 3, 7], dtype=torch.int32)
    query = torch.tensor([1.0, -2.0, 0.5, 0.0])
    both = pool(hidden, bounds, pooling, query=query)
    for row, (begin, end) in enumerate(((0, 3), (3, 7))):
        alone = torch.tensor([0, end - begin], dtype=torch.int32)
        torch.testing.assert_close(
            pool(hidden[begin:end], alone, pooling, query=query)[0], both[row]
        )


def test_attention_begins_as_the_mean_and_survives_large_scores():
    hidden = torch.randn(7, 4, generator=torch.Generator().manual_seed(0))
    bounds = torch.tensor([0, 3, 7], dtype=torch.int32)
    mean = pool(hidden, bounds, "mean")
    torch.testing.assert_close(pool(hidden, bounds, "attention", query=torch.zeros(4)), mean)
    query = torch.full((4,), 1e4, requires_grad=True)
    found = pool(hidden, bounds, "attention", query=query)
    found.sum().backward()
    assert torch.isfinite(found).all()
    assert torch.isfinite(query.grad).all()


def test_means_are_taken_in_float32():
    hidden = torch.ones(1000, 1, dtype=torch.bfloat16) * 1.0078125
    bounds = torch.tensor([0, 1000], dtype=torch.int32)
    assert pool(hidden, bounds, "mean").item() == pytest.approx(1.0078125, abs=1e-6)


def test_a_linear_head_is_one_matrix_and_attention_adds_a_query():
    names = [
        name for name, _ in ClassificationHead(16, 3, "mean", kind="linear").named_parameters()
    ]
    assert names == ["classifier.weight", "classifier.bias"]
    assert ClassificationHead(16, 3, "cls_mean", kind="linear").classifier.weight.shape == (3, 32)
    attention = ClassificationHead(16, 3, "attention")
    assert dict(attention.named_parameters())["query"].shape == (16,)
    with pytest.raises(ValueError, match="head=deep is unknown; allowed are mlp, linear"):
        ClassificationHead(16, 3, kind="deep")


@pytest.mark.parametrize("pooling", POOLINGS)
def test_classification_head(pooling):
    config = EncoderConfig(**SIZES)
    head = ClassificationHead(16, 3, pooling, dropout=0.5)
    initialize(head, config, lambda name: rng.torch_seed(0, name))
    hidden = torch.randn(7, 16)
    logits = head.eval()(hidden, BATCH.cu_seqlens)
    assert logits.shape == (2, 3)
    assert torch.equal(head(hidden, BATCH.cu_seqlens), logits)
    assert not torch.equal(head.train()(hidden, BATCH.cu_seqlens), logits)


def test_an_unknown_pooling_lists_the_known_ones():
    with pytest.raises(ValueError, match="cls, mean, max, attention, cls_mean"):
        ClassificationHead(16, 3, "sum")


def test_bfloat16_logits_are_close():
    model = model_of(pair_classes=2)
    expected = model(BATCH)
    with torch.autocast("cpu", torch.bfloat16):
        out = model(BATCH)
    assert out.mlm_logits.dtype == torch.bfloat16
    torch.testing.assert_close(out.mlm_logits.float(), expected.mlm_logits, atol=0.02, rtol=0.02)
    torch.testing.assert_close(out.pair_logits.float(), expected.pair_logits, atol=0.02, rtol=0.02)
