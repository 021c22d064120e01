"""transformers' BERT names and options <-> ours; pure functions, nothing is read or written.

One table serves both directions. Ours fuses queries, keys and values into one matrix (rows in that
order), and a tied decoder exists once. HF: BertForMaskedLM (no pair head) and BertForPreTraining;
which of the two it is follows from the names present. Proof: tests/parity/test_bert.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from ablate.encoder.config import EncoderConfig
from ablate.encoder.initialization import strip_wrappers
from ablate.interop.names import Table, activation_from_hf, from_theirs, to_theirs

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
# What BERT is, whatever its sizes: a config that differs here has no Hugging Face BERT.
_FIXED: dict[str, Any] = {
    "norm_position": "post",
    "norm_type": "layer",
    "norm_bias": True,
    "position_embedding": "learned",
    "mlp": "plain",
    "attention_bias": True,
    "mlp_bias": True,
    "head_dense_bias": True,
    "head_bias": True,
    "global_attention_every_n": 1,
    "embedding_norm": True,
    "first_layer_norm": True,
    "final_norm": False,
    "causal": False,
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
        vocab_size=hf_config.vocab_size,
        hidden_size=hf_config.hidden_size,
        num_hidden_layers=hf_config.num_hidden_layers,
        num_attention_heads=hf_config.num_attention_heads,
        intermediate_size=hf_config.intermediate_size,
        max_position_embeddings=hf_config.max_position_embeddings,
        pad_token_id=hf_config.pad_token_id or 0,
        norm_eps=hf_config.layer_norm_eps,
        activation=activation_from_hf(hf_config.hidden_act),
        type_vocab_size=hf_config.type_vocab_size,
        tie_word_embeddings=getattr(hf_config, "tie_word_embeddings", True),
        attention_dropout=hf_config.attention_probs_dropout_prob,
        hidden_dropout=hf_config.hidden_dropout_prob,
        embedding_dropout=hf_config.hidden_dropout_prob,
        init_std=hf_config.initializer_range,
    )


def refuse_other(config: EncoderConfig) -> None:
    """Raise a ValueError naming the axes of `config` that Hugging Face's BERT does not have."""
    axes = [
        f"encoder.{name}={getattr(config, name)} (BERT: {value})"
        for name, value in _FIXED.items()
        if getattr(config, name) != value
    ]
    if not config.type_vocab_size:
        axes.append("encoder.type_vocab_size=0 (BERT: 2)")
    if axes:
        raise ValueError("transformers' BERT cannot express " + ", ".join(axes))


def _table(config: EncoderConfig, *, with_pair: bool) -> tuple[Table, dict[str, str]]:
    modules: list[tuple[str, tuple[str, ...]]] = [(o, (t,)) for o, t in _MODULES.items()]
    for i in range(config.num_hidden_layers):
        for ours, theirs in _LAYER_MODULES.items():
            names = tuple(f"bert.encoder.layer.{i}.{name}" for name in theirs)
            modules.append((f"encoder.layers.{i}.{ours}", names))
    if with_pair:
        modules += [(o, (t,)) for o, t in _PAIR_MODULES.items()]
    table: Table = [(o, (t,)) for o, t in _TENSORS.items()]
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
    with_pair = any(name.startswith(tuple(_PAIR_MODULES.values())) for name in state)
    table, aliases = _table(config, with_pair=with_pair)
    return from_theirs(state, table, aliases, "BERT with these sizes")


def state_dict_to_hf(state: Mapping[str, Tensor], config: EncoderConfig) -> dict[str, Tensor]:
    """The inverse; BertForPreTraining's names if a pair head is there, else BertForMaskedLM's."""
    refuse_other(config)
    state = strip_wrappers(state)
    with_pair = any(name.startswith("pair_head.") for name in state)
    table, aliases = _table(config, with_pair=with_pair)
    return to_theirs(state, table, aliases, "our BERT with these sizes")
