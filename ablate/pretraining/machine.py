"""What this machine is -> threads, memory, precision and processes, resolved once and recorded.

Nothing here measures at run time: the choice of a precision comes from a table (device, CPU flags,
width), so that the same machine gives the same run.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
import os
import platform
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from ablate.tokens.encoders import THREAD_POOLS

PRECISIONS = ("auto", "fp32", "bf16")
ACCELERATORS = ("auto", "cpu", "gpu")
STRATEGIES = ("auto", "ddp", "ddp_fork", "ddp_spawn", "fsdp")
MARK = "ABLATE_RANK"  # in the environment of the ranks that `ddp` starts
_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4  # glibc's malloc.h
_BF16_FLAGS = {"avx512_bf16", "amx_bf16"}


def available_cores() -> int:
    """Cores this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def resolve_threads(
    threads: int | None, *, hidden_size: int, devices: int = 1, cores: int | None = None
) -> int:
    """Threads of each rank. None -> one below 128 wide, where handing work over costs what it
    gains, else this rank's share of the cores."""
    if threads is not None:
        return threads
    return 1 if hidden_size < 128 else max((cores or available_cores()) // devices, 1)


@functools.cache
def cpu_flags() -> frozenset[str]:
    """The CPU's feature flags as Linux names them; empty elsewhere."""
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as lines:
            found = next(line for line in lines if line.startswith("flags"))
    except (OSError, StopIteration):
        return frozenset()
    return frozenset(found.split(":", 1)[1].split())


def keep_freed_memory() -> bool:
    """Tell glibc not to hand freed blocks back to the system after every step.

    The page faults of getting them again cost up to half of a small training step. Returns whether
    it was done (Linux with glibc only).
    """
    if sys.platform != "linux" or platform.libc_ver()[0] != "glibc":
        return False
    libc = ctypes.CDLL(None)
    done = libc.mallopt(_M_MMAP_MAX, 0) and libc.mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)
    return bool(done)


def hand_back_memory() -> None:
    """Between two runs of one process: end what is garbage, and give its memory back.

    Lightning's trainer holds itself in cycles, and with it a run's store and its open files, which
    go when Python next looks for cycles; and with `keep_freed_memory` no page ever goes by itself
    (`test_many_runs`).
    """
    gc.collect()
    if sys.platform == "linux" and platform.libc_ver()[0] == "glibc":
        ctypes.CDLL(None).malloc_trim(0)


def set_threads(threads: int) -> None:
    """Fix the number of threads of torch's kernels in this process."""
    import torch

    torch.set_num_threads(threads)


@contextlib.contextmanager
def thread_pools(threads: int) -> Iterator[None]:
    """Processes started inside have `threads` threads from their first import on."""
    with environment_left(THREAD_POOLS):
        os.environ.update(dict.fromkeys(THREAD_POOLS, str(threads)))
        yield


@contextlib.contextmanager
def environment_left(names: Sequence[str]) -> Iterator[None]:
    """Whatever happens inside, these variables are afterwards what they were."""
    before = {name: os.environ.get(name) for name in names}
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def resolve_device(accelerator: str) -> str:
    """`auto`, `cpu` or `gpu` -> `cpu` or `cuda`.

    Raises:
        ValueError: a GPU is asked for and there is none, or the word is unknown.
    """
    import torch

    if accelerator not in ACCELERATORS:
        raise ValueError(
            f"trainer.accelerator={accelerator!r} is not one of {', '.join(ACCELERATORS)}"
        )
    if accelerator == "gpu" and not torch.cuda.is_available():
        raise ValueError(
            "trainer.accelerator=gpu, and torch sees no CUDA device; type trainer.accelerator=cpu"
        )
    return "cuda" if accelerator != "cpu" and torch.cuda.is_available() else "cpu"


def resolve_precision(precision: str, *, device: str, hidden_size: int) -> str:
    """`auto` -> `bf16` where it pays, else `fp32`.

    On a CPU it pays with bf16 instructions and from 128 wide on (below, the casts cost what the
    matmuls gain); on CUDA wherever bf16 is in hardware.

    Raises:
        ValueError: unknown word, or bf16 on a CUDA device without it.
    """
    import torch

    if precision not in PRECISIONS:
        raise ValueError(f"trainer.precision={precision!r} is not one of {', '.join(PRECISIONS)}")
    if device == "cuda":
        supported = torch.cuda.is_bf16_supported(including_emulation=False)
        if precision == "bf16" and not supported:
            raise ValueError(
                "trainer.precision=bf16, and this GPU has no bf16; type trainer.precision=fp32"
            )
        pays = supported
    else:
        pays = bool(_BF16_FLAGS & cpu_flags()) and hidden_size >= 128
    if precision == "auto":
        return "bf16" if pays else "fp32"
    return precision


def resolve_strategy(strategy: str, *, device: str, devices: int, threads: int) -> str | None:
    """How the processes of several devices are started; None for one device, which needs none.

    `auto` on a CPU is `ddp_fork` (tenths of a second a fit) where that is safe: with one thread a
    rank, since OpenMP's threads do not survive a fork, and where torch sees no CUDA device. Else,
    and on CUDA wherever this command cannot be started again, it is `ddp_spawn`.

    Raises:
        ValueError: a strategy that cannot run here, or more devices than there are.
    """
    if devices == 1:
        return None
    import torch

    if device == "cuda":
        if devices > torch.cuda.device_count():
            raise ValueError(
                f"trainer.devices={devices}, and torch sees {torch.cuda.device_count()}; type "
                f"trainer.devices={torch.cuda.device_count()}"
            )
        if strategy == "ddp_fork":
            raise ValueError(
                "trainer.strategy=ddp_fork does not work on CUDA, which does not survive a fork; "
                "type trainer.strategy=ddp or ddp_spawn"
            )
        if strategy == "auto":
            strategy = "ddp" if can_start_again() else "ddp_spawn"
    elif strategy == "auto":
        safe = threads == 1 and hasattr(os, "fork") and not torch.cuda.is_available()
        strategy = "ddp_fork" if safe else "ddp_spawn"
    elif strategy == "ddp_fork" and threads > 1:
        raise ValueError(
            f"trainer.strategy=ddp_fork with {threads} threads a rank would hang, since OpenMP's "
            "threads do not survive a fork; type trainer.threads=1, or trainer.strategy=ddp_spawn"
        )
    if strategy in ("ddp", "fsdp") and not can_start_again():
        raise ValueError(
            f"trainer.strategy={strategy} starts this command again for each device, which works "
            "for a single `python -m ablate` and not under -m, in a study or from Python; type "
            f"trainer.strategy={'ddp_spawn' if device == 'cuda' else 'ddp_fork'}"
        )
    return strategy


def can_start_again() -> bool:
    """Whether this process's command, run once more, comes to the same one fit."""
    import __main__

    spec = getattr(__main__, "__spec__", None)
    name = spec.name if spec is not None else Path(sys.argv[0]).name
    words = sys.argv[1:]
    several = any(word.startswith(("-m", "--multirun", "hydra.mode=", "study=")) for word in words)
    return name in ("ablate", "ablate.__main__") and not several


def is_follower() -> bool:
    """Whether this process is a rank above 0 that rank 0 started by its own command."""
    return MARK in os.environ and os.environ.get("LOCAL_RANK", "0") != "0"
