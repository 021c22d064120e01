"""One prepared script for a machine with CUDA, in under five minutes: is flash right, and how fast?

The attention backend of a run there is held against eager, kernel alone and whole model; then two
sizes train 50 steps in bf16, ours plain and compiled, theirs with `sdpa` and, where the package
flash_attn is installed, with flash attention. Parts that would start after `LIMIT` seconds are left
out and said so. `--device cpu --tiny` goes through every part at toy sizes, to try the script.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import math
import time
from collections.abc import Callable
from typing import Any

import torch

from ablate.bench.encoder import training_flops
from ablate.bench.encoder_rows import SMALL, TINY, Shape, Side
from ablate.bench.encoder_sides import (
    NUM_BATCHES,
    OPTIMIZER,
    WARM_UP,
    enlarge,
    our_batch,
    our_model,
    their_batch,
    their_config,
)
from ablate.bench.theirs import transformers_module
from ablate.encoder.backends import Backend, self_test
from ablate.encoder.initialization import num_parameters
from ablate.objectives.mlm import masked_lm_loss
from ablate.pretraining.optimizers import adamw

LIMIT = 240.0  # seconds, after which no part starts
STEPS = 50
FAMILIES = ("bert", "modernbert")
SIZES = {  # 64 k tokens a step
    "small": {**SMALL, "rows": 128, "intermediate": 1536},
    "base": {"layers": 12, "width": 768, "heads": 12, "vocab": 30_522, "rows": 128,
             "intermediate": 3072},
}  # fmt: skip
LENGTH = 512
SAME_WITHIN = 3e-2  # bf16 against float32: of the largest hidden state, and nats of the loss
PEAK_TFLOPS = {"H200": 989.0, "H100": 989.0, "A100": 312.0, "L40S": 362.0, "L4": 121.0}  # bf16
Step = Callable[[], torch.Tensor]


def measure(*, device: str, family: str, tiny: bool) -> dict[str, Any]:
    """Parity, then rows of training speed.

    Raises:
        ValueError: no such device or family, or cpu without `tiny`.
    """
    check(device, family=family, tiny=tiny)
    begin = time.monotonic()
    sizes = {"tiny": {**TINY, "heads": 1}} if tiny else SIZES
    length = 200 if tiny else LENGTH
    shapes = {name: _gated(Shape(family, length=length, **sizes[name])) for name in sizes}
    found: dict[str, Any] = {
        "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
        "steps": 2 if tiny else STEPS,
        "torch": torch.__version__,
        "parity": parity(next(iter(shapes.values())), device),
        "ceiling_tflops": ceiling(device, 256 if tiny else 8192) / 1e12,
        "rows": [],
    }
    for size, shape in shapes.items():
        for name, prepare in _parts(shape, device, tiny=tiny).items():
            row: dict[str, Any] = {"size": size, "name": name}
            if time.monotonic() - begin > LIMIT:
                row["left_out"] = f"{LIMIT:.0f} s are over"
            elif isinstance(prepare, str):
                row["left_out"] = prepare
            else:
                row |= train(prepare, shape, device, found)
            found["rows"].append(row)
    return found | {"seconds": time.monotonic() - begin}


def check(device: str, *, family: str, tiny: bool) -> None:
    """Raise a ValueError for what cannot be measured here."""
    if device not in ("cuda", "cpu"):
        raise ValueError(
            f"--device {device}: allowed are cuda, cpu; type for example --device cuda"
        )
    if family not in FAMILIES:
        raise ValueError(
            f"--family {family}: allowed are {', '.join(FAMILIES)}; type for example --family bert"
        )
    if device == "cuda" and not torch.cuda.is_available():
        raise ValueError(
            "torch sees no CUDA device, and this measures one; type --device cpu --tiny to try the "
            "script without"
        )
    if device == "cpu" and not tiny:
        raise ValueError("--device cpu only tries the script: type --device cpu --tiny")


def _gated(shape: Shape) -> Shape:
    """A gated MLP gets two thirds of the width, to a multiple of 8: equal weights."""
    if shape.family == "bert":
        return shape
    width = max(8, 8 * round(shape.intermediate * 2 / 3 / 8))
    return dataclasses.replace(shape, intermediate=width)


def parity(shape: Shape, device: str) -> dict[str, Any]:
    """The backend of a run against eager: toy rows with gradients, then the whole model.

    Raises:
        RuntimeError: they disagree by more than rounding explains.
    """
    shape = dataclasses.replace(shape, rows=2)
    model = enlarge(our_model(shape, "bf16", device)).to(device)
    chosen = model.encoder.backend
    batch = our_batch(shape, 0).to(device)

    def outputs(backend: Backend) -> tuple[torch.Tensor, float]:
        model.encoder.backend = backend
        half = backend is chosen
        with torch.no_grad(), torch.autocast(device, torch.bfloat16, enabled=half):
            output = model(batch)
            loss = masked_lm_loss(output.mlm_logits, batch.labels)
        return output.hidden.float(), float(loss.loss_sum) / loss.count

    (ours, our_loss), (eager, loss) = (
        outputs(backend) for backend in (chosen, Backend("eager", "eager", "reference"))
    )
    hidden = float((ours - eager).abs().max() / eager.abs().max())
    if not max(hidden, abs(our_loss - loss)) <= SAME_WITHIN:
        raise RuntimeError(
            f"{chosen.name} in bf16 differs from eager in float32: hidden states by {hidden:.1e}, "
            f"loss by {abs(our_loss - loss):.1e}; {SAME_WITHIN:.0e} is allowed"
        )
    return {
        "backend": chosen.name,
        "kernel": chosen.kernel,
        "toy_rows": self_test(chosen, device=device, dtype=torch.bfloat16),
        "hidden": hidden,
        "loss": abs(our_loss - loss),
        "allowed": SAME_WITHIN,
    }


def ceiling(device: str, size: int) -> float:
    """Operations a second of bf16 products of large matrices."""
    a, b = (torch.rand(size, size, device=device).bfloat16() for _ in range(2))
    for _ in range(3):
        a @ b
    _wait(device)
    begin = time.perf_counter()
    for _ in range(20):
        a @ b
    _wait(device)
    return 20 * 2 * size**3 / (time.perf_counter() - begin)


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def _parts(shape: Shape, device: str, *, tiny: bool) -> dict[str, Callable[[], Any] | str]:
    """What is trained, by name: something that makes (model, loss of a batch number), or why not.

    On a CPU `compile` only traces, which needs no C++ compiler.
    """
    compiler = "eager" if tiny else "inductor"
    has_flash = device == "cuda" and importlib.util.find_spec("flash_attn") is not None
    return {
        "ours": lambda: ours(shape, device, None),
        "ours compiled": lambda: ours(shape, device, compiler),
        "transformers sdpa": lambda: theirs(shape, device, "sdpa"),
        "transformers flash": (lambda: theirs(shape, device, "flash_attention_2"))
        if has_flash
        else "the package flash_attn is not installed",
    }


def ours(shape: Shape, device: str, compiler: str | None) -> tuple[Any, Callable[[int], Any]]:
    """Our model, by torch.compile with the backend `compiler` unless None."""
    model = our_model(shape, "bf16", device).to(device)
    if compiler is not None:
        model.compile(backend=compiler)
    batches = [our_batch(shape, number).to(device) for number in range(NUM_BATCHES)]

    def loss(number: int) -> torch.Tensor:
        batch = batches[number % NUM_BATCHES]
        found = masked_lm_loss(model(batch).mlm_logits, batch.labels)
        return found.loss_sum / found.count

    return model, loss


def theirs(shape: Shape, device: str, attention: str) -> tuple[Any, Callable[[int], Any]]:
    """The class of transformers; no dropout, sparse prediction where it has that."""
    config = their_config(Side(shape.family, shape, "bf16", keep_memory=True, sparse=True))
    config._attn_implementation = attention
    names = {"bert": "BertForMaskedLM", "modernbert": "ModernBertForMaskedLM"}
    torch.manual_seed(0)
    model = getattr(transformers_module(), names[shape.family])(config).to(device)
    batches = [
        {key: value.to(device) for key, value in their_batch(shape, number).items()}
        for number in range(NUM_BATCHES)
    ]
    return model, lambda number: model(**batches[number % NUM_BATCHES]).loss


def train(
    prepare: Callable[[], Any], shape: Shape, device: str, found: dict[str, Any]
) -> dict[str, Any]:
    """Warm up, train `found["steps"]` steps: tokens a second, MFU, memory, losses."""
    if device == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    begin = time.perf_counter()
    model, loss_of = prepare()
    model.train()
    optimizer = adamw(model, **OPTIMIZER)
    losses: list[torch.Tensor] = []

    def step(number: int) -> None:
        with torch.autocast(device, torch.bfloat16):
            loss = loss_of(number)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.detach())

    for number in range(WARM_UP):
        step(number)
    _wait(device)
    start = time.perf_counter()
    for number in range(found["steps"]):
        step(WARM_UP + number)
    _wait(device)
    seconds = (time.perf_counter() - start) / found["steps"]
    achieved = training_flops(shape) * shape.tokens / seconds
    row = {
        "tokens_per_second": shape.tokens / seconds,
        "tflops": achieved / 1e12,
        "share_of_ceiling": achieved / 1e12 / found["ceiling_tflops"],
        "mfu": _mfu(achieved, found["device"]),
        "peak_gb": torch.cuda.max_memory_allocated() / 1e9 if device == "cuda" else None,
        "start_seconds": start - begin,
        "parameters": num_parameters(model),
        "first_loss": float(losses[0]),
        "last_loss": float(losses[-1]),
    }
    if not math.isfinite(row["last_loss"]):
        raise RuntimeError(f"the loss is {row['last_loss']} after {len(losses)} steps in bf16")
    return row


def _mfu(achieved: float, name: str) -> float | None:
    """Share of the data sheet's dense bf16 peak; None for a device that is not listed."""
    peaks = [peak for key, peak in PEAK_TFLOPS.items() if key in name.replace("-", " ").split()]
    return achieved / 1e12 / peaks[0] if peaks else None


