"""An encoder of ours with its tokenizer -> a folder that transformers' Auto classes load.

Weights are one safetensors file, tied ones once. The class is the one that expresses the encoder:
BertForMaskedLM (BertForPreTraining with a next-sentence head: continuation is class 0 in both),
else ModernBertForMaskedLM. RoBERTa's class would express no point that BERT's does not. Equal
logits: tests/interop/test_export.py.
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
) -> list[str]:
    """Write the folder; returns what a reader should know about it, one sentence each.

    Raises:
        ValueError: an encoder that no class expresses, names that are not its own, a folder that
            is not empty.
    """
    from safetensors.torch import save_file

    from ablate.encoder.initialization import strip_wrappers
    from ablate.interop import bert, modernbert

    family = family_of(config)
    module: Any = bert if family == "bert" else modernbert
    notes = []
    state = strip_wrappers(state)
    keeps_pair = family == "bert" and pair_loss == "nsp"
    if pair_loss is not None and not keeps_pair:
        state = {name: value for name, value in state.items() if not name.startswith(PAIR_HEAD)}
        notes.append(
            f"the pair head is left out: transformers' {family} has "
            + ("none" if family == "modernbert" else f"one for nsp, and this one is of {pair_loss}")
        )
    if family == "bert":
        zeros = sorted(set(bert.with_zeros(state, config)) - set(state))
        if zeros:
            notes.append(f"written as zeros, which this encoder does not have: {', '.join(zeros)}")
    hf_config = module.config_to_hf(config)
    masked_lm = "BertForMaskedLM" if family == "bert" else "ModernBertForMaskedLM"
    hf_config.architectures = ["BertForPreTraining" if keeps_pair else masked_lm]
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
    with new_folder(Path(place), force=force) as folder:
        tensors = {
            name: value.detach().cpu().clone().contiguous() for name, value in theirs.items()
        }
        save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})
        (folder / WEIGHTS).chmod(0o644)  # the library makes it readable by its owner alone
        hf_config.save_pretrained(folder)
        for name, content in files.items():
            text = json.dumps(content, ensure_ascii=False, indent=2)
            (folder / name).write_text(text + "\n", encoding="utf-8")
    return notes
