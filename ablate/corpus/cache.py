"""A cache path -> the finished file or folder under it, or nothing.

Whatever is cached is written beside its place under a temporary name and renamed when it is whole:
a reader never meets half of it, and of two processes that build the same thing the second to finish
throws its copy away. A killed process leaves only a folder `.NAME.XXXXXXXX.part`; whoever builds
something beside it next removes it, and knows by the kernel's lock in it that its owner is gone.

What was damaged later is found when it is opened: a JSON file holds the hash of its own content
(`write_json`), and that of a folder the size and hash of each file beside it (`seal`).
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import os
import re
import secrets
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
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


def write_json(path: Path, value: dict[str, Any], indent: int | None = None) -> None:
    """A dict of plain JSON values, with the hash of its content."""
    content = json.loads(json.dumps(value))
    path.write_text(json.dumps({**content, "content_hash": key_of(content)}, indent=indent))


def read_json(path: Path) -> dict[str, Any] | None:
    """What `write_json` wrote, None where it is not there or anything else."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    said = found.pop("content_hash", None)
    return found if said == key_of(found) else None


def seal(folder: Path, meta: dict[str, Any]) -> None:
    """Write meta.json: `meta`, and the size and hash of every file that the folder has by now."""
    files = {path.name: list(size_and_hash(path) or ()) for path in sorted(folder.iterdir())}
    write_json(folder / "meta.json", {**meta, "files": files}, indent=1)


def sealed_meta(folder: Path) -> dict[str, Any] | None:
    """The `meta` of a sealed folder; the files are not looked at. None where it is not one."""
    found = read_json(folder / "meta.json")
    return None if found is None or found.pop("files", None) is None else found


def is_whole(folder: Path, names: Iterable[str]) -> bool:
    """Whether these files and meta.json are in the folder as they were sealed.

    Sizes are compared first. A file is read once a process, as long as its size, time and place on
    the disk stay the same.
    """
    files = (read_json(folder / "meta.json") or {}).get("files", {})
    try:
        sizes = {name: (folder / name).stat().st_size for name in names}
    except OSError:
        return False
    return all(name in files and files[name][0] == size for name, size in sizes.items()) and all(
        is_as_written(folder / name, files[name]) for name in sizes
    )


def must_build(folder: Path, names: Iterable[str]) -> bool:
    """Whether a sealed folder is not there; what is there and damaged is said and removed.

    One that another process has finished meanwhile is left alone.
    """
    was_there = os.path.lexists(folder)
    if is_whole(folder, names):
        return False
    if was_there:
        discard(folder)
    return True


def write_memo(memo: Path, found: dict[str, Any], copy: Path | None) -> None:
    """What was found in a corpus, with the size and hash of the copy of its texts if it has one."""
    with stage(memo) as temporary:
        write_json(temporary, {**found, "copy": None if copy is None else size_and_hash(copy)})


def read_memo(memo: Path, copy: Path | None) -> dict[str, Any] | None:
    """What `write_memo` wrote; None where it or the copy is not there or, which is said, damaged.

    Neither is removed: a new one takes its place when the texts could be fetched again.
    """
    found = read_json(memo)
    if found is None:
        say_damaged(memo)
    elif copy is not None and not is_as_written(copy, found["copy"]):
        say_damaged(copy)
        return None
    return found


def size_and_hash(path: Path) -> tuple[int, str] | None:
    """(bytes, 32 hexadecimal digits) of a file, None where it cannot be read."""
    try:
        state = path.stat()
        return state.st_size, _hash_of(path, state.st_size, state.st_mtime_ns, state.st_ino)
    except OSError:
        return None


def is_as_written(path: Path, before: Sequence[Any]) -> bool:
    """Whether `size_and_hash` gives the same as `before`; not read where the size is another."""
    try:
        if path.stat().st_size != before[0]:
            return False
    except OSError:
        return False
    return size_and_hash(path) == tuple(before)


@functools.cache
def _hash_of(path: Path, *_state: int) -> str:
    """`_state`: what changes with the file's content."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16))
    return digest.hexdigest()


def discard(path: Path) -> None:
    """Remove a damaged file, or a folder with one or without a part; a whole one is not asked for.

    Nothing is said where nothing is. Moved away first: of processes that find the same damage one
    removes it.
    """
    if not os.path.lexists(path):
        return
    folder, lock = _own_folder(path)
    try:
        os.rename(path, folder / path.name)
    except FileNotFoundError:  # another process was quicker
        return
    else:
        print(_not_whole(path), file=sys.stderr, flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        lock.close()


def say_damaged(path: Path) -> None:
    """Tell that what is there is built again, if there is anything."""
    if os.path.lexists(path):
        print(_not_whole(path), file=sys.stderr, flush=True)


def _not_whole(path: Path) -> str:
    return f"warning: {path} is not whole; it is built again"


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
