"""Where the encoder comes from: `encoder.kind`, `encoder.path`, and what a folder decides.

`check_source` judges the words of the command line alone. `with_source` reads the folder of
`encoder=pretrained` and puts its sizes and axes where a native encoder has the given ones, so that
everything after it - rates by width, the record, the fingerprint - sees the encoder that is there.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from ablate.config.limits import one_of
from ablate.config.schema import EncoderSettings, Settings, SizeSettings, TokenizerSettings

if TYPE_CHECKING:
    from ablate.interop.checkpoint import Source

KINDS = ("native", "pretrained", "hf")
_READ = {"native": (), "pretrained": ("path",), "hf": ("hf_config",)}
_OF_THE_ARM = ("kind", "path", "hf_config", "dropout")  # not decided by the folder

_RULES = {"glu_width": "raw", "embedding_rule": "exact"}


def check_source(settings: Settings) -> None:
    """Kind, path and hf_config belong together.

    Raises:
        ValueError: an unknown kind, a path that is missing or that nothing reads.
    """
    encoder = settings.encoder
    one_of("encoder.kind", encoder.kind, KINDS)
    for kind, names in _READ.items():
        for name in names:
            given = getattr(encoder, name)
            if given is not None and encoder.kind != kind:
                raise ValueError(
                    f"encoder.{name}={given} has no effect on encoder.kind={encoder.kind}; leave "
                    f"it out, or type encoder={kind}"
                )
    if encoder.kind == "pretrained" and not encoder.path:
        raise ValueError(
            "encoder=pretrained needs a folder: type encoder.path=DIR (of transformers, or written "
            "by `python -m ablate.interop import`, or runs/pretrained/FINGERPRINT)"
        )


def named_settings(overrides: Sequence[str]) -> set[str]:
    """Dotted names that a command line sets: a value that is typed is never a mere default.

    `size=tiny` names every field of the group. A group option of `encoder` names nothing: it is
    what chose the source.
    """
    found = set()
    for override in overrides:
        name = override.lstrip("+~").partition("=")[0].replace("/", ".")
        found |= {name} if "." in name else {f"{name}.{f.name}" for f in _fields_of(name)}
    return found


def _fields_of(group: str) -> tuple[Any, ...]:
    nodes = {"size": SizeSettings, "tokenizer": TokenizerSettings}
    return fields(nodes[group]) if group in nodes else ()


def with_source(given: Settings, named: Collection[str] = ()) -> tuple[Settings, Source | None]:
    """Settings with the folder's encoder, size and tokenizer, and the folder; as given without one.

    The tokenizer is the folder's unless one is named. `encoder.dropout` stays the arm's.

    Args:
        named: what the command line sets (`named_settings`), and is no default.

    Raises:
        ValueError: no such folder; a setting that the folder decides was given another value; rows
            longer than its positions.
    """
    check_source(given)
    if given.encoder.kind != "pretrained":
        return given, None
    from ablate.interop.checkpoint import open_source

    source = open_source(given.encoder.path or "")
    settings = copy.deepcopy(given)
    for group, node, standard in (
        ("size", settings.size, SizeSettings()),
        ("encoder", settings.encoder, EncoderSettings()),
    ):
        for field in fields(node):
            if field.name in _OF_THE_ARM:
                continue
            decided = _decided(source, field.name)
            value, default = getattr(node, field.name), getattr(standard, field.name)
            is_given = value != default or f"{group}.{field.name}" in named
            if is_given and value != decided:
                raise ValueError(
                    f"{group}.{field.name}={value} has no effect on encoder=pretrained, where "
                    f"encoder.path={given.encoder.path} decides it ({decided}); leave {group} out"
                )
            setattr(node, field.name, decided)
    _fit_rows(settings, source)
    is_named = any(name.startswith("tokenizer.") for name in named)
    if settings.tokenizer == TokenizerSettings() and not is_named:
        if source.tokenizer_file is None:
            raise ValueError(
                f"encoder.path={given.encoder.path} has no tokenizer.json; type "
                "tokenizer=pretrained tokenizer.path=FILE, the one its weights were trained with"
            )
        settings.tokenizer = TokenizerSettings(
            kind="pretrained", vocabulary="trained", path=str(source.tokenizer_file)
        )
    return settings, source


def _decided(source: Source, name: str) -> Any:
    """What the folder's encoder has there; its widths are counted as they are."""
    return _RULES[name] if name in _RULES else getattr(source.encoder, name)


def _fit_rows(settings: Settings, source: Source) -> None:
    if source.encoder.position_embedding == "rope":
        return
    longest = source.encoder.max_position_embeddings
    lengths = {
        "input_format.max_length": settings.input_format.max_length,
        "evaluation.finetune.max_length": settings.evaluation.finetune.max_length or 0,
    }
    for name, length in lengths.items():
        if length > longest:
            raise ValueError(
                f"{name}={length} is longer than the {longest} positions of encoder.path="
                f"{source.folder}; type {name}={longest}"
            )
