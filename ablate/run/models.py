"""An arm -> its model, each parameter drawn from the stream of its own name."""

from __future__ import annotations

from typing import Any

from ablate import rng
from ablate.inputs.pairs import LOSSES, loss_name
from ablate.run.arm import Arm


def build_model(arm: Arm) -> Any:
    """A model whose every parameter is drawn from the stream of its own name."""
    from ablate.encoder.heads import MaskedLanguageModel
    from ablate.encoder.initialization import initialize

    settings = arm.settings
    loss = loss_name(nsp=settings.nsp, sop=settings.sop)
    classes = len(LOSSES[loss]) if loss else 0
    model = MaskedLanguageModel(arm.encoder, arm.backend, pair_classes=classes)
    replicate = settings.replicate.init
    initialize(
        model, arm.encoder, lambda name: rng.torch_seed(settings.seed, "init", replicate, name)
    )
    return model
