"""Groups `encoder` and `size` -> widths that follow from both, and refusals that no group can know.

Values of one axis, and axes that exclude each other, are refused by `EncoderConfig` itself.
"""

from __future__ import annotations

from collections.abc import Collection

from ablate.config.limits import one_of
from ablate.config.schema import EncoderSettings, Settings
from ablate.encoder.refusals import axis_obstacle

GLU_WIDTHS = ("raw", "parameter_matched")
EMBEDDING_RULES = ("exact", "at_most_half")


_PRESET_EMBEDDING = 128  # of encoder=albert, which its rule may lower
_NEUTRAL = {"glu_width": "raw"}  # what presets without a gate say


def check_encoder(settings: Settings) -> None:
    """Refuse rules that are unknown or have nothing to act on.

    Raises:
        ValueError: naming the setting, what was given, what is allowed and what to type.
    """
    encoder = settings.encoder
    one_of("encoder.glu_width", encoder.glu_width, GLU_WIDTHS)
    one_of("encoder.embedding_rule", encoder.embedding_rule, EMBEDDING_RULES)
    if encoder.embedding_rule == "at_most_half" and encoder.embedding_size is None:
        raise ValueError(
            "encoder.embedding_rule=at_most_half limits encoder.embedding_size, which is null (the "
            "hidden size); type encoder.embedding_size=128 or encoder.embedding_rule=exact"
        )
    _check_attention(settings)


def check_unread(settings: Settings, named: Collection[str] = ()) -> None:
    """Refuse axes that this encoder does not read: an arm of one would be its baseline again.

    Args:
        settings: as given, before anything is resolved.
        named: what the command line sets (`encoder_source.named_settings`), and is no default.

    Raises:
        ValueError: naming the setting and why it has no effect.
    """
    if embedding_size(settings) != settings.encoder.embedding_size != _PRESET_EMBEDDING:
        raise ValueError(
            f"encoder.embedding_size={settings.encoder.embedding_size} is more than half of "
            f"size.hidden_size={settings.size.hidden_size}, which encoder.embedding_rule="
            "at_most_half does not let through; type encoder.embedding_rule=exact"
        )
    resolved = {"max_position_embeddings": settings.input_format.max_length}
    for name, reason in _unread(settings).items():
        group, _, key = name.rpartition(".")
        given = getattr(getattr(settings, group), key)
        default = getattr(EncoderSettings(), key, given)  # sizes are options of a group
        if (given != default or name in named) and given not in (
            _NEUTRAL.get(key),
            resolved.get(key),
        ):
            raise ValueError(f"{name}={given} has no effect: {reason}; leave it out")


def window_hides_nothing(settings: Settings) -> bool:
    """Whether the layers with a window see whole rows all the same, in pretraining's rows."""
    return _has_windows(settings) and (
        settings.encoder.local_attention // 2 >= settings.input_format.max_length - 1
    )


def _has_windows(settings: Settings) -> bool:
    every, layers = settings.encoder.global_attention_every_n, settings.size.num_hidden_layers
    return settings.encoder.body == "transformer" and every > 1 and layers > 1


def _unread(settings: Settings) -> dict[str, str]:
    """Settings that this encoder does not read, and why."""
    encoder = settings.encoder
    found: dict[str, str] = {}
    if not _has_windows(settings):
        reason = (
            "no layer has a window (encoder.global_attention_every_n="
            f"{encoder.global_attention_every_n}, size.num_hidden_layers="
            f"{settings.size.num_hidden_layers})"
        )
        found |= dict.fromkeys(("encoder.local_attention", "encoder.local_rope_theta"), reason)
    positions = encoder.position_embedding
    if positions != "rope":
        reason = f"encoder.position_embedding={positions} rotates nothing"
        found |= dict.fromkeys(("encoder.global_rope_theta", "encoder.local_rope_theta"), reason)
    if positions not in ("learned", "sinusoidal"):
        reason = f"encoder.position_embedding={positions} has no table of positions"
        found["encoder.max_position_embeddings"] = reason
    if encoder.mlp != "glu":
        found["encoder.glu_width"] = f"encoder.mlp={encoder.mlp} has no gate"
    if encoder.body == "lstm":
        reason = "encoder.body=lstm has neither heads nor an MLP"
        found |= dict.fromkeys(("size.num_attention_heads", "size.intermediate_size"), reason)
    return found


def _check_attention(settings: Settings) -> None:
    """Refuse a backend that cannot run this encoder on any machine."""
    name, encoder = settings.attention_backend, settings.encoder
    if encoder.body == "lstm":
        if name != "auto":
            raise ValueError(
                f"attention_backend={name} has no effect on encoder.body=lstm, which has no "
                "attention; leave it out"
            )
        return
    is_alibi = name == "flash" and encoder.position_embedding == "alibi"
    obstacle = axis_obstacle(alibi=is_alibi, dropout=encoder.dropout)
    if name in ("flash", "flex") and obstacle:
        raise ValueError(
            f"attention_backend={name} cannot run this encoder: {obstacle}. "
            "Type attention_backend=auto or attention_backend=sdpa"
        )


def intermediate_size(settings: Settings) -> int:
    """`size.intermediate_size` by the width rule of a gated MLP.

    `parameter_matched` gives each half 2/3 of it (to a multiple of 8), so that a gated MLP has the
    parameters of a plain one; `raw` takes it as it is.
    """
    given = settings.size.intermediate_size
    if settings.encoder.mlp == "glu" and settings.encoder.glu_width == "parameter_matched":
        return max(8, 8 * round(given / 12))
    return given


def embedding_size(settings: Settings) -> int | None:
    """`encoder.embedding_size`; by `at_most_half` no more than half of the hidden size.

    So `encoder=albert` has ALBERT's own 128 at the published widths and is factorised at toy
    widths too.
    """
    given = settings.encoder.embedding_size
    if given is None or settings.encoder.embedding_rule == "exact":
        return given
    return min(given, max(1, settings.size.hidden_size // 2))
