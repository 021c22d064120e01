"""Arm -> trained model -> scores: the two stages of a run.

Pretraining has its own folder, `runs/pretrained/<fingerprint>`, so that runs which differ only in
evaluation share it; its weights are kept with their hash, its checkpoints go when it is complete.
"""

from __future__ import annotations

import contextlib
import functools
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ablate.evaluation.measurement import Measurement
from ablate.inputs.pairs import loss_name
from ablate.interop.checkpoint import WEIGHTS, hash_of_weights
from ablate.interop.tokenizer_files import keep_tokenizer
from ablate.pretraining.disk import NotWritten, writing
from ablate.pretraining.interrupted import signals_wait
from ablate.run.arm import Arm
from ablate.run.checks import check_rows, warn_of_unknown
from ablate.run.measurements import devices, finetune_arguments, protocol_plan
from ablate.run.models import build_model, check_attention, encoder_facts
from ablate.run.progress import TaskLines
from ablate.run.weights import is_whole, keep_weights, load_weights
from ablate.tracking.record import MetricsFile, RunFolder, forget_temporaries, locked
from ablate.tracking.tracker import Tracker

if TYPE_CHECKING:
    from ablate.pretraining.pretrain import PretrainingResult

_NGRAM_TOKENS = 20_000_000  # of training text behind the counting baselines


def pretrain_stage(
    arm: Arm, path: Path, mirror: Tracker | None, *, forced: str | None = None
) -> tuple[Any, RunFolder]:
    """The trained model and its folder: loaded where finished, continued where begun.

    `forced` names a run's attempt: what was finished before it is done again, once.
    """
    with locked(path):
        return _pretrain(arm, path, mirror, forced)


def _pretrain(
    arm: Arm, path: Path, mirror: Tracker | None, forced: str | None
) -> tuple[Any, RunFolder]:
    model = build_model(arm)
    forget_temporaries(path)
    folder = RunFolder(path)
    if folder.status == "complete" and forced in (None, folder.record.get("forced")):
        if is_whole(folder) and load_weights(model, folder):
            if mirror is not None:
                mirror.replay(folder.metrics.rows())
            return model, folder
        model = build_model(arm)
    if folder.status == "complete":  # forced: from the beginning; an interrupted one continues
        shutil.rmtree(path / "checkpoints", ignore_errors=True)
    try:
        kept = {} if forced is None else {"forced": forced}
        folder.update(status="running", fingerprint=path.name, identity=arm.identity, **kept)
        facts = _train(arm, model, folder, mirror)
        with writing(path / WEIGHTS):
            keep_weights(model, folder)
            keep_tokenizer(arm.tokenizer, path)
        lines = len(folder.metrics.rows())
        folder.update(status="complete", weights=hash_of_weights(path), lines=lines, **facts)
    except BaseException as error:
        stopped = isinstance(error, KeyboardInterrupt) or hasattr(error, "exit_code")
        with signals_wait(), contextlib.suppress(NotWritten):  # then it stays `running`
            folder.update(status="interrupted" if stopped else "failed")
        raise
    shutil.rmtree(path / "checkpoints", ignore_errors=True)
    return model, folder


def _train(arm: Arm, model: Any, folder: RunFolder, mirror: Tracker | None) -> dict[str, Any]:
    """Self-test, fit, facts for the record."""
    from ablate.encoder.initialization import num_parameters
    from ablate.pretraining.distributed import are_children
    from ablate.pretraining.optimizers import group_sizes
    from ablate.tracking.lightning import RecordLogger

    settings = arm.settings
    check_attention(arm)
    data = arm.data
    check_rows(settings, data)
    warn_of_unknown(arm.store.meta)
    newest, fit = _fit_of(arm, model, folder, say=folder.note)
    resumed_from = newest[1] if newest else 0
    forget_after(folder.metrics, resumed_from, total=len(data.steps))
    if resumed_from and mirror is not None:
        mirror.replay(folder.metrics.rows())
    logger = RecordLogger(folder.metrics, mirror)
    elsewhere = are_children(arm.machine.get("strategy"))
    with logger.following() if elsewhere else contextlib.nullcontext():
        result = fit(loggers=[logger])
    model.cpu()
    clocks = dict(result.clocks)
    seconds = clocks.pop("seconds")
    length = round(data.statistics()["attention_length"])
    share = clocks["predictions"] / max(clocks["tokens"], 1)
    encoder = encoder_facts(arm, model, length, share)
    per_token = encoder["forward_flops_per_token"]
    clocks["flops"] = 3 * per_token * clocks["tokens"]
    return {
        "scores": result.metrics,
        "clocks": clocks,
        "derived": {
            **data.statistics(),
            "parameters": num_parameters(model),
            **group_sizes(model),
            **encoder,
            "objective": settings.objective.name,
            "achieved": result.masking,
            "last_window": result.last_window,
            "learning_rate": settings.optimizer.learning_rate,
            "init_std": settings.encoder.init_std,
        },
        "data": {**arm.corpus.counts, **_store_facts(arm)},
        "machine": arm.machine,
        "timings": {
            "seconds": round(seconds, 1),
            "tokens_per_second": result.tokens_per_second,
            "resumed_from_step": result.resumed_from,
        },
    }


