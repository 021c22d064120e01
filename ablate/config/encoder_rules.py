"""Groups `encoder` and `size` -> widths that follow from both, and refusals that no group can know.

Values of one axis, and axes that exclude each other, are refused by `EncoderConfig` itself.
"""

from __future__ import annotations

from ablate.config.limits import one_of
from ablate.config.schema import Settings

GLU_WIDTHS = ("raw", "parameter_matched")
EMBEDDING_RULES = ("exact", "at_most_half")


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
