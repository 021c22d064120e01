"""Rows do not see each other, windows are as wide as said, evaluation draws nothing."""

import pytest
import torch

from ablate.encoder.backends import resolve
from ablate.encoder.config import EncoderConfig
from ablate.encoder.encoder import Encoder
from ablate.encoder.initialization import initialize
from ablate.inputs.batches import collate

SIZES = {
    "vocab_size": 20,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 64,
}
MODERN = {
    "norm_position": "pre",
    "norm_bias": False,
    "position_embedding": "rope",
    "mlp": "glu",
    "attention_bias": False,
    "mlp_bias": False,
    "global_attention_every_n": 2,
    "local_attention": 4,
    "first_layer_norm": False,
    "final_norm": True,
    "type_vocab_size": 0,
    "init_scheme": "megatron",
}
CORNERS = {"bert": {}, "modernbert": MODERN}
KINDS = [(c, b) for c in CORNERS for b in ("eager", "sdpa")]
A, B = [2, 5, 6, 3], [2, 7, 8, 3]


def encoder_of(corner="bert", backend="sdpa", **options):
    config = EncoderConfig(**{**SIZES, **CORNERS[corner], "init_std": 0.2, **options})
    chosen = resolve(backend, device="cpu", dtype=torch.float32, max_length=64)
    encoder = Encoder(config, chosen)
    initialize(encoder, config, lambda name: sum(name.encode()))
    return encoder.eval()


def run(encoder, *rows):
    batch = collate([i for row in rows for i in row], [len(row) for row in rows])
    return encoder(
        batch.input_ids,
        token_type_ids=batch.token_type_ids,
        position_ids=batch.position_ids,
        cu_seqlens=batch.cu_seqlens,
        max_seqlen=batch.max_seqlen,
    )


@pytest.mark.parametrize("rows", [(A, B), (A, [2, 9, 9, 9, 9, 3], B)])
@pytest.mark.parametrize(("corner", "backend"), KINDS)
def test_packed_rows_do_not_see_each_other(corner, backend, rows):
    encoder = encoder_of(corner, backend)
    packed = run(encoder, *rows)[-4:]
    torch.testing.assert_close(packed, run(encoder, B), atol=1e-5, rtol=0)
    changed = run(encoder, [2, 9, 6, 3], *rows[1:])[-4:]
    assert torch.equal(changed, packed)


@pytest.mark.parametrize("rows", [(A, B), (A, [2, 9, 9, 9, 9, 3], B)])
@pytest.mark.parametrize(("corner", "backend"), KINDS)
def test_no_gradient_crosses_a_row_boundary(corner, backend, rows):
    encoder = encoder_of(corner, backend)
    seen = []
    hook = encoder.embeddings.register_forward_hook(lambda m, i, out: seen.append(out))
    out = run(encoder, *rows)
    hook.remove()
    (grad,) = torch.autograd.grad(out[-4:].square().sum(), seen[0])
    assert torch.equal(grad[:-4], torch.zeros_like(grad[:-4]))
    assert grad[-4:].abs().min(dim=1).values.gt(0).all()


def changed_places(encoder, *rows):
    """Places whose output moves when place 6 of all tokens changes."""
    before = run(encoder, *rows)
    flat = [i for row in rows for i in row]
    flat[6] = 19
    lengths = [len(row) for row in rows]
    after = run(encoder, *(t.tolist() for t in torch.tensor(flat).split(lengths)))
    return (before - after).abs().sum(1).nonzero().flatten().tolist()


@pytest.mark.parametrize("backend", ["eager", "sdpa"])
def test_a_window_of_4_reaches_2_each_way(backend):
    encoder = encoder_of("modernbert", backend)
    for layer in (0, 1):
        encoder.layers[layer].attention.output.weight.data *= layer  # only the sliding one acts
    assert encoder.config.layer_types == ("full_attention", "sliding_attention")
    row = list(range(5, 17))
    assert changed_places(encoder, row) == [4, 5, 6, 7, 8]
    assert changed_places(encoder, row[:6], row[6:]) == [6, 7, 8]
    assert changed_places(encoder, row[:6], row[6:9], row[9:]) == [6, 7, 8]


