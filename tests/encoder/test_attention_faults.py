"""FAULTS B12 to B15, with their own numbers: blind rows, inverted masks, dropout, windows.

Every backend that can run on a CPU is held to them; flex has no backward pass there and runs
uncompiled. Document boundaries (B05) are in tests/inputs/test_rows.py.
"""

import math

import pytest
import torch

from ablate.encoder import layouts
from ablate.encoder.attention import Reach, attend
from ablate.encoder.backends import Backend
from ablate.encoder.config import EncoderConfig
from ablate.encoder.encoder import Encoder
from ablate.encoder.initialization import initialize
from ablate.inputs.batches import collate

KERNELS = ["eager", "matmul", "flash", "torch"]
BACKENDS = {
    "eager": Backend("eager", "eager", ""),
    "matmul": Backend("sdpa", "matmul", ""),
    "flash": Backend("sdpa", "flash", ""),
    "flex": Backend("flex", "flex", ""),
}
ALLOWED = torch.tensor([[1, 1, 0], [1, 0, 0], [0, 0, 0]]).bool()[None, None]

pytestmark = pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
every_kernel = pytest.mark.parametrize("kernel", KERNELS)
every_dtype = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
every_backend = pytest.mark.parametrize("backend", BACKENDS)


def random(*shape, seed=0, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


@every_kernel
@every_dtype
def test_b12_a_blind_query_gives_0_and_hidden_keys_do_not_matter(kernel, dtype):
    q, k = random(1, 1, 3, 4, dtype=dtype), random(1, 1, 3, 4, seed=1, dtype=dtype)
    v = torch.ones(1, 1, 3, 4, dtype=dtype)
    for tensor in (q, k, v):
        tensor.requires_grad_()
    out = attend(kernel, q, k, v, ALLOWED)
    torch.testing.assert_close(out[0, 0, :2], torch.ones(2, 4, dtype=dtype))
    assert torch.equal(out[0, 0, 2], torch.zeros(4, dtype=dtype))
    for grad in torch.autograd.grad(out.sum(), (q, k, v)):
        assert grad.isfinite().all()
    rubbish = k.detach().clone()
    rubbish[0, 0, 2] = 1e10
    assert torch.equal(attend(kernel, q, rubbish, v, ALLOWED), out)


@every_kernel
@every_dtype
def test_b12_a_row_of_padding_gives_0_and_leaves_the_others_alone(kernel, dtype):
    q, k, v = (random(1, 1, 3, 4, seed=s, dtype=dtype) for s in range(3))
    alone = attend(kernel, q, k, v, ALLOWED)
    both = [torch.cat([t, torch.full_like(t, 1e10)]).requires_grad_() for t in (q, k, v)]
    out = attend(kernel, *both, torch.cat([ALLOWED, torch.zeros_like(ALLOWED)]))
    assert torch.equal(out[0], alone[0])
    assert torch.equal(out[1], torch.zeros_like(out[1]))
    for grad in torch.autograd.grad(out.float().square().sum(), both):
        assert grad.isfinite().all()
        assert torch.equal(grad[1], torch.zeros_like(grad[1]))


def attention(backend, qkv, lengths, **reach):
    """(N, 3, 1, K) -> (N, K) by a backend's own layout; without gradients where it has none."""
    bounds = torch.tensor([0, *lengths]).cumsum(0).int()
    chosen = BACKENDS[backend]
    plan = chosen.plan(Reach(bounds, max(lengths), **reach), qkv.dtype)
    with torch.set_grad_enabled(backend != "flex"):
        return plan.attend(qkv, None, chosen.kernel, 0.0)


@every_backend
@every_dtype
def test_b12_empty_rows_and_huge_keys_next_door_change_nothing(backend, dtype):
    qkv = random(6, 3, 1, 16, dtype=dtype)
    qkv[2:, 1:] = 1e10
    out = attention(backend, qkv, (0, 2, 0, 4, 0))
    assert out.isfinite().all()
    torch.testing.assert_close(out[:2], attention(backend, qkv[:2].contiguous(), (2,)))


@every_kernel
def test_b13_true_means_may_be_seen(kernel):
    q = k = torch.zeros(1, 1, 2, 1)
    v = torch.tensor([10.0, 20.0]).view(1, 1, 2, 1)
    allowed = torch.tensor([True, False]).view(1, 1, 1, 2).expand(1, 1, 2, 2)
    assert attend(kernel, q, k, v, allowed).flatten().tolist() == [10.0, 10.0]


@every_backend
def test_b13_each_query_sees_its_own_row_and_what_came_before(backend):
    qkv = torch.zeros(2, 3, 1, 16)
    qkv[0, 2], qkv[1, 2] = 10.0, 20.0
    assert attention(backend, qkv, (1, 1))[:, 0].tolist() == [10.0, 20.0]  # inverted: 20, 10
    assert attention(backend, qkv, (2,))[:, 0].tolist() == [15.0, 15.0]
    assert attention(backend, qkv, (2,), causal=True)[:, 0].tolist() == [10.0, 15.0]


def encoder_of(backend, **options):
    config = EncoderConfig(
        **{
            "vocab_size": 20,
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "intermediate_size": 32,
            "position_embedding": "rope",
            "init_std": 0.2,
            **options,
        }
    )
    encoder = Encoder(config, BACKENDS[backend])
    initialize(encoder, config, lambda name: sum(name.encode()))
    return encoder.eval()


def run(encoder, *rows):
    batch = collate([i for row in rows for i in row], [len(row) for row in rows])
    with torch.set_grad_enabled(encoder.backend.name != "flex"):
        return encoder(
            batch.input_ids,
            token_type_ids=batch.token_type_ids,
            position_ids=batch.position_ids,
            cu_seqlens=batch.cu_seqlens,
            max_seqlen=batch.max_seqlen,
        )


@every_backend
@pytest.mark.parametrize("rows", [([2, 5, 6, 3], [2, 7, 8, 3]), ([2, 5, 3], [2, 7, 8, 9, 3])])
def test_b14_evaluation_repeats_itself_and_draws_nothing(backend, rows):
    encoder = encoder_of(backend, attention_dropout=0.5)
    state = torch.random.get_rng_state()
    assert torch.equal(run(encoder, *rows), run(encoder, *rows))
    assert torch.equal(torch.random.get_rng_state(), state)
    encoder.train()
    if backend == "flex":
        with pytest.raises(ValueError, match="no attention dropout"):
            run(encoder, *rows)
    else:
        assert not torch.equal(run(encoder, *rows), run(encoder, *rows))


def changed_places(encoder, *rows):
    """Places whose output moves when place 6 of all tokens changes."""
    before = run(encoder, *rows)
    flat = [i for row in rows for i in row]
    flat[6] = 19
    after = run(encoder, *(t.tolist() for t in torch.tensor(flat).split([len(r) for r in rows])))
    return (before - after).abs().sum(1).nonzero().flatten().tolist()


@every_backend
@pytest.mark.parametrize("blocks", [False, True])
def test_b15_a_window_of_4_reaches_2_each_way(backend, blocks, monkeypatch):
    if blocks:  # blocks of two tokens, whatever the length of the rows
        monkeypatch.setattr(layouts, "MIN_BLOCK", 2)
        monkeypatch.setattr(layouts, "BLOCKS_FROM", 0)
    encoder = encoder_of(backend, global_attention_every_n=2, local_attention=4)
    encoder.layers[0].attention.output.weight.data.zero_()  # only the local layer acts
    row = list(range(5, 17))
    assert changed_places(encoder, row) == [4, 5, 6, 7, 8]
    assert changed_places(encoder, row[:6], row[6:]) == [6, 7, 8]
    first = run(encoder, row)[0]
    for place, seen in ((2, True), (3, False)):  # place 0 sees places 0 to 2
        other = [*row]
        other[place] = 19
        assert torch.equal(run(encoder, other)[0], first) is not seen


def test_b15_global_layers_are_every_third_and_each_kind_has_its_base():
    encoder = encoder_of("eager", num_hidden_layers=7, global_attention_every_n=3)
    kinds = encoder.config.layer_types
    assert [i for i, kind in enumerate(kinds) if kind == "full_attention"] == [0, 3, 6]
    views = encoder._views(torch.arange(3), torch.tensor([0, 3]), 3)
    for kind, base in (("full_attention", 160_000), ("sliding_attention", 10_000)):
        cos, sin = views[kind].rotary  # (N, 1, K / 2), angle of place 1: base^(-2 i / K)
        angle = base ** (-2 / 16)
        assert cos[1, 0, 1].item() == pytest.approx(math.cos(angle), rel=1e-5)
        assert sin[1, 0, 1].item() == pytest.approx(math.sin(angle), rel=1e-5)
