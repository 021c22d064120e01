"""An encoder of ours with its tokenizer -> a folder that transformers' Auto classes load.

Weights are one safetensors file, tied ones once. The class is the one that expresses the encoder:
BertForMaskedLM, else ModernBertForMaskedLM. A pair head is left out, since the masked-LM class
would call its names unexpected; with `pair_head` a next-sentence head of BERT stays and the class
is BertForPreTraining (continuation is class 0 in both). RoBERTa's class would express no point that
BERT's does not. Equal logits: tests/interop/test_export.py.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ablate.encoder.config import EncoderConfig
from ablate.interop.checkpoint import WEIGHTS
from ablate.interop.folders import new_folder
from ablate.interop.pretrained import PAIR_HEAD
from ablate.interop.tokenizer_files import tokenizer_files
from ablate.tokens.tokenizer import Tokenizer

if TYPE_CHECKING:
    from torch import Tensor


def family_of(config: EncoderConfig) -> str:
    """`bert` or `modernbert`, whichever expresses `config`.

    Raises:
        ValueError: neither does; the message names the axes in the way, for the nearer one.
    """
    from ablate.interop import bert, modernbert

    axes = {
        "bert": bert.axes_in_the_way(config),
        "modernbert": modernbert.axes_in_the_way(config),
    }
    nearest = min(axes, key=lambda name: len(axes[name]))
    if axes[nearest]:
        raise ValueError(
            f"no class of transformers expresses this encoder; the nearest is {nearest}, and in "
            f"the way are {', '.join(axes[nearest])}"
        )
    return nearest


def export(
    place: str | Path,
    *,
    config: EncoderConfig,
    state: Mapping[str, Tensor],
    pair_loss: str | None,
    tokenizer: Tokenizer,
    force: bool = False,
    pair_head: bool = False,
    source: str | Path | None = None,
) -> tuple[str, list[str]]:
    """Write the folder; returns the Auto class that loads it whole, and what a reader should know.

    Args:
        place: the folder.
        config: ours.
        state: our weights.
        pair_loss: what trained the pair head; None without one.
        tokenizer: ours.
        force: replace a model that is there.
        pair_head: keep a next-sentence head.
        source: what was read for it, which `place` must not hold.

    Raises:
        ValueError: an encoder that no class expresses, a pair head that is to be kept and has no
            place, names that are not its own, a folder that is not empty.
    """
    from safetensors.torch import save_file

    from ablate.encoder.initialization import strip_wrappers
    from ablate.interop import bert, modernbert

    family = family_of(config)
    module: Any = bert if family == "bert" else modernbert
    notes = []
    state = strip_wrappers(state)
    has_place = family == "bert" and pair_loss == "nsp"
    if pair_head and not has_place:
        raise ValueError(f"--pair-head: {_why_not(family, pair_loss)}; leave --pair-head out")
    if pair_loss is not None and not pair_head:
        state = {name: value for name, value in state.items() if not name.startswith(PAIR_HEAD)}
        why = "--pair-head keeps it" if has_place else _why_not(family, pair_loss)
        notes.append(f"the pair head is left out: {why}")
    if family == "bert":
        zeros = sorted(set(bert.with_zeros(state, config)) - set(state))
        if zeros:
            notes.append(f"written as zeros, which this encoder does not have: {', '.join(zeros)}")
    hf_config = module.config_to_hf(config)
    masked_lm = "BertForMaskedLM" if family == "bert" else "ModernBertForMaskedLM"
    hf_config.architectures = ["BertForPreTraining" if pair_head else masked_lm]
    hf_config.dtype = "float32"
    for role in ("cls", "sep"):
        setattr(hf_config, f"{role}_token_id", getattr(tokenizer, f"{role}_token_id"))
    hf_config.bos_token_id = tokenizer.cls_token_id
    hf_config.eos_token_id = tokenizer.sep_token_id
    theirs = module.state_dict_to_hf(state, config)
    if config.tie_word_embeddings:  # the class makes the second name of a tied weight itself
        theirs = {name: v for name, v in theirs.items() if name not in module.second_names(config)}
    files = tokenizer_files(
        tokenizer, max_length=config.max_position_embeddings, token_types=family == "bert"
    )
    read = None if source is None else Path(source)
    with new_folder(Path(place), force=force, source=read) as folder:
        tensors = {
            name: value.detach().cpu().clone().contiguous() for name, value in theirs.items()
        }
        save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})
        (folder / WEIGHTS).chmod(0o644)  # the library makes it readable by its owner alone
        hf_config.save_pretrained(folder)
        for name, content in files.items():
            text = json.dumps(content, ensure_ascii=False, indent=2)
            (folder / name).write_text(text + "\n", encoding="utf-8")
    return "AutoModelForPreTraining" if pair_head else "AutoModelForMaskedLM", notes


def _why_not(family: str, pair_loss: str | None) -> str:
    """Why a pair head has no place in the class."""
    if pair_loss is None:
        return "this run has no pair head"
    if family == "modernbert":
        return "transformers' modernbert has none"
    return f"transformers' bert has one for nsp, and this one is of {pair_loss}"
