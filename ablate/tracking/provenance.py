"""This process -> versions, machine, commit and command, for the record. Never part of identity."""

from __future__ import annotations

import platform
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

PACKAGES = (
    "ablate",
    "torch",
    "pytorch-lightning",
    "hydra-core",
    "wandb",
    "torchmetrics",
    "datasets",
    "tokenizers",
    "transformers",
    "numpy",
)


def versions() -> dict[str, str]:
    """Version of each package that the numbers stand on."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed as a package"
    return found


def git_commit() -> dict[str, Any] | None:
    """Commit of the checkout this package runs from, and whether it is modified; else None."""
    here = Path(__file__).resolve().parent

    def git(*words: str) -> str | None:
        try:
            done = subprocess.run(
                ["git", "-C", str(here), *words], capture_output=True, text=True, timeout=10
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    commit = git("rev-parse", "HEAD")
    if commit is None or git("ls-files", "--error-unmatch", __file__) is None:
        return None
    return {"commit": commit, "modified": bool(git("status", "--porcelain", "-uno"))}


def provenance() -> dict[str, Any]:
    """Everything about the process that can explain a number and does not name it."""
    return {
        "versions": versions(),
        "git": git_commit(),
        "command": sys.argv,
        "platform": platform.platform(),
        "processor": _processor(),
        **_gpu(),
    }


def _gpu() -> dict[str, str]:
    """Its name, where torch is loaded and sees one: kernels and sums differ between kinds."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        return {}
    return {"gpu": torch.cuda.get_device_name()}


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as lines:
            return (
                next(line for line in lines if line.startswith("model name")).split(":")[1].strip()
            )
    except (OSError, StopIteration, IndexError):
        return platform.processor()
