"""One arm x one seed: pretraining -> evaluation -> record -> mirror -> table.

A finished fingerprint is printed and not run again, an unfinished one is continued, a failed one is
retried; `force` runs a finished one again from its beginning, in the same folder.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
import shutil
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ablate.config.fingerprint import fingerprint, run_identity
from ablate.config.schema import Settings
from ablate.evaluation.measurement import Measurement
from ablate.pretraining import machine
from ablate.pretraining.disk import NotWritten, make_folder, writing
from ablate.pretraining.interrupted import signals_wait, stoppable
from ablate.run.arm import Arm, prepare
from ablate.run.measurements import finetune_arguments, measurements
from ablate.run.shown import masked_rows, score_table
from ablate.run.stages import (
    baselines,
    discard_evaluation,
    evaluate_stage,
    follow,
    pretrain_stage,
)
from ablate.tracking.loggers import Mirror, of_agent, resolve_mode
from ablate.tracking.other_loggers import CsvTracker, TensorBoardTracker, check_installed
from ablate.tracking.provenance import provenance
from ablate.tracking.record import RunFolder, forget_temporaries, locked, write_atomically
from ablate.tracking.summary import print_plan, print_summary
from ablate.tracking.tracker import Tracker, guarded

_NOT_IN_NAMES = (
    "arm=", "seed=", "force=", "paths.", "tracking", "hydra", "trainer.progress_bar", "corpus.path",
    "corpus.jobs=", "evaluation",
)  # fmt: skip
_SHOWN = {"arm", "seed", "scores"}  # without these a record is none of a complete run
_KEPT = (".safetensors", ".json", ".yaml")  # of a pretraining, in an artifact


def run(given: Settings, *, overrides: Sequence[str] = (), quiet: bool = False) -> dict[str, Any]:
    """Run, continue or look up one arm x seed; returns its record and, as `folder`, where it lies.

    Args:
        overrides: what made the settings.
        quiet: print no plan and no table.

    Raises:
        ValueError: bad input. Other errors are recorded as `failed` and raised again.
    """
    with stoppable():
        return _begun(given, overrides, quiet=quiet)


def _begun(given: Settings, overrides: Sequence[str], *, quiet: bool) -> dict[str, Any]:
    runs = Path(given.paths.runs_dir)
    for folder in (runs, runs / "single", runs / "pretrained"):
        make_folder("paths.runs_dir", folder)
    arm = prepare(given, overrides)
    settings = arm.settings
    if machine.is_follower():
        follow(arm, runs / "pretrained" / arm.pretraining)
        raise SystemExit(0)
    check_installed(settings.tracking.kind)
    finetune_arguments(settings, arm.machine["precision"])
    wanted = measurements(settings, arm.cache, arm.corpus)
    hashes = {measurement.name: measurement.hash() for measurement in wanted}
    mark = fingerprint(run_identity(settings, pretraining=arm.pretraining, tasks=hashes))
    singles = runs / "single"
    name = settings.arm or arm_name(overrides)
    path = singles / f"{name}-s{settings.seed}-{mark}"
    # the same arm under another spelling or name is the same run
    path = next(iter(sorted(singles.glob(f"*-s{settings.seed}-{mark}"))), path)
    with locked(path):
        forget_temporaries(path)
        found = RunFolder(path)
        _run(arm, wanted, found, name=name, mark=mark, overrides=overrides, quiet=quiet)
        return {**found.record, "folder": path.name}


def _run(
    arm: Arm,
    wanted: list[Measurement],
    folder: RunFolder,
    *,
    name: str,
    mark: str,
    overrides: Sequence[str],
    quiet: bool,
) -> None:
    settings = arm.settings
    whole = folder.status == "complete" and folder.record.keys() >= _SHOWN
    if whole and not settings.force:
        replay(arm, folder, mark)
        if not quiet:
            print_summary(folder.record, folder.path, again=True)
        return
    pretrained = Path(settings.paths.runs_dir) / "pretrained" / arm.pretraining
    attempt = folder.record.get("attempt", 0)
    mirror, code = None, 1
    try:
        if whole:  # forced; once, however often the new attempt is stopped
            attempt += 1
            discard_evaluation(folder, pretrained / "fits")
        folder.update(
            status="running",
            fingerprint=mark,
            pretraining=arm.pretraining,
            arm=name,
            seed=settings.seed,
            attempt=attempt,
            overrides=list(overrides),
            provenance=provenance(),
        )
        write_config(folder.path, settings)
        mirror = open_mirror(arm, folder, mark if attempt == 0 else f"{mark}-{attempt + 1}")
        if not quiet:
            print_plan(arm.machine, name=name, seed=settings.seed, folder=folder.path)
        forced = f"{folder.path.name} {attempt}" if settings.force else None
        model, trained = pretrain_stage(arm, pretrained, mirror, forced=forced)
        with writing(folder.metrics.path):
            shutil.copyfile(trained.metrics.path, folder.metrics.path)
        results = evaluate_stage(arm, model, wanted, folder, pretrained / "fits")
        record_results(folder, trained, results, baselines(arm))
        if mirror is not None:
            show(mirror, arm, folder, pretrained)
        code = 0
    except BaseException as error:
        code = getattr(error, "exit_code", 130 if isinstance(error, KeyboardInterrupt) else 1)
        with signals_wait(), contextlib.suppress(NotWritten):  # then it stays `running`
            record_end(folder, error, stopped=code != 1)
        raise
    finally:
        if mirror is not None:
            mirror.summary({**folder.record.get("scores", {}), "status": folder.status})
            mirror.finish(code)
    if not quiet:
        print_summary(folder.record, folder.path)


def record_end(folder: RunFolder, error: BaseException, *, stopped: bool) -> None:
    """A run that did not come to its end says why."""
    status = "interrupted" if stopped else "failed"
    folder.update(status=status, failure=f"{type(error).__name__}: {error}")
    if not stopped:
        write_atomically(folder.path / "traceback.txt", traceback.format_exc())


def record_results(
    folder: RunFolder, trained: RunFolder, results: Any, counted: dict[str, float]
) -> None:
    """Merge pretraining and evaluation into the run's record; timings apart from results."""
    kept = ("clocks", "derived", "data", "machine")
    folder.record.pop("failure", None)
    if found := {**folder.record, **trained.record}.get("notes"):
        folder.record["notes"] = list(dict.fromkeys([*folder.record.get("notes", []), *found]))
    folder.update(
        status="complete",
        scores={**trained.record["scores"], **counted, **results.scores},
        evaluation=results.details,
        averages=results.averages,
        **{name: trained.record[name] for name in kept},
        timings={
            "pretraining": trained.record["timings"],
            "evaluation_seconds": {k: round(v, 1) for k, v in results.seconds.items()},
        },
    )


