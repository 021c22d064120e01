"""A pretrained model and rows with asked tokens -> outputs at these tokens, through one short fit.

What tagging (first pieces of words) and extractive question answering (every token of a row) share.
The head is dropout and one linear map on the last hidden states, as in BERT (Devlin et al. 2019,
sec. 4.2 and 5.3), new for every fit. The model of the last step is scored or, with early stopping,
that of the least loss on rows held out of *train*. What a frozen encoder says of a row is computed
once. HF counterparts: BertForTokenClassification, BertForQuestionAnswering.

Legend: n rows, T tokens of all rows, A asked tokens, M those of a batch, D hidden, C outputs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ablate.encoder.encoder import Encoder
from ablate.encoder.heads import MaskedLanguageModel
from ablate.encoder.layers import Linear
from ablate.evaluation.early_stopping import BestWeights, hold_out
from ablate.evaluation.encoding import Rows, batches_by_tokens
from ablate.evaluation.fitting import (
    SCORING_TOKENS,
    autocast,
    copy_encoder,
    fit,
    hidden_states,
    initialize_head,
)
from ablate.evaluation.frozen import MAX_BYTES
from ablate.evaluation.settings import FinetuneSettings
from ablate.inputs.batches import Batch, collate, ragged_arange


class TokenHead(nn.Module):
    """Dropout and a linear map, on the hidden states of the asked tokens."""

    def __init__(self, hidden_size: int, num_outputs: int, dropout: float) -> None:
        super().__init__()
        self.dropout = dropout
        self.classifier = Linear(hidden_size, num_outputs)

    def forward(self, hidden: Tensor) -> Tensor:
        """(M, D) -> (M, C)."""
        if self.training and self.dropout:
            hidden = F.dropout(hidden, self.dropout)
        return self.classifier(hidden)


@dataclass(frozen=True)
class AskedRows:
    """Rows, and the tokens in them that get an output; those of row i are numbered
    `asked_starts[i] : asked_starts[i + 1]`."""

    rows: Rows
    asked: np.ndarray  # (A,) int64 into the T tokens, ascending
    asked_starts: np.ndarray  # (n + 1,) int64

    def __len__(self) -> int:
        return len(self.rows)

    def numbers(self, which: np.ndarray) -> np.ndarray:
        """(M,) which of the A tokens belong to the rows `which`, in their order."""
        counts = self.asked_starts[which + 1] - self.asked_starts[which]
        return np.repeat(self.asked_starts[which], counts) + ragged_arange(counts)

    def batch(self, which: np.ndarray) -> Batch:
        """The rows `which`; `predict_positions` (M,) are the places of their asked tokens."""
        rows = self.rows
        lengths = rows.lengths[which]
        tokens = np.repeat(rows.starts[which], lengths) + ragged_arange(lengths)
        moved = np.cumsum(lengths) - lengths - rows.starts[which]
        counts = self.asked_starts[which + 1] - self.asked_starts[which]
        places = self.asked[self.numbers(which)] + np.repeat(moved, counts)
        return collate(
            rows.input_ids[tokens],
            lengths,
            token_type_ids=rows.token_type_ids[tokens],
            predict_positions=places,
        )


@dataclass(frozen=True)
class TokenFit:
    """What one fit leaves. `outputs[split]` is (A, C) float32."""

    outputs: dict[str, np.ndarray]
    steps: int
    train_loss: float  # loss sum / what it counts, over the last epoch's worth of steps
    new_weights: tuple[str, ...]
    kernel: str  # of attention while training
    selection: dict[str, Any] | None = None  # what early stopping chose from

    def facts(self) -> dict[str, Any]:
        """For the record of a part."""
        chosen = {} if self.selection is None else {"early_stopping": self.selection}
        return {
            **chosen,
            "steps": self.steps,
            "new_weights": list(self.new_weights),
            "attention_kernel": self.kernel,
            "train_loss": self.train_loss,
        }


# outputs (M, C) of a batch, its row lengths (R,) and row numbers (R,) -> loss sum, and its count
TokenLoss = Callable[[Tensor, np.ndarray, np.ndarray], tuple[Tensor, int]]


def finetune_tokens(
    model: MaskedLanguageModel,
    train: AskedRows,
    scored: Mapping[str, AskedRows],
    loss: TokenLoss,
    settings: FinetuneSettings,
    *,
    name: str,
    num_outputs: int,
    seed: int,
    finetune_seed: int,
    groups: np.ndarray | None = None,
    on_step: Callable[[int, int], None] | None = None,
) -> TokenFit:
    """Train a copy of the model's encoder with a new head and score every split.

    Args:
        seed: the pretraining seed; `finetune_seed` counts the fits nested in it.
        groups: (n,) number of the text of each training row, from 0: a text is held out whole.

    Raises:
        ValueError: rows longer than the encoder's learned positions.
    """
    stream = (seed, "finetune", name, finetune_seed)
    device = next(model.parameters()).device
    longest = max(int(part.rows.lengths.max()) for part in (train, *scored.values()))
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        encoder = copy_encoder(model.encoder, settings, longest=longest, task=name)
        head = TokenHead(encoder.config.hidden_size, num_outputs, settings.dropout)
        initialize_head(head, stream)
        head.to(device)
        outputs_of = _outputs_of(encoder, head, train, settings)
        trained, watch = np.arange(len(train)), None
        if settings.early_stopping is not None:
            groups = np.arange(len(train)) if groups is None else groups
            kept, held = hold_out(
                int(groups.max()) + 1, settings.selection_fraction,
                sample_seed=settings.sample_seed, task=name, finetune_seed=finetune_seed,
            )  # fmt: skip
            trained = np.flatnonzero(np.isin(groups, kept))
            watch = BestWeights(
                [head] if settings.frozen else [encoder, head],
                lambda: -_mean_loss(encoder, head, outputs_of, loss, train, held_rows),
                every=-(-len(trained) // settings.batch_size) // settings.evaluations_per_epoch,
                patience=settings.early_stopping,
            )
            held_rows = np.flatnonzero(np.isin(groups, held))

        def loss_of(which: np.ndarray) -> tuple[Tensor, int]:
            rows = trained[which]
            return loss(outputs_of(rows), train.rows.lengths[rows], rows)

        steps, train_loss = fit(
            encoder, head, loss_of, settings, num_rows=len(trained), stream=stream,
            on_step=on_step, watch=watch,
        )  # fmt: skip
        selection = None
        if watch is not None:
            watch.restore()
            rows = {"metric": "minus loss", "held_out_examples": len(held)}
            selection = {**rows, **watch.facts()}
        outputs = {
            split: _score(encoder, head, part, settings, num_outputs)
            for split, part in scored.items()
        }
    new = tuple(f"head.{parameter}" for parameter in head.state_dict())
    kernel = encoder.backend.kernel_for(encoder.config.attention_dropout, device.type)
    return TokenFit(outputs, steps, train_loss, new, kernel, selection)


def used_settings(settings: FinetuneSettings) -> dict[str, Any]:
    """The hyper-parameters that matter here: nothing is pooled, and there is one head."""
    given = dataclasses.asdict(settings)
    return {name: value for name, value in given.items() if name not in ("pooling", "head")}


def _outputs_of(
    encoder: Encoder, head: TokenHead, rows: AskedRows, settings: FinetuneSettings
) -> Callable[[np.ndarray], Tensor]:
    """Row numbers -> (M, C) float32; a frozen encoder's states are computed once where they fit."""
    size = 4 * len(rows.asked) * encoder.config.hidden_size
    if not settings.frozen or size > MAX_BYTES:
        return lambda which: _forward(encoder, head, rows, which, settings)
    device = next(head.parameters()).device
    encoder.eval()
    kept = torch.empty((len(rows.asked), encoder.config.hidden_size), device=device)
    with torch.no_grad():
        for which in batches_by_tokens(rows.rows.lengths, tokens_per_batch=SCORING_TOKENS):
            kept[torch.from_numpy(rows.numbers(which)).to(device)] = _states(
                encoder, rows, which, settings, device
            ).float()

    def from_kept(which: np.ndarray) -> Tensor:
        with autocast(device, settings.precision):
            return head(kept[torch.from_numpy(rows.numbers(which)).to(device)]).float()

    return from_kept


