"""What `objective` may say, with the encoder and the masking it needs, and what it reads a row by.

A causal encoder and the next-token objective come together or not at all, and both are said: an
arm's overrides show each factor that it changes.
"""

from __future__ import annotations

from ablate.config.limits import one_of
from ablate.config.schema import MaskingSettings, Settings

OBJECTIVES = ("mlm", "clm")
_POOLING = {"mlm": "cls_mean", "clm": "last_mean"}


def resolve_pooling(pooling: str | None, *, objective: str) -> str:
    """What fine-tuning reads of a row: a causal encoder has seen the row at its last token."""
    return pooling or _POOLING.get(objective, "cls_mean")


def check_objective(settings: Settings) -> None:
    """Refuse an objective that the encoder gives away, or beside settings that nothing reads.

    Raises:
        ValueError: naming the setting, what was given and what to type.
    """
    name, causal = settings.objective.name, settings.encoder.causal
    one_of("objective.name", name, OBJECTIVES)
    if causal and name != "clm":
        raise ValueError(
            f"encoder.causal=true with objective={name}: a masked-LM encoder sees both sides; "
            "type encoder.causal=false, or objective=clm encoder.causal=true for the decoder twin"
        )
    if name == "clm":
        _check_causal(settings)


def _check_causal(settings: Settings) -> None:
    if not settings.encoder.causal:
        raise ValueError(
            "objective=clm with encoder.causal=false: every position sees the token that it is to "
            "predict; type objective=clm encoder.causal=true, or objective=mlm"
        )
    for name, native in (("kind", "native"), ("body", "transformer")):
        given = getattr(settings.encoder, name)
        if given != native:
            raise ValueError(
                f"encoder.{name}={given} does not read encoder.causal, and objective=clm needs a "
                f"causal encoder; type encoder.{name}={native}, or objective=mlm "
                "encoder.causal=false"
            )
    for loss in ("nsp", "sop"):
        if getattr(settings, loss):
            raise ValueError(
                f"{loss}=true with objective=clm: the pair head reads a row's first token, which "
                f"sees no other token in a causal encoder; type {loss}=false, or objective=mlm "
                "encoder.causal=false"
            )
    for name, default in vars(MaskingSettings()).items():
        given = getattr(settings.masking, name)
        if given != default:
            raise ValueError(
                f"masking.{name}={given} has no effect on objective=clm, which masks nothing; "
                "leave masking out, or type objective=mlm encoder.causal=false"
            )
    if settings.replicate.masks:
        raise ValueError(
            f"replicate.masks={settings.replicate.masks} has no effect on objective=clm, which "
            "masks nothing; type replicate.masks=0, or replicate.data=1 for other rows"
        )
    pooling = settings.evaluation.finetune.pooling
    if pooling in ("cls", "cls_mean"):
        raise ValueError(
            f"evaluation.finetune.pooling={pooling} reads a row's first token, which sees no other "
            "token in a causal encoder; type evaluation.finetune.pooling=last_mean"
        )
