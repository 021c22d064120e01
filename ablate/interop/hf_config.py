"""A `config.json` of transformers -> what our runs need of it, settled for our data.

A file says more than an architecture: a vocabulary, special ids, a number of positions. Those
follow our tokenizer and our rows, so that an arm differs from its baseline in the encoder alone;
each replaced value is kept beside what the file said. Only classes that have a masked-LM form and
see both sides are taken. Nothing is downloaded.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from ablate.encoder.backends import Backend

ATTENTION = ("auto", "eager", "sdpa")
SIZES = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
_EXAMPLE = "encoder.hf_config=configs/deberta.json"
_PLAIN = (str, int, float, bool, type(None), list, dict)
_OF_A_CHECKPOINT = (  # say nothing about the encoder
    "_name_or_path", "architectures", "transformers_version", "dtype", "torch_dtype", "id2label",
    "label2id", "problem_type", "_attn_implementation", "use_cache", "return_dict",
    "output_hidden_states", "output_attentions", "tie_word_embeddings", "finetuning_task",
    "classifier_dropout", "classifier_dropout_prob", "seq_classif_dropout", "qa_dropout",
    "classifier_pooling", "pooler_dropout", "quantization_config",
)  # fmt: skip


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
            "config": self.values,
            "overridden": self.overridden,
            "dropout": {k: v for k, v in self.values.items() if is_dropout(k)},
            "max_position_embeddings": self.max_position_embeddings,
        }

    def hf_config(self) -> Any:
        """A new config object of transformers, with these dropouts."""
        values = dict(self.values)
        for name in filter(is_dropout, self.values):
            kind = "hidden"
            if "attention" in name or "attn" in name:
                kind = "attention"
            elif "embed" in name:
                kind = "embedding"
            wanted = getattr(self, f"{kind}_dropout")
            if wanted is not None:
                values[name] = wanted
        return _config_class(self.model_type).from_dict(values)


def is_dropout(name: str) -> bool:
    """Whether a value of a config is a probability of dropout in the encoder."""
    return ("dropout" in name or "drop_prob" in name) and name not in _OF_A_CHECKPOINT


def read(given: str | None) -> Any:
    """FILE or DIR/config.json -> a config object of transformers.

    Raises:
        ValueError: no such file, no such class, or one that is no encoder of text.
    """
    if not given:
        raise ValueError(
            "encoder.kind=hf needs a config.json of transformers with a model_type; type for "
            f"example {_EXAMPLE}"
        )
    path = Path(given).expanduser()
    path = path / "config.json" if path.is_dir() else path
    if not path.is_file():
        raise ValueError(
            f"encoder.hf_config={given}: there is no file {path}; type {_EXAMPLE}, a file or a "
            "folder with a config.json (nothing is downloaded)"
        )
    return _read(str(path), path.read_text(encoding="utf-8", errors="replace"))


@lru_cache(maxsize=16)
def _read(path: str, text: str) -> Any:
    try:
        values = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(
            f"encoder.hf_config={path} is not JSON ({error}); type {_EXAMPLE}"
        ) from None
    if not isinstance(values, dict) or not isinstance(values.get("model_type"), str):
        raise ValueError(
            f'encoder.hf_config={path} names no model_type; add for example "model_type": "bert"'
        )
    config_class = _config_class(values["model_type"], path)
    try:
        config = config_class.from_dict(values)
    except Exception as error:  # transformers checks values in many ways
        raise ValueError(
            f"encoder.hf_config={path}: {config_class.__name__} refuses it: "
            f"{said(error)}; change the file, or type {_EXAMPLE}"
        ) from None
    _refuse_other_models(config, path)
    return config


def _config_class(model_type: str, path: str = "") -> Any:
    import difflib

    from transformers import CONFIG_MAPPING

    if model_type not in CONFIG_MAPPING:
        near = difflib.get_close_matches(model_type, list(CONFIG_MAPPING), n=3, cutoff=0.5)
        raise ValueError(
            f"encoder.hf_config={path}: model_type={model_type} is unknown to transformers; "
            f"write for example {' or '.join(near) or 'bert'} in the file"
        )
    return CONFIG_MAPPING[model_type]


def _refuse_other_models(config: Any, path: str) -> None:
    from transformers import MODEL_FOR_MASKED_LM_MAPPING, MODEL_MAPPING

    what = None
    if getattr(config, "is_encoder_decoder", False):
        what = "an encoder-decoder"
    elif getattr(config, "is_decoder", False):
        what = "set up as a decoder (is_decoder=true)"
    elif type(config) not in MODEL_FOR_MASKED_LM_MAPPING:
        what = "without a masked-LM form: a decoder, or a model of something else than text"
    elif type(config) not in MODEL_MAPPING:
        what = "without a plain encoder class"
    if what:
        raise ValueError(
            f"encoder.hf_config={path}: model_type={config.model_type} is {what}; a masked-LM arm "
            "needs an encoder that sees both sides, such as bert, roberta, albert, electra, "
            "deberta-v2, mobilebert, distilbert or modernbert"
        )
    if not isinstance(getattr(config, "hidden_size", None), int):
        raise ValueError(
            f"encoder.hf_config={path}: {type(config).__name__} has no hidden_size; type {_EXAMPLE}"
        )
    if getattr(config, "attention_type", None) == "block_sparse":
        raise ValueError(
            f"encoder.hf_config={path}: attention_type=block_sparse turns itself off for good at "
            'the first short row; write "attention_type": "original_full"'
        )


def sizes(config: Any) -> dict[str, int]:
    """Those of our group `size` that the class has, under our names."""
    found = {name: getattr(config, name, None) for name in SIZES}
    found["intermediate_size"] = found["intermediate_size"] or getattr(config, "hidden_dim", None)
    return {name: value for name, value in found.items() if isinstance(value, int)}


def init_std(config: Any) -> float:
    """Standard deviation of the class's initialisation, which our heads share."""
    value = getattr(config, "initializer_range", None)
    return float(value) if value else 0.02


def model_class(config: Any) -> Any:
    """The class of the encoder without a head."""
    from transformers import MODEL_MAPPING

    found = MODEL_MAPPING[type(config)]
    return found[0] if isinstance(found, tuple) else found


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
    declared = config.to_dict()
    values = {
        name: value
        for name, value in declared.items()
        if name not in _OF_A_CHECKPOINT and isinstance(value, _PLAIN)
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


def refusal(config: HFEncoderConfig, what: str) -> ValueError:
    """A class that turned out not to work as an encoder of rows."""
    return ValueError(
        f"encoder.hf_config: {config.class_name} (model_type={config.model_type}) {what}; change "
        "the file or take another class"
    )


def said(error: Exception) -> str:
    """An error of transformers on one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
