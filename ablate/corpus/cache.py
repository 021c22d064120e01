"""A cache path -> the finished file or folder under it, or nothing.

Whatever is cached is written beside its place under a temporary name and renamed when it is whole:
a reader never meets half of it, and of two processes that build the same thing the second to finish
throws its copy away. A killed process leaves only a folder `.NAME.XXXXXXXX.part`; whoever builds
something beside it next removes it, and knows by the kernel's lock in it that its owner is gone.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import re
import secrets
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

_PART = re.compile(r"\..+\.[0-9a-f]{8}\.part")


def key_of(*parts: Any) -> str:
    """16 hexadecimal digits that depend on every part (plain JSON values)."""
    text = json.dumps(parts, sort_keys=True, ensure_ascii=True)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


@contextmanager
def stage(path: Path) -> Iterator[Path]:
    """A temporary path beside `path`; what the block leaves there becomes `path`, in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    _sweep(path.parent)
    folder, lock = _own_folder(path)
    temporary = folder / path.name
    try:
        yield temporary
        if temporary.is_dir():
            _place_folder(temporary, path)
        else:
            os.replace(temporary, path)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        lock.close()


def _own_folder(path: Path) -> tuple[Path, IO[str]]:
    """A new folder beside `path`, and the open file in it that is locked while its owner lives.

    Where the file system knows no locks the file goes: nobody can tell then whose folder it is, and
    it is left alone.
    """
    while True:
        folder = path.parent / f".{path.name}.{secrets.token_hex(4)}.part"
        folder.mkdir()
        try:
            file = (folder / "lock").open("w", encoding="ascii")
        except FileNotFoundError:  # swept away between two lines: begin again
            continue
        locked = _try_lock(file)
        if locked is None:
            Path(file.name).unlink(missing_ok=True)
        if locked is None or (locked and os.fstat(file.fileno()).st_nlink):
            return folder, file
        file.close()  # being swept away


def _sweep(parent: Path) -> None:
    """Remove what killed processes have left."""
    for folder in parent.glob(".*.part"):
        if not _PART.fullmatch(folder.name):
            continue
        try:
            file = (folder / "lock").open("r+", encoding="ascii")
        except OSError:  # another process was quicker, or it has no lock
            continue
        with file:
            if _try_lock(file):
                shutil.rmtree(folder, ignore_errors=True)


def _try_lock(file: IO[str]) -> bool | None:
    """Whether this process has the lock now, None where there are no locks.

    It ends with the file, or with the process.
    """
    try:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except (ImportError, OSError):
        return None
    return True


def discard(path: Path) -> None:
    """Remove a folder of which somebody has deleted a part; a whole one is not asked for."""
    if path.is_dir():
        print(f"warning: {path} is not whole; it is built again", file=sys.stderr, flush=True)
        shutil.rmtree(path)


def _place_folder(temporary: Path, path: Path) -> None:
    try:
        os.rename(temporary, path)
    except OSError:
        if not path.is_dir():  # not a lost race: the disk is full, or the place is not ours
            raise


def write_texts(path: Path, texts: Iterator[str], batch_size: int = 1000) -> None:
    """Texts -> a Parquet file, a thousand at a time."""
    import pyarrow
    import pyarrow.parquet

    schema = pyarrow.schema({"text": pyarrow.large_string()})
    with (
        stage(path) as temporary,
        pyarrow.parquet.ParquetWriter(temporary, schema, compression="zstd") as writer,
    ):
        while batch := list(itertools.islice(texts, batch_size)):
            writer.write_table(pyarrow.table({"text": batch}, schema=schema))


def read_texts(path: Path) -> Iterator[str]:
    """The texts that `write_texts` wrote, in order."""
    for table in parquet_tables(path, "text"):
        yield from table["text"].to_pylist()


def parquet_tables(path: Path, column: str, num_rows: int = 256) -> Iterator[Any]:
    """One column of a Parquet file in tables of a few rows; without a column if there is none such.

    Pages are read one after another: a file that is one group of rows takes no more memory than
    one of many. (`datasets` holds such a group, and its bytes too: ten times the memory, slower.)
    """
    import pyarrow
    import pyarrow.parquet

    with pyarrow.parquet.ParquetFile(path, pre_buffer=False, buffer_size=1 << 20) as file:
        if column not in file.schema_arrow.names:
            yield file.schema_arrow.empty_table()
            return
        for batch in file.iter_batches(num_rows, columns=[column], use_threads=False):
            yield pyarrow.Table.from_batches([batch])
