"""transformers' RoBERTa names and options -> ours; pure functions, nothing is read or written.

RoBERTa is BERT under other names: positions are counted from `pad_token_id + 1`, so the first rows
of its table are never read and are left out here; its one token type goes as BERT's would. There is
no way back because none is needed: BERT's class expresses the same function.
HF: RobertaForMaskedLM, XLMRobertaForMaskedLM, CamembertForMaskedLM. Proof: tests/interop.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from ablate.encoder.config import EncoderConfig
from ablate.encoder.initialization import strip_wrappers
from ablate.interop import bert

MODEL_TYPES = ("roberta", "xlm-roberta", "camembert")
_PREFIXES = {  # RoBERTa's -> BERT's
    "roberta.": "bert.",
    "lm_head.dense.": "cls.predictions.transform.dense.",
    "lm_head.layer_norm.": "cls.predictions.transform.LayerNorm.",
    "lm_head.": "cls.predictions.",
}
_POSITIONS = "bert.embeddings.position_embeddings.weight"


def config_from_hf(hf_config: Any) -> EncoderConfig:
    """`transformers.RobertaConfig` -> `EncoderConfig`.

    Raises:
        ValueError: an option that BERT's corner does not have, or another activation than gelu.
    """
    config = bert.config_from_hf(hf_config)
    if config.activation != "gelu":
        raise ValueError(
            f"hidden_act={hf_config.hidden_act}: RoBERTa's masked-LM head is always gelu, and the "
            "encoder has one activation"
        )
    positions = config.max_position_embeddings - _first_position(config)
    return dataclasses.replace(config, max_position_embeddings=positions)


def _first_position(config: EncoderConfig) -> int:
    return config.pad_token_id + 1


def state_dict_from_hf(hf_state: Mapping[str, Tensor], config: EncoderConfig) -> dict[str, Tensor]:
    """Weights of RobertaForMaskedLM -> those of `MaskedLanguageModel`.

    Raises:
        ValueError: missing or unexpected names (listed, as BERT's), or tied weights that differ.
    """
    state = {_as_bert(name): value for name, value in strip_wrappers(hf_state).items()}
    if _POSITIONS in state:
        state[_POSITIONS] = state[_POSITIONS][_first_position(config) :]
    return bert.state_dict_from_hf(state, config)


def _as_bert(name: str) -> str:
    for theirs, ours in _PREFIXES.items():
        if name.startswith(theirs):
            return ours + name.removeprefix(theirs)
    return name
