"""A transformers folder or hub id -> a folder of ours, after its logits were compared.

Both models read the same few rows of made-up ids, one longer than any window; a conversion whose
logits differ by more than 1e-4 of the largest is refused, so a checkpoint that needs something ours
lacks is not taken for one that works. Their model gets the weights under names without wrappers:
transformers fills what it does not find with new values and only warns.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from ablate import rng
from ablate.encoder.config import EncoderConfig
from ablate.inputs.batches import Batch, collate
from ablate.interop.checkpoint import OURS, WEIGHTS, Source, open_source, read_state
from ablate.interop.folders import check_free, new_folder

TOLERANCE = 1e-4  # of the largest logit
_PROBE_LENGTHS = (7, 24, 15, 1)
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")
_PATTERNS = ["config.json", "*.safetensors", "*.safetensors.index.json", *_TOKENIZER_FILES]


def fetch(name: str) -> Path:
    """A folder as it is, a hub id through huggingface_hub's cache.

    Raises:
        ValueError: no folder, and the hub does not give it (offline, unknown, private).
    """
    place = Path(name).expanduser()
    if place.is_dir():
        return place
    if place.exists() or name.count("/") > 1 or name.startswith((".", "/", "~")):
        raise ValueError(f"{name} is no folder; give a folder, or an id of the hub such as a/b")
    import huggingface_hub

    try:
        found = huggingface_hub.snapshot_download(name, allow_patterns=_PATTERNS)
        folder = Path(found)
        if not any(folder.glob("*.safetensors")):
            huggingface_hub.snapshot_download(name, allow_patterns=["pytorch_model*"])
    except Exception as error:  # a dozen kinds, of three libraries
        first = str(error).strip().split("\n")[0]
        raise ValueError(
            f"{name} is no folder here and the hub does not give it ({type(error).__name__}: "
            f"{first}); give a folder that holds config.json, weights and tokenizer.json"
        ) from None
    return folder


def import_folder(name: str, out: str | Path, *, force: bool = False) -> dict[str, Any]:
    """Convert, compare and write; returns the facts that are printed.

    Raises:
        ValueError: what `open_source` and `fetch` refuse, logits that differ, `out` not empty.
    """
    from safetensors.torch import save_file

    check_free(Path(out), force=force)
    source = open_source(fetch(name))
    check_free(Path(out), force=force, source=source.folder)
    state = source.load()
    difference = None if source.family == OURS else compare(source, state)
    config = {
        "model_type": OURS,
        "encoder": dataclasses.asdict(source.encoder),
        "pair_loss": source.pair_loss,
        "imported": {
            "from": str(name),
            "model_type": source.family,
            "weights": source.weights_hash,
            "largest_difference_of_logits": difference,
        },
    }
    with new_folder(Path(out), force=force, source=source.folder) as folder:
        save_file({n: v.clone().contiguous() for n, v in state.items()}, folder / WEIGHTS)
        (folder / WEIGHTS).chmod(0o644)  # the library makes it readable by its owner alone
        (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
        for file in _TOKENIZER_FILES:
            if (source.folder / file).is_file():
                shutil.copyfile(source.folder / file, folder / file)
        open_source(folder)
    return {
        "parameters": sum(value.numel() for value in state.values()),
        "has_tokenizer": source.tokenizer_file is not None,
        **config,
    }


def compare(source: Source, state: Any) -> float:
    """Largest difference between transformers' masked-LM logits and ours, float32, eager.

    Raises:
        ValueError: the weights fit one of the models not, the difference is above the tolerance, or
            not a number.
    """
    import torch

    from ablate.encoder.backends import resolve
    from ablate.encoder.heads import MaskedLanguageModel
    from ablate.encoder.initialization import load_weights
    from ablate.inputs.pairs import LOSSES

    lengths = _lengths(source.encoder)
    backend = resolve("eager", device="cpu", dtype=torch.float32, max_length=int(lengths.max()))
    classes = len(LOSSES[source.pair_loss]) if source.pair_loss else 0
    ours = MaskedLanguageModel(source.encoder, backend, pair_classes=classes)
    try:
        load_weights(ours, state)
    except ValueError as error:
        raise ValueError(f"{source.folder}: {error}") from None
    theirs = _theirs(source)
    batch = _probe(lengths, source.encoder.vocab_size, source.encoder.pad_token_id)
    largest = size = 0.0
    with torch.inference_mode():
        logits = ours.eval()(batch).mlm_logits
        for row in range(len(lengths)):
            span = slice(int(batch.cu_seqlens[row]), int(batch.cu_seqlens[row + 1]))
            expected = theirs(input_ids=batch.input_ids[span][None]).logits[0]
            largest = max(largest, float((logits[span] - expected).abs().max()))
            size = max(size, float(expected.abs().max()))
            if not torch.isfinite(expected).all():
                raise ValueError(f"the logits of {source.folder} in transformers are not finite")
    if not largest <= TOLERANCE * size:
        raise ValueError(
            f"the converted {source.family} of {source.folder} is not the same function: logits "
            f"differ by up to {largest:.3g} where the largest is {size:.3g} (allowed: "
            f"{TOLERANCE:g} of it); nothing was written"
        )
    return largest


def _theirs(source: Source) -> Any:
    """The masked-LM class with the folder's weights, all of them found."""
    import torch
    from transformers import MODEL_FOR_MASKED_LM_MAPPING, AutoConfig
    from transformers.utils.logging import disable_progress_bar

    from ablate.encoder.initialization import strip_wrappers

    disable_progress_bar()
    config = AutoConfig.from_pretrained(source.folder)
    config.chunk_size_feed_forward = 0  # saves memory at lengths that are multiples of it
    found = MODEL_FOR_MASKED_LM_MAPPING[type(config)]
    model_class: Any = found[0] if isinstance(found, tuple) else found
    try:
        theirs, loading = model_class.from_pretrained(
            None, config=config, state_dict=strip_wrappers(read_state(source.folder)),
            dtype=torch.float32, attn_implementation="eager", output_loading_info=True,
        )  # fmt: skip
    except Exception as error:  # a class of its own for each kind of bad weight
        first = str(error).strip().split("\n")[0]
        raise ValueError(
            f"transformers does not load {source.folder} ({type(error).__name__}: {first}), so "
            "there is nothing to compare with; nothing was written"
        ) from None
    missing = sorted(loading["missing_keys"])
    if missing:
        raise ValueError(
            f"transformers does not find {', '.join(missing)} in {source.folder}, so there is "
            "nothing to compare with; nothing was written"
        )
    return theirs.eval()


def _lengths(encoder: EncoderConfig) -> np.ndarray:
    """Rows of the probe; where layers have windows, one that a window does not cover."""
    wanted = [*_PROBE_LENGTHS]
    if "sliding_attention" in encoder.layer_types:
        wanted.append(encoder.local_attention + 9)
    return np.array([min(length, encoder.max_position_embeddings) for length in wanted])


def _probe(lengths: np.ndarray, vocab_size: int, pad_token_id: int) -> Batch:
    """Rows of ids from the whole vocabulary but [PAD], every position predicted."""
    total = int(lengths.sum())
    ids = rng.generator(0, "interop_probe").integers(0, vocab_size, total)
    ids[ids == pad_token_id] = (pad_token_id + 1) % vocab_size
    return collate(ids, lengths, predict_positions=np.arange(total), labels=ids)