def table(found: dict[str, Any]) -> list[str]:
    """The result as lines for people."""
    parity = found["parity"]
    lines = [
        f"{found['device']}, torch {found['torch']}, bf16, {found['steps']} steps each; "
        f"{found['seconds']:.0f} s in all",
        f"{parity['backend']} ({parity['kernel']}) against eager: toy rows {parity['toy_rows']:.1e}"
        f", hidden states {parity['hidden']:.1e}, loss {parity['loss']:.1e}; "
        f"allowed {parity['allowed']:.0e}",
        f"matmul ceiling {found['ceiling_tflops']:.1f} TFLOP/s; MFU is of the data sheet's peak",
        f"{'':<26}{'tokens/s':>11}{'TFLOP/s':>9}{'ceiling':>9}{'MFU':>6}{'GB':>7}{'start s':>9}",
    ]
    for row in found["rows"]:
        name = f"{row['size']} {row['name']}"
        if "left_out" in row:
            lines.append(f"{name:<26}  left out: {row['left_out']}")
            continue
        mfu = "" if row["mfu"] is None else f"{row['mfu']:.0%}"
        peak = "" if row["peak_gb"] is None else f"{row['peak_gb']:.1f}"
        lines.append(
            f"{name:<26}{row['tokens_per_second']:>11,.0f}{row['tflops']:>9.2f}"
            f"{row['share_of_ceiling']:>9.0%}{mfu:>6}{peak:>7}{row['start_seconds']:>9.1f}"
        )
    return lines
