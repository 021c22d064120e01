"""What is chosen, what is refused and why, and that a wrong kernel is caught at the start."""

import pytest
import torch

from ablate.encoder import attention, backends, layouts
from ablate.encoder.backends import Backend, Varlen, resolve, self_test

F32, BF16 = torch.float32, torch.bfloat16


@pytest.mark.parametrize(
    ("dtype", "length", "kernel"),
    [(BF16, 64, "matmul"), (BF16, 1024, "matmul"), (BF16, 2048, "flash"), (F32, 64, "flash")],
)
def test_cpu_kernels_come_from_the_table(dtype, length, kernel):
    for name in ("auto", "sdpa"):
        backend = resolve(name, device="cpu", dtype=dtype, max_length=length)
        assert (backend.name, backend.kernel) == ("sdpa", kernel)
        assert kernel in backend.reason


def test_auto_says_why_not_flash():
    assert "device is cpu" in resolve("auto", device="cpu", dtype=F32, max_length=64).reason


def test_flash_on_cpu_is_refused_with_the_reason():
    with pytest.raises(ValueError, match=r"CUDA kernels only.*attention_backend=sdpa"):
        resolve("flash", device="cpu", dtype=BF16, max_length=64)


def test_flash_in_float32_is_refused_with_the_reason():
    with pytest.raises(ValueError, match=r"float16 or bfloat16 and the dtype is float32"):
        resolve("flash", device="cuda", dtype=F32, max_length=64)


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(ValueError, match="auto, eager, sdpa, flash, flex"):
        resolve("fast", device="cpu", dtype=F32, max_length=64)


def test_dropout_takes_a_kernel_that_has_it():
    fused = resolve("sdpa", device="cpu", dtype=F32, max_length=64)
    assert fused.kernel_for(0.0, "cpu") == "flash"
    assert fused.kernel_for(0.1, "cpu") == "matmul"
    assert "matmul with attention dropout and in window blocks" in fused.reason


def test_flash_with_alibi_is_refused_and_auto_takes_another():
    arguments = {"device": "cuda", "dtype": BF16, "max_length": 64, "alibi": True}
    with pytest.raises(ValueError, match=r"no bias.*position_embedding=alibi.*backend=sdpa"):
        resolve("flash", **arguments)
    backend = resolve("auto", **arguments)
    assert (backend.name, backend.kernel) == ("sdpa", "torch")
    assert "alibi" in backend.reason


@pytest.mark.parametrize("name", ["flash", "flex"])
def test_fused_kernels_with_dropout_are_refused_and_auto_takes_another(name, monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))
    arguments = {"device": "cuda", "dtype": BF16, "max_length": 64}
    assert resolve(name, **arguments).name == name
    assert resolve("auto", **arguments).name == "flash"
    with pytest.raises(ValueError, match=r"encoder\.dropout is above 0.*backend=sdpa"):
        resolve(name, **arguments, dropout=0.1)
    assert resolve("auto", **arguments, dropout=0.1).name == "sdpa"


@pytest.mark.parametrize("size", [6, 12, 264])
def test_head_sizes_that_flash_does_not_take_are_an_obstacle(size, monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))
    arguments = {"device": "cuda", "dtype": BF16, "max_length": 64, "head_size": size}
    with pytest.raises(ValueError, match=rf"multiples of 8 up to 256, not {size}"):
        resolve("flash", **arguments)
    assert resolve("auto", **arguments).name == "sdpa"


@pytest.mark.parametrize(
    ("half", "causal", "window"),
    [(None, False, (-1, -1)), (None, True, (-1, 0)), (3, False, (3, 3)), (3, True, (3, 0))],
)
def test_the_window_of_flash_is_half_to_each_side_and_nothing_after_if_causal(half, causal, window):
    bounds = torch.tensor([0, 9], dtype=torch.int32)
    assert Varlen(attention.Reach(bounds, 9, half, causal)).window == window


@pytest.mark.parametrize("alibi", [False, True])
@pytest.mark.parametrize("dtype", [F32, BF16])
@pytest.mark.parametrize("kernel", ["matmul", "flash", "torch"])
def test_the_kernels_agree_with_eager(kernel, dtype, alibi):
    error = self_test(Backend("sdpa", kernel, ""), device="cpu", dtype=dtype, alibi=alibi)
    assert 0 < error < (1e-5 if dtype == F32 else 2e-2)


@pytest.mark.parametrize("fault", ["mask", "scale", "nan"])
def test_a_wrong_kernel_is_caught(fault, monkeypatch):
    right = attention.attend_matmul

    def wrong(q, k, v, bias, dropout_p):
        if fault == "mask":
            return right(q, k, v, None, dropout_p)
        return right(q * (0.9 if fault == "scale" else float("nan")), k, v, bias, dropout_p)

    monkeypatch.setitem(attention.KERNELS, "matmul", wrong)
    with pytest.raises(RuntimeError, match=r"sdpa \(kernel matmul\) disagrees with eager"):
        self_test(Backend("sdpa", "matmul", ""), device="cpu", dtype=F32)


def test_a_kernel_that_drops_the_slopes_is_caught_where_they_are_used(monkeypatch):
    right = attention.attend_matmul

    def level(q, k, v, bias, dropout_p):
        flat = None if bias is None else torch.where(bias.isinf(), bias, 0.0)
        return right(q, k, v, flat, dropout_p)

    monkeypatch.setitem(attention.KERNELS, "matmul", level)
    backend = Backend("sdpa", "matmul", "")
    self_test(backend, device="cpu", dtype=F32)
    with pytest.raises(RuntimeError, match="alibi True"):
        self_test(backend, device="cpu", dtype=F32, alibi=True)


@pytest.mark.parametrize("fault", ["causal", "wide window", "slightly off"])
def test_small_faults_of_a_kernel_are_caught(fault, monkeypatch):
    right, allowed = attention.attend_matmul, attention.Reach.allowed

    def off(q, k, v, bias, dropout_p):
        return right(q * 1.005, k, v, bias, dropout_p)

    def wrong(reach, query, key):
        if fault == "causal" and reach.causal:
            return allowed(attention.Reach(reach.cu_seqlens, reach.max_seqlen), query, key)
        if fault == "wide window" and reach.is_limited:
            half = reach.half_window + 1
            wide = attention.Reach(reach.cu_seqlens, reach.max_seqlen, half, reach.causal)
            return allowed(wide, query, key)
        return allowed(reach, query, key)

    def eager_is_right(layout_reach, *, eager, dtype):
        with pytest.MonkeyPatch.context() as patch:
            if not eager:
                patch.setattr(attention.Reach, "allowed", wrong)
            made = layouts.layout_for(layout_reach, eager=eager, dtype=dtype)
        return made

    if fault == "slightly off":
        monkeypatch.setitem(attention.KERNELS, "matmul", off)
    else:
        monkeypatch.setattr(backends, "layout_for", eager_is_right)
    with pytest.raises(RuntimeError, match="disagrees with eager"):
        self_test(Backend("sdpa", "matmul", ""), device="cpu", dtype=F32)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_flash_agrees_with_eager_on_cuda():
    backend = resolve("auto", device="cuda", dtype=BF16, max_length=512)
    assert backend.name == "flash"
    assert self_test(backend, device="cuda", dtype=BF16) < 3e-2
