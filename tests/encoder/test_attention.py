"""Windows count to both sides; the fused rotation equals the textbook one and undoes itself."""

import pytest
import torch

from ablate.encoder.attention import Reach, SplitHeads, rotate_reference


def random(*shape, seed=0, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


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
