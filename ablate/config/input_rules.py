"""What the groups `input_format` and `masking` may say, with `nsp` and `sop`."""

from __future__ import annotations

from ablate.config.limits import in_range, one_of
from ablate.config.schema import Settings
from ablate.inputs.formats import FORMATS, PAIR_FORMATS


def check_input_format(settings: Settings) -> None:
    """Formats, pairs and the losses that need them."""
    rows = settings.input_format
    one_of("input_format.name", rows.name, FORMATS)
    in_range("input_format.max_length", rows.max_length, 8, 2**20, 128)
    in_range("input_format.short_seq_prob", rows.short_seq_prob, 0, 1, 0.1)
    if settings.nsp and rows.name not in PAIR_FORMATS:
        raise ValueError(
            f"nsp=true needs rows that are pairs of segments, and input_format={rows.name} is one "
            f"stream; type input_format={' or input_format='.join(PAIR_FORMATS)}, or nsp=false"
        )
