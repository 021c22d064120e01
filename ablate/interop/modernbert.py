"""transformers' ModernBERT names and options <-> ours; pure functions, nothing is read or written.

One table serves both directions; only a tied decoder and the first layer's missing norm need more
than a change of name. HF: ModernBertForMaskedLM. Where its attention dropout is above 0 it also
drops the output of attention, which ours does with `hidden_dropout` (there also after the MLP):
with dropout off the two are the same function. Proof: tests/parity/test_modernbert.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from ablate.encoder.config import EncoderConfig
from ablate.encoder.initialization import strip_wrappers
from ablate.interop.names import (
    Table,
    activation_from_hf,
    activation_to_hf,
    from_theirs,
    other_axes,
    to_theirs,
)

_NORMS = {
    "encoder.embeddings.norm": "model.embeddings.norm",
    "encoder.final_norm": "model.final_norm",
    "mlm_head.norm": "head.norm",
}
_LAYER = {
    "attention_norm": "attn_norm",
    "attention.qkv": "attn.Wqkv",
    "attention.output": "attn.Wo",
    "mlp_norm": "mlp_norm",
    "mlp.input": "mlp.Wi",
    "mlp.output": "mlp.Wo",
}
_EMBEDDING = "model.embeddings.tok_embeddings.weight"
# What ModernBERT is, whatever its sizes and biases.
_FIXED: dict[str, Any] = {
    "norm_position": "pre",
    "norm_type": "layer",
    "position_embedding": "rope",
    "mlp": "glu",
    "embedding_norm": True,
    "first_layer_norm": False,
    "final_norm": True,
    "type_vocab_size": 0,
}
_SIZES = (
    "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size",
    "max_position_embeddings",
)  # fmt: skip
_FREE = {
    *_SIZES, "pad_token_id", "norm_eps", "norm_bias", "activation", "attention_bias", "mlp_bias",
    "head_dense_bias", "head_bias", "global_attention_every_n", "local_attention",
    "global_rope_theta", "local_rope_theta", "tie_word_embeddings", "attention_dropout",
    "hidden_dropout", "embedding_dropout", "mlp_dropout", "init_scheme", "init_std",
}  # fmt: skip


def config_from_hf(hf_config: Any) -> EncoderConfig:
    """`transformers.ModernBertConfig` -> `EncoderConfig`.

    Raises:
        ValueError: layer kinds without a period, scaled rope, or two different activations.
    """
    if hf_config.classifier_activation != hf_config.hidden_activation:
        raise ValueError(
            f"classifier_activation={hf_config.classifier_activation} and hidden_activation="
            f"{hf_config.hidden_activation} differ; the encoder has one activation"
        )
    return EncoderConfig(
        **_FIXED,
        **{name: getattr(hf_config, name) for name in _SIZES},
        pad_token_id=hf_config.pad_token_id or 0,
        norm_eps=hf_config.norm_eps,
        norm_bias=hf_config.norm_bias,
        activation=activation_from_hf(hf_config.hidden_activation),
        attention_bias=hf_config.attention_bias,
        mlp_bias=hf_config.mlp_bias,
        head_dense_bias=hf_config.classifier_bias,
        head_bias=hf_config.decoder_bias,
        global_attention_every_n=_period(hf_config),
        local_attention=hf_config.local_attention,
        global_rope_theta=_theta(hf_config, "full_attention", "global_rope_theta"),
        local_rope_theta=_theta(hf_config, "sliding_attention", "local_rope_theta"),
        tie_word_embeddings=getattr(hf_config, "tie_word_embeddings", True),
        attention_dropout=hf_config.attention_dropout,
        embedding_dropout=hf_config.embedding_dropout,
        mlp_dropout=hf_config.mlp_dropout,
        init_scheme="megatron",
        init_std=hf_config.initializer_range,
    )


def _period(hf_config: Any) -> int:
    kinds = getattr(hf_config, "layer_types", None)
    if kinds is None:  # transformers before 5
        return int(hf_config.global_attn_every_n_layers)
    for period in range(1, len(kinds) + 1):
        expected = [
            "sliding_attention" if i % period else "full_attention" for i in range(len(kinds))
        ]
        if list(kinds) == expected:
            return period
    raise ValueError(
        f"layer_types={list(kinds)} has no period; the encoder takes a full layer every n, "
        "beginning with the first"
    )


def _theta(hf_config: Any, kind: str, old_name: str) -> float:
    parameters = getattr(hf_config, "rope_parameters", None)
    if parameters is None:  # transformers before 5
        return float(getattr(hf_config, old_name))
    if parameters[kind].get("rope_type", "default") != "default":
        raise ValueError(f"rope_type={parameters[kind]['rope_type']} of {kind}: only default")
    return float(parameters[kind]["rope_theta"])


def config_to_hf(config: EncoderConfig) -> Any:
    """`EncoderConfig` -> `transformers.ModernBertConfig`.

    Raises:
        ValueError: a point that ModernBERT cannot express.
    """
    from transformers import ModernBertConfig

    refuse_other(config)
    thetas: dict[Any, float] = {
        "full_attention": config.global_rope_theta,
        "sliding_attention": config.local_rope_theta,
    }
    activation = activation_to_hf(config.activation)
    return ModernBertConfig(
        **{name: getattr(config, name) for name in _SIZES},
        pad_token_id=config.pad_token_id,
        norm_eps=config.norm_eps,
        norm_bias=config.norm_bias,
        hidden_activation=activation,
        classifier_activation=activation,
        attention_bias=config.attention_bias,
        mlp_bias=config.mlp_bias,
        classifier_bias=config.head_dense_bias,
        decoder_bias=config.head_bias,
        layer_types=list(config.layer_types),
        local_attention=config.local_attention,
        rope_parameters={
            kind: {"rope_type": "default", "rope_theta": theta} for kind, theta in thetas.items()
        },
        attention_dropout=config.attention_dropout,
        embedding_dropout=config.embedding_dropout,
        mlp_dropout=config.mlp_dropout,
        initializer_range=config.init_std,
        tie_word_embeddings=config.tie_word_embeddings,
    )


def axes_in_the_way(config: EncoderConfig) -> list[str]:
    """The axes of `config` that Hugging Face's ModernBERT does not have."""
    return other_axes(config, "ModernBERT", _FIXED, _FREE)


