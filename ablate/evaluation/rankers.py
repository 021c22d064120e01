"""A pretrained encoder and training queries -> a ranker: two vectors, or one reading of both texts.

The bi-encoder gives a query and a document a vector each and ranks by their cosine; the
cross-encoder reads [CLS] query [SEP] document [SEP] and answers with one number (Nogueira and Cho
2019; Devlin et al. 2019 for the row). Both are trained on the same queries in the same order with
the same drawn positive and negatives, and with the same loss - a softmax of the right document
against the wrong ones (for rerankers: Gao et al. 2021, localized contrastive estimation) - so that
what differs is the architecture. A binary cross-entropy would be a second difference, and asks for
calibrated answers that no ranking needs. What stays unequal is told by `tokens_seen`: the
bi-encoder also takes the documents of the other queries of a batch as negatives, at no cost; the
cross-encoder reads each query once for each of its documents.

Legend: R queries of a batch, L documents of a query, n rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from ablate import rng
from ablate.encoder.heads import ClassificationHead, MaskedLanguageModel
from ablate.evaluation import contrastive
from ablate.evaluation.candidates import TrainingPools
from ablate.evaluation.contrastive import BiEncoder, ContrastiveSettings, Right
from ablate.evaluation.encoding import Rows, batches_by_tokens, encode
from ablate.evaluation.fitting import (
    SCORING_TOKENS,
    FinetuneSettings,
    autocast,
    copy_encoder,
    fit,
    hidden_states,
    initialize_head,
)
from ablate.evaluation.retrieval_data import Collection
from ablate.inputs.batches import from_segments

if TYPE_CHECKING:
    from ablate.tokens.tokenizer import Tokenizer

OnStep = Callable[[int, int], None] | None


@dataclass(frozen=True)
class Training:
    """Queries (their numbers) of a collection, what to draw for each, and the fit's stream."""

    queries: np.ndarray
    pools: TrainingPools
    num_negatives: int
    stream: tuple

    def draw(self, step: int, which: np.ndarray) -> list[tuple[int, int, np.ndarray]]:
        """(query, positive, negatives) of the rows `which`; the same for both architectures."""
        random = rng.generator(*self.stream, "negatives", step)
        found = []
        for place in which.tolist():
            query = int(self.queries[place])
            found.append((query, *self.pools.draw(query, place, self.num_negatives, random)))
        return found


@dataclass(frozen=True)
class Trained:
    """What a fit tells beside its scores."""

    steps: int
    loss: float
    tokens_seen: int
    new_weights: list[str]
    truncated_tokens: dict[str, int]
    kernel: str


def train_bi_encoder(
    bi_encoder: BiEncoder,
    sides: tuple[Rows, Rows],
    training: Training,
    settings: ContrastiveSettings,
    on_step: OnStep = None,
) -> Trained:
    """Train on the queries and documents of a collection, tokenised as `sides`."""
    relevance = training.pools.collection.relevance
    answers: dict[int, set[int]] = {i: set() for i in range(len(sides[1]))}
    for query, found in enumerate(relevance):
        for document in found:
            answers[document].add(query)
    right = Right({query: set(found) for query, found in enumerate(relevance)}, answers)
    step = 0

    def loss_of(which: np.ndarray) -> tuple[Tensor, int]:
        nonlocal step
        drawn = training.draw(step, which)
        step += 1
        pairs = np.array([(query, positive) for query, positive, _ in drawn])
        extra = np.concatenate([negatives for _, _, negatives in drawn])
        return contrastive.contrastive_loss(bi_encoder, sides, pairs, right, settings, extra)

    steps, loss = fit(
        bi_encoder.encoder, bi_encoder.projection, loss_of, bi_encoder.settings,
        num_rows=len(training.queries), stream=training.stream, on_step=on_step,
    )  # fmt: skip
    cut = {"train_queries": sides[0].truncated_tokens, "train_documents": sides[1].truncated_tokens}
    encoder = bi_encoder.encoder
    kernel = encoder.backend.kernel_for(
        encoder.config.attention_dropout, next(encoder.parameters()).device.type
    )
    new = list(bi_encoder.new_weights)
    return Trained(steps, loss, bi_encoder.tokens_seen, new, cut, kernel)


def texts_of(collection: Collection, tokenizer: Tokenizer, max_length: int) -> tuple[Rows, Rows]:
    """Queries and documents of a collection, each text a row."""
    queries = [(text,) for text in collection.queries]
    documents = [(text,) for text in collection.documents]
    return (
        encode(tokenizer, queries, max_length=max_length),
        encode(tokenizer, documents, max_length=max_length),
    )


