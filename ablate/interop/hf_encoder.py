"""An encoder class of transformers, from its config -> a model trained and scored as ours are.

The class is the body alone: rows without padding are laid out as (R, L) for it and its hidden
states taken back to (N, D); positions are its own (RoBERTa counts from its padding id). The vector
of padding is zero whatever its row has become: our tied decoder trains that row, and MobileBERT
puts the vector to its right into each token. The heads are ours, so that every arm has the same
objective and the vocabulary head runs on the predicted positions. What one cannot guess: a class is
tried when it is built, and refused where padding or another row changes a token, or where a token
does not see both sides.

Parameters have the values of the class's own scheme, each module drawn from a stream of its name.
Proof of sameness: tests/interop/test_hf_encoder.py.

Legend: R rows, L longest row, N tokens of all rows, M predicted tokens, D hidden, E width of the
embeddings, V vocabulary.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from ablate.encoder.backends import Backend
from ablate.encoder.config import EncoderConfig
from ablate.encoder.heads import MaskedLMHead, ModelOutput, PairHead
from ablate.encoder.initialization import initialize
from ablate.inputs.batches import Batch
from ablate.interop.hf_config import (
    HFEncoderConfig,
    model_class,
    refusal,
    said,
)
from ablate.interop.hf_trial import check_rows
from ablate.interop.names import activation_from_hf


class HFEncoder(nn.Module):
    """The body: called as `Encoder` is, with (N,) ids and row bounds, for (N, D)."""

    def __init__(self, config: HFEncoderConfig, backend: Backend) -> None:
        super().__init__()
        self.config, self.backend = config, backend
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)  # what the class's scheme leaves alone is still a function of it
            self.body = _body(config)
        self.max_length = config.max_position_embeddings
        self._present: Tensor | None = None  # (R, L), of the batch that is in the class
        self.body.get_input_embeddings().register_forward_hook(self._without_padding)
        taken = inspect.signature(self.body.forward).parameters
        types = config.values.get("type_vocab_size")
        self.takes_token_types = "token_type_ids" in taken and types is not None and types > 1
        names: dict[int, str] = {}
        self.aliases = {  # name of a shared parameter -> its first name, under which it is saved
            name: names[id(p)]
            for name, p in self.named_parameters(remove_duplicate=False)
            if names.setdefault(id(p), name) != name
        }
        self.register_state_dict_post_hook(_drop_aliases)
        self.register_load_state_dict_pre_hook(_add_aliases)

    @property
    def embedding_weight(self) -> Tensor:
        """(V, E), the decoder's weight too."""
        return self.body.get_input_embeddings().weight

    def forward(
        self,
        input_ids: Tensor,
        *,
        token_type_ids: Tensor,
        position_ids: Tensor,
        cu_seqlens: Tensor,
        max_seqlen: int,
    ) -> Tensor:
        """Ids and token types (N,), row bounds (R + 1,) -> hidden states (N, D).

        `position_ids` count from 0 in each row, which is what the class does by itself.

        Raises:
            ValueError: rows longer than the encoder has positions for.
        """
        if max_seqlen > self.max_length:
            raise ValueError(
                f"a row of {max_seqlen} tokens does not fit {self.max_length} positions; type "
                f"encoder.max_position_embeddings={max_seqlen}"
            )
        lengths = cu_seqlens.diff()
        column = torch.arange(max_seqlen, device=input_ids.device)
        present = column < lengths[:, None]  # (R, L)
        places = present.flatten().nonzero().squeeze(1)  # (N,) into R x L, in the order of rows

        def padded(values: Tensor, fill: int) -> Tensor:
            grid = values.new_full((present.numel(),), fill)
            return grid.index_copy(0, places, values).view(present.shape)

        inputs = {"input_ids": padded(input_ids, self.config.pad_token_id)}
        inputs["attention_mask"] = present.long()
        if self.takes_token_types:
            inputs["token_type_ids"] = padded(token_type_ids, 0)
        self._present = present
        try:
            hidden = self.body(**inputs).last_hidden_state  # (R, L, D)
        finally:
            self._present = None
        return hidden.flatten(0, 1).index_select(0, places)

    def _without_padding(self, _: Any, __: Any, vectors: Tensor) -> Tensor:
        if self._present is None or vectors.shape[:2] != self._present.shape:
            return vectors
        return vectors * self._present[..., None].to(vectors.dtype)


