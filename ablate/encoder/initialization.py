"""Names of parameters -> their values: drawn by name, or taken from saved weights.

Each parameter is drawn from a generator of its own, seeded by its name, so that an arm with one
part more starts from the same values in every other part. Schemes, each with `init_std`:

- `normal`: transformers' BERT, not truncated.
- `truncated_normal`: BERT's own code (`modeling.create_initializer`): beyond two standard
  deviations drawn again, so that the values spread by 0.88 x `init_std`.
- `megatron`: ModernBERT's `full_megatron`: truncated likewise; what writes to the residual stream,
  the dense layer of the masked-LM head and an untied decoder divided by sqrt(2 x layers) (Shoeybi
  et al. 2019).
- `modernbert`: transformers' `ModernBertPreTrainedModel._init_weights`, that is, `megatron` in the
  encoder and the masked-LM head (a test holds the two equal there); beyond these the dense layer
  of a pair or class head is divided too, and its classifier spreads by 1 / sqrt(hidden size).
  (Heads of `evaluation.finetune` are drawn there, the same in every arm.)

Biases are 0 and norm weights 1 in all; forget gates of an LSTM begin at 1 (Jozefowicz et al. 2015,
and ELMo's code). The row of [PAD] is drawn like any other: padding never enters this encoder.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from ablate.encoder.config import EncoderConfig

TRUNCATE_AT = 2.0  # standard deviations
_SCALED = ("attention.output.weight", "mlp.output.weight", "mlm_head.dense.weight")
_SCALED_UNTIED = "mlm_head.decoder_weight"
_HEAD_DENSE, _HEAD_CLASSIFIER = "dense.weight", "classifier.weight"  # of any head
_FORGET_BIAS = ("lstm.bias_ih_l0", "lstm.bias_ih_l0_reverse")  # input, forget, cell, output gates
_WRAPPER = "_orig_mod."


@torch.no_grad()
def initialize(module: nn.Module, config: EncoderConfig, seed_of: Callable[[str], int]) -> None:
    """Fill every parameter of `module` in place; `seed_of(name)` seeds the draw of that name.

    Draws are made on the CPU in float32, so the values do not depend on device or dtype.
    """
    for name, parameter in module.named_parameters():
        name = name.replace(_WRAPPER, "")
        if parameter.dim() < 2:
            _fill_vector(name, parameter)
            continue
        generator = torch.Generator().manual_seed(seed_of(name))
        value = torch.empty(parameter.shape, dtype=torch.float32)
        if config.init_scheme == "normal":
            value.normal_(0.0, config.init_std, generator=generator)
        else:
            std = _std_of(name, config)
            bound = TRUNCATE_AT * std
            nn.init.trunc_normal_(value, 0.0, std, -bound, bound, generator=generator)
        parameter.copy_(value)


def _fill_vector(name: str, parameter: Tensor) -> None:
    """Biases 0 and norm weights 1; torch's names of LSTM biases begin with the word."""
    is_bias = name.endswith("bias") or name.rpartition(".")[2].startswith("bias")
    parameter.fill_(0.0 if is_bias else 1.0)
    if name.endswith(_FORGET_BIAS):
        parameter.chunk(4)[1].fill_(1.0)


def _std_of(name: str, config: EncoderConfig) -> float:
    """Standard deviation, before truncation, of one matrix in the truncated schemes."""
    scheme, std = config.init_scheme, config.init_std
    if scheme == "truncated_normal":
        return std
    scaled: tuple[str, ...] = (*_SCALED, _SCALED_UNTIED)
    if scheme == "modernbert":
        if name.endswith(_HEAD_CLASSIFIER):
            return float(config.hidden_size**-0.5)
        scaled = (*scaled, _HEAD_DENSE)
    return std / math.sqrt(2.0 * config.num_hidden_layers) if name.endswith(scaled) else std


def num_parameters(module: nn.Module) -> int:
    """Trainable values; a tied weight counts once."""
    return sum(p.numel() for p in module.parameters() if p.requires_grad)


def strip_wrappers(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Names without the marks of `torch.compile` and of a LightningModule's `model` attribute.

    `model.` goes only where every name has it.
    """
    names = {name: name.replace(_WRAPPER, "") for name in state}
    if names and all(short.startswith("model.") for short in names.values()):
        names = {name: short.removeprefix("model.") for name, short in names.items()}
    return {names[name]: value for name, value in state.items()}


def load_weights(
    module: nn.Module, state: Mapping[str, Tensor], *, allow_missing: tuple[str, ...] = ()
) -> list[str]:
    """Copy saved weights into `module`; names under a prefix in `allow_missing` may be absent.

    Returns the absent names, sorted: they keep the values they have, and belong in the record.

    Raises:
        ValueError: names missing or unexpected, or shapes that differ; all of them are listed.
    """
    state = strip_wrappers(state)
    wanted = {name.replace(_WRAPPER, ""): value for name, value in module.state_dict().items()}
    missing = sorted(set(wanted) - set(state))
    refused = [name for name in missing if not name.startswith(allow_missing or ("\0",))]
    unexpected = sorted(set(state) - set(wanted))
    shapes = [
        f"{name} {tuple(state[name].shape)} for {tuple(wanted[name].shape)}"
        for name in sorted(set(wanted) & set(state))
        if wanted[name].shape != state[name].shape
    ]
    if refused or unexpected or shapes:
        raise ValueError(
            "these weights do not fit the model. "
            f"Missing: {', '.join(refused) or 'none'}. "
            f"Unexpected: {', '.join(unexpected) or 'none'}. "
            f"Shapes: {', '.join(shapes) or 'equal'}. "
            "Take the encoder and size options that the weights were saved with"
        )
    with torch.no_grad():
        for name, value in wanted.items():
            if name in state:
                value.copy_(state[name])
    return missing