class PairRows:
    """Texts tokenised once -> rows of [CLS] query [SEP] document [SEP] for any pairs."""

    def __init__(self, collection: Collection, tokenizer: Tokenizer, max_length: int) -> None:
        self._queries = [one.ids for one in tokenizer.encode_batch(list(collection.queries))]
        self._documents = [one.ids for one in tokenizer.encode_batch(list(collection.documents))]
        self._cls, self._sep = tokenizer.cls_token_id, tokenizer.sep_token_id
        self._max_length = max_length

    @property
    def longest(self) -> int:
        """No row is longer."""
        texts = [max(map(len, side), default=0) for side in (self._queries, self._documents)]
        return min(sum(texts) + 3, self._max_length)

    def rows(self, pairs: Sequence[tuple[int, int]]) -> Rows:
        """One row a (query, document); the document is cut first where it is the longer side."""
        batch, cut = from_segments(
            [[self._queries[query], self._documents[document]] for query, document in pairs],
            cls_token_id=self._cls,
            sep_token_id=self._sep,
            max_length=self._max_length,
        )
        starts = batch.cu_seqlens.numpy().astype(np.int64)
        return Rows(batch.input_ids.numpy(), batch.token_type_ids.numpy(), starts, cut)


class CrossEncoder:
    """A copy of the encoder with a new head of one output.

    Raises:
        ValueError: rows longer than the encoder's positions, or a causal encoder with a pooling
            that reads the first token.
    """

    def __init__(
        self,
        model: MaskedLanguageModel,
        settings: FinetuneSettings,
        *,
        longest: int,
        task: str,
        stream: tuple,
    ) -> None:
        contrastive.check_pooling(model, settings.pooling, task)
        self.settings, self._stream = settings, stream
        self.encoder = copy_encoder(model.encoder, settings, longest=longest, task=task)
        self.device = next(self.encoder.parameters()).device
        self.head = ClassificationHead(
            self.encoder.config.hidden_size, 1, settings.pooling, settings.dropout,
            kind=settings.head,
        )  # fmt: skip
        initialize_head(self.head, stream)
        self.head.to(self.device)

    def _forward(self, rows: Rows, which: np.ndarray) -> Tensor:
        batch = rows.batch(which).to(self.device)
        with autocast(self.device, self.settings.precision):
            hidden = hidden_states(self.encoder, batch, self.settings)
            return self.head(hidden, batch.cu_seqlens).float().squeeze(-1)

    def train(self, pair_rows: PairRows, training: Training, on_step: OnStep = None) -> Trained:
        """Train on the drawn lists of each query."""
        step = seen = cut = 0

        def loss_of(which: np.ndarray) -> tuple[Tensor, int]:
            nonlocal step, seen, cut
            drawn = training.draw(step, which)
            step += 1
            rows = pair_rows.rows(
                [(q, doc) for q, positive, others in drawn for doc in (positive, *others.tolist())]
            )
            seen, cut = seen + int(rows.starts[-1]), cut + rows.truncated_tokens
            answers = self._forward(rows, np.arange(len(rows)))
            return list_loss(answers, [1 + len(others) for _, _, others in drawn]), len(drawn)

        steps, loss = fit(
            self.encoder, self.head, loss_of, self.settings, num_rows=len(training.queries),
            stream=self._stream, on_step=on_step,
        )  # fmt: skip
        kernel = self.encoder.backend.kernel_for(
            self.encoder.config.attention_dropout, self.device.type
        )
        new = [f"head.{name}" for name in self.head.state_dict()]
        return Trained(steps, loss, seen, new, {"train_pairs": cut}, kernel)

    def scores(self, rows: Rows) -> np.ndarray:
        """(n,) float32, in the order of the rows."""
        self.encoder.eval()
        self.head.eval()
        found = np.empty(len(rows), dtype=np.float32)
        with torch.inference_mode():
            for which in batches_by_tokens(rows.lengths, tokens_per_batch=SCORING_TOKENS):
                found[which] = self._forward(rows, which).cpu().numpy()
        return found


def list_loss(answers: Tensor, lengths: Sequence[int]) -> Tensor:
    """Summed cross-entropy of the first document of each list among its `lengths[i]` ones.

    `answers` (sum of lengths,) hold the lists one after another.
    """
    lists = answers.split(list(lengths))
    padded = torch.nn.utils.rnn.pad_sequence(  # (R, L)
        list(lists), batch_first=True, padding_value=-torch.inf
    )
    first = torch.zeros(len(lists), dtype=torch.long, device=answers.device)
    return F.cross_entropy(padded, first, reduction="sum")
