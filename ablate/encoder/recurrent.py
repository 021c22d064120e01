"""Rows without padding -> the same rows through a stack of bidirectional LSTMs (the ELMo row).

Each layer reads the whole row both ways with half of the hidden size each, which is why it serves
masked language modelling, where ELMo's own two directions never meet (Peters et al. 2018, sec. 3.1;
BERT's "+ BiLSTM" puts one on top of a left-to-right model). As there, every layer has a residual
connection; norm and dropout stand where `norm_position` puts them, as in a layer of attention. The
rows are laid out time step by time step once a forward pass, as torch's packed sequences want them:
shorter rows just end earlier, so that nothing is padded and no state passes from row to row.

Legend: R rows, N tokens, D hidden, T steps of the longest row.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from ablate.encoder.config import EncoderConfig
from ablate.encoder.layers import Norm, residual_block


@dataclass(frozen=True)
class TimeMajor:
    """First tokens of all rows, then second ones, ..., longest row first."""

    tokens: Tensor  # (N,) the token at each place
    places: Tensor  # (N,) the place of each token
    batch_sizes: Tensor  # (T,) rows that reach each step, on the CPU

    @classmethod
    def of(cls, cu_seqlens: Tensor) -> TimeMajor:
        """The order of rows bounded by `cu_seqlens` (R + 1,); empty rows have no place in it."""
        bounds = cu_seqlens.long().cpu()
        lengths, order = bounds.diff().sort(descending=True, stable=True)
        steps = torch.arange(int(lengths[0]) if lengths.numel() else 0)
        reached = steps[:, None] < lengths  # (T, R)
        tokens = (bounds[:-1][order] + steps[:, None])[reached]
        places = torch.empty_like(tokens)
        places[tokens] = torch.arange(tokens.numel())
        device = cu_seqlens.device
        return cls(tokens.to(device), places.to(device), reached.sum(1))


class BidirectionalLSTM(nn.LSTM):
    """Two directions side by side in `hidden_size` outputs, NaN until filled."""

    def __init__(self, hidden_size: int) -> None:
        super().__init__(hidden_size, hidden_size // 2, bidirectional=True)

    def reset_parameters(self) -> None:
        for parameter in self.parameters():
            nn.init.constant_(parameter, math.nan)


class LSTMLayer(nn.Module):
    """One bidirectional LSTM with its residual; the first may have no norm, as in attention."""

    def __init__(self, config: EncoderConfig, index: int) -> None:
        super().__init__()
        self.norm_position, self.dropout = config.norm_position, config.hidden_dropout
        self.has_lstm = index == 0 or not config.shares("lstm")
        if self.has_lstm:
            has_norm = index > 0 or config.first_layer_norm
            self.lstm_norm = Norm(config) if has_norm else nn.Identity()
            self.lstm = BidirectionalLSTM(config.hidden_size)
            sandwich = config.norm_position == "sandwich"
            self.lstm_output_norm = Norm(config) if sandwich else None

    def forward(self, x: Tensor, order: TimeMajor, first: LSTMLayer | None = None) -> Tensor:
        """(N, D) -> (N, D) in time-major order; `first` lends what all layers share."""
        lender = self if first is None or self.has_lstm else first
        return lender.recur(x, order)

    def recur(self, x: Tensor, order: TimeMajor) -> Tensor:
        """The LSTM with its norms and residual."""
        return residual_block(
            x,
            lambda y: self._scan(y, order.batch_sizes),
            self.lstm_norm,
            self.lstm_output_norm,
            self.norm_position,
            self.dropout * self.training,
        )

    def _scan(self, x: Tensor, batch_sizes: Tensor) -> Tensor:
        if not x.shape[0]:  # torch refuses a packed sequence of no steps
            return x
        if x.device.type != "cpu":
            return self.lstm(PackedSequence(x, batch_sizes))[0].data
        with torch.autocast("cpu", enabled=False):  # bfloat16 steps take 1.3 to 1.8 times as long
            x = x.to(next(self.lstm.parameters()).dtype)
            return self.lstm(PackedSequence(x, batch_sizes))[0].data
