"""Every axis of the encoder -> one frozen, validated `EncoderConfig`, and its cost per token.

BERT (Devlin et al. 2019) and ModernBERT (Warner et al. 2024) are two values of this class; the
defaults are BERT's, as in `transformers.BertConfig`. Width rule of `mlp="glu"`: raw, that is,
`intermediate_size` is the width of each of the two halves (`ModernBertConfig` counts the same way:
its Wi has 2 x intermediate_size outputs), so at equal `intermediate_size` a gated MLP has one and a
half times the weights of a plain one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ablate.encoder import refusals


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
    body: str = "transformer"  # lstm: bidirectional, each layer one block (recurrent.py)
    embedding_size: int | None = None  # None: hidden_size
    shared_layers: str = "none"  # attention, mlp, all: one set for all layers, norms included
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
    first_layer_norm: bool = True  # False: no norm at the attention (or LSTM) of layer 0
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
        refusals.check(self)

    @property
    def head_size(self) -> int:
        return self.hidden_size // self.num_attention_heads

    @property
    def embedding_width(self) -> int:
        """Width of the tables: below `hidden_size` where the embeddings are factorised."""
        return self.hidden_size if self.embedding_size is None else self.embedding_size

    @property
    def is_factorised(self) -> bool:
        """Whether a projection leads from the tables to the layers (ALBERT, sec. 3.1).

        Not at `embedding_size == hidden_size`, as in ALBERT's own code (transformers' keeps it).
        """
        return self.embedding_width != self.hidden_size

    def shares(self, part: str) -> bool:
        """Whether all layers have one set of parameters for `part`: attention, mlp, lstm."""
        return self.shared_layers in (part, "all")

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
    width, narrow = config.hidden_size, config.embedding_width
    products = float(config.num_hidden_layers * _layer_products(config))
    if config.is_factorised:
        products += narrow * width
    if config.body == "transformer":
        products += (
            2
            * width
            * sum(
                _visible_keys(config, seq_len, sliding=kind == "sliding_attention")
                for kind in config.layer_types
            )
        )
    head = width * narrow + narrow * config.vocab_size
    return 2.0 * (products + predict_rate * head)


def _layer_products(config: EncoderConfig) -> int:
    """Multiplications a token in the matrices of one layer, which is the number of their values."""
    width, inner = config.hidden_size, config.intermediate_size
    if config.body == "lstm":
        half = width // 2
        return 2 * 4 * half * (width + half)  # two directions, four gates, input and state
    return 4 * width * width + (3 if config.mlp == "glu" else 2) * width * inner


def parameter_count(config: EncoderConfig, *, pair_classes: int = 0) -> int:
    """Trainable values of `MaskedLanguageModel(config, ..., pair_classes)`, in closed form.

    Tied and shared values count once. Equal to the sum over the model's own parameters at every
    value of every axis (tests/encoder/test_axes.py); README, "Encoder axes", lists the terms.
    """
    width, narrow = config.hidden_size, config.embedding_width
    vectors = 2 if config.norm_bias else 1  # of a norm
    tables = config.vocab_size + config.type_vocab_size
    if config.position_embedding == "learned":
        tables += config.max_position_embeddings
    total = narrow * tables + config.embedding_norm * vectors * narrow
    total += config.is_factorised * (narrow + 1) * width
    for part, values in _layer_parts(config, vectors).items():
        total += values * (1 if config.shares(part) else config.num_hidden_layers)
    if not config.first_layer_norm:
        total -= vectors * width
    total += config.final_norm * vectors * width
    total += (width + config.head_dense_bias + vectors) * narrow  # dense and norm of the head
    total += config.vocab_size * (config.head_bias + (not config.tie_word_embeddings) * narrow)
    if pair_classes:
        total += width * width + width + (width + 1) * pair_classes
    return total


def _layer_parts(config: EncoderConfig, vectors: int) -> dict[str, int]:
    """Values of one layer by part, norms with the part that they belong to."""
    width, inner = config.hidden_size, config.intermediate_size
    norms = vectors * width * (2 if config.norm_position == "sandwich" else 1)
    if config.body == "lstm":  # torch keeps two biases a gate
        return {"lstm": _layer_products(config) + 2 * 4 * width + norms}
    gates = 2 if config.mlp == "glu" else 1
    return {
        "attention": 4 * width * (width + config.attention_bias) + norms,
        "mlp": (gates + 1) * width * inner + config.mlp_bias * (gates * inner + width) + norms,
    }
