"""A dataset of the Hugging Face hub, or a local folder laid out like one -> its texts.

`datasets` looks the name up; the two cases differ in nothing but the name. With `streaming` the
rows pass by once and the kept documents are written to the cache (see `sources.py`), since a stream
from the network must not be read three times; without it `datasets` keeps its own Arrow copy.
A connection that drops is taken up again by `datasets` (20 tries, 5 seconds between them).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from ablate.corpus import files

DOCUMENT_RULES = ("rows", "wikitext_headings")
_NETWORK = ("aiohttp", "httpx", "httpcore", "requests", "urllib3", "huggingface_hub")


def find(
    name: str | None, *, config: str | None, revision: str | None, cache_dir: Path
) -> tuple[Any, list[Any]]:
    """The builder of `datasets`, and what identifies its content without reading it.

    Raises:
        ValueError: no such dataset, folder or config, or no way to reach it; says what to do.
    """
    import datasets

    if not name:
        raise files.CorpusError(
            "corpus=hub needs corpus.name, e.g. corpus.name=Salesforce/wikitext"
        )
    folder = Path(name).expanduser()
    if not folder.is_dir() and re.match(r"[/~.]", name):
        raise files.CorpusError(f"corpus.name={name}: there is no such folder")
    place = str(folder.resolve()) if folder.is_dir() else name
    cache = cache_dir / "datasets"
    theirs = Path(datasets.config.HF_DATASETS_CACHE)  # where the user's own scripts put things
    if not _holds(cache, name) and _holds(theirs, name):
        cache = theirs
    try:
        with files.quiet():
            builder = datasets.load_dataset_builder(
                place, config, revision=revision, cache_dir=str(cache)
            )
    except (OSError, ValueError, RuntimeError, datasets.exceptions.DatasetsError) as error:
        raise _explained(name, config, cache_dir, error) from None
    if folder.is_dir():
        found = sorted(p for p in folder.rglob("*") if p.is_file())
        return builder, [place, builder.config.name, files.signature(found)]
    return builder, [place, builder.config.name, str(builder.hash)]


def _holds(cache: Path, name: str) -> bool:
    """Whether `datasets` has prepared something of that name there."""
    return (cache / name.replace("/", "___")).is_dir()


def rows(
    builder: Any, *, name: str, split: str, text_field: str, streaming: bool, cache_dir: Path
) -> Iterator[str | None]:
    """The text column of one split, in order.

    Raises:
        ValueError: no such split or field, unreadable data, or no way to reach it.
    """
    import datasets

    config, count = builder.config.name, 0
    try:
        with files.quiet():
            if streaming:
                data = builder.as_streaming_dataset(split=split)
            else:
                builder.download_and_prepare()
                data = builder.as_dataset(split=split)
        for table in data.with_format("arrow").iter(batch_size=256):
            yield from files.text_column(table, text_field, f"corpus.name={name}")
            count += table.num_rows
    except files.CorpusError:
        raise
    except Exception as error:
        cause = error
        if isinstance(error, datasets.exceptions.DatasetGenerationError) and error.__cause__:
            cause = error.__cause__  # type: ignore[assignment]
        lost = isinstance(cause, (ConnectionError, TimeoutError)) or _from_network(cause)
        if not lost and not isinstance(error, (*files.read_errors(), RuntimeError)):
            raise
        if lost and count:
            raise _interrupted(name, count, cause) from None
        raise _explained(name, config, cache_dir, cause) from None


def _from_network(error: BaseException) -> bool:
    """Whether a library of the network raised it; not all of theirs are OSErrors."""
    return type(error).__module__.partition(".")[0] in _NETWORK


def _interrupted(name: str, count: int, error: BaseException) -> ValueError:
    reason = " ".join((str(error).strip() or type(error).__name__).split())[:300]
    return files.CorpusError(
        f"corpus.name={name}: the connection was lost after {count:,} rows and did not come back "
        f"({reason}); they are not kept, since half a corpus is another one. Run the same command "
        f"again, or fetch it first with `hf download {name} --repo-type dataset --local-dir DIR` "
        "and type corpus.name=DIR"
    )


def _explained(name: str, config: str | None, cache_dir: Path, error: BaseException) -> ValueError:
    """One message from the many exceptions of `datasets` and `huggingface_hub`."""
    import datasets

    reason = " ".join((str(error).strip() or type(error).__name__).split())[:300]
    what = f"corpus.name={name}" + (f" corpus.config={config}" if config else "")
    unreachable = isinstance(
        error, (ConnectionError, datasets.exceptions.DatasetNotFoundError)
    ) or re.search(r"offline|connect|reach|resolve|LocalEntryNotFound", reason, re.IGNORECASE)
    if not unreachable or Path(name).expanduser().is_dir():
        return files.CorpusError(f"{what} cannot be loaded: {reason}")
    return files.CorpusError(
        f"{what} is neither in the cache ({cache_dir / 'datasets'}) nor within reach: {reason}. "
        f"Run the same command once with a network, or fetch it with `hf download {name} "
        "--repo-type dataset --local-dir DIR` and type corpus.name=DIR, or use your own text: "
        "corpus=files corpus.path=PATH"
    )


_TITLE = re.compile(r"\s*= [^=].* =\s*")


def articles(lines: Iterable[str | None]) -> Iterator[str]:
    """WikiText's rows, which are lines -> articles.

    An article begins with a line ` = Title = ` between two blank ones; inner headings have more
    signs (` = = Section = = `), and lines of that form inside a paragraph are text.
    """
    article: list[str] = []
    before, held = "", None  # held: a title line whose next line has not been seen
    for line in itertools.chain(_lines(lines), [""]):
        blank = not line.strip()
        if held is not None:
            if blank and article:
                yield "\n".join(article)
                article = []
            article.append(held)
            held = None
        if not blank and not before.strip() and _TITLE.fullmatch(line):
            held = line.strip()
        elif not blank:
            article.append(line.strip())
        before = line
    if article:
        yield "\n".join(article)


def _lines(lines: Iterable[str | None]) -> Iterator[str]:
    for line in lines:
        yield line or ""
