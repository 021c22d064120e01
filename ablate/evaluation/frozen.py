"""A frozen encoder and rows -> what its head reads, computed once and used in every epoch.

Only the head is trained, so the encoder says the same of a row in each epoch. For a pooling without
weights the pooled rows are kept; `attention` needs every token. The numbers are those of the
encoder up to the last bits, since a row is computed in another batch than in training
(tests/evaluation/test_finetune.py, `test_kept_states_of_a_frozen_encoder`).

Legend: n rows, T tokens of all rows, D hidden, P width of a pooled row.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ablate.encoder.encoder import Encoder
from ablate.encoder.heads import ClassificationHead
from ablate.encoder.pooling import pool, pooled_size
from ablate.evaluation.encoding import Rows, batches_by_tokens
from ablate.evaluation.fitting import SCORING_TOKENS, FinetuneSettings, autocast, hidden_states
from ablate.inputs.batches import ragged_arange

MAX_BYTES = 2**31


class KeptStates:
    """float32, on the encoder's device: pooled rows (n, P), or hidden states (T, D)."""

    def __init__(self, encoder: Encoder, rows: Rows, settings: FinetuneSettings) -> None:
        device = next(encoder.parameters()).device
        self.starts = torch.from_numpy(rows.starts).to(device)
        self.pools = settings.pooling != "attention"
        self.states = torch.empty(_shape(encoder, rows, settings), device=device)
        encoder.eval()
        with torch.no_grad():
            for which in batches_by_tokens(rows.lengths, tokens_per_batch=SCORING_TOKENS):
                batch = rows.batch(which).to(device)
                with autocast(device, settings.precision):
                    hidden = hidden_states(encoder, batch, settings)
                places = torch.from_numpy(which).to(device)
                if self.pools:
                    hidden = pool(hidden, batch.cu_seqlens, settings.pooling)
                else:
                    places = self._tokens(which)[0]
                self.states[places] = hidden.float()

    def outputs(self, head: ClassificationHead, which: np.ndarray) -> Tensor:
        """The head's outputs (R, C) for the rows numbered `which`."""
        if self.pools:
            return head.classify(self.states[torch.from_numpy(which).to(self.states.device)])
        tokens, cu_seqlens = self._tokens(which)
        return head(self.states[tokens], cu_seqlens)

    def _tokens(self, which: np.ndarray) -> tuple[Tensor, Tensor]:
        """Places of the tokens of some rows, and the bounds of these rows one after another."""
        rows = torch.from_numpy(which).to(self.starts.device)
        begin = self.starts[rows]
        lengths = self.starts[rows + 1] - begin
        inside = torch.from_numpy(ragged_arange(lengths.cpu().numpy())).to(begin.device)
        bounds = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
        return begin.repeat_interleave(lengths) + inside, bounds


def fits_in_memory(encoder: Encoder, rows: Rows, settings: FinetuneSettings) -> bool:
    """Whether the states of these rows take at most `MAX_BYTES`."""
    first, width = _shape(encoder, rows, settings)
    return 4 * first * width <= MAX_BYTES


def _shape(encoder: Encoder, rows: Rows, settings: FinetuneSettings) -> tuple[int, int]:
    width = encoder.config.hidden_size
    if settings.pooling == "attention":
        return int(rows.starts[-1]), width
    return len(rows), pooled_size(width, settings.pooling)
