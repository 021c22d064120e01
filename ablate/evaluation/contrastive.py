"""Pairs of texts that belong together -> an encoder whose cosines say so.

A copy of the encoder is trained with a softmax over the cosines to all texts of the batch, divided
by a temperature (InfoNCE: van den Oord et al. 2018; in-batch negatives: Karpukhin et al. 2020; the
temperature .05 of Gao et al. 2021). A text of the batch that is known to answer a row as well - a
copy of its own text, or another of its positives - is no negative and is left out of its softmax;
each text of a batch is encoded once, so that no negative counts twice. A row's vector is the mean
over all its tokens, [CLS] and [SEP] among them (Reimers and Gurevych 2019). There is no head: a
tuned encoder answers with its own geometry, so the score before any step is that of the same
function. A frozen one trains a square projection that begins as the identity.

Legend: R rows of a batch, C texts to choose from, D width, n all rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ablate.encoder.encoder import Encoder
from ablate.encoder.heads import MaskedLanguageModel
from ablate.encoder.pooling import POOLINGS as ALL_POOLINGS
from ablate.encoder.pooling import pool, pooled_size
from ablate.evaluation.encoding import Rows, batches_by_tokens
from ablate.evaluation.fitting import (
    SCORING_TOKENS,
    FinetuneSettings,
    autocast,
    copy_encoder,
    hidden_states,
)
from ablate.evaluation.minimal_pairs import is_causal

POOLINGS = tuple(name for name in ALL_POOLINGS if name != "attention")  # it has weights


@dataclass(frozen=True)
class ContrastiveSettings:
    """What a task declares beside the hyper-parameters of fine-tuning.

    `symmetric` adds the softmax from the second texts back to the first ones, with equal weight.
    """

    temperature: float = 0.05
    symmetric: bool = False
    pooling: str = "mean"

    def check(self, task: str) -> None:
        """Refuse what cannot be trained.

        Raises:
            ValueError: naming the task, what was given and what is allowed.
        """
        if not self.temperature > 0:
            raise ValueError(
                f"task {task!r}: temperature={self.temperature} must be above 0, e.g. 0.05"
            )
        if self.pooling not in POOLINGS:
            raise ValueError(
                f"task {task!r}: pooling={self.pooling} is unknown; allowed: {', '.join(POOLINGS)}"
            )


@dataclass(frozen=True)
class Right:
    """What must not count as wrong: second texts for each first one, and the other way round."""

    of_first: Mapping[int, Set[int]]
    of_second: Mapping[int, Set[int]]


def right_in_one_space(pairs: np.ndarray) -> Right:
    """For `pairs` (n, 2) of texts with one numbering: what a text was paired with on either side,
    and the text itself."""
    found: dict[int, set[int]] = {}
    for first, second in pairs.tolist():
        found.setdefault(first, {first}).add(second)
        found.setdefault(second, {second}).add(first)
    return Right(found, found)


class Projection(nn.Module):
    """The head of a frozen encoder: a square matrix, at first the identity; else nothing."""

    def __init__(self, size: int, *, frozen: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.eye(size)) if frozen else None

    def forward(self, pooled: Tensor) -> Tensor:
        return pooled if self.weight is None else pooled @ self.weight


@dataclass
class BiEncoder:
    """An encoder that gives a text one vector of length 1."""

    encoder: Encoder
    projection: Projection
    settings: FinetuneSettings
    pooling: str
    tokens_seen: int = field(default=0)  # while training

    @property
    def new_weights(self) -> tuple[str, ...]:
        """What the pretrained encoder did not have."""
        return tuple(f"projection.{name}" for name in self.projection.state_dict())

    def forward(self, rows: Rows, which: np.ndarray) -> Tensor:
        """(R, D) float32 unit vectors of the rows numbered `which`."""
        device = next(self.encoder.parameters()).device
        batch = rows.batch(which).to(device)
        with autocast(device, self.settings.precision):
            hidden = hidden_states(self.encoder, batch, self.settings)
        pooled = pool(hidden, batch.cu_seqlens, self.pooling)
        if self.encoder.training or self.projection.training:
            self.tokens_seen += batch.num_tokens
        return F.normalize(self.projection(pooled.float()), dim=-1)

    def embed(self, rows: Rows) -> np.ndarray:
        """(n, D) float32 unit vectors of all rows, without dropout."""
        self.encoder.eval()
        self.projection.eval()
        found: np.ndarray | None = None
        with torch.inference_mode():
            for which in batches_by_tokens(rows.lengths, tokens_per_batch=SCORING_TOKENS):
                vectors = self.forward(rows, which).cpu().numpy()
                if found is None:
                    found = np.empty((len(rows), vectors.shape[1]), dtype=np.float32)
                found[which] = vectors
        assert found is not None
        return found


def new_bi_encoder(
    model: MaskedLanguageModel,
    settings: FinetuneSettings,
    pooling: str,
    *,
    longest: int,
    task: str,
) -> BiEncoder:
    """A copy of the model's encoder, not yet trained.

    Raises:
        ValueError: rows longer than the encoder's positions, or a causal encoder with a pooling
            that reads the first token.
    """
    check_pooling(model, pooling, task)
    encoder = copy_encoder(model.encoder, settings, longest=longest, task=task)
    size = pooled_size(encoder.config.hidden_size, pooling)
    device = next(encoder.parameters()).device
    return BiEncoder(
        encoder, Projection(size, frozen=settings.frozen).to(device), settings, pooling
    )


def check_pooling(model: MaskedLanguageModel, pooling: str, task: str) -> None:
    """The first token of a causal row has seen nothing.

    Raises:
        ValueError: what to type instead.
    """
    if is_causal(model) and pooling in ("cls", "cls_mean"):
        raise ValueError(
            f"task {task!r}: pooling={pooling} reads a row's first token, which sees no other "
            "token in a causal encoder; set pooling: mean (or last, last_mean) in the task's file, "
            "and evaluation.finetune.pooling=last_mean"
        )


def negatives_of(
    rows: np.ndarray, columns: np.ndarray, right: Mapping[int, Set[int]]
) -> np.ndarray:
    """(R, C) bool: whether text `columns[j]` is wrong for text `rows[i]`.

    A row's own positive is not, and `info_nce` adds it to what its softmax goes over.
    """
    wrong = [[text not in right[row] for text in columns.tolist()] for row in rows.tolist()]
    return np.array(wrong, dtype=bool).reshape(len(rows), len(columns))


def info_nce(
    rows: Tensor, columns: Tensor, target: Tensor, negatives: Tensor, *, temperature: float
) -> Tensor:
    """Summed cross-entropy of each row's own column among itself and its negatives.

    Args:
        rows, columns: unit vectors (R, D), (C, D).
        target: column of each row's positive, (R,).
        negatives: (R, C) bool, the columns that count as wrong.
    """
    cosines = rows @ columns.T / temperature
    counted = negatives.scatter(1, target[:, None], True)
    return F.cross_entropy(cosines.masked_fill(~counted, -torch.inf), target, reduction="sum")


def contrastive_loss(
    bi_encoder: BiEncoder,
    sides: tuple[Rows, Rows],
    pairs: np.ndarray,
    right: Right,
    settings: ContrastiveSettings,
    extra: np.ndarray | None = None,
) -> tuple[Tensor, int]:
    """Loss sum and count of the rows `pairs` (R, 2), text numbers of both sides.

    `extra` are numbers of further second texts: negatives for every row that they do not answer.
    """
    seconds = pairs[:, 1] if extra is None else np.concatenate([pairs[:, 1], extra])
    texts, row_of = np.unique(pairs[:, 0], return_inverse=True)
    columns = np.unique(seconds)
    first = bi_encoder.forward(sides[0], texts)  # (texts, D)
    second = bi_encoder.forward(sides[1], columns)  # (C, D)

    def softmax(rows: Tensor, columns: Tensor, place: np.ndarray, wrong: np.ndarray) -> Tensor:
        target, negatives = torch.from_numpy(place), torch.from_numpy(wrong)
        return info_nce(
            rows, columns, target.to(rows.device), negatives.to(rows.device),
            temperature=settings.temperature,
        )  # fmt: skip

    target = np.searchsorted(columns, pairs[:, 1])
    rows = first.index_select(0, torch.from_numpy(row_of).to(first.device))
    loss = softmax(rows, second, target, negatives_of(pairs[:, 0], columns, right.of_first))
    if settings.symmetric:
        back = second.index_select(0, torch.from_numpy(target).to(first.device))
        wrong = negatives_of(pairs[:, 1], texts, right.of_second)
        loss = (loss + softmax(back, first, row_of, wrong)) / 2
    return loss, len(pairs)


def unused_settings(settings: FinetuneSettings, *names: str) -> dict[str, object]:
    """Settings of fine-tuning that these fits do not read and that were changed by somebody: for
    the record. `names` are those that this kind of fit has no place for at all."""
    given = {name: getattr(settings, name) for name in names}
    for name in ("early_stopping", "max_scored_examples"):
        if getattr(settings, name) is not None:
            given[name] = getattr(settings, name)
    return given
