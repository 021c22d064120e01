"""Model + data + settings -> a trained model and what the record needs: one Lightning fit.

Continues from the checkpoint that it is given (`checkpoints.newest_checkpoint` finds it). A budget
of 0 trains nothing and validates the initial weights (the "no pretraining" arm).
"""

from __future__ import annotations

import functools
import logging
import signal
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.loggers import Logger
from pytorch_lightning.plugins.environments import LightningEnvironment

from ablate.inputs.datamodule import PretrainingData
from ablate.pretraining import distributed
from ablate.pretraining.callbacks import Checkpoints, Throughput
from ablate.pretraining.checkpoints import newest_checkpoint
from ablate.pretraining.interrupted import Interrupted
from ablate.pretraining.module import PretrainingModule

_NOISE = (  # advice that does not hold for this design, or that concerns Lightning's own code
    ".*does not have many workers.*",
    ".*isinstance\\(treespec, LeafSpec\\).*",
    ".*Checkpoint directory .* exists and is not empty.*",
    ".*is smaller than the logging interval.*",
    ".*You have overridden `transfer_batch_to_device`.*",
    ".*GPU available but not used.*",
    ".*`broadcast_buffers` is deprecated.*",  # its new name is unknown to torch 2.6
)


@dataclass
class PretrainingResult:
    """Final validation metrics, clocks and achieved masking of a finished pretraining.

    `last_window` are the training metrics of the last logged steps (next-sentence accuracy among
    them): a gate for a verdict, not a score.
    """

    metrics: dict[str, float]
    last_window: dict[str, float]
    clocks: dict[str, float]
    masking: dict[str, Any]
    resumed_from: int | None = None
    seconds: float = 0.0
    tokens_per_second: float | None = None


def pretrain(
    module: PretrainingModule,
    data: PretrainingData,
    *,
    folder: Path,
    resume_from: tuple[Path, int] | None,
    loggers: Sequence[Logger],
    accelerator: str,
    devices: int,
    precision: str,
    num_validations: int,
    checkpoint_every: int,
    show_progress: bool,
    strategy: str | None = None,
) -> PretrainingResult:
    """Train `module` over the budget of `data`; checkpoints go under `folder`.

    Args:
        resume_from: (checkpoint, its step) to continue from, or None.
        accelerator: `cpu` or `cuda`; precision: `fp32` or `bf16` (autocast).
        num_validations: validations spread evenly over the steps, the last one at the end.
        checkpoint_every: optimizer steps between checkpoints.
        strategy: how the ranks of several devices are started (`machine.resolve_strategy`).
    """
    total = len(data.steps)
    throughput = Throughput(total_steps=total, show=show_progress)
    interval = max(1, -(-total // max(num_validations, 1)))
    quiet()
    children = distributed.are_children(strategy)
    signals = (signal.SIGTERM,) if children else (signal.SIGTERM, signal.SIGINT)
    checkpoints = Checkpoints(
        folder, every=checkpoint_every, validate_every=interval, signals=signals
    )
    settings: dict[str, Any] = {
        "accelerator": "gpu" if accelerator == "cuda" else "cpu",
        "precision": "bf16-mixed" if precision == "bf16" else "32-true",
        "max_epochs": 1,
        "enable_checkpointing": False,
        "logger": list(loggers),
        "callbacks": [
            throughput,
            checkpoints,
        ],
        "val_check_interval": interval if total else None,
        "num_sanity_val_steps": 0,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "use_distributed_sampler": False,
        "log_every_n_steps": 10**9,
    }
    # one process, whatever the environment of a cluster's job says
    trainer = pl.Trainer(devices=1, plugins=[LightningEnvironment()], **settings)
    start, rate = time.perf_counter(), None
    checkpoint = resume_from and str(resume_from[0])
    if total and strategy is None:
        try:
            trainer.fit(module, datamodule=data, ckpt_path=checkpoint)
        except RuntimeError as error:
            if checkpoints.signum is None:
                raise  # else a worker that loads data was stopped too
            where = "inside a step: the checkpoint before it is kept"
            raise Interrupted(checkpoints.signum, where) from error
        if checkpoints.signum is not None:  # it came with the last checkpoint or later
            raise Interrupted(checkpoints.signum, "after training")
    if total and strategy is not None:
        rate = distributed.fit(
            module, data, settings, strategy=strategy, devices=devices, checkpoint=checkpoint,
            newest=functools.partial(newest_checkpoint, folder), quiet=quiet,
        )  # fmt: skip
    seconds = time.perf_counter() - start
    if module.validated_at != total:  # on one device in any case
        trainer.validate(module, datamodule=data, verbose=False)
    return PretrainingResult(
        metrics={k: v for k, v in module.validation_metrics.items() if k != "tokens"},
        last_window={k: v for k, v in module.latest.items() if k != "tokens"},
        clocks={
            "steps": total,
            "tokens": module.tokens,
            "predictions": module.counts.predicted,
            "seconds": throughput.seconds + seconds,
        },
        masking={**module.counts.shares(), **module.counts.histograms()},
        resumed_from=resume_from[1] if resume_from else None,
        seconds=seconds,
        tokens_per_second=rate or throughput.rate(module.tokens),
    )


def quiet() -> None:
    """Filter what Lightning says that does not hold here; for this process."""
    for pattern in _NOISE:
        warnings.filterwarnings("ignore", pattern)
    for name in ("pytorch_lightning", "lightning_fabric"):
        logging.getLogger(name).setLevel(logging.WARNING)
    logging.getLogger("torch.multiprocessing.spawn").setLevel(logging.ERROR)  # who stops whom
