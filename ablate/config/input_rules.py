"""What the group `input_format` may say, with `nsp` and `sop`."""

from __future__ import annotations

from ablate.config.limits import in_range, one_of, refuse_ignored
from ablate.config.schema import InputFormatSettings, Settings
from ablate.inputs.formats import BOUNDARIES, FORMATS, PAIR_FORMATS, SHORTEST, check_boundary
from ablate.inputs.pairs import PAIRINGS, RANDOM, SAMPLINGS, SWAPPED, resolve_pairing

_NEEDS = {"nsp": (RANDOM, "a random B"), "sop": (SWAPPED, "swapped segments")}


def check_input_format(settings: Settings) -> None:
    """Formats, pairs and the losses that need them."""
    rows = settings.input_format
    one_of("input_format.name", rows.name, FORMATS)
    in_range("input_format.max_length", rows.max_length, SHORTEST, 2**20, 128)
    in_range("input_format.short_seq_prob", rows.short_seq_prob, 0, 1, 0.1)
    one_of("input_format.pairing", rows.pairing, ("auto", *PAIRINGS))
    one_of("input_format.pair_sampling", rows.pair_sampling, SAMPLINGS)
    one_of("input_format.document_boundary", rows.document_boundary, BOUNDARIES)
    if rows.copies is not None:
        in_range("input_format.copies", rows.copies, 1, 2**31, 10)
    check_boundary(rows.name, rows.document_boundary)
    unread = {name: ("pairing", "pair_sampling") for name in FORMATS if name not in PAIR_FORMATS}
    refuse_ignored("input_format", rows.name, rows, InputFormatSettings(), unread, FORMATS)
    if settings.encoder.type_vocab_size == 1:  # in fine-tuning there are pairs whatever the format
        raise ValueError(
            "encoder.type_vocab_size=1 has no token type for the second segment of a pair, and one "
            "type at every token says nothing; type encoder.type_vocab_size=2, or 0 for none"
        )
    pairing = resolve_pairing(rows.pairing, nsp=settings.nsp, sop=settings.sop)
    for loss, (kind, name) in _NEEDS.items():
        if not getattr(settings, loss):
            continue
        if rows.name not in PAIR_FORMATS:
            raise ValueError(
                f"{loss}=true needs rows that are pairs of segments, and input_format={rows.name} "
                f"has none; type input_format={' or input_format='.join(PAIR_FORMATS)}, or "
                f"{loss}=false"
            )
        if kind not in PAIRINGS[pairing]:
            serving = [each for each, kinds in PAIRINGS.items() if kind in kinds]
            raise ValueError(
                f"{loss}=true needs pairs with {name}, and input_format.pairing={pairing} has "
                f"none; type input_format.pairing={' or input_format.pairing='.join(serving)}, "
                f"input_format.pairing=auto, or {loss}=false"
            )
