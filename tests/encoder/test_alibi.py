"""ALiBi's slopes and bias by hand, in every backend, packed as alone, and free of parameters."""

import math

import pytest
import torch
from transformers.models.bloom.modeling_bloom import build_alibi_tensor

from ablate.encoder.attention import Reach, alibi_slopes
from ablate.encoder.backends import Backend, resolve
from ablate.encoder.config import EncoderConfig
from ablate.encoder.encoder import Encoder
from ablate.encoder.initialization import initialize
from ablate.inputs.batches import collate

BACKENDS = {
    "eager": Backend("eager", "eager", ""),
    "matmul": Backend("sdpa", "matmul", ""),
    "flash": Backend("sdpa", "flash", ""),
    "flex": Backend("flex", "flex", ""),
}
BF16 = torch.bfloat16
pytestmark = pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")


def test_the_slopes_of_the_paper():
    assert alibi_slopes(8).tolist() == [2.0**-i for i in range(1, 9)]
    assert alibi_slopes(16).tolist() == pytest.approx([2 ** -(i / 2) for i in range(1, 17)])
    assert alibi_slopes(1).tolist() == [2.0**-8]
    assert alibi_slopes(3).tolist() == [2.0**-4, 2.0**-8, 2.0**-2]


@pytest.mark.parametrize("heads", [1, 2, 3, 4, 6, 7, 12, 16, 20])
def test_the_slopes_equal_those_of_transformers_bloom(heads):
    theirs = build_alibi_tensor(torch.ones(1, 2), heads, torch.float32)[:, 0, 1]
    torch.testing.assert_close(alibi_slopes(heads), theirs)


def test_the_bias_grows_to_both_sides():
    reach = Reach(torch.tensor([0, 3]), 3, slopes=torch.tensor([0.5, 1.0]))
    position = torch.arange(3)
    bias = reach.bias(position[:, None], position[None])
    assert (-bias[0]).tolist() == [[0, 0.5, 1], [0.5, 0, 0.5], [1, 0.5, 0]]
    assert torch.equal(bias[1], 2 * bias[0])


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("causal", [False, True])
def test_attention_falls_with_distance_as_worked_out_by_hand(backend, causal):
    """Equal scores and a slope of log 2: each step away halves the weight."""
    qkv = torch.zeros(4, 3, 1, 16)
    qkv[:, 2] = torch.tensor([8.0, 0.0, 0.0, 80.0]).view(4, 1, 1)
    bounds, slopes = torch.tensor([0, 3, 4]).int(), torch.tensor([math.log(2)])
    chosen = BACKENDS[backend]
    plan = chosen.plan(Reach(bounds, 3, causal=causal, slopes=slopes), torch.float32)
    with torch.no_grad():
        out = plan.attend(qkv, None, chosen.kernel, 0.0)[:, 0]
    # weights of place 0: 1, 1/2, 1/4 of 7/4, or itself alone if causal
    first = 8.0 if causal else 8 * 4 / 7
    second = 8 / 3 if causal else 8 / 4  # 1/2, 1 of 3/2; 1/2, 1, 1/2 of 2
    third = 8 / 7  # 1/4, 1/2, 1 of 7/4
    assert out.tolist() == pytest.approx([first, second, third, 80.0], rel=1e-5)


def encoder_of(backend, **options):
    config = EncoderConfig(
        **{
            "vocab_size": 20,
            "hidden_size": 48,
            "num_hidden_layers": 2,
            "num_attention_heads": 3,
            "intermediate_size": 32,
            "position_embedding": "alibi",
            "global_attention_every_n": 2,
            "local_attention": 4,
            "init_std": 0.2,
            **options,
        }
    )
    encoder = Encoder(config, BACKENDS[backend])
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


ROWS = [([5, 6, 7], [8, 9, 5, 5, 6, 12, 13]), ([5] * 9 + [6] * 400, [7, 8] * 200)]


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("backend", ["matmul", "flash"])
def test_outputs_and_gradients_equal_eager(backend, causal, rows):
    ours, theirs = encoder_of(backend, causal=causal), encoder_of("eager", causal=causal)
    outputs = [run(encoder, *rows) for encoder in (ours, theirs)]
    torch.testing.assert_close(*outputs, atol=1e-4, rtol=1e-4)
    weight = torch.randn(outputs[0].shape, generator=torch.Generator().manual_seed(0))
    grads = [
        torch.autograd.grad((out * weight).sum(), [*encoder.layers.parameters()])
        for out, encoder in zip(outputs, (ours, theirs), strict=True)
    ]
    for a, b in zip(*grads, strict=True):
        torch.testing.assert_close(a, b, atol=1e-3 * float(b.abs().max()), rtol=1e-3)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", [torch.float32, BF16])
def test_rows_packed_equal_rows_alone(backend, dtype):
    encoder = encoder_of(backend)
    rows, atol = ROWS[0], 1e-5 if dtype == torch.float32 else 0.1
    with torch.no_grad(), torch.autocast("cpu", BF16, enabled=dtype == BF16):
        packed = run(encoder, *rows)
        alone = torch.cat([run(encoder, row) for row in rows])
    torch.testing.assert_close(packed, alone, atol=atol, rtol=0)


def test_order_matters_with_alibi_and_not_without_positions():
    row, other = [5, 6, 7, 8], [5, 7, 6, 8]
    options = {"global_attention_every_n": 1}
    for positions, equal in (("alibi", False), ("none", True)):
        encoder = encoder_of("eager", position_embedding=positions, **options)
        first, second = run(encoder, row)[0], run(encoder, other)[0]
        assert torch.allclose(first, second, atol=1e-5) is equal


def test_alibi_has_no_parameters_and_no_limit_of_length():
    names = [
        {name for name, _ in encoder_of("eager", position_embedding=p).named_parameters()}
        for p in ("alibi", "none")
    ]
    assert names[0] == names[1]
    short = encoder_of("matmul", max_position_embeddings=4)
    assert run(short, [5] * 9).shape == (9, 48)


def test_inference_first_leaves_training_possible():
    encoder = encoder_of("flash")
    with torch.inference_mode():
        run(encoder, *ROWS[0])
    run(encoder, *ROWS[0]).sum().backward()


@pytest.mark.parametrize("name", ["auto", "sdpa"])
@pytest.mark.parametrize("causal", [False, True])
def test_cpu_kernels_take_the_bias_in_bfloat16(name, causal):
    backend = resolve(name, device="cpu", dtype=BF16, max_length=64, alibi=True)
    encoder, reference = (encoder_of("eager", causal=causal, init_std=0.05) for _ in range(2))
    encoder.backend = backend
    with torch.autocast("cpu", BF16):
        out = run(encoder, *ROWS[0])
    torch.testing.assert_close(out, run(reference, *ROWS[0]), atol=0.1, rtol=0)
