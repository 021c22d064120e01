"""The rows of `ablate.bench encoder` by name: a shape, two sides, and the bars of the issue.

A side is everything its worker needs to know, so that a row can be read without the workers.
`default` is out of the box: theirs is the class as its config makes it in a plain loop (dropout of
the class, float32, torch's AdamW, plain malloc), ours what `python -m ablate` resolves on this
machine. `like` makes both the same: no dropout, one precision, malloc kept, one AdamW, and where
their class has it the vocabulary head on the predicted tokens only. Nothing heavy is imported.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from ablate.encoder.config import EncoderConfig
from ablate.pretraining.machine import resolve_precision

_FAMILIES: dict[str, dict[str, Any]] = {  # what conf/encoder says, as transformers' own defaults
    "bert": {},
    "modernbert": {
        "norm_position": "pre",
        "norm_eps": 1e-5,
        "norm_bias": False,
        "position_embedding": "rope",
        "mlp": "glu",
        "attention_bias": False,
        "mlp_bias": False,
        "head_dense_bias": False,
        "global_attention_every_n": 3,
        "first_layer_norm": False,
        "final_norm": True,
        "type_vocab_size": 0,
        "init_scheme": "megatron",
    },
}
RATE = 0.15  # share of tokens predicted


@dataclass(frozen=True)
class Shape:
    """Sizes of a model and of its batch; `intermediate` is the width of one half where gated."""

    family: str  # bert or modernbert
    layers: int
    width: int
    heads: int
    vocab: int
    rows: int
    length: int
    intermediate: int

    @property
    def tokens(self) -> int:
        return self.rows * self.length

    @property
    def predicted(self) -> int:
        """Predicted tokens of a batch: the same number in each row."""
        return self.rows * max(1, round(RATE * self.length))


@dataclass(frozen=True)
class Side:
    """One worker. `as_it_comes` concerns dropout and AdamW. `model` is `ours`,
    `matmul` (products of large matrices, this machine's ceiling) or a class of transformers."""

    model: str
    shape: Shape
    precision: str  # fp32 or bf16
    keep_memory: bool
    as_it_comes: bool = False
    sparse: bool = False
    training: bool = True


@dataclass(frozen=True)
class Row:
    """A comparison; `same` says that both sides must compute the same numbers."""

    name: str
    ours: Side
    theirs: Side
    same: bool
    bar: float | None = None
    memory_bar: float | None = None
    ceiling_bar: float | None = None


SMALL = {"layers": 6, "width": 384, "heads": 6, "vocab": 30_522}
SHAPES = {
    "A": Shape("bert", 2, 128, 2, 8192, 64, 128, 512),
    "B": Shape("bert", 4, 256, 4, 16_384, 32, 128, 1024),
    "C": Shape("bert", **SMALL, rows=8, length=512, intermediate=1536),
    "M1": Shape("modernbert", 4, 128, 2, 8192, 16, 512, 344),  # 2/3 of 512, glu_width's rule
    "forward": Shape("modernbert", **SMALL, rows=1, length=8192, intermediate=1024),
}
TINY = {"layers": 2, "width": 16, "heads": 2, "vocab": 64, "rows": 2, "intermediate": 24}
TINY_LENGTHS = {"A": 8, "B": 8, "C": 16, "M1": 300, "forward": 400}  # windows are 64 each way
BARS = {
    "A_default": 5.0,
    "B_default": 4.0,
    "C_default": 4.0,
    "M1_default": 3.5,
    "A_like_fp32": 2.2,
    "B_like_fp32": 1.7,
    "C_like_fp32": 1.4,
    "M1_like_fp32": 1.2,
    "A_like_bf16": 2.2,
    "B_like_bf16": 1.7,
    "C_like_bf16": 1.4,
    "M1_like_bf16": 1.5,
    "forward_8192_modernbert": 1.8,
    "forward_4096_deberta": 6.0,
}
NAMES = tuple(BARS)
MEMORY_BAR = 0.65  # peak of our worker as a share of theirs, at A, B and C
CEILING_BARS = {"A_default": 0.45, "B_default": 0.58, "C_default": 0.68}


def our_config(shape: Shape) -> EncoderConfig:
    """The encoder of `shape`: equal to the class's own config (tests/bench/test_encoder.py)."""
    return EncoderConfig(
        vocab_size=shape.vocab,
        hidden_size=shape.width,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        intermediate_size=shape.intermediate,
        max_position_embeddings=max(512, shape.length),
        **_FAMILIES[shape.family],
    )


def row(name: str, *, scale: str = "full") -> Row:
    """The row of this name; `scale=tiny` keeps everything but the sizes (for tests)."""
    if name.startswith("forward"):
        _, length, opponent = name.split("_")
        return forward_row(opponent, int(length), scale=scale)
    config, _, precision = name.partition("_like_")
    config = config.removesuffix("_default")
    shape = _scaled(SHAPES[config], scale, config)
    if not precision:
        return _default_row(name, shape)
    like: dict[str, Any] = {
        "precision": precision,
        "keep_memory": True,
        "sparse": shape.family == "modernbert",
    }
    return Row(
        name,
        Side("ours", shape, **like),
        Side(shape.family, shape, **like),
        same=True,
        bar=BARS[name],
        memory_bar=MEMORY_BAR if shape.family == "bert" else None,
    )


def _default_row(name: str, shape: Shape) -> Row:
    precision = resolve_precision("auto", device="cpu", hidden_size=shape.width)
    promised = precision == "bf16"  # the bars are for CPUs with bf16 instructions
    return Row(
        name,
        Side("ours", shape, precision, keep_memory=True),
        Side(shape.family, shape, "fp32", keep_memory=False, as_it_comes=True),
        same=False,
        bar=BARS[name] if promised else None,
        memory_bar=MEMORY_BAR if promised and shape.family == "bert" else None,
        ceiling_bar=CEILING_BARS.get(name) if promised else None,
    )


def forward_row(opponent: str, length: int, *, precision: str = "fp32", scale: str = "full") -> Row:
    """Our ModernBERT-style encoder without its head against a class, one row of `length` tokens.

    DeBERTa has a plain MLP, so its `intermediate` is one and a half times ours: equal weights.
    `precision` is ours; theirs is float32.
    """
    shape = dataclasses.replace(SHAPES["forward"], length=length)
    shape = _scaled(shape, scale, "forward")
    theirs = shape
    if opponent == "deberta":
        theirs = dataclasses.replace(shape, intermediate=shape.intermediate * 3 // 2)
    name = f"forward_{length}_{opponent}"
    return Row(
        name,
        Side("ours", shape, precision, keep_memory=True, training=False),
        Side(opponent, theirs, "fp32", keep_memory=True, training=False),
        same=opponent == "modernbert" and precision == "fp32",
        bar=BARS.get(name),
    )


def _scaled(shape: Shape, scale: str, config: str) -> Shape:
    if scale == "full":
        return shape
    return Shape(shape.family, length=TINY_LENGTHS[config], **TINY)