class HFMaskedLanguageModel(nn.Module):
    """`HFEncoder` with our masked-LM head and, with `pair_classes` > 0, our pair head.

    The head's dense layer ends in E, the width of the embeddings that its decoder shares.
    """

    def __init__(self, config: HFEncoderConfig, backend: Backend, pair_classes: int = 0) -> None:
        super().__init__()
        self.config = config
        self.encoder = HFEncoder(config, backend)
        width, embedding = config.hidden_size, self.encoder.embedding_weight.shape[1]
        self.head_config = _head_config(config, embedding)
        self.mlm_head = MaskedLMHead(self.head_config)
        self.pair_head = PairHead(width, pair_classes) if pair_classes else None

    def forward(self, batch: Batch) -> ModelOutput:
        """Logits at `batch.predict_positions` only, in autocast's dtype where it is on."""
        hidden = self.encoder(
            batch.input_ids,
            token_type_ids=batch.token_type_ids,
            position_ids=batch.position_ids,
            cu_seqlens=batch.cu_seqlens,
            max_seqlen=batch.max_seqlen,
        )
        predicted = hidden.index_select(0, batch.predict_positions)  # (M, D)
        logits = self.mlm_head(predicted, self.encoder.embedding_weight)
        pair = None if self.pair_head is None else self.pair_head(hidden, batch.cu_seqlens)
        return ModelOutput(hidden, logits, pair)


def build(
    config: HFEncoderConfig,
    backend: Backend,
    *,
    pair_classes: int,
    seed_of: Callable[[str], int],
) -> HFMaskedLanguageModel:
    """A model with initial values; `seed_of(name)` seeds the draw of that module or parameter.

    Raises:
        ValueError: a class that does not work as an encoder of rows.
    """
    try:
        model = HFMaskedLanguageModel(config, backend, pair_classes)
    except Exception as error:
        raise refusal(config, f"cannot be built from this config: {said(error)}") from error
    padding = getattr(model.encoder.body.get_input_embeddings(), "padding_idx", None)
    if padding not in (None, config.pad_token_id):
        raise refusal(
            config,
            f"takes the token of id {padding} for padding, whatever pad_token_id is, and the "
            f"tokenizer's padding is id {config.pad_token_id}",
        )
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        body = model.encoder.body
        _redraw(body, body, "encoder.body", seed_of)
    heads = nn.ModuleDict({"mlm_head": model.mlm_head})
    if model.pair_head is not None:
        heads["pair_head"] = model.pair_head
    initialize(heads, model.head_config, seed_of)
    check_rows(model.encoder)
    return model


def _body(config: HFEncoderConfig) -> Any:
    """The class without its pooler; one row more a table that counts from its padding id."""
    from transformers import AutoModel

    def make(config: HFEncoderConfig) -> Any:
        settings = config.hf_config()
        known = inspect.signature(model_class(settings).__init__).parameters
        options = {"add_pooling_layer": False} if "add_pooling_layer" in known else {}
        return AutoModel.from_config(settings, attn_implementation=config.attention, **options)

    with torch.device("meta"):
        sketch = make(config)
    for name, module in sketch.named_modules():
        first = getattr(module, "padding_idx", None)
        if name.endswith("position_embeddings") and first is not None:
            count = config.max_position_embeddings + first + 1
            values = {**config.values, "max_position_embeddings": count}
            return make(dataclasses.replace(config, values=values))
    return make(config)


def _redraw(owner: Any, module: nn.Module, name: str, seed_of: Callable[[str], int]) -> None:
    """The class's `_init_weights` on each module, under a seed of the module's name."""
    owner = module if hasattr(module, "_init_weights") else owner
    for child_name, child in module.named_children():
        _redraw(owner, child, f"{name}.{child_name}", seed_of)
    torch.manual_seed(seed_of(name))
    owner._init_weights(module)


def _head_config(config: HFEncoderConfig, embedding_size: int) -> EncoderConfig:
    """Our head as BERT's, with the class's activation and epsilon, drawn with its deviation."""
    settings = config.hf_config()
    eps = getattr(settings, "layer_norm_eps", None) or getattr(settings, "norm_eps", None)
    return EncoderConfig(
        vocab_size=config.vocab_size,
        hidden_size=config.hidden_size,
        num_attention_heads=1,
        embedding_size=None if embedding_size == config.hidden_size else embedding_size,
        pad_token_id=config.pad_token_id,
        activation=_activation(settings),
        norm_eps=float(eps or 1e-12),
        init_std=config.init_std,
    )


def _activation(settings: Any) -> str:
    """The class's activation where our head has it, else GELU."""
    name = getattr(settings, "hidden_act", None) or getattr(settings, "hidden_activation", None)
    try:
        return activation_from_hf(str(name))
    except ValueError:
        return "gelu"


def _drop_aliases(module: Any, state: dict[str, Any], prefix: str, _: Any) -> None:
    for name in module.aliases:
        state.pop(prefix + name, None)


def _add_aliases(module: Any, state: dict[str, Any], prefix: str, *_: Any) -> None:
    for name, first in module.aliases.items():
        if prefix + first in state:
            state[prefix + name] = state[prefix + first]
