"""Every layout equals the row-by-row reference; groups hold each row once."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import is_tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ablate.encoder import layouts
from ablate.encoder.attention import Reach, alibi_slopes
from ablate.encoder.layouts import (
    EqualRows,
    Neighbours,
    Pad,
    PaddedGroups,
    RowByRow,
    Unpad,
    WindowBlocks,
    layout_for,
    length_groups,
)


def reach_of(lengths, half_window=None, causal=False, alibi=False):
    bounds = torch.tensor([0, *lengths]).cumsum(0).int()
    slopes = alibi_slopes(2) if alibi else None
    return Reach(bounds, max(lengths), half_window, causal, slopes)


def outputs(layout, num_tokens, kernel):
    generator = torch.Generator().manual_seed(0)
    qkv = torch.randn(num_tokens, 3, 2, 4, generator=generator).requires_grad_()
    angle = torch.randn(num_tokens, 2, generator=generator)
    weight = torch.randn(num_tokens, 8, generator=generator)
    rotary = layout.place((angle.cos(), angle.sin()))
    out = layout.attend(qkv, rotary, kernel, 0.0)
    return out, torch.autograd.grad(out, qkv, weight)[0]


@settings(max_examples=40, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 200), min_size=1, max_size=6),
    half_window=st.sampled_from([None, 1, 3, 20, 70]),
    causal=st.booleans(),
    alibi=st.booleans(),
    kernel=st.sampled_from(["matmul", "flash"]),
    layout=st.sampled_from(["chosen", "groups", "blocks"]),
)
def test_every_layout_equals_the_reference(lengths, half_window, causal, alibi, kernel, layout):
    reach = reach_of(lengths, half_window, causal, alibi)
    ours = layout_for(reach, eager=False, dtype=torch.float32)
    if layout == "groups":
        ours = PaddedGroups(reach, lengths, torch.float32)
    if layout == "blocks" and reach.is_limited:
        ours = WindowBlocks(reach, lengths, torch.float32)
    theirs = layout_for(reach, eager=True, dtype=torch.float32)
    for a, b in zip(
        outputs(ours, sum(lengths), kernel), outputs(theirs, sum(lengths), kernel), strict=True
    ):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    ("lengths", "half_window", "kind"),
    [
        ((8, 8), None, EqualRows),
        ((8, 8), 2, EqualRows),
        ((8, 5), None, PaddedGroups),
        ((400, 300), None, PaddedGroups),
        ((400, 300), 2, WindowBlocks),
        ((400, 400), 64, WindowBlocks),
        ((400, 400), 128, EqualRows),
    ],
)
def test_the_lengths_choose_the_layout(lengths, half_window, kind):
    assert type(layout_for(reach_of(lengths, half_window), eager=False, dtype=None)) is kind
    assert type(layout_for(reach_of(lengths, half_window), eager=True, dtype=None)) is RowByRow


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 600), min_size=1, max_size=30).filter(any))
def test_groups_hold_each_row_once_and_waste_little(lengths):
    groups = length_groups(lengths)
    assert sorted(r for g in groups for r in g) == [r for r, n in enumerate(lengths) if n]
    if max(lengths) > layouts.ONE_GROUP_LENGTH:
        for group in groups:
            inside = [lengths[r] for r in group]
            assert min(inside) >= layouts.GROUP_RATIO * max(inside)


@pytest.mark.parametrize("lengths", [(5, 0, 3), (0, 200, 150, 0), (0, 0, 4)])
def test_an_empty_row_does_not_change_the_others(lengths):
    filled = [n for n in lengths if n]
    for kernel in ("matmul", "flash"):
        ours = outputs(
            layout_for(reach_of(lengths), eager=False, dtype=torch.float32), sum(lengths), kernel
        )
        theirs = outputs(
            layout_for(reach_of(filled), eager=True, dtype=torch.float32), sum(filled), kernel
        )
        for a, b in zip(ours, theirs, strict=True):
            torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)


def test_pad_unpad_and_neighbours_have_right_gradients():
    slots = torch.tensor([1, 4, 2])
    x = torch.randn(3, 2, dtype=torch.float64, requires_grad=True)
    assert Pad.apply(x, slots, 5).detach()[slots].equal(x.detach())
    assert torch.autograd.gradcheck(lambda t: Pad.apply(t, slots, 5), (x,))
    y = torch.randn(5, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda t: Unpad.apply(t, slots), (y,))
    z = torch.arange(6.0, dtype=torch.float64).view(3, 1, 2, 1).requires_grad_()
    assert Neighbours.apply(z)[:, 0, :, 0].tolist() == [
        [0, 0, 0, 1, 2, 3],
        [0, 1, 2, 3, 4, 5],
        [2, 3, 4, 5, 0, 0],
    ]
    assert torch.autograd.gradcheck(Neighbours.apply, (z,))


def test_blocks_cost_the_window_and_not_the_row():
    sizes = []
    for rows in (1024, 8192):
        layout = layout_for(reach_of([rows], 64), eager=False, dtype=torch.float32)
        sizes.append(layout.bias.numel() / rows)
    assert sizes == [192, 192]  # keys a token is compared with
    alibi = layout_for(reach_of([8192], 64, alibi=True), eager=False, dtype=torch.float32)
    assert alibi.bias.numel() / 8192 == 2 * 192  # for each of the two heads


@pytest.mark.parametrize("kernel", ["matmul", "flash"])
def test_a_window_layer_of_8192_tokens_makes_no_tensor_of_all_pairs(kernel):
    reach = reach_of([8192], 64)
    sizes = []

    class Sizes(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            out = func(*args, **(kwargs or {}))
            sizes.extend(t.untyped_storage().nbytes() for t in tree_leaves(out) if is_tensor(t))
            return out

    with Sizes():
        outputs(layout_for(reach, eager=False, dtype=torch.float32), 8192, kernel)
    assert (
        max(sizes) <= 2 * 8192 * 192 * 4
    )  # two heads' scores; all pairs would be 43 times as much
