"""A file, a folder or a glob -> the texts in it, read through `datasets` as a stream.

Nothing is copied and little is held in memory. Files come in the order of their paths, numbers in
them by their value: shard-2 before shard-10. Formats: .txt (a blank line begins a new document;
a line ends at LF, CR LF or CR only), .jsonl, .json, .csv, .tsv, .parquet, each also as .gz, .bz2 or
.xz. JSON lines are read as lines and parsed one by one: the `json` reader of `datasets` infers one
schema for the whole file, fails on optional keys and turns texts that look like dates into dates. A
plain .parquet is read by pyarrow, page by page (see `cache.parquet_tables`).
"""

from __future__ import annotations

import glob
import json
import lzma
import re
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ablate.corpus.cache import parquet_tables

FORMATS = {
    ".txt": "text",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
}
COMPRESSIONS = (".gz", ".bz2", ".xz")
ALLOWED = f"{' '.join(FORMATS)}, each also with {' '.join(COMPRESSIONS)}"
_HINT = "give a file, a folder or a quoted glob: corpus.path=data/train.jsonl"


class CorpusError(ValueError):
    """An error of the user's, with the message that is to be shown."""


def format_of(path: Path) -> str | None:
    """The format that a file's name announces, or None."""
    stem = path.with_suffix("") if path.suffix in COMPRESSIONS else path
    return FORMATS.get(stem.suffix.lower())


def find_files(path: str | Path | None) -> tuple[list[Path], int]:
    """Readable files in the order of their paths, and how many others were passed over.

    Raises:
        ValueError: nothing there, or nothing there that can be read.
    """
    if path is None or not str(path):
        raise CorpusError(f"corpus=files needs corpus.path; {_HINT}")
    place = Path(path).expanduser()
    if place.is_file():
        if format_of(place) is None:
            raise CorpusError(f"corpus.path={path}: unknown format; allowed: {ALLOWED}")
        return [place], 0
    if place.is_dir():
        found = [p for p in place.rglob("*") if not _hidden(p.relative_to(place))]
    else:
        found = [Path(p) for p in glob.glob(str(place), recursive=True)]
    found = [p for p in found if p.is_file()]
    files = sorted((p for p in found if format_of(p)), key=_by_number)
    if not files and not place.is_dir() and not found:
        raise CorpusError(f"corpus.path={path} does not exist; {_HINT}")
    if not files:
        raise CorpusError(f"corpus.path={path} holds no file that can be read; allowed: {ALLOWED}")
    return files, len(found) - len(files)


def _by_number(path: Path) -> tuple[list[tuple[int, int]], str]:
    """Characters by their code and numbers by their value, where their first digit would stand."""
    parts = re.findall("[0-9]+|[^0-9]", path.as_posix())
    order = [(ord("0"), int(p)) if "0" <= p[0] <= "9" else (ord(p), 0) for p in parts]
    return order, path.as_posix()  # the text decides between 1 and 01


def _hidden(relative: Path) -> bool:
    return any(part.startswith(".") for part in relative.parts)


def signature(files: Iterable[Path]) -> list[list[Any]]:
    """What identifies files without reading them: path, size, times of change."""
    stats = [(path.resolve(), path.stat()) for path in files]
    return [[str(p), s.st_size, s.st_mtime_ns, s.st_ctime_ns] for p, s in stats]


def read_texts(files: list[Path], *, text_field: str, cache_dir: Path) -> Iterator[str | None]:
    """The texts of all files in order; None or blank where a row has no text.

    Raises:
        ValueError: a file that cannot be read as what its name says, or without the text field.
    """
    begin = 0
    while begin < len(files):
        kind = format_of(files[begin])
        assert kind is not None
        end = begin
        while end < len(files) and format_of(files[end]) == kind:
            end += 1
        yield from _read_group(kind, files[begin:end], text_field, cache_dir)
        begin = end


def _read_group(
    kind: str, files: list[Path], text_field: str, cache_dir: Path
) -> Iterator[str | None]:
    """Files of one format: opened by one call of `datasets`, then read one after the other."""
    stream = None
    for index, path in enumerate(files):
        if path.stat().st_size == 0:
            continue
        try:
            if path.suffix.lower() == ".parquet":
                for table in parquet_tables(path, text_field):
                    yield from text_column(table, text_field, str(path))
                continue
            if stream is None:
                stream = _open(kind, files, cache_dir, _narrow(kind, text_field))
            one = stream.shard(num_shards=len(files), index=index) if len(files) > 1 else stream
            yield from _parse(kind, path, one, text_field)
        except CorpusError:
            raise
        except read_errors() as error:
            columns = _columns(kind, path, cache_dir)
            if columns is not None and text_field not in columns:
                raise _missing_field(path, text_field, columns) from None
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise CorpusError(
                f"cannot read {path} as {kind}: {reason}; check the file, or leave it out"
            ) from None


def read_errors() -> tuple[type[Exception], ...]:
    """What `datasets` and the decoders under it raise on files that are not what they should be."""
    import datasets
    import pyarrow

    known: tuple[type[Exception], ...] = (OSError, EOFError, ValueError, zlib.error, lzma.LZMAError)
    return (*known, pyarrow.ArrowException, datasets.exceptions.DatasetsError)


