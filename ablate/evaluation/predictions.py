"""A part of a measurement <-> one parquet file that says what it was made from.

The metadata hold the key (everything that decides the content) and the facts of the run that wrote
it. A file is read back only if its key is the one asked for, and it gets its name when it is
complete, so an interrupted fit leaves nothing that could be taken for a result.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ablate.evaluation.measurement import Part, Table
from ablate.pretraining.disk import writing

FORMAT_VERSION = 3  # of the files and of what decides their content


def write(file: Path, part: Part, *, key: dict[str, Any]) -> None:
    """Write columns of equal length; `score_*` are stored as float32."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = {
        name: pa.array(values, type=pa.float32() if name.startswith("score_") else None)
        for name, values in part.table.items()
    }
    metadata = {"ablate_key": _text(key), "ablate_facts": json.dumps(part.facts)}
    temporary = file.with_name(f".{file.name}.{os.getpid()}")
    with writing(file):
        file.parent.mkdir(parents=True, exist_ok=True)
        try:
            pq.write_table(pa.table(columns).replace_schema_metadata(metadata), temporary)
            os.replace(temporary, file)
        finally:
            temporary.unlink(missing_ok=True)


def read(file: Path, *, key: dict[str, Any] | None = None) -> Part | None:
    """The part, or None where no readable file with this key (any key if None) exists."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not file.is_file():
        return None
    try:
        table = pq.read_table(file)
    except (OSError, pa.ArrowException):
        return None
    metadata = table.schema.metadata or {}
    if key is not None and metadata.get(b"ablate_key") != _text(key).encode():
        return None
    return Part(table.to_pydict(), json.loads(metadata.get(b"ablate_facts", b"{}")))


def joined(parts: Sequence[Part]) -> Part:
    """The rows of all parts, in order; their facts as the list `parts`."""
    names = parts[0].table
    table: Table = {name: [value for part in parts for value in part.table[name]] for name in names}
    return Part(table, {"parts": [part.facts for part in parts]})


def _text(key: dict[str, Any]) -> str:
    return json.dumps(key, sort_keys=True)
