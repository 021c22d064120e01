"""A part of a measurement <-> one parquet file that says what it was made from.

The metadata hold the key (everything that decides the content) and the facts of the run that wrote
it. A file is read back only if its key is the one asked for, and it gets its name when it is
complete, so an interrupted fit leaves nothing that could be taken for a result. The metadata also
hold the hash of the whole file, made while its own place is zeros: a damaged file is none.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ablate.evaluation.measurement import Part, Table
from ablate.pretraining.disk import writing

FORMAT_VERSION = 3  # of the files and of what decides their content
_MARK, _DIGITS = b"blake2b:", 32
_PLACE = _MARK + b"0" * _DIGITS


def write(file: Path, part: Part, *, key: dict[str, Any]) -> None:
    """Write columns of equal length; `score_*` are stored as float32."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = {
        name: pa.array(values, type=pa.float32() if name.startswith("score_") else None)
        for name, values in part.table.items()
    }
    metadata = {
        "ablate_key": _text(key), "ablate_facts": json.dumps(part.facts), "ablate_hash": _PLACE,
    }  # fmt: skip
    content = io.BytesIO()
    pq.write_table(pa.table(columns).replace_schema_metadata(metadata), content)
    temporary = file.with_name(f".{file.name}.{os.getpid()}")
    with writing(file):
        file.parent.mkdir(parents=True, exist_ok=True)
        try:
            temporary.write_bytes(_hashed(content.getvalue()))
            os.replace(temporary, file)
        finally:
            temporary.unlink(missing_ok=True)


def read(file: Path, *, key: dict[str, Any] | None = None) -> Part | None:
    """The part, or None where no whole file with this key (any key if None) exists.

    A file that is there under this key's name and is damaged, or another's, is said to be.
    """
    if not file.is_file():
        return None
    part = _read_whole(file, None if key is None else _text(key))
    if part is None and key is not None:
        text = f"warning: {file} is damaged or not this model's; it is measured again"
        print(text, file=sys.stderr, flush=True)
    return part


def _read_whole(file: Path, key: str | None) -> Part | None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        content = file.read_bytes()
        place = content.rfind(_MARK)
        if place >= 0:
            blank = content[:place] + _PLACE + content[place + len(_PLACE) :]
            if _hashed(blank) != content:
                return None
        table = pq.read_table(pa.BufferReader(content))
        metadata = table.schema.metadata or {}
        if place < 0 and b"ablate_hash" in metadata:  # files of older versions have none
            return None
        if key is not None and metadata.get(b"ablate_key") != key.encode():
            return None
        return Part(table.to_pydict(), json.loads(metadata.get(b"ablate_facts", b"{}")))
    except (OSError, ValueError, pa.ArrowException):
        return None


def _hashed(content: bytes) -> bytes:
    """A file's bytes with their hash at the last place kept for it."""
    before, _, after = content.rpartition(_PLACE)
    digest = hashlib.blake2b(content, digest_size=_DIGITS // 2).hexdigest()
    return before + _MARK + digest.encode() + after


def joined(parts: Sequence[Part]) -> Part:
    """The rows of all parts, in order; their facts as the list `parts`."""
    names = parts[0].table
    table: Table = {name: [value for part in parts for value in part.table[name]] for name in names}
    return Part(table, {"parts": [part.facts for part in parts]})


def _text(key: dict[str, Any]) -> str:
    return json.dumps(key, sort_keys=True)
