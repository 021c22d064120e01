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

NO_DROPOUT = "it has no attention dropout, and encoder.dropout is above 0"
_BELOW = {"norm_eps": 1.0, "init_std": 10.0, "global_rope_theta": 1e15, "local_rope_theta": 1e15}

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
    "init_scheme": (
        ("normal", "truncated_normal"),
        "the others scale output projections of attention and MLP, which body=lstm has not",
    ),
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
    return ValueError(
        f"{group}.{name}={_word(given)} is not possible: {allowed}. "
        f"For example {group}.{name}={_word(example)}"
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
    for name, high in _BELOW.items():
        if not 0 < getattr(config, name) < high:
            default = next(f.default for f in fields(config) if f.name == name)
            allowed = f"it must be greater than 0 and less than {high:g}"
            raise refusal(name, getattr(config, name), allowed, default)
    for name in ("attention_dropout", "hidden_dropout", "embedding_dropout", "mlp_dropout"):
        if not 0 <= getattr(config, name) < 1:
            raise refusal(name, getattr(config, name), "it must be in [0, 1)", 0.1)
    if config.type_vocab_size < 0:
        raise refusal("type_vocab_size", config.type_vocab_size, "0 means no token types", 2)
    if config.local_attention < 2 or config.local_attention % 2:
        allowed = "it is the total window, half each way, so it must be even and at least 2"
        raise refusal("local_attention", config.local_attention, allowed, 128)
    size, width = config.embedding_size, config.hidden_size
    if size is not None and not 2 <= size <= width:  # a norm of one value is its bias
        allowed = f"it must be from 2 to the hidden size {width}, or null for that size"
        raise refusal("embedding_size", size, allowed, max(2, width // 2))


def _check_together(config: EncoderConfig) -> None:
    heads, width = config.num_attention_heads, config.hidden_size
    if width % heads and config.body != "lstm":
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
    wrong = {n: r for n, (taken, r) in _LSTM_TAKES.items() if getattr(config, n) not in taken}
    if wrong:  # all at once: a body=lstm on top of another encoder has several
        given = ", ".join(f"encoder.{name}={_word(getattr(config, name))}" for name in wrong)
        instead = " ".join(f"encoder.{name}={_word(_LSTM_TAKES[name][0][0])}" for name in wrong)
        raise ValueError(
            f"{given} is not possible with encoder.body=lstm: {'; '.join(wrong.values())}. Type "
            f"encoder=lstm, or {instead}"
        )
    if config.hidden_size % 2:
        allowed = "body=lstm gives half of it to each direction, so it must be even"
        raise refusal("hidden_size", config.hidden_size, allowed, config.hidden_size + 1)


def _word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def axis_obstacle(*, alibi: bool, dropout: float) -> str:
    """Why fused attention kernels without a bias or dropout cannot run an encoder; empty: they can.

    flash knows neither, flex no dropout.
    """
    if alibi:
        return (
            "torch.nn.attention.varlen adds no bias to the scores, "
            "which encoder.position_embedding=alibi asks for"
        )
    return NO_DROPOUT if dropout else ""
