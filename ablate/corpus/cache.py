"""A cache path -> the finished file or folder under it, or nothing.

Whatever is cached is written beside its place under a temporary name and renamed when it is whole:
a reader never meets half of it, and of two processes that build the same thing the second to finish
throws its copy away. A killed process leaves only a folder or file whose name begins with a dot.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


def key_of(*parts: Any) -> str:
    """16 hexadecimal digits that depend on every part (plain JSON values)."""
    text = json.dumps(parts, sort_keys=True, ensure_ascii=True)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


@contextmanager
def stage(path: Path) -> Iterator[Path]:
    """A temporary path beside `path`; what the block leaves there becomes `path`, in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.parent / f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}"
    try:
        yield temporary
        if temporary.is_dir():
            _place_folder(temporary, path)
        else:
            os.replace(temporary, path)
    finally:
        if temporary.is_dir():
            shutil.rmtree(temporary, ignore_errors=True)
        else:
            temporary.unlink(missing_ok=True)


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
    import pyarrow.parquet

    with pyarrow.parquet.ParquetFile(path) as table:
        for batch in table.iter_batches(batch_size=256):
            yield from batch["text"].to_pylist()