def arm_name(overrides: Sequence[str]) -> str:
    """A folder name from the overrides that make the arm: `masking_all_mask-nsp_true`."""
    parts = sorted(text for text in overrides if not text.startswith(_NOT_IN_NAMES))
    name = "-".join(re.sub(r"[^A-Za-z0-9.]+", "_", text).strip("_") for text in parts)
    if len(name) > 60:  # a cut name keeps its arms apart by a piece of their hash
        name = f"{name[:51]}-{fingerprint({'overrides': parts})[:8]}"
    return name.strip("_-.") or "default"


def write_config(path: Path, settings: Settings) -> None:
    """The resolved settings as YAML that composes to the same arm again."""
    import yaml

    write_atomically(
        path / "config.yaml", yaml.safe_dump(dataclasses.asdict(settings), sort_keys=False)
    )


def open_mirror(arm: Arm, folder: RunFolder, run_id: str) -> Tracker | None:
    """What shows this record elsewhere; None where tracking is off. A W&B run is recorded."""
    tracking = arm.settings.tracking
    if tracking.kind == "csv":
        return CsvTracker(folder.path)
    if tracking.kind == "tensorboard":
        return TensorBoardTracker(folder.path)
    mode = resolve_mode(tracking.mode)
    if tracking.kind == "none" or mode == "disabled":
        return None
    settings = arm.settings
    mirror = Mirror(
        mode=mode,
        project=tracking.project,
        entity=tracking.entity,
        run_id=run_id,
        name=folder.path.name,
        group=tracking.group,
        tags=list(tracking.tags),
        folder=folder.path,
        config=dataclasses.asdict(settings),
        axes={
            "arm": folder.record["arm"],
            "seed": settings.seed,
            "nsp": settings.nsp,
            "sop": settings.sop,
            "mask_rate": settings.masking.mask_rate,
            "fingerprint": folder.record["fingerprint"],
        },
        timeout=tracking.timeout,
    )
    shown = {"id": mirror.run_id, "sweep": mirror.sweep, "mode": mirror.mode}
    others = [run for run in folder.record.get("wandb", []) if run["id"] != shown["id"]]
    folder.update(wandb=[*others, shown])
    return mirror


def show(mirror: Tracker, arm: Arm, folder: RunFolder, pretrained: Path | None) -> None:
    """What a tracker has beside curves and final values; weights where they are asked for."""
    with guarded("the run's record is whole"):
        scores = score_table(folder.record)
        mirror.tables({"scores": scores, "masked_rows": masked_rows(arm)})
    if arm.settings.tracking.log_checkpoint and pretrained is not None:
        files = sorted(file for file in pretrained.iterdir() if file.suffix in _KEPT)
        mirror.keep_files(files, name=f"model-{folder.record['fingerprint']}")


def replay(arm: Arm, folder: RunFolder, run_id: str) -> None:
    """Inside a W&B sweep, a finished result is shown to the run that asked for it."""
    if of_agent()[1] is None:
        return
    mirror = open_mirror(arm, folder, run_id)
    if mirror is not None:
        mirror.replay(folder.metrics.rows())
        show(mirror, arm, folder, None)
        mirror.summary({**folder.record["scores"], "status": "complete"})
        mirror.finish(0)