def _fit_of(
    arm: Arm, model: Any, folder: RunFolder, say: Callable[[str], None]
) -> tuple[tuple[Path, int] | None, Callable[..., PretrainingResult]]:
    """(the checkpoint to continue from, the fit; call it with `loggers`)."""
    from ablate.pretraining.checkpoints import newest_checkpoint
    from ablate.pretraining.module import PretrainingModule
    from ablate.pretraining.pretrain import pretrain

    settings, data = arm.settings, arm.data
    module = PretrainingModule(
        model,
        **{k: v for k, v in vars(settings.optimizer).items() if k != "name"},
        schedule=settings.schedule.name,
        warmup_fraction=settings.schedule.warmup_fraction,
        final_fraction=settings.schedule.final_fraction,
        seed=settings.seed,
        log_every=settings.trainer.log_every,
        validation_names=data.validation_names,
        bytes_per_token=data.validation_bytes_per_token,
        pair_loss=loss_name(nsp=settings.nsp, sop=settings.sop),
        pairing=settings.input_format.pairing,
        objective=settings.objective.name,
    )
    checkpoints = folder.path / "checkpoints"
    num_lines = functools.partial(lines_before, folder.metrics, total=len(data.steps))
    newest = newest_checkpoint(checkpoints, num_lines=num_lines, say=say)
    return newest, functools.partial(
        pretrain,
        module,
        data,
        folder=checkpoints,
        resume_from=newest,
        accelerator=arm.machine["device"],
        devices=settings.trainer.devices,
        precision=arm.machine["precision"],
        num_validations=settings.trainer.num_validations,
        checkpoint_every=settings.trainer.checkpoint_every,
        show_progress=settings.trainer.progress_bar,
        strategy=arm.machine.get("strategy"),
    )


def follow(arm: Arm, path: Path) -> None:
    """This process's part of the fit that rank 0 of `ddp` does under `path`, and nothing else.

    Rank 0 holds the locks, writes everything and does what follows the fit.
    """
    from ablate.pretraining.interrupted import Interrupted

    with contextlib.suppress(Interrupted):  # said and recorded by rank 0
        _fit_of(arm, build_model(arm), RunFolder(path), say=lambda text: None)[1](loggers=[])


def forget_after(metrics: MetricsFile, step: int, *, total: int) -> None:
    """Keep the lines that a run continued at `step` does not write again.

    After the last step that is all but its validation, which is done again.
    """
    metrics.keep(_stays(step, total))


def lines_before(metrics: MetricsFile, step: int, *, total: int) -> int:
    """How many lines `forget_after` keeps."""
    return sum(map(_stays(step, total), metrics.rows()))


def _stays(step: int, total: int) -> Callable[[dict[str, float]], bool]:
    return lambda row: (
        0 < row["step"] <= step
        and not (row["step"] == step == total and any(name.startswith("val/") for name in row))
    )


def _store_facts(arm: Arm) -> dict[str, Any]:
    return {
        "store": arm.store.hash,
        "tokenizer": arm.tokenizer.hash,
        "vocab_size": arm.tokenizer.vocab_size,
        **{name: value for name, value in arm.store.meta.items() if isinstance(value, (int, str))},
    }


def baselines(arm: Arm) -> dict[str, float]:
    """What counting achieves on the first validation set: unigram and trigram accuracy.

    The trigram knows what the arm knows: both neighbours of a masked token, or the two tokens
    before the next one.
    """
    if not arm.settings.evaluation.ngram_baseline:
        return {}
    from ablate.evaluation import ngram_baseline

    next_token = arm.settings.objective.name == "clm"
    count = ngram_baseline.count_before if next_token else ngram_baseline.count
    counted = count(
        arm.store,
        arm.store.split(arm.corpus.validation_threshold)[0],
        vocab_size=arm.tokenizer.vocab_size,
        max_tokens=_NGRAM_TOKENS,
    )
    right: dict[str, float] = {}
    batches = arm.data.validation_batches[0]
    for batch in batches:
        found = counted.accuracies(
            batch.input_ids.numpy(),
            batch.cu_seqlens.numpy(),
            batch.predict_positions.numpy(),
            batch.labels.numpy(),
            arm.tokenizer.special_ids,
        )
        for name, share in found.items():
            right[name] = right.get(name, 0.0) + share * batch.num_predictions
    total = sum(batch.num_predictions for batch in batches)
    validation = arm.data.validation_names[0]
    return {f"val/{validation}/{name}": hits / total for name, hits in right.items()}


def evaluate_stage(
    arm: Arm, model: Any, wanted: Sequence[Measurement], folder: RunFolder, fits: Path
) -> Any:
    """Every measurement; predictions go under the run's folder, and as parts into `fits`."""
    from ablate.evaluation.measurement import EvaluationResult

    if not wanted:
        return EvaluationResult()
    with locked(fits), writing(fits):  # its parts, and encoders that lie there, are shared
        for place in (fits, folder.path / "predictions"):
            forget_temporaries(place)
        return _evaluate(arm, model, wanted, folder, fits)


def discard_evaluation(folder: RunFolder, fits: Path) -> None:
    """A forced run fits its tasks again; under the lock of those who share the fits."""
    shutil.rmtree(folder.path / "predictions", ignore_errors=True)
    with locked(fits), writing(fits):
        for place in fits.iterdir():
            if place.is_dir():
                shutil.rmtree(place)
            elif place.name != ".lock":
                place.unlink()


def _evaluate(
    arm: Arm, model: Any, wanted: Sequence[Measurement], folder: RunFolder, fits: Path
) -> Any:
    from ablate.evaluation.protocol import evaluate

    settings = arm.settings
    return evaluate(
        model,
        arm.tokenizer,
        measurements=wanted,
        seed=settings.seed,
        num_finetune_seeds=settings.evaluation.finetune.num_seeds,
        out_dir=folder.path,
        fits_dir=fits,
        threads=settings.evaluation.threads,
        devices=devices(settings, arm.machine["device"]),
        on_progress=TaskLines(show=settings.trainer.progress_bar),
        plan=protocol_plan(settings),
        **finetune_arguments(settings, arm.machine["precision"]),
    )
