"""Every axis of the encoder -> one frozen, validated `EncoderConfig`, and its cost per token.

BERT (Devlin et al. 2019) and ModernBERT (Warner et al. 2024) are two values of this class; the
defaults are BERT's, as in `transformers.BertConfig`. Width rule of `mlp="glu"`: raw, that is,
`intermediate_size` is the width of each of the two halves (`ModernBertConfig` counts the same way:
its Wi has 2 x intermediate_size outputs), so at equal `intermediate_size` a gated MLP has one and a
half times the weights of a plain one.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal

_CHOICES: dict[str, tuple[str, ...]] = {
    "norm_position": ("post", "pre"),
    "norm_type": ("layer", "rms"),
    "position_embedding": ("learned", "rope"),
    "mlp": ("plain", "glu"),
    "activation": ("gelu", "gelu_tanh", "relu", "silu"),
    "init_scheme": ("normal", "megatron"),
}
_SIZES = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")


@dataclass(frozen=True)
class EncoderConfig:
    """One encoder. Widths in units, windows and positions in tokens, dropouts as probabilities.

    Raises:
        ValueError: a value that is out of range, or two values that exclude each other.
    """

    vocab_size: int
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    max_position_embeddings: int = 512
    pad_token_id: int = 0
    body: str = "transformer"
    embedding_size: int | None = None  # None: hidden_size
    shared_layers: str = "none"
    norm_position: str = "post"
    norm_type: str = "layer"
    norm_eps: float = 1e-12
    norm_bias: bool = True
    position_embedding: str = "learned"
    mlp: str = "plain"
    activation: str = "gelu"
    attention_bias: bool = True
    mlp_bias: bool = True
    head_dense_bias: bool = True  # bias of the dense layer of the masked-LM head
    head_bias: bool = True  # bias of the decoder, one value a vocabulary entry
    global_attention_every_n: int = 1  # layer i sees whole rows if i % n == 0
    local_attention: int = 128  # the other layers: total window, half of it each way
    global_rope_theta: float = 160_000.0
    local_rope_theta: float = 10_000.0
    embedding_norm: bool = True
    first_layer_norm: bool = True  # False: no attention norm in layer 0
    final_norm: bool = False
    tie_word_embeddings: bool = True
    type_vocab_size: int = 2  # 0: token types are not embedded
    causal: bool = False
    attention_dropout: float = 0.0  # on attention probabilities
    hidden_dropout: float = 0.0  # on what attention and MLP add to the residual
    embedding_dropout: float = 0.0
    mlp_dropout: float = 0.0  # between the two layers of the MLP
    init_scheme: str = "normal"
    init_std: float = 0.02

    def __post_init__(self) -> None:
        _check_choices(self)
        _check_numbers(self)
        _check_together(self)

    @property
    def head_size(self) -> int:
        return self.hidden_size // self.num_attention_heads

    @property
    def half_window(self) -> int:
        """How far a sliding layer sees to each side, in tokens."""
        return self.local_attention // 2

    @property
    def layer_types(self) -> tuple[Literal["full_attention", "sliding_attention"], ...]:
        """Kind of each layer, the first at index 0."""
        n = self.global_attention_every_n
        return tuple(
            "full_attention" if i % n == 0 else "sliding_attention"
            for i in range(self.num_hidden_layers)
        )


def _refuse(name: str, given: object, allowed: str, example: object) -> ValueError:
    group = "size" if name in _SIZES else "encoder"
    return ValueError(
        f"{group}.{name}={given} is not possible: {allowed}. For example {group}.{name}={example}"
    )


def _check_choices(config: EncoderConfig) -> None:
    for name, allowed in _CHOICES.items():
        given = getattr(config, name)
        if given not in allowed:
            raise _refuse(name, given, "allowed are " + ", ".join(allowed), allowed[0])


def _check_numbers(config: EncoderConfig) -> None:
    positive = ("vocab_size", "max_position_embeddings", "global_attention_every_n", *_SIZES)
    for name in positive:
        if getattr(config, name) < 1:
            raise _refuse(name, getattr(config, name), "it must be at least 1", 1)
    for name in ("norm_eps", "init_std", "global_rope_theta", "local_rope_theta"):
        if not getattr(config, name) > 0:
            default = next(f.default for f in fields(config) if f.name == name)
            raise _refuse(name, getattr(config, name), "it must be greater than 0", default)
    for name in ("attention_dropout", "hidden_dropout", "embedding_dropout", "mlp_dropout"):
        if not 0 <= getattr(config, name) < 1:
            raise _refuse(name, getattr(config, name), "it must be in [0, 1)", 0.1)
    if config.type_vocab_size < 0:
        raise _refuse("type_vocab_size", config.type_vocab_size, "0 means no token types", 2)
    if config.local_attention < 2 or config.local_attention % 2:
        allowed = "it is the total window, half each way, so it must be even and at least 2"
        raise _refuse("local_attention", config.local_attention, allowed, 128)


def _check_together(config: EncoderConfig) -> None:
    heads, width = config.num_attention_heads, config.hidden_size
    if width % heads:
        allowed = f"hidden_size={width} must be a multiple of it"
        divisors = [h for h in range(1, heads + 1) if width % h == 0]
        raise _refuse("num_attention_heads", heads, allowed, divisors[-1])
    if config.position_embedding == "rope" and config.head_size % 2:
        allowed = f"rope needs an even head size, {width} / {heads} is {config.head_size}"
        raise _refuse("position_embedding", "rope", allowed, "learned")
    if not 0 <= config.pad_token_id < config.vocab_size:
        allowed = f"it must be an id of the vocabulary, 0 to {config.vocab_size - 1}"
        raise _refuse("pad_token_id", config.pad_token_id, allowed, 0)


def _visible_keys(config: EncoderConfig, seq_len: int, *, sliding: bool) -> float:
    """Mean number of keys a query of a row of `seq_len` tokens may see."""
    reach = min(config.half_window, seq_len - 1) if sliding else seq_len - 1
    one_side = reach * seq_len - reach * (reach + 1) / 2
    return 1 + one_side * (1 if config.causal else 2) / seq_len


def flops_per_token(config: EncoderConfig, seq_len: int, *, predict_rate: float = 1.0) -> float:
    """Forward floating-point operations a token in a full row of `seq_len` tokens.

    Multiplications and additions of the matrix products only (2 each pair); norms, activations and
    softmax are left out, as is usual for model FLOPs. Attention counts the pairs that may see each
    other, not what a kernel computes. `predict_rate` is the share of tokens that reach the
    masked-LM head: 1 as in Hugging Face, 0 for the encoder alone. A training step costs about
    three times as much.
    """
    width, inner = config.hidden_size, config.intermediate_size
    mlp_matrices = 3 if config.mlp == "glu" else 2
    products = config.num_hidden_layers * (4 * width * width + mlp_matrices * width * inner)
    seen = sum(
        _visible_keys(config, seq_len, sliding=kind == "sliding_attention")
        for kind in config.layer_types
    )
    head = width * width + width * config.vocab_size
    return 2.0 * (products + 2 * width * seen + predict_rate * head)
