"""Masks mean what they say and blind queries give 0, in every kernel; rotation undoes itself."""

import pytest
import torch

from ablate.encoder.attention import Reach, SplitHeads, attend, rotate_reference

KERNELS = ["eager", "matmul", "flash", "torch"]
ALLOWED = torch.tensor([[1, 1, 0], [1, 0, 0], [0, 0, 0]]).bool()[None, None]


def random(*shape, seed=0, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_blind_query_gives_0_and_hidden_keys_do_not_matter(kernel, dtype):
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


@pytest.mark.parametrize("kernel", KERNELS)
def test_true_means_may_be_seen(kernel):
    q = k = torch.zeros(1, 1, 2, 1)
    v = torch.tensor([10.0, 20.0]).view(1, 1, 2, 1)
    allowed = torch.tensor([True, False]).view(1, 1, 1, 2).expand(1, 1, 2, 2)
    assert attend(kernel, q, k, v, allowed).flatten().tolist() == [10.0, 10.0]


def test_reach_counts_tokens_to_both_sides():
    position = torch.arange(12)
    window = Reach(torch.tensor([0, 12]), 12, half_window=2)
    allowed = window.allowed(position[:, None], position[None])
    assert allowed[6].nonzero().flatten().tolist() == [4, 5, 6, 7, 8]
    assert allowed[0].nonzero().flatten().tolist() == [0, 1, 2]
    causal = Reach(torch.tensor([0, 12]), 12, half_window=2, causal=True)
    seen = causal.allowed(position[:, None], position[None])
    assert seen[6].nonzero().flatten().tolist() == [4, 5, 6]


@pytest.mark.parametrize(("half_window", "limited"), [(None, False), (11, False), (10, True)])
def test_a_window_that_hides_nothing_is_no_limit(half_window, limited):
    assert Reach(torch.tensor([0, 12]), 12, half_window).is_limited is limited


@pytest.mark.parametrize("rotated", [True, False])
def test_split_heads_equals_the_textbook_rotation_and_its_gradient(rotated):
    x = random(3, 5, 2, 7, 6).double().requires_grad_()
    angle = random(5, 1, 7, 3, seed=1).double()
    rotary = (angle.cos(), angle.sin())
    q, k, v = SplitHeads.apply(x, *(rotary if rotated else (None, None)))
    expected = [x[0], x[1], x[2]]
    if rotated:
        expected[:2] = [rotate_reference(part, rotary) for part in expected[:2]]
    weights = [random(5, 2, 7, 6, seed=s).double() for s in (2, 3, 4)]
    for ours, theirs in zip((q, k, v), expected, strict=True):
        torch.testing.assert_close(ours, theirs)
        assert ours.is_contiguous()
    grads = [torch.autograd.grad(parts, x, weights) for parts in ((q, k, v), expected)]
    torch.testing.assert_close(*grads)


def test_split_heads_takes_views_of_the_fused_projection():
    x = random(4, 7, 3, 2, 6).double().requires_grad_()
    angle = random(4, 1, 7, 3, seed=1).double()
    assert torch.autograd.gradcheck(
        lambda t: SplitHeads.apply(t.permute(2, 0, 3, 1, 4), angle.cos(), angle.sin()), (x,)
    )
