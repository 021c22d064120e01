"""Hidden states -> masked-LM, pair and class logits, and the model of encoder and heads.

The vocabulary head runs on the predicted positions only. A tied decoder has no weight of its own:
it is handed the embedding at each call, so that copying, moving, saving or loading cannot separate
the two. HF counterparts: BertLMPredictionHead, ModernBertPredictionHead with decoder, BertPooler
with seq_relationship.

Legend: R rows, N tokens, M predicted tokens, D hidden, E embedding, V vocabulary, C classes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ablate.encoder.backends import Backend
from ablate.encoder.config import EncoderConfig
from ablate.encoder.encoder import Encoder
from ablate.encoder.layers import Linear, Norm, activate
from ablate.inputs.batches import Batch

POOLINGS = ("cls", "mean", "cls_mean", "last", "last_mean")


class MaskedLMHead(nn.Module):
    """dense, activation, norm, decoder; the decoder's weight is the embedding where tied.

    With factorised embeddings `dense` leads down to their width, as in ALBERT's head.
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        width, vocab = config.embedding_width, config.vocab_size
        self.activation = config.activation
        self.dense = Linear(config.hidden_size, width, bias=config.head_dense_bias)
        self.norm = Norm(config, width)
        tied = config.tie_word_embeddings
        self.decoder_weight = None if tied else nn.Parameter(torch.full((vocab, width), math.nan))
        bias = nn.Parameter(torch.full((vocab,), math.nan)) if config.head_bias else None
        self.decoder_bias = bias

    def forward(self, hidden: Tensor, embedding_weight: Tensor) -> Tensor:
        """(M, D) -> (M, V); `embedding_weight` (V, E) is used where the decoder is tied."""
        weight = embedding_weight if self.decoder_weight is None else self.decoder_weight
        x = self.norm(activate(self.dense(hidden), self.activation))
        return F.linear(x, weight, self.decoder_bias)


class PairHead(nn.Module):
    """BERT's pooler (dense and tanh on the first token of a row) and a classifier."""

    def __init__(self, hidden_size: int, num_classes: int = 2) -> None:
        super().__init__()
        self.dense = Linear(hidden_size, hidden_size)
        self.classifier = Linear(hidden_size, num_classes)

    def forward(self, hidden: Tensor, cu_seqlens: Tensor) -> Tensor:
        """(N, D) -> (R, C)."""
        first = hidden.index_select(0, cu_seqlens[:-1])
        return self.classifier(torch.tanh(self.dense(first)))


class ClassificationHead(nn.Module):
    """Pooled row -> dense, tanh, dropout, classifier, for fine-tuning.

    `cls` takes the first token, `last` the last one (the only one that has seen the row in a causal
    encoder), `mean` the average over the row, `cls_mean` and `last_mean` two of them side by side.

    Raises:
        ValueError: an unknown pooling.
    """

    def __init__(
        self, hidden_size: int, num_labels: int, pooling: str = "cls", dropout: float = 0.1
    ) -> None:
        super().__init__()
        if pooling not in POOLINGS:
            raise ValueError(
                f"pooling={pooling} is unknown; allowed are {', '.join(POOLINGS)}. "
                "For example evaluation.finetune.pooling=cls"
            )
        self.pooling, self.dropout = pooling, dropout
        pooled_size = 2 * hidden_size if pooling.endswith("_mean") else hidden_size
        self.dense = Linear(pooled_size, hidden_size)
        self.classifier = Linear(hidden_size, num_labels)

    def forward(self, hidden: Tensor, cu_seqlens: Tensor) -> Tensor:
        """(N, D) -> (R, num_labels)."""
        x = torch.tanh(self.dense(pool(hidden, cu_seqlens, self.pooling)))
        if self.training and self.dropout:
            x = F.dropout(x, self.dropout)
        return self.classifier(x)


def pool(hidden: Tensor, cu_seqlens: Tensor, pooling: str) -> Tensor:
    """(N, D) -> (R, D), or (R, 2 D) for `cls_mean` and `last_mean`."""
    place = cu_seqlens[1:] - 1 if pooling.startswith("last") else cu_seqlens[:-1]
    if pooling in ("cls", "last"):
        return hidden.index_select(0, place)
    lengths = cu_seqlens.diff()
    row = torch.arange(lengths.numel(), device=hidden.device)
    row = row.repeat_interleave(lengths, output_size=hidden.shape[0])
    total = hidden.new_zeros(lengths.numel(), hidden.shape[1]).index_add(0, row, hidden)
    mean = total / lengths.clamp(min=1).unsqueeze(1)
    if pooling == "mean":
        return mean
    return torch.cat([hidden.index_select(0, place), mean], dim=1)


@dataclass
class ModelOutput:
    """Hidden states (N, D), masked-LM logits (M, V), pair logits (R, C) or None."""

    hidden: Tensor
    mlm_logits: Tensor
    pair_logits: Tensor | None


class MaskedLanguageModel(nn.Module):
    """Encoder, masked-LM head and, with `pair_classes` > 0, a pair head."""

    def __init__(self, config: EncoderConfig, backend: Backend, pair_classes: int = 0) -> None:
        super().__init__()
        self.config = config
        self.encoder = Encoder(config, backend)
        self.mlm_head = MaskedLMHead(config)
        self.pair_head = PairHead(config.hidden_size, pair_classes) if pair_classes else None

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
        logits = self.mlm_head(predicted, self.encoder.embeddings.token.weight)
        pair = None if self.pair_head is None else self.pair_head(hidden, batch.cu_seqlens)
        return ModelOutput(hidden, logits, pair)
