"""`encoder.kind=hf`: what of the settings still counts when a file of transformers is the encoder.

Sizes and the deviation of initial values come from the file and stand in the resolved settings, so
that rates, threads and record follow the encoder that is trained. The axes of `encoder` describe
the built-in encoder: one that was set is a mistake and is refused, not dropped.
"""

from __future__ import annotations

from collections.abc import Collection

from ablate.config.schema import EncoderSettings, Settings, SizeSettings

_READ = ("kind", "hf_config", "max_position_embeddings", "init_std")
_RATE_TIMES_WIDTH = 0.19  # as for the built-in post-norm body, which most of these classes are


def adopt_hf(settings: Settings) -> None:
    """Write the file's sizes, and what follows from them, into settings of kind hf.

    Raises:
        ValueError: a file that is missing or names no encoder.
    """
    if settings.encoder.kind != "hf" or settings.encoder.hf_config is None:
        return  # `check_hf` says what is missing
    from ablate.interop import hf_config

    config = hf_config.read(settings.encoder.hf_config)
    for name, value in hf_config.sizes(config).items():
        setattr(settings.size, name, value)
    settings.encoder.init_std = hf_config.init_std(config)
    if settings.optimizer.learning_rate is None:
        settings.optimizer.learning_rate = round(_RATE_TIMES_WIDTH / settings.size.hidden_size, 8)


def check_hf(settings: Settings, named: Collection[str] = ()) -> None:
    """Refuse what has no effect beside the file (`encoder_source` judges a file without effect).

    Args:
        settings: as given, before `adopt_hf`.
        named: what the command line sets (`encoder_source.named_settings`), and is no default.

    Raises:
        ValueError: naming the setting and what to type.
    """
    encoder = settings.encoder
    if encoder.kind != "hf":
        return
    from ablate.interop import hf_config

    config = hf_config.read(encoder.hf_config)
    default = EncoderSettings()
    for name, value in vars(encoder).items():
        if name not in _READ and (value != getattr(default, name) or f"encoder.{name}" in named):
            raise _without_effect(f"encoder.{name}={value}", encoder.hf_config)
    if encoder.init_std not in (None, hf_config.init_std(config)):
        raise _without_effect(f"encoder.init_std={encoder.init_std}", encoder.hf_config)
    sizes, of_file = vars(settings.size), hf_config.sizes(config)
    for name, value in sizes.items():
        is_given = value != getattr(SizeSettings(), name) or f"size.{name}" in named
        if is_given and value != of_file.get(name, value):
            raise _without_effect(f"size.{name}={value}", encoder.hf_config)
    hf_config.resolve_backend(encoder.hf_config, settings.attention_backend)
    _check_rows_fit(settings)


def _without_effect(given: str, path: str | None) -> ValueError:
    return ValueError(
        f"{given} has no effect on encoder.kind=hf, whose encoder is {path}; leave it out and "
        "write it into that file, or type encoder=bert or encoder=modernbert"
    )


def _check_rows_fit(settings: Settings) -> None:
    rows = settings.input_format.max_length
    positions = settings.encoder.max_position_embeddings or rows
    lengths = {
        "input_format.max_length": rows,
        "evaluation.finetune.max_length": settings.evaluation.finetune.max_length or rows,
    }
    for name, length in lengths.items():
        if length > positions:
            raise ValueError(
                f"{name}={length} is longer than the {positions} positions of the encoder; type "
                f"encoder.max_position_embeddings={length}"
            )
