"""Model -> AdamW with decay groups by shape (Loshchilov & Hutter 2019).

Matrices decay, vectors (biases, norm weights) do not: by number of dimensions and never by name, so
that an architecture with other names is not also an ablation of weight decay. A tied parameter is
counted and updated once.
"""

from __future__ import annotations

import torch
from torch import nn


def decay_groups(model: nn.Module, weight_decay: float) -> list[dict]:
    """[{params, weight_decay}]: parameters of two or more dimensions, then the rest."""
    trainable = [p for p in model.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in trainable if p.ndim >= 2], "weight_decay": weight_decay},
        {"params": [p for p in trainable if p.ndim < 2], "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]


def group_sizes(model: nn.Module) -> dict[str, int]:
    """Numbers of decayed and of other parameters, for the record."""
    trainable = [p for p in model.parameters() if p.requires_grad]
    return {
        "decayed_parameters": sum(p.numel() for p in trainable if p.ndim >= 2),
        "undecayed_parameters": sum(p.numel() for p in trainable if p.ndim < 2),
    }


def adamw(
    model: nn.Module,
    *,
    learning_rate: float,
    weight_decay: float,
    betas: tuple[float, float],
    eps: float,
) -> torch.optim.AdamW:
    """Fused AdamW over `decay_groups`."""
    return torch.optim.AdamW(
        decay_groups(model, weight_decay), lr=learning_rate, betas=betas, eps=eps, fused=True
    )
