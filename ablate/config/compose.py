"""Hydra's composition -> `Settings`, and its errors -> one message that says what to type.

The only file besides `__main__` that knows Hydra. `conf/` lies beside the package in a checkout and
inside it in a wheel.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from ablate.config.rules import check
from ablate.config.schema import Settings

# settings that a user may add keys to, without Hydra's `+`
_OPEN = ("evaluation.per_task", "evaluation.grid", "evaluation.grid_per_task")


def _schema() -> DictConfig:
    schema = OmegaConf.structured(Settings)
    for name in _OPEN:
        OmegaConf.set_struct(OmegaConf.select(schema, name), False)
    return schema


# the schema under the name that `config.yaml` begins with
ConfigStore.instance().store(name="schema", node=_schema())


def conf_dir() -> Path:
    """The folder of the packaged configuration."""
    here = Path(__file__).resolve().parent.parent
    for folder in (here / "conf", here.parent / "conf"):
        if (folder / "config.yaml").is_file():
            return folder
    raise AssertionError("the package has lost its conf/ folder")


def compose_settings(overrides: Sequence[str] = ()) -> Settings:
    """Settings of a command line, without running it: what `python -m ablate *overrides` would use.

    Raises:
        ValueError: an override that does not parse or compose, or what `rules.check` refuses.
    """
    refuse_overlays(overrides)
    with initialize_config_dir(str(conf_dir()), version_base="1.3"):
        try:
            config = compose("config", overrides=list(overrides))
        except (HydraException, OmegaConfBaseException) as error:
            raise ValueError(readable(error)) from None
    return settings_from(config)


def settings_from(config: DictConfig) -> Settings:
    """Typed and checked settings.

    Raises:
        ValueError: an unknown key (added with `+`), or what `rules.check` refuses.
    """
    if OmegaConf.get_type(config) is not Settings:  # a plain file, such as a run's config.yaml
        config = OmegaConf.merge(OmegaConf.structured(Settings), config)  # type: ignore[assignment]
    settings: Any = OmegaConf.to_object(config)
    _refuse_extra_keys(settings, "")
    check(settings)
    return settings


def refuse_overlays(overrides: Sequence[str]) -> None:
    """A group takes one option: Hydra would lay several over one another, or drop the group.

    Raises:
        ValueError: a list, a mapping or a deletion where an option belongs.
    """
    groups = {path.name for path in conf_dir().iterdir() if path.is_dir()}
    for override in overrides:
        name, _, value = override.partition("=")
        plain = name.lstrip("+~")
        if plain.split("@")[0] in groups and (name != plain or value[:1] in ("[", "{", "")):
            options = sorted(path.stem for path in (conf_dir() / plain).glob("*.yaml"))
            raise ValueError(
                f"{override}: the group {plain} takes one option; allowed: {', '.join(options)}. "
                f"For example {plain}={options[0]}, and -m in front to run several"
            )


def _refuse_extra_keys(node: Any, prefix: str) -> None:
    known = {f.name for f in dataclasses.fields(node)}
    for name, value in vars(node).items():
        if name not in known:
            raise ValueError(unknown_key(f"{prefix}{name}"))
        if dataclasses.is_dataclass(value):
            _refuse_extra_keys(value, f"{prefix}{name}.")


def all_keys(node: Any = Settings, prefix: str = "") -> list[str]:
    """Dotted names of every setting."""
    found = []
    for field in dataclasses.fields(node):
        found.append(prefix + field.name)
        default = field.default_factory
        if isinstance(default, type) and dataclasses.is_dataclass(default):
            found += all_keys(default, f"{prefix}{field.name}.")
    return found


def unknown_key(name: str) -> str:
    """Message for a setting that does not exist, with the nearest ones that do."""
    if name.split(".")[0] == "compute":
        return (
            f"{name} says where runs of a study or sweep are computed; type it with study=NAME, "
            "or with python -m ablate.sweep FILE"
        )
    keys = all_keys()
    tails = {key.split(".")[-1]: key for key in reversed(keys)}
    near = difflib.get_close_matches(name, keys, n=3, cutoff=0.6)
    near += [
        tails[tail]
        for tail in difflib.get_close_matches(name.split(".")[-1], list(tails), n=2, cutoff=0.7)
        if tails[tail] not in near
    ]
    hint = f"did you mean {' or '.join(near[:3])}?" if near else "no setting has a name like it;"
    return f"there is no setting {name}: {hint} python -m ablate --cfg job shows all of them"


def readable(error: BaseException) -> str:
    """One message for an error of Hydra or OmegaConf: given, allowed, what to type."""
    texts = [str(error)]
    while error.__cause__ is not None:
        error = error.__cause__
        texts.append(str(error))
    whole = "\n".join(texts)
    named = re.search(r"full_key: ([\w.]+)", whole)
    key = named.group(1) if named else "this"
    if found := re.search(r"Could not override '([\w.@/]+)'", whole):
        return unknown_key(found.group(1))
    if found := re.search(r"Could not find '(\w[\w/]*)/([^'/]+)'", whole):
        group, option = found.groups()
        options = re.search(r"Available options in '[^']*':\n((?:\s+[\w-]+\n)+)", whole + "\n")
        allowed = options.group(1).split() if options else []
        near = difflib.get_close_matches(option, allowed, n=1, cutoff=0.0) or ["..."]
        return (
            f"{group}={option} is not possible; allowed: {', '.join(allowed)}. "
            f"For example {group}={near[0]}"
        )
    if found := re.search(r"missing EQUAL at", whole):
        given = re.search(r"Error parsing override '([^']*)'", whole)
        name = given.group(1) if given else "this"
        return f"'{name}' is no override; type key=value, for example masking=all_mask nsp=true"
    if "Ambiguous value for argument" in whole:
        given = re.search(r"argument '([^']*)'", whole)
        return (
            f"{given.group(1) if given else 'a comma list'} reads as several values; for one run "
            "each type -m in front, for one list type 'key=[a,b]', for a text 'key=\"a,b\"'"
        )
    if "not a ListConfig" in whole:
        return f"{key} is a list; type 'key=[a,b]'"
    if "is not a subclass of" in whole:
        return f"{key} is a group of settings; type group.key=value"
    if re.search(r"mismatched input|extraneous input|token recognition|no viable", whole):
        return (
            "an override cannot be parsed: "
            + whole.split("\n")[0].strip()
            + "; a value with =, spaces, commas or other signs needs two pairs of quotes: "
            "'key=\"value\"'"
        )
    if found := re.search(r"(?:Value|Invalid value) '([^']*)'.*", whole):
        line = found.group(0).split("\n")[0]
        return f"{key}={found.group(1)}: {line}"
    lines = [line.strip() for line in whole.split("\n") if line.strip()]
    return "; ".join(dict.fromkeys(lines[:3]))
