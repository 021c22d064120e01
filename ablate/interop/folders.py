"""A folder that appears whole or not at all: written beside its place, then renamed.

`--force` replaces a folder as a whole, which deletes what is in it: so it takes only what this
project or transformers writes, file by file, and never the folder that is read or stood in.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

_WRITTEN = (  # by export, import and transformers' save_pretrained
    "config.json", "generation_config.json", "*.safetensors", "*.safetensors.index.json",
    "pytorch_model*.bin", "pytorch_model.bin.index.json", "tokenizer.json", "tokenizer_config.json",
    "special_tokens_map.json", "added_tokens.json", "vocab.txt", "vocab.json", "merges.txt",
)  # fmt: skip


@contextlib.contextmanager
def new_folder(place: Path, *, force: bool, source: Path | None = None) -> Iterator[Path]:
    """A temporary folder that becomes `place` when the block ends without an error.

    With `force` the old folder is replaced as a whole, so that no file of before is left in it.

    Raises:
        ValueError: as `check_free`, or the place cannot be written.
    """
    check_free(place, force=force, source=source)
    place = place.expanduser().resolve()
    temporary = place.with_name(f".{place.name}.{os.getpid()}")
    try:
        temporary.mkdir(parents=True)
    except OSError as error:
        raise ValueError(
            f"{place} cannot be written ({error.strerror}); give another folder"
        ) from None
    try:
        yield temporary
        if place.exists():
            old = place.with_name(f".{place.name}.old.{os.getpid()}")
            os.replace(place, old)
            os.replace(temporary, place)
            shutil.rmtree(old)
        else:
            os.replace(temporary, place)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def check_free(place: Path, *, force: bool, source: Path | None = None) -> None:
    """Raise a ValueError where `new_folder` would refuse: before long work, not after it.

    Args:
        place: where the folder is to be.
        force: replace one that is an exported or imported model and nothing else.
        source: what is read; a place that holds it is refused.
    """
    whole = place.expanduser().resolve()
    kept = {"the folder you are in": Path.cwd()}
    if source is not None:
        kept[f"what is read, {source}"] = source.expanduser().resolve()
    for what, folder in kept.items():
        if folder == whole or whole in folder.parents:
            raise ValueError(f"{place} is or holds {what}; give a new folder, for example model")
    if whole.exists() and not whole.is_dir():
        raise ValueError(f"{place} is a file; give a folder")
    if not whole.is_dir() or not any(whole.iterdir()):
        return
    if not force:
        raise ValueError(
            f"{place} is not empty; give another folder, or --force to replace a model in it"
        )
    foreign = sorted(path.name for path in whole.iterdir() if not _is_of_a_model(path))
    if foreign or not (whole / "config.json").is_file():
        what = f"holds {', '.join(foreign[:3])}" if foreign else "has no config.json"
        raise ValueError(
            f"{place} {what}, so it is more or other than a model that --force may delete; give "
            "another folder"
        )


def _is_of_a_model(path: Path) -> bool:
    return path.is_file() and any(fnmatch(path.name, pattern) for pattern in _WRITTEN)
