"""`python -m ablate.interop export RUN DIR | import DIR OUT`: encoders to and from transformers.

What is written appears whole or not at all. Bad input ends in one message and exit code 2.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Sequence

from ablate.config.commands import exit_code
from ablate.interop.options import parse


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return exit_code(lambda: convert(parse(sys.argv[1:] if argv is None else argv)))


def convert(options: Namespace) -> None:
    """Export or import, as `options.action` says."""
    (_export if options.action == "export" else _import)(options)


def _export(options: Namespace) -> None:
    from pathlib import Path

    from ablate.interop.exporting import export
    from ablate.interop.folders import check_free
    from ablate.run.saved import open_saved

    check_free(Path(options.place), force=options.force, source=Path(options.source))
    saved = open_saved(options.source)
    if saved.kind != "native" or saved.objective not in ("mlm", "clm"):
        raise ValueError(
            f"{options.source} is of encoder.kind={saved.kind}, objective={saved.objective}; "
            "exported are encoders of this project's own axes with a masked-LM head. Weights of a "
            "class of transformers are in model.safetensors of its runs/pretrained/FINGERPRINT, "
            "as encoder.body.NAME"
        )
    auto_class, notes = export(
        options.place,
        config=saved.encoder,
        state=saved.model.state_dict(),
        pair_loss=saved.pair_loss,
        tokenizer=saved.tokenizer,
        force=options.force,
        pair_head=options.pair_head,
        source=options.source,
    )
    for note in notes:
        print(f"note: {note}")
    print(
        f"written: {options.place}; in Python: "
        f'transformers.{auto_class}.from_pretrained("{options.place}")'
    )


def _import(options: Namespace) -> None:
    from ablate.interop.importing import import_folder

    facts = import_folder(options.source, options.place, force=options.force)
    imported = facts["imported"]
    difference = imported["largest_difference_of_logits"]
    compared = "as it was" if difference is None else f"logits within {difference:.1e} of theirs"
    print(f"{imported['model_type']}, {facts['parameters']:,} weights: {compared}")
    if facts["pair_loss"]:
        print(f"with a pair head of {facts['pair_loss']}")
    if not facts["has_tokenizer"]:
        print("note: there is no tokenizer.json; name one with tokenizer=pretrained tokenizer.path")
    print(f"written: {options.place}; as an arm: encoder=pretrained encoder.path={options.place}")


if __name__ == "__main__":
    sys.exit(main())
