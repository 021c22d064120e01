"""A part of a measurement <-> one parquet file that says what it was made from.

The metadata hold the key (everything that decides the content) and the facts of the run that wrote
it. A file is read back only if its key is the one asked for, and it gets its name when it is
complete, so an interrupted fit leaves nothing that could be taken for a result. Every page has its
checksum, and the metadata have one of all that stands outside the pages: a damaged file is none.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ablate.corpus.cache import key_of
from ablate.evaluation.measurement import Part, Table
from ablate.pretraining.disk import writing

FORMAT_VERSION = 3  # of the files and of what decides their content
_METADATA = ("ablate_key", "ablate_facts", "ablate_checksum")


def write(file: Path, part: Part, *, key: dict[str, Any]) -> None:
    """Write columns of equal length; `score_*` are stored as float32."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = {
        name: pa.array(values, type=pa.float32() if name.startswith("score_") else None)
        for name, values in part.table.items()
    }
    table = pa.table(columns)
    said = (_text(key), json.dumps(part.facts))
    metadata = dict(zip(_METADATA, (*said, _checksum(table, *said)), strict=True))
    temporary = file.with_name(f".{file.name}.{os.getpid()}")
    with writing(file):
        file.parent.mkdir(parents=True, exist_ok=True)
        try:
            table = table.replace_schema_metadata(metadata)
            pq.write_table(table, temporary, write_page_checksum=True)
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
        table = pq.read_table(file, page_checksum_verification=True)
        metadata = table.schema.metadata or {}
        found = [metadata.get(name.encode(), b"{}").decode() for name in _METADATA]
        if key is not None and found[0] != key:
            return None
        checked = _METADATA[-1].encode() in metadata  # older files have none
        if checked and found[-1] != _checksum(table, *found[:-1]):
            return None
        return Part(table.to_pydict(), json.loads(found[1]))
    except (OSError, ValueError, pa.ArrowException):
        return None


def _checksum(table: Any, key: str, facts: str) -> str:
    columns = [[field.name, str(field.type)] for field in table.schema]
    return key_of(columns, table.num_rows, key, facts)


def joined(parts: Sequence[Part]) -> Part:
    """The rows of all parts, in order; their facts as the list `parts`."""
    names = parts[0].table
    table: Table = {name: [value for part in parts for value in part.table[name]] for name in names}
    return Part(table, {"parts": [part.facts for part in parts]})


def _text(key: dict[str, Any]) -> str:
    return json.dumps(key, sort_keys=True)
