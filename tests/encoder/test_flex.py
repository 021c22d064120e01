"""What a CPU can show of flex: its masks are `Reach`'s, its forward pass is eager's."""

import itertools
import shutil

import pytest
import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from ablate.encoder import flex
from ablate.encoder.attention import Reach, alibi_slopes
from ablate.encoder.backends import Backend, resolve, self_test
from ablate.encoder.flex import FlexTokens, in_order, mask_mod, row_of_token, visible_blocks
from ablate.encoder.layouts import layout_for

ROWS = [(5, 9, 1, 17), (12, 0, 12), (300, 150), (128, 256, 128), (64, 65, 66), (513,)]
KINDS = [*itertools.product((None, 1, 4, 70, 200), (False, True))]
UNCOMPILED = "ignore:flex_attention called without torch.compile"


def reach_of(lengths, half_window=None, causal=False, alibi=False):
    bounds = torch.tensor([0, *lengths]).cumsum(0).int()
    slopes = alibi_slopes(2) if alibi else None
    return Reach(bounds, max(lengths), half_window, causal, slopes)


def pairs(reach):
    """(N, N): who sees whom by `Reach.allowed`, row by row."""
    bounds = reach.cu_seqlens.tolist()
    seen = torch.zeros(bounds[-1], bounds[-1], dtype=torch.bool)
    for begin, end in itertools.pairwise(bounds):
        position = torch.arange(end - begin)
        allowed = reach.allowed(position[:, None], position[None])
        seen[begin:end, begin:end] = True if allowed is None else allowed
    return seen


@pytest.mark.parametrize("lengths", ROWS)
@pytest.mark.parametrize(("half_window", "causal"), KINDS)
def test_the_mask_is_reach_on_all_pairs_and_the_blocks_cover_it(lengths, half_window, causal):
    reach = reach_of(lengths, half_window, causal)
    row, expected = row_of_token(reach), pairs(reach)
    token = torch.arange(row.numel())
    seen = mask_mod(reach, row)
    zero = torch.tensor(0)
    assert torch.equal(seen(zero, zero, token[:, None], token[None]), expected)
    for block in (16, 128):
        partial, full = visible_blocks(reach, row, block)
        assert not (partial & full).any()
        for i, j in itertools.product(range(len(partial)), repeat=2):
            inside = expected[i * block : (i + 1) * block, j * block : (j + 1) * block]
            assert (partial | full)[i, j] or not inside.any()
            assert not full[i, j] or (inside.shape == (block, block) and inside.all())
            if not inside.any() and partial[i, j]:  # generous, but never far from a visible pair
                wide = expected[max(i - 1, 0) * block :, max(j - 1, 0) * block :]
                assert wide[: 3 * block, : 3 * block].any()


@pytest.mark.parametrize("lengths", [(300, 150), (128, 256, 128), (512,)])
@pytest.mark.parametrize(("half_window", "causal"), [(None, False), (None, True), (200, False)])
def test_the_blocks_are_those_that_torch_finds(lengths, half_window, causal):
    reach = reach_of(lengths, half_window, causal)
    row = row_of_token(reach)
    size = row.numel()
    theirs = create_block_mask(mask_mod(reach, row), None, None, size, size, device="cpu")
    ours = FlexTokens(reach).block_mask
    assert torch.equal(ours.to_dense(), theirs.to_dense())
    assert torch.equal(ours.kv_num_blocks, theirs.kv_num_blocks)
    assert torch.equal(ours.full_kv_num_blocks, theirs.full_kv_num_blocks)


def test_in_order_lists_the_named_blocks_first():
    count, index = in_order(torch.tensor([[False, True, True], [False, False, False]]))
    assert count.tolist() == [[[2, 0]]]
    assert index[0, 0, 0, :2].tolist() == [1, 2]


def outputs(layout, num_tokens):
    generator = torch.Generator().manual_seed(0)
    qkv = torch.randn(num_tokens, 3, 2, 16, generator=generator)
    angle = torch.randn(num_tokens, 8, generator=generator)
    with torch.no_grad():
        return layout.attend(qkv, layout.place((angle.cos(), angle.sin())), "eager", 0.0)


def same_as_eager(lengths, half_window, causal, alibi):
    reach = reach_of(lengths, half_window, causal, alibi)
    ours = outputs(Backend("flex", "flex", "").plan(reach, torch.float32), sum(lengths))
    theirs = outputs(layout_for(reach, eager=True, dtype=torch.float32), sum(lengths))
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-4)


@pytest.mark.filterwarnings(UNCOMPILED)
@pytest.mark.parametrize("alibi", [False, True])
@pytest.mark.parametrize(("half_window", "causal"), [(None, False), (4, False), (70, True)])
@pytest.mark.parametrize("lengths", [(5, 9, 1, 17), (300, 150), (12, 12)])
def test_the_forward_pass_equals_eager(lengths, half_window, causal, alibi):
    same_as_eager(lengths, half_window, causal, alibi)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="the compiler of CPU kernels is missing")
def test_the_compiled_forward_pass_equals_eager(monkeypatch):
    compiled = torch.compile(flex_attention, fullgraph=True, dynamic=False)
    monkeypatch.setattr(flex, "attention_function", lambda device_type: compiled)
    for half_window, causal, alibi in [(None, False, False), (4, False, True), (70, True, True)]:
        same_as_eager((300, 150), half_window, causal, alibi)


def test_cpu_is_refused_with_the_reason():
    with pytest.raises(ValueError, match=r"no backward pass; it needs CUDA.*backend=sdpa"):
        resolve("flex", device="cpu", dtype=torch.float32, max_length=64)


def test_cuda_is_taken_in_every_dtype():
    for dtype in (torch.float32, torch.bfloat16):
        backend = resolve("flex", device="cuda", dtype=dtype, max_length=64, alibi=True)
        assert (backend.name, backend.kernel) == ("flex", "flex")


def test_attention_dropout_is_refused():
    layout, qkv = FlexTokens(reach_of((5,))), torch.zeros(5, 3, 2, 16)
    with pytest.raises(ValueError, match="no attention dropout"):
        layout.attend(qkv, None, "flex", 0.1)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("alibi", [False, True])
def test_flex_agrees_with_eager_on_cuda(alibi):
    backend = resolve("flex", device="cuda", dtype=torch.bfloat16, max_length=512)
    assert self_test(backend, device="cuda", dtype=torch.bfloat16, alibi=alibi) < 3e-2
