"""Settings -> the attention and the config of the arm's encoder, wherever the encoder comes from.

Ours by default; `encoder.kind=hf` is a class of transformers, imported here only when asked for.
"""

from __future__ import annotations

from typing import Any

from ablate.config.rules import encoder_arguments
from ablate.config.schema import Settings
from ablate.encoder.config import EncoderConfig
from ablate.interop import pretrained
from ablate.interop.checkpoint import Source


def resolve_backend(settings: Settings, device: str, dtype: Any) -> Any:
    """The attention of the arm: one of ours, or the implementation inside a transformers class."""
    if settings.encoder.kind == "hf":
        from ablate.interop import hf_config

        return hf_config.resolve_backend(settings.encoder.hf_config, settings.attention_backend)
    from ablate.encoder import backends

    if settings.encoder.body == "lstm":
        return backends.RECURRENT
    return backends.resolve(
        settings.attention_backend,
        device=device,
        dtype=dtype,
        max_length=settings.input_format.max_length,
        alibi=settings.encoder.position_embedding == "alibi",
        dropout=settings.encoder.dropout,
        head_size=settings.size.hidden_size // settings.size.num_attention_heads,
    )


def describe_encoder(
    settings: Settings, tokenizer: Any, backend: Any, source: Source | None = None
) -> tuple[Any, dict]:
    """The encoder's config and what of it decides the weights, for this tokenizer."""
    if settings.encoder.kind == "hf":
        from ablate.interop import hf_config

        config = hf_config.describe(
            settings.encoder.hf_config,
            backend,
            vocab_size=tokenizer.vocab_size,
            pad_token_id=tokenizer.pad_token_id,
            mask_token_id=tokenizer.mask_token_id,
            max_position_embeddings=settings.encoder.max_position_embeddings
            or settings.input_format.max_length,
        )
        return config, config.identity()
    vocab_size = tokenizer.vocab_size
    if source is not None:
        pretrained.check_tokenizer(source, tokenizer)
        vocab_size = source.encoder.vocab_size
    arguments = encoder_arguments(settings, vocab_size, tokenizer.pad_token_id)
    return EncoderConfig(**arguments), arguments
