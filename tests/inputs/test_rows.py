"""Assembled rows, and who sees whom in a row of two documents (FAULTS B05)."""

import itertools

import numpy as np
import pytest
import torch

from ablate import rng
from ablate.encoder import backends
from ablate.encoder.config import EncoderConfig
from ablate.encoder.encoder import Encoder
from ablate.encoder.initialization import initialize
from ablate.inputs.batches import collate
from ablate.inputs.formats import plan_epoch
from ablate.inputs.rows import assemble

TWO = [[[5, 6]], [[7, 8]]]  # [CLS] = 2, [SEP] = 3
THREE = [[[5, 6], [7]], [[8], [9, 10]], [[11, 12, 13]]]
SIZES = {
    "vocab_size": 20, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
    "intermediate_size": 32, "max_position_embeddings": 16, "init_std": 0.3,
}  # fmt: skip
MODERN = {
    "norm_position": "pre", "norm_bias": False, "position_embedding": "rope", "mlp": "glu",
    "attention_bias": False, "mlp_bias": False, "head_dense_bias": False, "first_layer_norm": False,
    "final_norm": True, "type_vocab_size": 0, "global_attention_every_n": 2, "local_attention": 4,
}  # fmt: skip


def flat_rows(make_store, toy_tokenizer, plan_of, documents, **options):
    store = make_store(documents)
    plan = plan_of(store, shuffle=False, **options)
    return plan, assemble(store, toy_tokenizer, plan, np.arange(plan.num_rows))


@pytest.mark.parametrize("boundary", ["none", "block"])
def test_a_stream_has_one_cls_and_a_sep_after_each_document(
    make_store, toy_tokenizer, plan_of, boundary
):
    plan, flat = flat_rows(
        make_store, toy_tokenizer, plan_of, THREE, input_format="full_sentences", max_length=8,
        document_boundary=boundary,
    )  # fmt: skip
    assert flat.input_ids.tolist() == [2, 5, 6, 7, 3, 8, 3, 2, 9, 10, 3, 11, 12, 13, 3]
    assert not flat.token_type_ids.any()
    assert flat.lengths.tolist() == [7, 8] == plan.row_lengths.tolist()
    sequences = [7, 8] if boundary == "none" else [5, 2, 4, 4]
    assert flat.sequence_lengths.tolist() == sequences
    assert np.array_equal(flat.eligible, ~np.isin(flat.input_ids, [2, 3]))
    batch = collate(flat.input_ids, flat.sequence_lengths)
    assert batch.position_ids.tolist() == [i for length in sequences for i in range(length)]
    assert batch.cu_seqlens.tolist() == [0, *np.cumsum(sequences)]


@pytest.mark.parametrize("boundary", ["none", "block"])
def test_packed_documents_have_a_cls_each(make_store, toy_tokenizer, plan_of, boundary):
    plan, flat = flat_rows(
        make_store, toy_tokenizer, plan_of, THREE, input_format="packed_documents", max_length=10,
        document_boundary=boundary,
    )  # fmt: skip
    assert flat.input_ids.tolist() == [2, 5, 6, 7, 3, 2, 8, 9, 10, 3, 2, 11, 12, 13, 3]
    assert flat.lengths.tolist() == [10, 5] == plan.row_lengths.tolist()
    assert flat.sequence_lengths.tolist() == ([10, 5] if boundary == "none" else [5, 5, 5])


def test_pairs_have_types_and_a_lone_segment_has_type_0(make_store, toy_tokenizer, plan_of):
    """Two sentences swapped or not, and one document of one sentence."""
    plan, flat = flat_rows(
        make_store, toy_tokenizer, plan_of, [[[5, 6], [7]], [[8, 9]]], input_format="sentence_pair",
        max_length=12, pairing="ordered_or_swapped",
    )  # fmt: skip
    swapped = plan.pair_labels.tolist() == [1, -100]
    first = [2, 7, 3, 5, 6, 3] if swapped else [2, 5, 6, 3, 7, 3]
    assert flat.input_ids.tolist() == [*first, 2, 8, 9, 3]
    types = [0, 0, 0, 1, 1, 1] if swapped else [0, 0, 0, 0, 1, 1]
    assert flat.token_type_ids.tolist() == [*types, 0, 0, 0, 0]
    assert flat.lengths.tolist() == flat.sequence_lengths.tolist() == [6, 4]


def test_rows_come_in_the_order_asked_for(make_store, toy_tokenizer, plan_of):
    store = make_store(THREE)
    plan = plan_of(store, input_format="full_sentences", max_length=8, document_boundary="block")
    whole = [assemble(store, toy_tokenizer, plan, np.array([row])) for row in range(plan.num_rows)]
    order = np.arange(plan.num_rows)[::-1]
    both = assemble(store, toy_tokenizer, plan, order)
    for name in ("input_ids", "token_type_ids", "eligible", "word_starts", "lengths"):
        parts = [getattr(whole[row], name) for row in order]
        assert np.array_equal(getattr(both, name), np.concatenate(parts)), name
    parts = [whole[row].sequence_lengths for row in order]
    assert np.array_equal(both.sequence_lengths, np.concatenate(parts))


