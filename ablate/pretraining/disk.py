"""A write that the system refuses -> `NotWritten`: which file, how much room is left, what to do.

torch and safetensors wrap the system's error or repeat its words alone, so the whole chain of an
exception is looked through.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # EFBIG: a limit on the size of files
_FORBIDDEN = (errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR)


class NotWritten(Exception):  # noqa: N818  (the disk's fault and not the program's)
    """A file could not be written; what was finished before is on the disk."""

    def __init__(self, path: Path | str, code: int) -> None:
        super().__init__(path, code)  # both, so that it can be pickled
        self.path, self.code = Path(path), code

    def __str__(self) -> str:
        said = f"{self.path} cannot be written ({os.strerror(self.code)})"
        if self.code not in _FULL:
            return f"{said}: make its folder writable and type the same command; it continues"
        return (
            f"{said}, {_room(self.path)} free on its disk: make room and type the same command; "
            "what was finished is kept, and it continues"
        )


def make_folder(setting: str, folder: Path) -> None:
    """Create the folder of a `paths` setting, and try to write in it.

    Raises:
        ValueError: it cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ValueError(
            f"{setting}={folder} cannot be written ({error.strerror}); type {setting}=FOLDER"
        ) from None


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Around whatever writes `path`, or files in it where it is a folder.

    Raises:
        NotWritten: the system did not let it.
    """
    try:
        yield
    except NotWritten:
        raise
    except Exception as error:
        found = refusal(error)
        if found is None:
            raise
        code, file = found
        if code in _FORBIDDEN and file is not None and path.parent not in Path(file).parents:
            raise  # something else that was only to be read
        raise NotWritten(path, code) from error


def refusal(error: BaseException) -> tuple[int, str | None] | None:
    """(errno, file if it is named) where the system refused to write, else None."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, NotWritten):
            return seen.code, str(seen.path)
        if isinstance(seen, OSError) and seen.errno in (*_FULL, *_FORBIDDEN):
            return seen.errno, seen.filename2 or seen.filename
        if (match := re.search(r"os error (\d+)\)", str(seen))) and int(match[1]) in _FULL:
            return int(match[1]), None
        seen = seen.__cause__ or seen.__context__
    return None


def full_disk(error: BaseException) -> NotWritten | None:
    """What to tell of an error anywhere in a command, where the disk is to blame for it."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, NotWritten):
            return seen
        seen = seen.__cause__ or seen.__context__
    found = refusal(error)
    if found is None or found[0] not in _FULL:
        return None
    return NotWritten(found[1] or "a file of this command", found[0])


def _room(path: Path) -> str:
    place = next((p for p in (path, *path.parents) if p.exists()), Path())
    return f"{shutil.disk_usage(place).free / 1e6:,.1f} MB"
