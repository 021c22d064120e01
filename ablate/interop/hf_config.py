"""A `config.json` of transformers -> what our runs need of it, settled for our data.

A file says more than an architecture: a vocabulary, special ids, a number of positions. Those
follow our tokenizer and our rows, so that an arm differs from its baseline in the encoder alone;
each replaced value is kept beside what the file said. The record of a run has all that the encoder
needs, so that the file may change or go afterwards (`from_identity`).
"""

from __future__ import annotations

import importlib.metadata
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ablate.encoder.backends import Backend
from ablate.interop.hf_file import (
    OF_A_CHECKPOINT,
    config_class,
    model_class,
    read,
    read_names,
    said,
)

ATTENTION = ("auto", "eager", "sdpa")
SIZES = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
_PLAIN = (str, int, float, bool, type(None), list, dict)


class HFBackend(Backend):
    """Attention of a transformers class: a name for the record; the class runs it itself."""

    def kernel_for(self, dropout_p: float, device_type: str) -> str:
        return self.kernel


@dataclass(frozen=True)
class HFEncoderConfig:
    """A transformers encoder for one tokenizer and row length.

    `values` are those of the class's config; a dropout that is None is the one in `values`. The
    other names are those of `EncoderConfig` that fine-tuning and scoring read.
    """

    model_type: str
    class_name: str
    values: dict[str, Any]
    overridden: dict[str, list[Any]]  # name -> [in the file, here]
    attention: str  # implementation inside transformers
    hidden_size: int
    vocab_size: int
    max_position_embeddings: int
    pad_token_id: int
    init_std: float
    position_embedding: str = "learned"  # rows beyond max_position_embeddings are refused
    causal: bool = False
    attention_dropout: float | None = None
    hidden_dropout: float | None = None
    embedding_dropout: float | None = None

    def identity(self) -> dict[str, Any]:
        """What decides the weights, for fingerprint and record."""
        return {
            "kind": "hf",
            "class": self.class_name,
            "transformers": importlib.metadata.version("transformers"),  # whose code it is
            "config": self.values,
            "dropout": self.dropout(),
            "max_position_embeddings": self.max_position_embeddings,
        }

    def dropout(self) -> dict[str, float]:
        """The class's probabilities of dropout, as `values` has them."""
        return {name: value for name, value in self.values.items() if is_dropout(name, value)}

    def hf_config(self) -> Any:
        """A new config object of transformers, with these dropouts."""
        values = dict(self.values)
        for name in self.dropout():
            kind = "hidden"
            if "attention" in name or "attn" in name:
                kind = "attention"
            elif "embed" in name:
                kind = "embedding"
            wanted = getattr(self, f"{kind}_dropout")
            if wanted is not None:
                values[name] = wanted
        return config_class(self.model_type).from_dict(values)


def is_dropout(name: str, value: Any) -> bool:
    """Whether a value of a config is a probability of dropout in the encoder.

    ESM's `token_dropout` is none: a switch, true or false.
    """
    named = ("dropout" in name or "drop_prob" in name) and name not in OF_A_CHECKPOINT
    return named and isinstance(value, (int, float)) and not isinstance(value, bool)


def sizes(config: Any) -> dict[str, int]:
    """Those of our group `size` that the class has, under our names."""
    found = {name: getattr(config, name, None) for name in SIZES}
    found["intermediate_size"] = found["intermediate_size"] or getattr(config, "hidden_dim", None)
    return {name: value for name, value in found.items() if isinstance(value, int)}


def init_std(config: Any) -> float:
    """Standard deviation of the class's initialisation, which our heads share."""
    value = getattr(config, "initializer_range", None)
    return float(value) if value else 0.02


