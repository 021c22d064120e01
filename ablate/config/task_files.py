"""The name of a task, or the path of its file -> its definition, a plain mapping.

A `path:` inside the file is read from the file's own folder, so that a task and its data move
together and the working directory decides nothing.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from ablate.config.compose import conf_dir

SUFFIXES = (".yaml", ".yml")


def word_loader() -> Any:
    """YAML's safe loader, but yes, no, on and off are words: they are names of labels."""
    import yaml

    class Loader(yaml.SafeLoader):
        pass

    kept = yaml.SafeLoader.yaml_implicit_resolvers
    Loader.yaml_implicit_resolvers = {
        first: [(tag, shape) for tag, shape in found if "bool" not in tag or first in "tTfF"]
        for first, found in kept.items()
    }
    return Loader


def task_definition(name: str) -> dict[str, Any]:
    """The definition in `conf/evaluation/task/<name>.yaml`, or in the file that `name` names.

    Raises:
        ValueError: there is no such file (the message lists the tasks there are), or it holds no
            mapping.
    """
    import yaml

    folder = conf_dir() / "evaluation" / "task"
    file = Path(name).expanduser() if name.endswith(SUFFIXES) else folder / f"{name}.yaml"
    if not file.is_file():
        names = task_names()
        raise ValueError(
            f"evaluation.tasks names {name}, and there is no such task; allowed: "
            f"{', '.join(names)}, or the path of a .yaml file. "
            f"For example 'evaluation.tasks=[{names[0]}]'"
        )
    try:
        found = yaml.load(file.read_text(encoding="utf-8"), Loader=word_loader())
    except (yaml.YAMLError, UnicodeDecodeError, OSError) as error:
        raise ValueError(f"{file} is not readable YAML: {error}") from error
    if not isinstance(found, dict):
        raise ValueError(f"{file} must hold keys and values, as the files in {folder} do")
    own = found.get("path")
    if own is not None:
        found["path"] = str(file.parent / Path(str(own)).expanduser())
    return {"name": file.stem, **found}


@functools.cache
def defined_names() -> dict[str, str]:
    """Each task of `conf/evaluation/task` -> the name that its file gives it (pos: ud_english_ewt),
    which is what scores and files are called by."""
    return {name: str(task_definition(name)["name"]) for name in task_names()}


def task_names() -> list[str]:
    """The tasks that have a file in `conf/evaluation/task`."""
    return sorted(path.stem for path in (conf_dir() / "evaluation" / "task").glob("*.yaml"))
