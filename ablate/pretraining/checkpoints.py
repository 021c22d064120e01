"""Checkpoints on disk: written whole or not at all, and looked through before they are continued.

Every file is a zip archive with a checksum for each of its members. It holds the name of its run
and its step, and how many lines of metrics there were, so that a checkpoint of another run, or one
that is ahead of what was logged, is not continued either.
"""

from __future__ import annotations

import os
import re
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from lightning_fabric.plugins.io.torch_io import TorchCheckpointIO


class StraightToDisk(TorchCheckpointIO):
    """Writes where it is told to: Lightning's own goes through memory and the system's temporary
    folder, which may have less room than the run's."""

    def save_checkpoint(self, checkpoint: Any, path: Any, storage_options: Any = None) -> None:
        try:
            with open(path, "wb") as file:
                torch.save(checkpoint, file)
                file.flush()
                os.fsync(file.fileno())
        except BaseException:
            Path(path).unlink(missing_ok=True)
            raise


def checkpoint_path(folder: Path, step: int) -> Path:
    """Where the checkpoint after `step` optimizer steps lies; no `=`, so it can be typed."""
    return folder / f"step-{step:08d}.ckpt"


def found_checkpoints(folder: Path) -> list[tuple[Path, int]]:
    """(path, step) of the checkpoints in a folder, oldest first."""
    found = [
        (path, int(match.group(1)))
        for path in folder.glob("step-*.ckpt")
        if (match := re.fullmatch(r"step-(\d+)\.ckpt", path.name))
    ]
    return sorted(found, key=lambda pair: pair[1])


def _warn(text: str) -> None:
    print(f"warning: {text}", file=sys.stderr, flush=True)


def newest_checkpoint(
    folder: Path,
    *,
    num_lines: Callable[[int], int] | None = None,
    say: Callable[[str], None] = _warn,
) -> tuple[Path, int] | None:
    """(path, step) of the newest checkpoint that can be continued.

    Args:
        num_lines: how many lines of metrics there are up to a step.
        say: is told of each one that is passed over, why, and what is done instead.
    """
    found = found_checkpoints(folder)
    while found:
        path, step = found.pop()
        fault = _fault(path, step, num_lines)
        if fault is None:
            return path, step
        instead = "the one before it is taken" if found else "there is none before it: step 0"
        say(f"checkpoint {path} {fault}; {instead}")
    return None


def _fault(path: Path, step: int, num_lines: Callable[[int], int] | None) -> str | None:
    """What speaks against continuing a checkpoint, or None."""
    damaged = "is not whole"
    try:
        with zipfile.ZipFile(path) as archive:
            if archive.testzip() is not None:
                return damaged
        content = torch.load(path, map_location="cpu", mmap=True, weights_only=True)
        known = content["ablate"]
        parts = [content[name] for name in ("state_dict", "optimizer_states", "loops")]
        at, run = content["global_step"], content["callbacks"].get("Checkpoints", {}).get("run")
        lines = known.get("lines")
    except Exception:  # a class of its own for each place that was hit
        return damaged
    if not all(parts) or at != step:
        return damaged
    if run not in (None, path.parent.parent.name):
        return f"is of another run, {run}"
    if None not in (lines, num_lines) and num_lines(step) != lines:  # type: ignore[misc]
        return f"has {lines} lines of metrics behind it, metrics.jsonl {num_lines(step)}"  # type: ignore[misc]
    return None
