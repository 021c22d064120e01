"""Words of a study's command line -> which study, at which scale, computed how, and overrides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ablate.config.compose import conf_dir
from ablate.study.computes import Compute, split
from ablate.study.design import Study, load

_FIRST = "python -m ablate study=replacement_rule"


@dataclass
class Options:
    """`more_seeds` adds to the undecided arms and the baseline."""

    study: str
    scale: str | None = None
    more_seeds: int = 0
    compute: Compute = field(default_factory=Compute)
    overrides: list[str] = field(default_factory=list)


def asks_for_study(words: Sequence[str]) -> bool:
    """Whether a command line is a study's."""
    return any(word.startswith("study=") for word in words)


def parse(words: Sequence[str]) -> Options:
    """Options among overrides, in any order.

    Raises:
        ValueError: a bad value, or an option that belongs elsewhere.
    """
    compute, rest = split(words)
    options = Options("", compute=compute)
    for word in rest:
        name, sign, value = word.partition("=")
        if name == "study":
            if options.study:
                raise ValueError(f"study={options.study} and {word}: type one study at a time")
            options.study = value
        elif name == "scale":
            options.scale = value
        elif name == "study.more_seeds":
            options.more_seeds = _number(word, value, 0)
        elif not sign or word.startswith("-"):
            raise ValueError(
                f"{word} is no override of a study; type {_FIRST} key=value ... (a study runs all "
                "its arms and seeds, so -m has no place here)"
            )
        elif name in ("seed", "arm", "force"):
            raise ValueError(
                f"{word}: a study decides {name} for each run; its seeds stand in its file, and "
                "study.more_seeds=2 adds to them"
            )
        else:
            options.overrides.append(word)
    return options


def open_study(name: str, scale: str | None) -> Study:
    """A study of `conf/study`, or of a file.

    Raises:
        ValueError: there is none; the message lists those there are.
    """
    folder = conf_dir() / "study"
    is_file = name.endswith((".yaml", ".yml"))
    file = Path(name).expanduser() if is_file else folder / f"{name}.yaml"
    if not file.is_file():
        names = sorted(path.stem for path in folder.glob("*.yaml"))
        raise ValueError(
            f"study={name}: there is no such study; allowed: {', '.join(names) or '(none yet)'}, "
            f"or the path of a .yaml file. For example {_FIRST}"
        )
    return load(file, scale=scale, keep_file=is_file)


def _number(word: str, value: str, low: int) -> int:
    if not value.isdecimal() or int(value) < low:
        name = word.partition("=")[0]
        raise ValueError(f"{word} must be a whole number of at least {low}; type {name}=2")
    return int(value)
