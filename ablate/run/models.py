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
    from ablate.interop.pretrained import start_from

    settings = arm.settings
    loss = loss_name(nsp=settings.nsp, sop=settings.sop)
    classes = len(LOSSES[loss]) if loss else 0
    replicate = settings.replicate.init
    if settings.encoder.kind == "hf":
        return _hf_model(arm, classes)
    model = MaskedLanguageModel(arm.encoder, arm.backend, pair_classes=classes)
    initialize(
        model, arm.encoder, lambda name: rng.torch_seed(settings.seed, "init", replicate, name)
    )
    if arm.source is not None:
        start_from(model, arm.source, loss)
    return model


def _hf_model(arm: Arm, pair_classes: int) -> Any:
    from ablate.interop import hf_encoder

    seed, replicate = arm.settings.seed, arm.settings.replicate.init
    return hf_encoder.build(
        arm.encoder,
        arm.backend,
        pair_classes=pair_classes,
        seed_of=lambda name: rng.torch_seed(seed, "init", replicate, name),
    )


def check_attention(arm: Arm) -> None:
    """Our backends against eager; a transformers class was tried when it was built."""
    import torch

    from ablate.encoder import backends

    if arm.settings.encoder.kind == "hf" or arm.backend == backends.RECURRENT:
        return
    backends.self_test(
        arm.backend,
        device=arm.machine["device"],
        dtype=torch.bfloat16 if arm.machine["precision"] == "bf16" else torch.float32,
        alibi=arm.settings.encoder.position_embedding == "alibi",
    )


def encoder_facts(arm: Arm, model: Any, length: int, predict_rate: float) -> dict[str, Any]:
    """For the record: forward FLOPs a token of a row, and what a transformers class is."""
    if arm.settings.encoder.kind == "hf":
        from ablate.interop import hf_trial

        flops = hf_trial.flops_per_token(model, length, predict_rate=predict_rate)
        return {"forward_flops_per_token": flops, "encoder": hf_trial.facts(model)}
    from ablate.encoder.config import flops_per_token

    flops = flops_per_token(arm.encoder, length, predict_rate=predict_rate)
    return {"forward_flops_per_token": flops}