def encoder_of(axes, name):
    config = EncoderConfig(**SIZES, **axes)
    backend = backends.resolve(name, device="cpu", dtype=torch.float32, max_length=16)
    encoder = Encoder(config, backend).eval()
    initialize(encoder, config, lambda parameter: rng.torch_seed(0, "init", parameter))
    return encoder


def hidden_of(encoder, batch):
    return encoder(
        batch.input_ids, token_type_ids=batch.token_type_ids, position_ids=batch.position_ids,
        cu_seqlens=batch.cu_seqlens, max_seqlen=batch.max_seqlen,
    )  # fmt: skip


def packed(make_store, toy_tokenizer, plan_of, documents, boundary):
    _, flat = flat_rows(
        make_store, toy_tokenizer, plan_of, documents, input_format="packed_documents",
        max_length=8, document_boundary=boundary,
    )  # fmt: skip
    return collate(flat.input_ids, flat.sequence_lengths, token_type_ids=flat.token_type_ids)


BODIES = list(itertools.product([{}, MODERN], ["eager", "sdpa"]))


@pytest.mark.parametrize(("axes", "backend"), BODIES)
def test_block_keeps_documents_of_a_row_apart(make_store, toy_tokenizer, plan_of, axes, backend):
    """A = [2, 5, 6, 3], B = [2, 7, 8, 3] in one row of 8; then id 5 becomes 9."""
    encoder = encoder_of(axes, backend)
    batch = packed(make_store, toy_tokenizer, plan_of, TWO, "block")
    assert batch.input_ids.tolist() == [2, 5, 6, 3, 2, 7, 8, 3]
    assert batch.position_ids.tolist() == [0, 1, 2, 3, 0, 1, 2, 3]
    assert batch.cu_seqlens.tolist() == [0, 4, 8]
    assert int((batch.cu_seqlens.diff() ** 2).sum()) == 32  # of 64 pairs of places
    together = hidden_of(encoder, batch)
    alone = hidden_of(encoder, packed(make_store, toy_tokenizer, plan_of, TWO[1:], "block"))
    assert torch.allclose(together[4:], alone, atol=1e-5)
    changed = packed(make_store, toy_tokenizer, plan_of, [[[9, 6]], TWO[1]], "block")
    other = hidden_of(encoder, changed)
    assert torch.equal(other[4:], together[4:])
    assert not torch.equal(other[:4], together[:4])
    assert gradient_of_a(encoder, batch).abs().max() == 0
    assert gradient_of_a(encoder, batch, of_b=False).abs().max() > 0


@pytest.mark.parametrize(("axes", "backend"), BODIES)
def test_none_lets_the_second_document_see_the_first(
    make_store, toy_tokenizer, plan_of, axes, backend
):
    encoder = encoder_of(axes, backend)
    batch = packed(make_store, toy_tokenizer, plan_of, TWO, "none")
    assert batch.position_ids.tolist() == list(range(8))
    assert batch.cu_seqlens.tolist() == [0, 8]
    together = hidden_of(encoder, batch)
    changed = packed(make_store, toy_tokenizer, plan_of, [[[9, 6]], TWO[1]], "none")
    assert (hidden_of(encoder, changed)[4:] - together[4:]).abs().max() > 1e-4
    assert gradient_of_a(encoder, batch).abs().max() > 0


def gradient_of_a(encoder, batch, *, of_b=True):
    """Of the summed outputs of B (or of A), to the vectors that stand for A's tokens."""
    kept = []
    hook = encoder.embeddings.token.register_forward_hook(
        lambda module, inputs, output: kept.append(output.detach().requires_grad_()) or kept[0]
    )
    out = hidden_of(encoder, batch)
    hook.remove()
    weight = torch.linspace(-1, 1, out.shape[1])  # a plain sum is constant after a norm
    total = ((out[4:] if of_b else out[:4]) * weight).sum()
    (gradient,) = torch.autograd.grad(total, kept[0])
    return gradient[:4]


@pytest.mark.parametrize("boundary", ["none", "block"])
@pytest.mark.parametrize("name", ["full_sentences", "packed_documents"])
def test_attention_length_is_the_mean_over_tokens_of_what_they_may_see(built_in, name, boundary):
    _, tokenizer, store = built_in
    plan = plan_epoch(
        store, np.arange(100), input_format=name, max_length=64, seed=0, epoch=0,
        document_boundary=boundary,
    )  # fmt: skip
    lengths = assemble(store, tokenizer, plan, np.arange(plan.num_rows)).sequence_lengths
    assert plan.attention_length == pytest.approx(np.mean(np.repeat(lengths, lengths)))
