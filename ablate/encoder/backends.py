"""(name, device, dtype, length) -> the attention backend and the kernel that will run.

`resolve` reads a fixed table filled from measurements (comments beside it), never a timing in the
run, so that an arm resumed or repeated on an equal machine takes the same kernel. Asking for a
backend that cannot run is an error; nothing falls back in silence. `self_test` compares a backend
with the eager reference before training starts.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ablate.encoder.attention import Reach, Rotary, SplitHeads, alibi_slopes
from ablate.encoder.flex import FlexTokens
from ablate.encoder.layouts import Layout, layout_for
from ablate.encoder.refusals import NO_DROPOUT, axis_obstacle

NAMES = ("auto", "eager", "sdpa", "flash", "flex")
HALF = (torch.float16, torch.bfloat16)

# CPU kernel by (dtype, longest row), forward + backward, medians on two cores with torch 2.13.
# Half precision: two matrix products and a softmax against torch's fused kernel, milliseconds on
# a CPU with amx: 1.5 / 10.2 at 64 tokens, 10 / 47 at 128, 73 / 76 at 512, 340 / 270 at 2048; with
# avx512_bf16 alone they win by 3.2x at 128 and 2x at 512-2048. Torch's "math" kernel is no
# alternative: it computes half precision in float32.
# float32: 1.8 / 1.5 at 64, 29 / 26 at 128, 200 / 108 at 512, 925 / 375 at 2048.
MATMUL_UP_TO = {torch.bfloat16: 1024, torch.float16: 1024}


@dataclass(frozen=True)
class Backend:
    """A resolved backend. `kernel` is what runs without attention dropout, as in the record."""

    name: str  # eager, sdpa, flash or flex
    kernel: str
    reason: str

    def plan(self, reach: Reach, dtype: torch.dtype) -> Layout:
        """How rows of `reach` are laid out; to be made once a forward pass."""
        if self.name == "flash":
            return Varlen(reach)
        if self.name == "flex":
            return FlexTokens(reach)
        return layout_for(reach, eager=self.name == "eager", dtype=dtype)

    def kernel_for(self, dropout_p: float, device_type: str) -> str:
        """The fused CPU kernel knows no dropout, so fine-tuning with it takes the products."""
        if dropout_p and device_type == "cpu" and self.kernel == "flash":
            return "matmul"
        return self.kernel


RECURRENT = Backend("none", "lstm", "body=lstm attends to nothing; on a CPU it scans in float32")


def resolve(
    name: str,
    *,
    device: str,
    dtype: torch.dtype,
    max_length: int,
    alibi: bool = False,
    dropout: float = 0.0,
    head_size: int = 64,
) -> Backend:
    """The backend for rows of up to `max_length` tokens whose attention runs in `dtype`.

    `auto` is flash on CUDA where GPU, dtype and the encoder (no ALiBi, no dropout on attention
    probabilities, a head size that its kernels take) allow it, else sdpa.

    Raises:
        ValueError: an unknown name, or flash or flex where it cannot run.
    """
    if name not in NAMES:
        raise ValueError(
            f"attention_backend={name} is unknown; allowed are {', '.join(NAMES)}. "
            "For example attention_backend=auto"
        )
    kind = torch.device(device).type
    obstacle = axis_obstacle(alibi=alibi, dropout=dropout)
    obstacle = obstacle or _flash_obstacle(kind, dtype, head_size)
    if name == "flash" and obstacle:
        raise _cannot(name, obstacle)
    if name == "flex" and kind != "cuda":
        raise _cannot(name, f"on {kind} flex_attention has no backward pass; it needs CUDA")
    if name == "flex" and dropout:
        raise _cannot(name, NO_DROPOUT)
    if name == "eager":
        return Backend("eager", "eager", "asked for: the reference, row by row in float32")
    if name == "flash" or (name == "auto" and not obstacle):
        why = "asked for" if name == "flash" else "auto: CUDA with half precision"
        return Backend("flash", "varlen", why)
    if name == "flex":
        return Backend("flex", "flex", "asked for: one compiled kernel for mask and bias")
    why = "asked for" if name == "sdpa" else f"auto: no flash, since {obstacle}"
    if kind != "cpu":
        return Backend("sdpa", "torch", f"{why}; torch chooses the kernel on {kind}")
    kernel = "matmul" if max_length <= MATMUL_UP_TO.get(dtype, 0) else "flash"
    short = str(dtype).removeprefix("torch.")
    note = "" if kernel == "matmul" else " (matmul with attention dropout and in window blocks)"
    return Backend("sdpa", kernel, f"{why}; {kernel} kernel for {short}, {max_length} tokens{note}")


def _cannot(name: str, obstacle: str) -> ValueError:
    return ValueError(
        f"attention_backend={name} cannot run here: {obstacle}. "
        "Type attention_backend=auto or attention_backend=sdpa"
    )


def _flash_obstacle(device_type: str, dtype: torch.dtype, head_size: int) -> str:
    if device_type != "cuda":
        return f"torch.nn.attention.varlen has CUDA kernels only and the device is {device_type}"
    if dtype not in HALF:
        return f"it takes float16 or bfloat16 and the dtype is {str(dtype).removeprefix('torch.')}"
    if torch.cuda.get_device_capability()[0] < 8:
        return "it needs compute capability 8.0 or more"
    if head_size % 8 or head_size > 256:
        return f"its kernels take head sizes that are multiples of 8 up to 256, not {head_size}"
    return ""


class Varlen:
    """Flash attention over rows of any length, without padding or masks (CUDA)."""

    def __init__(self, reach: Reach) -> None:
        assert reach.slopes is None, "resolve refuses flash with ALiBi"
        self.reach = reach
        half = -1 if reach.half_window is None else reach.half_window
        self.window = (half, 0 if reach.causal else half)

    def place(self, rotary: Rotary) -> Rotary:
        return rotary[0].unsqueeze(1), rotary[1].unsqueeze(1)  # (N, 1, K / 2)

    def attend(self, qkv: Tensor, rotary: Rotary | None, kernel: str, dropout_p: float) -> Tensor:
        from torch.nn.attention.varlen import varlen_attn

        if dropout_p:  # `resolve` refuses it earlier
            raise ValueError(f"attention_backend=flash cannot run this encoder: {NO_DROPOUT}")
        q, k, v = SplitHeads.apply(qkv.permute(1, 0, 2, 3), *(rotary or (None, None)))
        bounds, longest = self.reach.cu_seqlens, self.reach.max_seqlen
        out = varlen_attn(q, k, v, bounds, bounds, longest, longest, window_size=self.window)
        assert isinstance(out, Tensor)
        return out.flatten(1)


# Lengths of the toy rows: ragged, of equal length, and long enough for the blocks of a window.
_TOY_ROWS = ((5, 9, 1, 17), (12, 12), (300, 150))
_TOY_WINDOW = 4
_TOY_HEADS = 2


def self_test(backend: Backend, *, device: str, dtype: torch.dtype, alibi: bool = False) -> float:
    """Largest relative disagreement with eager over toy batches, outputs and gradients.

    Ragged and equal rows, with and without window, causal or not, with rotation; with the bias
    too where the encoder uses ALiBi.

    Raises:
        RuntimeError: the backend disagrees by more than rounding in `dtype` explains.
    """
    eager = Backend("eager", "eager", "reference")
    tolerance = 1e-4 if dtype == torch.float32 else 3e-2
    slopes = alibi_slopes(_TOY_HEADS).to(device) if alibi else None
    worst = 0.0
    for lengths in _TOY_ROWS:
        for half_window in (None, _TOY_WINDOW):
            for causal in (False, True):
                bounds = torch.tensor([0, *lengths]).cumsum(0).to(device, torch.int32)
                reach = Reach(bounds, max(lengths), half_window, causal, slopes)
                ours = _toy_pass(backend, reach, sum(lengths), dtype)
                theirs = _toy_pass(eager, reach, sum(lengths), torch.float32)
                for a, b in zip(ours, theirs, strict=True):
                    error = float((a.float() - b).abs().max() / b.abs().max())
                    if not error <= tolerance:
                        raise RuntimeError(
                            f"attention backend {backend.name} (kernel {backend.kernel}) disagrees "
                            f"with eager by {error:.1e} of the largest value, {tolerance:.0e} "
                            f"is allowed: rows {lengths}, half window {half_window}, "
                            f"causal {causal}, alibi {alibi}, {dtype}"
                        )
                    worst = max(worst, error)
    return worst


def _toy_pass(
    backend: Backend, reach: Reach, num_tokens: int, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    device = reach.cu_seqlens.device
    generator = torch.Generator().manual_seed(0)
    qkv = torch.randn(num_tokens, 3, _TOY_HEADS, 16, generator=generator).to(device, dtype)
    angle = torch.randn(num_tokens, 8, generator=generator).to(device)
    weight = torch.randn(num_tokens, 32, generator=generator).to(device, dtype)
    qkv.requires_grad_()
    plan = backend.plan(reach, dtype)
    rotary = plan.place((angle.cos().to(dtype), angle.sin().to(dtype)))
    with torch.enable_grad():
        out = plan.attend(qkv, rotary, backend.kernel, 0.0)
        (grad,) = torch.autograd.grad(out, qkv, weight)
    return out.detach(), grad
