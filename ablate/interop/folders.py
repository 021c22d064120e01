"""A folder that appears whole or not at all: written beside its place, then renamed."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def new_folder(place: Path, *, force: bool) -> Iterator[Path]:
    """A temporary folder that becomes `place` when the block ends without an error.

    With `force` the old folder is replaced as a whole, so that no file of before is left in it.

    Raises:
        ValueError: `place` is a file, has something in it and `force` is false, or cannot be
            written.
    """
    check_free(place, force=force)
    temporary = place.with_name(f".{place.name}.{os.getpid()}")
    try:
        temporary.mkdir(parents=True)
    except OSError as error:
        raise ValueError(
            f"{place} cannot be written ({error.strerror}); give another folder"
        ) from None
    try:
        yield temporary
        if place.exists():
            old = place.with_name(f".{place.name}.old.{os.getpid()}")
            os.replace(place, old)
            os.replace(temporary, place)
            shutil.rmtree(old)
        else:
            os.replace(temporary, place)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def check_free(place: Path, *, force: bool) -> None:
    """Raise a ValueError where `new_folder` would refuse: before long work, not after it."""
    if place.exists() and not place.is_dir():
        raise ValueError(f"{place} is a file; give a folder")
    if place.is_dir() and any(place.iterdir()) and not force:
        raise ValueError(
            f"{place} is not empty; give another folder, or --force to replace all that is in it"
        )
