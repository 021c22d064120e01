"""A table of predictions <-> one parquet file that says what it was made from.

The metadata hold the key (everything that decides the content) and the facts of the run that wrote
it. A file is read back only if its key is the one asked for, and it gets its name when it is
complete, so an interrupted task leaves nothing that could be taken for a result.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

Table = dict[str, list[Any]]


def write(file: Path, table: Table, *, key: dict[str, Any], facts: dict[str, Any]) -> None:
    """Write columns of equal length; `score_*` are stored as float32."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = {
        name: pa.array(values, type=pa.float32() if name.startswith("score_") else None)
        for name, values in table.items()
    }
    metadata = {"ablate_key": _text(key), "ablate_facts": json.dumps(facts)}
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        pq.write_table(pa.table(columns).replace_schema_metadata(metadata), temporary)
        os.replace(temporary, file)
    finally:
        temporary.unlink(missing_ok=True)


def read(file: Path, *, key: dict[str, Any]) -> tuple[Table, dict[str, Any]] | None:
    """The table and the facts, or None where no readable file with this key exists."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not file.is_file():
        return None
    try:
        table = pq.read_table(file)
    except (OSError, pa.ArrowException):
        return None
    metadata = table.schema.metadata or {}
    if metadata.get(b"ablate_key") != _text(key).encode():
        return None
    return table.to_pydict(), json.loads(metadata[b"ablate_facts"])


def _text(key: dict[str, Any]) -> str:
    return json.dumps(key, sort_keys=True)