@pytest.mark.parametrize("backend", ["eager", "sdpa"])
@pytest.mark.parametrize("corner", CORNERS)
def test_causal_sees_nothing_later(corner, backend):
    encoder = encoder_of(corner, backend, causal=True, local_attention=64)
    assert changed_places(encoder, list(range(5, 17))) == [6, 7, 8, 9, 10, 11]


def test_each_theta_reaches_its_own_layers():
    base = encoder_of("modernbert")
    row = list(range(5, 17))
    for name in ("global_rope_theta", "local_rope_theta"):
        other = encoder_of("modernbert", **{name: 3.0})
        other.load_state_dict(base.state_dict())
        assert not torch.allclose(run(base, row), run(other, row))
    full = encoder_of("modernbert", global_attention_every_n=1)
    same = encoder_of("modernbert", global_attention_every_n=1, local_rope_theta=3.0)
    assert torch.equal(run(full, row), run(same, row))


@pytest.mark.parametrize("backend", ["eager", "sdpa"])
def test_evaluation_draws_nothing_and_training_does(backend):
    encoder = encoder_of("bert", backend, attention_dropout=0.5)
    state = torch.random.get_rng_state()
    assert torch.equal(run(encoder, A, B), run(encoder, A, B))
    assert torch.equal(torch.random.get_rng_state(), state)
    encoder.train()
    assert not torch.equal(run(encoder, A, B), run(encoder, A, B))


@pytest.mark.parametrize("name", ["hidden_dropout", "embedding_dropout", "mlp_dropout"])
def test_each_dropout_acts_in_training_only(name):
    encoder = encoder_of("modernbert", **{name: 0.5})
    assert torch.equal(run(encoder, A), run(encoder, A))
    encoder.train()
    assert not torch.equal(run(encoder, A), run(encoder, A))


@pytest.mark.parametrize("corner", CORNERS)
def test_bfloat16_autocast_is_close_and_trains(corner):
    encoder = encoder_of(corner, init_std=0.05)
    reference = run(encoder, A, [2, 9, 3], B)
    encoder.backend = resolve("auto", device="cpu", dtype=torch.bfloat16, max_length=64)
    with torch.autocast("cpu", torch.bfloat16):
        out = run(encoder, A, [2, 9, 3], B)
    assert out.dtype == torch.float32
    torch.testing.assert_close(out, reference, atol=0.1, rtol=0)
    out.square().sum().backward()
    for name, parameter in encoder.named_parameters():
        if not name.startswith("embeddings.token_type"):
            assert parameter.grad is not None, name
            assert parameter.grad.isfinite().all(), name


def test_inference_first_leaves_training_possible():
    encoder = encoder_of("modernbert", global_rope_theta=777.0)
    with torch.inference_mode():
        run(encoder, A)
    run(encoder, A).sum().backward()


def test_rows_beyond_the_learned_positions_say_what_to_type():
    with pytest.raises(ValueError, match=r"max_position_embeddings=65.*position_embedding=rope"):
        run(encoder_of(), [5] * 65)
    assert run(encoder_of("modernbert"), [5] * 65).shape == (65, 16)


@pytest.mark.parametrize(
    "options",
    [
        {"norm_position": "pre", "final_norm": True},
        {"norm_type": "rms"},
        {"mlp": "glu", "activation": "silu"},
        {"position_embedding": "rope"},
        {"first_layer_norm": False},
        {"embedding_norm": False},
        {"type_vocab_size": 0},
        {"activation": "gelu_tanh"},
    ],
)
@pytest.mark.parametrize("corner", CORNERS)
def test_every_axis_moves_alone(corner, options):
    encoder = encoder_of(corner, **options)
    assert run(encoder, A, B).isfinite().all()


def test_relu_and_silu_differ_from_gelu():
    outputs = [run(encoder_of(activation=a), A) for a in ("gelu", "gelu_tanh", "relu", "silu")]
    for i in range(4):
        for j in range(i):
            assert not torch.equal(outputs[i], outputs[j])
