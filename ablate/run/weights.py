"""Finished weights of a pretraining: kept with their hash, and taken only where it still holds."""

from __future__ import annotations

import os
from typing import Any

from ablate.interop.checkpoint import WEIGHTS, check_written
from ablate.tracking.record import RunFolder

_TAKEN = ("scores", "clocks", "derived", "data", "machine", "timings")


def keep_weights(model: Any, folder: RunFolder) -> None:
    """Write them under a temporary name and rename."""
    from safetensors.torch import save_file

    temporary = folder.path / f".{WEIGHTS}"
    try:
        save_file({name: p.contiguous() for name, p in model.state_dict().items()}, temporary)
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, folder.path / WEIGHTS)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def is_whole(folder: RunFolder) -> bool:
    """Whether a finished pretraining has all that runs take from it; noted where not."""
    there = len(folder.metrics.rows())
    wrong = {*_TAKEN} - folder.record.keys()
    if wrong or there != folder.record.get("lines", there) or not folder.metrics.path.is_file():
        lack = f"its record lacks {', '.join(sorted(wrong))}" if wrong else "lines are gone"
        folder.note(f"{folder.path} is damaged ({lack}); training again from the beginning")
        return False
    return True


def load_weights(model: Any, folder: RunFolder) -> bool:
    """Fill the model; False, and noted, where they are not those that were written.

    The model may be half filled then.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        check_written(folder.path, folder.record.get("weights"))
        model.load_state_dict(load_file(folder.path / WEIGHTS))
    except (SafetensorError, RuntimeError, ValueError, OSError) as error:
        folder.note(f"{' '.join(str(error).split())}; training again from the beginning")
        return False
    return True