def resolve_backend(given: str | None, attention_backend: str) -> Backend:
    """The implementation of attention inside the class, named `hf:<implementation>`.

    `auto` is sdpa where the class has it.

    Raises:
        ValueError: an implementation that this project or the class does not have.
    """
    found = model_class(read(given))
    if attention_backend not in ATTENTION:
        raise ValueError(
            f"attention_backend={attention_backend} cannot be had from a transformers class; "
            f"allowed with encoder.kind=hf: {', '.join(ATTENTION)}. Type attention_backend=auto"
        )
    has_sdpa = bool(getattr(found, "_supports_sdpa", False))
    if attention_backend == "sdpa" and not has_sdpa:
        raise ValueError(
            f"attention_backend=sdpa: {found.__name__} has no such attention; type "
            "attention_backend=auto"
        )
    name = attention_backend
    if name == "auto":
        name = "sdpa" if has_sdpa else "eager"
    why = "asked for" if name == attention_backend else f"auto: {name} is what the class offers"
    return HFBackend(f"hf:{name}", f"hf:{name}", f"{why}; {found.__name__} of transformers")


def describe(
    given: str | None,
    backend: Backend,
    *,
    vocab_size: int,
    pad_token_id: int,
    mask_token_id: int,
    max_position_embeddings: int,
) -> HFEncoderConfig:
    """The file's encoder for this tokenizer and rows of up to `max_position_embeddings` tokens.

    Raises:
        ValueError: as `read`.
    """
    config = read(given)
    declared, known = config.to_dict(), read_names(config)
    values = {
        name: value
        for name, value in declared.items()
        if name in known and name not in OF_A_CHECKPOINT and isinstance(value, _PLAIN)
    }
    wanted: dict[str, int | None] = {
        "vocab_size": vocab_size,
        "pad_token_id": pad_token_id,
        "max_position_embeddings": max_position_embeddings,
    }
    if values.get("mask_token_id") is not None:
        wanted["mask_token_id"] = mask_token_id
    for name in ("bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id"):  # not read
        value = values.get(name)
        if isinstance(value, int) and value >= vocab_size:
            wanted[name] = None
    real = getattr(type(config), "attribute_map", {})
    overridden = {}
    for name, value in wanted.items():
        key = real.get(name, name)
        if key in values or name == "pad_token_id":
            if values.get(key) != value:
                overridden[name] = [values.get(key), value]
            values[key] = value
    values = json.loads(json.dumps(values))  # names of lists and numbers as they will be read
    return HFEncoderConfig(
        model_type=config.model_type,
        class_name=model_class(config).__name__,
        values=values,
        overridden=overridden,
        attention=backend.name.removeprefix("hf:"),
        hidden_size=config.hidden_size,
        vocab_size=vocab_size,
        max_position_embeddings=max_position_embeddings,
        pad_token_id=pad_token_id,
        init_std=init_std(config),
    )


def from_identity(identity: Mapping[str, Any], backend_name: str) -> HFEncoderConfig:
    """The encoder that `HFEncoderConfig.identity` is of; no file is read.

    `backend_name` is the attention of the run's record, `hf:sdpa` for example. What the file said
    before our tokenizer and rows replaced it is not in an identity: `overridden` is empty.

    Raises:
        ValueError: the transformers of this machine takes these values no more.
    """
    values = dict(identity["config"])
    try:
        config = config_class(values["model_type"]).from_dict(values)
    except Exception as error:  # transformers checks values in many ways
        raise ValueError(
            f"the record's {identity['class']} cannot be made with this transformers: "
            f"{said(error)}; type python -m pip install "
            f"transformers=={identity.get('transformers', 'VERSION')}"
        ) from None
    return HFEncoderConfig(
        model_type=values["model_type"],
        class_name=identity["class"],
        values=values,
        overridden={},
        attention=backend_name.removeprefix("hf:"),
        hidden_size=config.hidden_size,
        vocab_size=config.vocab_size,
        max_position_embeddings=identity["max_position_embeddings"],
        pad_token_id=config.pad_token_id,
        init_std=init_std(config),
    )


def refusal(config: HFEncoderConfig, what: str) -> ValueError:
    """A class that turned out not to work as an encoder of rows."""
    return ValueError(
        f"encoder.hf_config: {config.class_name} (model_type={config.model_type}) {what}; change "
        "the file or take another class"
    )
