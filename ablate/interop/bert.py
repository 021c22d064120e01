"""transformers' BERT names and options <-> ours; pure functions, nothing is read or written.

One table serves both directions. Ours fuses queries, keys and values into one matrix (rows in that
order), and a tied decoder exists once. HF: BertForMaskedLM (no pair head) and BertForPreTraining;
which of the two it is follows from the names present. What BERT has and ours may lack - a bias, the
token types - is written as zeros, which is the same function. A single token type is added to every
token, so it is added to the positions once and is none here (equal to 1e-6: the order of a sum
changes). Proof: tests/parity/test_bert.py, tests/interop.
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

_MODULES = {
    "encoder.embeddings.norm": "bert.embeddings.LayerNorm",
    "mlm_head.dense": "cls.predictions.transform.dense",
    "mlm_head.norm": "cls.predictions.transform.LayerNorm",
}
_TENSORS = {
    "encoder.embeddings.token.weight": "bert.embeddings.word_embeddings.weight",
    "encoder.embeddings.position.weight": "bert.embeddings.position_embeddings.weight",
    "encoder.embeddings.token_type.weight": "bert.embeddings.token_type_embeddings.weight",
}
_TOKEN_TYPES = "encoder.embeddings.token_type.weight"
_SELF = "attention.self."
_LAYER_MODULES = {
    "attention.qkv": (f"{_SELF}query", f"{_SELF}key", f"{_SELF}value"),
    "attention.output": ("attention.output.dense",),
    "attention_norm": ("attention.output.LayerNorm",),
    "mlp.input": ("intermediate.dense",),
    "mlp.output": ("output.dense",),
    "mlp_norm": ("output.LayerNorm",),
}
_PAIR_MODULES = {
    "pair_head.dense": "bert.pooler.dense",
    "pair_head.classifier": "cls.seq_relationship",
}
_DECODER = "cls.predictions.decoder."
_BIAS = "cls.predictions.bias"  # a copy of the decoder's where tied, not used where not
_IGNORED = ("bert.embeddings.position_ids", "bert.embeddings.token_type_ids")  # counting buffers
_OLD_NAMES = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}
_SIZES = (
    "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size",
    "max_position_embeddings",
)  # fmt: skip
# Axes that BERT's class takes, or that a plain full layer does not read; all others stand at the
# defaults of `EncoderConfig`, which are BERT's. Missing biases and token types are zeros.
_FREE = {
    *_SIZES, "pad_token_id", "norm_eps", "norm_bias", "activation", "attention_bias", "mlp_bias",
    "head_dense_bias", "head_bias", "local_attention", "global_rope_theta", "local_rope_theta",
    "tie_word_embeddings", "type_vocab_size", "attention_dropout", "hidden_dropout",
    "embedding_dropout", "mlp_dropout", "init_scheme", "init_std",
}  # fmt: skip
_BIASES = {  # what has a bias in BERT -> the axis that leaves it out in ours
    "norm_bias": ("norm.bias",),
    "attention_bias": ("attention.qkv.bias", "attention.output.bias"),
    "mlp_bias": ("mlp.input.bias", "mlp.output.bias"),
    "head_dense_bias": ("mlm_head.dense.bias",),
    "head_bias": ("mlm_head.decoder_bias",),
}


def config_from_hf(hf_config: Any) -> EncoderConfig:
    """`transformers.BertConfig` -> `EncoderConfig`.

    Raises:
        ValueError: an option that BERT's corner does not have (decoder, relative positions).
    """
    positions = getattr(hf_config, "position_embedding_type", "absolute") or "absolute"
    if positions != "absolute" or getattr(hf_config, "is_decoder", False):
        raise ValueError(
            f"position_embedding_type={positions}, is_decoder="
            f"{getattr(hf_config, 'is_decoder', False)}: only absolute positions and encoders"
        )
    return EncoderConfig(
        **{name: getattr(hf_config, name) for name in _SIZES},
        pad_token_id=hf_config.pad_token_id or 0,
        norm_eps=hf_config.layer_norm_eps,
        activation=activation_from_hf(hf_config.hidden_act),
        type_vocab_size=0 if hf_config.type_vocab_size == 1 else hf_config.type_vocab_size,
        tie_word_embeddings=getattr(hf_config, "tie_word_embeddings", True),
        attention_dropout=hf_config.attention_probs_dropout_prob,
        hidden_dropout=hf_config.hidden_dropout_prob,
        embedding_dropout=hf_config.hidden_dropout_prob,
        init_std=hf_config.initializer_range,
    )


def config_to_hf(config: EncoderConfig) -> Any:
    """`EncoderConfig` -> `transformers.BertConfig`.

    Raises:
        ValueError: a point that BERT cannot express.
    """
    from transformers import BertConfig

    refuse_other(config)
    return BertConfig(
        **{name: getattr(config, name) for name in _SIZES},
        pad_token_id=config.pad_token_id,
        hidden_act=activation_to_hf(config.activation),
        hidden_dropout_prob=config.hidden_dropout,
        attention_probs_dropout_prob=config.attention_dropout,
        layer_norm_eps=config.norm_eps,
        type_vocab_size=config.type_vocab_size or 2,
        initializer_range=config.init_std,
        tie_word_embeddings=config.tie_word_embeddings,
    )


def axes_in_the_way(config: EncoderConfig) -> list[str]:
    """The axes of `config` that Hugging Face's BERT does not have."""
    return other_axes(config, "BERT", {}, _FREE)