def refuse_other(config: EncoderConfig) -> None:
    """Raise a ValueError naming the axes of `config` that Hugging Face's class does not have."""
    axes = axes_in_the_way(config)
    if axes:
        raise ValueError("transformers' ModernBERT cannot express " + ", ".join(axes))


def _table(config: EncoderConfig) -> tuple[Table, dict[str, str]]:
    biased = {
        "attention.qkv": config.attention_bias,
        "attention.output": config.attention_bias,
        "mlp.input": config.mlp_bias,
        "mlp.output": config.mlp_bias,
    }
    modules = [(ours, theirs, config.norm_bias) for ours, theirs in _NORMS.items()]
    modules.append(("mlm_head.dense", "head.dense", config.head_dense_bias))
    for i in range(config.num_hidden_layers):
        modules += [
            (f"encoder.layers.{i}.{o}", f"model.layers.{i}.{t}", biased.get(o, config.norm_bias))
            for o, t in _LAYER.items()
            if i or o != "attention_norm"
        ]
    table: Table = [("encoder.embeddings.token.weight", (_EMBEDDING,))]
    table += [(f"{ours}.weight", (f"{theirs}.weight",)) for ours, theirs, _ in modules]
    table += [
        (f"{ours}.bias", (f"{theirs}.bias",)) for ours, theirs, has_bias in modules if has_bias
    ]
    if config.head_bias:
        table.append(("mlm_head.decoder_bias", ("decoder.bias",)))
    if config.tie_word_embeddings:
        return table, {"decoder.weight": _EMBEDDING}
    table.append(("mlm_head.decoder_weight", ("decoder.weight",)))
    return table, {}


def state_dict_from_hf(hf_state: Mapping[str, Tensor], config: EncoderConfig) -> dict[str, Tensor]:
    """Weights of ModernBertForMaskedLM -> those of `MaskedLanguageModel`.

    Raises:
        ValueError: missing or unexpected names (listed), or tied weights that differ.
    """
    refuse_other(config)
    return from_theirs(strip_wrappers(hf_state), *_table(config), "ModernBERT with these sizes")


def state_dict_to_hf(state: Mapping[str, Tensor], config: EncoderConfig) -> dict[str, Tensor]:
    """The inverse. A pair head has no place in ModernBertForMaskedLM and is an error."""
    refuse_other(config)
    return to_theirs(strip_wrappers(state), *_table(config), "our ModernBERT with these sizes")


def second_names(config: EncoderConfig) -> set[str]:
    """Their names of what is a copy of another weight."""
    return set(_table(config)[1])
