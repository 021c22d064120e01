"""Values of `EncoderConfig` -> accepted, or refused in a sentence: given, allowed, what to type.

First each value alone, then pairs that exclude each other: an axis that the body would not read, or
parts that would have to be shared with a layer that lacks them. What is odd but well defined stays
legal and says so in README, "Encoder axes" (a final norm after post-norm layers, no norm in layer 0
of a post-norm body).
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ablate.encoder.config import EncoderConfig

CHOICES: dict[str, tuple[str, ...]] = {
    "body": ("transformer", "lstm"),
    "shared_layers": ("none", "attention", "mlp", "all"),
    "norm_position": ("post", "pre", "sandwich"),
    "norm_type": ("layer", "rms"),
    "position_embedding": ("learned", "sinusoidal", "rope", "alibi", "none"),
    "mlp": ("plain", "glu"),
    "activation": ("gelu", "gelu_tanh", "relu", "silu"),
    "init_scheme": ("normal", "truncated_normal", "megatron", "modernbert"),
}
SIZES = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")

# axes of attention and MLP that a recurrent body does not have: what it takes, and why not more
_LSTM_TAKES: dict[str, tuple[tuple[object, ...], str]] = {
    "position_embedding": (
        ("none", "learned", "sinusoidal"),
        "rotations and distance biases act on attention scores, which body=lstm has not",
    ),
    "global_attention_every_n": ((1,), "windows belong to attention, which body=lstm has not"),
    "shared_layers": (("all", "none"), "a layer of body=lstm is one block, shared or not"),
    "mlp": (("plain",), "body=lstm has no MLP to gate"),
    "attention_bias": ((True,), "body=lstm has no attention; torch's LSTM has its biases"),
    "mlp_bias": ((True,), "body=lstm has no MLP; torch's LSTM has its biases"),
    "causal": ((False,), "body=lstm reads both ways"),
}


def check(config: EncoderConfig) -> None:
    """Refuse what cannot be built or would not be read.

    Raises:
        ValueError: naming the setting, what was given, what is allowed and what to type.
    """
    _check_choices(config)
    _check_numbers(config)
    _check_together(config)
    _check_sharing(config)
    if config.body == "lstm":
        _check_lstm(config)


def refusal(name: str, given: object, allowed: str, example: object) -> ValueError:
    group = "size" if name in SIZES else "encoder"
    given, example = (str(v).lower() if isinstance(v, bool) else v for v in (given, example))
    return ValueError(
        f"{group}.{name}={given} is not possible: {allowed}. For example {group}.{name}={example}"
    )


def _check_choices(config: EncoderConfig) -> None:
    for name, allowed in CHOICES.items():
        given = getattr(config, name)
        if given not in allowed:
            raise refusal(name, given, "allowed are " + ", ".join(allowed), allowed[0])


def _check_numbers(config: EncoderConfig) -> None:
    positive = ("vocab_size", "max_position_embeddings", "global_attention_every_n", *SIZES)
    for name in positive:
        if getattr(config, name) < 1:
            raise refusal(name, getattr(config, name), "it must be at least 1", 1)
    for name in ("norm_eps", "init_std", "global_rope_theta", "local_rope_theta"):
        if not getattr(config, name) > 0:
            default = next(f.default for f in fields(config) if f.name == name)
            raise refusal(name, getattr(config, name), "it must be greater than 0", default)
    for name in ("attention_dropout", "hidden_dropout", "embedding_dropout", "mlp_dropout"):
        if not 0 <= getattr(config, name) < 1:
            raise refusal(name, getattr(config, name), "it must be in [0, 1)", 0.1)
    if config.type_vocab_size < 0:
        raise refusal("type_vocab_size", config.type_vocab_size, "0 means no token types", 2)
    if config.local_attention < 2 or config.local_attention % 2:
        allowed = "it is the total window, half each way, so it must be even and at least 2"
        raise refusal("local_attention", config.local_attention, allowed, 128)
    size, width = config.embedding_size, config.hidden_size
    if size is not None and not 1 <= size <= width:
        allowed = f"it must be from 1 to the hidden size {width}, or null for that size"
        raise refusal("embedding_size", size, allowed, max(1, width // 2))


def _check_together(config: EncoderConfig) -> None:
    heads, width = config.num_attention_heads, config.hidden_size
    if width % heads:
        allowed = f"hidden_size={width} must be a multiple of it"
        divisors = [h for h in range(1, heads + 1) if width % h == 0]
        raise refusal("num_attention_heads", heads, allowed, divisors[-1])
    if config.position_embedding == "rope" and config.head_size % 2:
        allowed = f"rope needs an even head size, {width} / {heads} is {config.head_size}"
        raise refusal("position_embedding", "rope", allowed, "learned")
    if not 0 <= config.pad_token_id < config.vocab_size:
        allowed = f"it must be an id of the vocabulary, 0 to {config.vocab_size - 1}"
        raise refusal("pad_token_id", config.pad_token_id, allowed, 0)


def _check_sharing(config: EncoderConfig) -> None:
    if config.first_layer_norm or not config.shares("attention"):
        return
    allowed = (
        f"with shared_layers={config.shared_layers} the other layers would use the attention norm "
        "of layer 0, which it takes away"
    )
    raise refusal("first_layer_norm", False, allowed, True)


def _check_lstm(config: EncoderConfig) -> None:
    for name, (taken, reason) in _LSTM_TAKES.items():
        given = getattr(config, name)
        if given not in taken:
            raise refusal(name, given, f"{reason}", taken[0])
    if config.hidden_size % 2:
        allowed = "body=lstm gives half of it to each direction, so it must be even"
        raise refusal("hidden_size", config.hidden_size, allowed, config.hidden_size + 1)
