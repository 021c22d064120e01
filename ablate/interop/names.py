"""A table of names and two states -> the state under the other names, or an error listing the rest.

Shared by the families: each has a table of (our name, their names) pairs, where several of their
tensors are ours cut along the first dimension, and `aliases`, names under which they keep a second
copy of a tensor. Copies are written on the way out and compared on the way in.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor

from ablate.encoder.config import EncoderConfig

Table = list[tuple[str, tuple[str, ...]]]


def refuse_names(what: str, missing: Iterable[str], unexpected: Iterable[str]) -> None:
    """Raise a ValueError that lists the names, if there are any."""
    missing, unexpected = sorted(missing), sorted(unexpected)
    if missing or unexpected:
        raise ValueError(
            f"the weights are not those of {what}. Missing: {', '.join(missing) or 'none'}. "
            f"Unexpected: {', '.join(unexpected) or 'none'}"
        )


def other_axes(
    config: EncoderConfig, family: str, fixed: Mapping[str, Any], free: Collection[str]
) -> list[str]:
    """The axes of `config` that a family does not have, as `encoder.axis=value (FAMILY: value)`.

    Whatever is neither `fixed` nor `free` must stand at its default, so that an axis added later is
    refused and not lost.
    """
    found = []
    for field in fields(config):
        if field.name == "embedding_size" and not config.is_factorised:
            continue
        expected = fixed.get(field.name, field.default)
        given = getattr(config, field.name)
        if field.name not in free and given != expected:
            found.append(f"encoder.{field.name}={given} ({family}: {expected})")
    return found


def from_theirs(
    state: Mapping[str, Tensor], table: Table, aliases: Mapping[str, str], what: str
) -> dict[str, Tensor]:
    """Their state -> ours. Pieces are joined; an alias may be absent but must not differ."""
    known = {name for _, theirs in table for name in theirs}
    refuse_names(what, known - set(state), set(state) - known - set(aliases))
    for alias, name in aliases.items():
        if alias in state and not torch.equal(state[alias], state[name]):
            raise ValueError(
                f"{alias} and {name} differ, so they are not tied: "
                "type encoder.tie_word_embeddings=false"
            )
    return {
        ours: torch.cat([state[name] for name in theirs]) if len(theirs) > 1 else state[theirs[0]]
        for ours, theirs in table
    }


def to_theirs(
    state: Mapping[str, Tensor], table: Table, aliases: Mapping[str, str], what: str
) -> dict[str, Tensor]:
    """Our state -> theirs, aliases included; the inverse of `from_theirs`."""
    known = {ours for ours, _ in table}
    refuse_names(what, known - set(state), set(state) - known)
    out: dict[str, Tensor] = {}
    for ours, theirs in table:
        out.update(zip(theirs, state[ours].chunk(len(theirs)), strict=True))
    return out | {alias: out[name] for alias, name in aliases.items()}


ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}


def activation_from_hf(name: str) -> str:
    """Our name of a Hugging Face activation.

    Raises:
        ValueError: one that the encoder does not have.
    """
    if name not in ACTIVATIONS:
        raise ValueError(
            f"the activation {name} of the Hugging Face config is unknown here; "
            f"allowed are {', '.join(ACTIVATIONS)}"
        )
    return ACTIVATIONS[name]


def activation_to_hf(name: str) -> str:
    """The inverse of `activation_from_hf`.

    Raises:
        ValueError: one that transformers does not have.
    """
    found = {ours: theirs for theirs, ours in ACTIVATIONS.items() if theirs != "swish"}
    if name not in found:
        raise ValueError(
            f"transformers has no encoder.activation={name}; allowed are {', '.join(found)}"
        )
    return found[name]