def refuse_other(config: EncoderConfig) -> None:
    """Raise a ValueError naming the axes of `config` that Hugging Face's BERT does not have."""
    axes = axes_in_the_way(config)
    if axes:
        raise ValueError("transformers' BERT cannot express " + ", ".join(axes))


def with_zeros(state: Mapping[str, Tensor], config: EncoderConfig) -> dict[str, Tensor]:
    """Our weights with zeros for the biases and token types that BERT has and `config` has not."""
    absent = tuple(
        end for axis, ends in _BIASES.items() if not getattr(config, axis) for end in ends
    )
    out = dict(state)
    embedding = state["encoder.embeddings.token.weight"]
    for ours, _ in _table(config, with_pair=False)[0]:
        if ours.endswith(absent) and absent and ours not in state:
            rows = config.vocab_size
            if ours != "mlm_head.decoder_bias":
                rows = state[ours.removesuffix("bias") + "weight"].shape[0]
            out[ours] = embedding.new_zeros(rows)
    if not config.type_vocab_size:
        out[_TOKEN_TYPES] = embedding.new_zeros(2, config.hidden_size)
    return out


def _table(
    config: EncoderConfig, *, with_pair: bool, with_types: bool = True
) -> tuple[Table, dict[str, str]]:
    modules: list[tuple[str, tuple[str, ...]]] = [(o, (t,)) for o, t in _MODULES.items()]
    for i in range(config.num_hidden_layers):
        for ours, theirs in _LAYER_MODULES.items():
            names = tuple(f"bert.encoder.layer.{i}.{name}" for name in theirs)
            modules.append((f"encoder.layers.{i}.{ours}", names))
    if with_pair:
        modules += [(o, (t,)) for o, t in _PAIR_MODULES.items()]
    kept = {o: t for o, t in _TENSORS.items() if with_types or o != _TOKEN_TYPES}
    table: Table = [(o, (t,)) for o, t in kept.items()]
    for part in ("weight", "bias"):
        table += [(f"{o}.{part}", tuple(f"{t}.{part}" for t in ts)) for o, ts in modules]
    if config.tie_word_embeddings:
        table.append(("mlm_head.decoder_bias", (_BIAS,)))
        embedding = _TENSORS["encoder.embeddings.token.weight"]
        return table, {_DECODER + "bias": _BIAS, _DECODER + "weight": embedding}
    table.append(("mlm_head.decoder_bias", (_DECODER + "bias",)))
    table.append(("mlm_head.decoder_weight", (_DECODER + "weight",)))
    return table, {_BIAS: _DECODER + "bias"}


def state_dict_from_hf(hf_state: Mapping[str, Tensor], config: EncoderConfig) -> dict[str, Tensor]:
    """Weights of BertForMaskedLM or BertForPreTraining -> those of `MaskedLanguageModel`.

    Raises:
        ValueError: missing or unexpected names (listed), or tied weights that differ.
    """
    refuse_other(config)
    state = {}
    for name, value in strip_wrappers(hf_state).items():
        for old, new in _OLD_NAMES.items():
            name = name.replace(old, new)
        if name not in _IGNORED and (config.tie_word_embeddings or name != _BIAS):
            state[name] = value
    types, positions = _TENSORS[_TOKEN_TYPES], _TENSORS["encoder.embeddings.position.weight"]
    if not config.type_vocab_size and {types, positions} <= set(state) and len(state[types]) == 1:
        state[positions] = state[positions] + state.pop(types)[0]
    with_pair = any(name.startswith(tuple(_PAIR_MODULES.values())) for name in state)
    with_types = config.type_vocab_size > 0
    table, aliases = _table(config, with_pair=with_pair, with_types=with_types)
    return from_theirs(state, table, aliases, "BERT with these sizes")


def state_dict_to_hf(state: Mapping[str, Tensor], config: EncoderConfig) -> dict[str, Tensor]:
    """The inverse; BertForPreTraining's names if a pair head is there, else BertForMaskedLM's."""
    refuse_other(config)
    state = with_zeros(strip_wrappers(state), config)
    with_pair = any(name.startswith("pair_head.") for name in state)
    table, aliases = _table(config, with_pair=with_pair)
    return to_theirs(state, table, aliases, "our BERT with these sizes")


def second_names(config: EncoderConfig) -> set[str]:
    """Their names of what is a copy of another weight."""
    return set(_table(config, with_pair=False)[1])