def _narrow(kind: str, text_field: str) -> dict[str, Any]:
    """Options that read the text column alone, as text."""
    if kind in ("csv", "tsv"):
        as_text = {"converters": {text_field: str}, "keep_default_na": False}  # "NA", "7" are text
        return {"usecols": [text_field], "chunksize": 1000, **as_text}
    return {"columns": [text_field], "batch_size": 512} if kind == "parquet" else {}


def _open(kind: str, files: list[Path], cache_dir: Path, options: dict[str, Any]) -> Any:
    import datasets

    builder = {"jsonl": "text", "tsv": "csv"}.get(kind, kind)
    if builder == "text":
        options = {**options, "encoding": "utf-8-sig"}
    if kind == "tsv":
        options = {**options, "sep": "\t"}
    with quiet():
        return datasets.load_dataset(
            builder,
            data_files=[glob.escape(str(path.resolve())) for path in files],
            split="train",
            streaming=True,
            cache_dir=str(cache_dir / "datasets"),
            **options,
        )


@contextmanager
def quiet() -> Iterator[None]:
    """No progress bars of `datasets` and `huggingface_hub` inside, and no download counter.

    The counter is a request to a server whenever a reader is opened, even for a file on this disk.
    """
    import datasets
    import huggingface_hub.utils as hub

    ours = datasets.utils.logging.is_progress_bar_enabled()
    theirs = not hub.are_progress_bars_disabled()
    counter = datasets.config.HF_UPDATE_DOWNLOAD_COUNTS
    datasets.disable_progress_bars()
    hub.disable_progress_bars()
    datasets.config.HF_UPDATE_DOWNLOAD_COUNTS = False
    try:
        yield
    finally:
        datasets.config.HF_UPDATE_DOWNLOAD_COUNTS = counter
        if ours:
            datasets.enable_progress_bars()
        if theirs:
            hub.enable_progress_bars()


def _columns(kind: str, path: Path, cache_dir: Path) -> list[str] | None:
    """Names of the columns of a table, None where the file has none or cannot be read."""
    if kind in ("text", "jsonl"):
        return None
    try:
        tables = _open(kind, [path], cache_dir, {}).with_format("arrow").iter(batch_size=1)
        return next(iter(tables)).column_names
    except (StopIteration, *read_errors()):  # type: ignore[misc]
        return None


def _missing_field(path: Path, text_field: str, columns: Iterable[str]) -> CorpusError:
    names = ", ".join(sorted(map(str, columns)))
    return CorpusError(
        f"{path} has no field {text_field!r}; it has: {names}. Type corpus.text_field=NAME"
    )


def _parse(kind: str, path: Path, stream: Any, text_field: str) -> Iterator[str | None]:
    size = 4096 if kind in ("text", "jsonl") else 256
    tables = stream.with_format("arrow").iter(batch_size=size)
    if kind == "text":
        yield from paragraphs(line for table in tables for line in table["text"].to_pylist())
    elif kind == "jsonl":
        lines = (line for table in tables for line in table["text"].to_pylist())
        yield from _json_lines(path, lines, text_field)
    else:
        for table in tables:
            yield from text_column(table, text_field, str(path))


def text_column(table: Any, text_field: str, source: str) -> list[str | None]:
    """The text column of an Arrow table as Python strings.

    Raises:
        ValueError: there is no such column, or it does not hold text.
    """
    import pyarrow

    if text_field not in table.column_names:
        raise _missing_field(Path(source), text_field, table.column_names)
    column = table[text_field]
    kind = column.type
    text = pyarrow.types.is_string(kind) or pyarrow.types.is_large_string(kind)
    if not (text or pyarrow.types.is_null(kind)):
        raise CorpusError(
            f"{source}: field {text_field!r} holds {kind}, not text. Type corpus.text_field=NAME"
        )
    return column.to_pylist()


def paragraphs(lines: Iterable[str]) -> Iterator[str]:
    """Lines -> documents: a line without a visible character ends a document."""
    document: list[str] = []
    for line in lines:
        if line and not line.isspace():
            document.append(line)
        elif document:
            yield "\n".join(document)
            document = []
    if document:
        yield "\n".join(document)


def _json_lines(path: Path, lines: Iterable[str], text_field: str) -> Iterator[str | None]:
    for number, line in enumerate(lines, start=1):
        if not line or line.isspace():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise CorpusError(f"{path}, line {number}: not JSON ({error})") from None
        if not isinstance(row, dict):
            raise CorpusError(f"{path}, line {number}: not a JSON object but {line[:40]!r}")
        if text_field not in row:
            raise _missing_field(path, text_field, row)
        text = row[text_field]
        if text is not None and not isinstance(text, str):
            raise CorpusError(
                f"{path}, line {number}: field {text_field!r} holds {type(text).__name__}, not text"
            )
        if text is not None and not text.isascii() and not _encodable(text):
            raise CorpusError(f"{path}, line {number}: half of a surrogate pair in {text_field!r}")
        yield text


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
