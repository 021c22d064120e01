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
from ablate.encoder.pooling import HEADS, POOLINGS, pool, pooled_size
from ablate.inputs.batches import Batch


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
    """Pooled row -> dense, tanh, dropout, classifier (`mlp`), or dropout, classifier (`linear`).

    `cls` takes the first token, `last` the last one (the only one that has seen the row in a causal
    encoder), `mean` and `max` go over the row, `attention` weighs its tokens by a learned query
    (`query`, zero at the start: the mean), `cls_mean` and `last_mean` are two side by side.

    Raises:
        ValueError: an unknown pooling or kind.
    """

    def __init__(
        self,
        hidden_size: int,
        num_labels: int,
        pooling: str = "cls",
        dropout: float = 0.1,
        *,
        kind: str = "mlp",
    ) -> None:
        super().__init__()
        for name, given, allowed in (("pooling", pooling, POOLINGS), ("head", kind, HEADS)):
            if given not in allowed:
                raise ValueError(
                    f"{name}={given} is unknown; allowed are {', '.join(allowed)}. "
                    f"For example evaluation.finetune.{name}={allowed[0]}"
                )
        self.pooling, self.dropout = pooling, dropout
        size = pooled_size(hidden_size, pooling)
        query = torch.full((hidden_size,), math.nan) if pooling == "attention" else None
        self.query = None if query is None else nn.Parameter(query)
        self.dense = Linear(size, hidden_size) if kind == "mlp" else None
        self.classifier = Linear(hidden_size if kind == "mlp" else size, num_labels)

    def forward(self, hidden: Tensor, cu_seqlens: Tensor) -> Tensor:
        """(N, D) -> (R, num_labels)."""
        return self.classify(pool(hidden, cu_seqlens, self.pooling, query=self.query))

    def classify(self, pooled: Tensor) -> Tensor:
        """(R, D) or (R, 2 D) -> (R, num_labels)."""
        x = pooled if self.dense is None else torch.tanh(self.dense(pooled))
        if self.training and self.dropout:
            x = F.dropout(x, self.dropout)
        return self.classifier(x)


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