def _states(
    encoder: Encoder,
    rows: AskedRows,
    which: np.ndarray,
    settings: FinetuneSettings,
    device: torch.device,
) -> Tensor:
    """Hidden states (M, D) of the asked tokens."""
    batch = rows.batch(which).to(device)
    with autocast(device, settings.precision):
        return hidden_states(encoder, batch, settings).index_select(0, batch.predict_positions)


def _forward(
    encoder: Encoder,
    head: TokenHead,
    rows: AskedRows,
    which: np.ndarray,
    settings: FinetuneSettings,
) -> Tensor:
    """Outputs (M, C) in float32, whatever the precision inside."""
    device = next(head.parameters()).device
    with autocast(device, settings.precision):
        return head(_states(encoder, rows, which, settings, device)).float()


def _mean_loss(
    encoder: Encoder,
    head: TokenHead,
    outputs_of: Callable[[np.ndarray], Tensor],
    loss: TokenLoss,
    rows: AskedRows,
    which: np.ndarray,
) -> float:
    encoder.eval()
    head.eval()
    total, count = 0.0, 0
    lengths = rows.rows.lengths
    with torch.inference_mode():
        for chosen in batches_by_tokens(lengths[which], tokens_per_batch=SCORING_TOKENS):
            here = which[chosen]
            value, number = loss(outputs_of(here), lengths[here], here)
            total, count = total + float(value), count + number
    return total / max(count, 1)


def _score(
    encoder: Encoder,
    head: TokenHead,
    rows: AskedRows,
    settings: FinetuneSettings,
    num_outputs: int,
) -> np.ndarray:
    """(A, C) float32 of all rows, in their own order."""
    encoder.eval()
    head.eval()
    found = np.empty((len(rows.asked), num_outputs), dtype=np.float32)
    with torch.inference_mode():
        for which in batches_by_tokens(rows.rows.lengths, tokens_per_batch=SCORING_TOKENS):
            outputs = _forward(encoder, head, rows, which, settings)
            found[rows.numbers(which)] = outputs.cpu().numpy()
    return found
