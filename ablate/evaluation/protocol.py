"""A pretrained model and measurements -> stored predictions and an `EvaluationResult`.

Each measurement is taken in parts (a fit a fine-tuning seed), and each part is stored as soon as
there is one, under a key of all that decides it: weights, tokenizer, data, hyper-parameters, seeds.
So an interrupted protocol goes on where it was, and another run of the same weights takes what is
there. All numbers are computed from the stored parts, whether they were made now or before.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ablate.encoder.heads import MaskedLanguageModel
from ablate.evaluation import predictions, workers
from ablate.evaluation.averages import add_averages
from ablate.evaluation.measurement import (
    EvaluationResult,
    Measurement,
    Part,
    Setup,
    Subject,
    weights_hash,
    without_nan,
)
from ablate.evaluation.plan import Plan
from ablate.evaluation.settings import FinetuneSettings
from ablate.evaluation.workers import Done, Progress, Task

if TYPE_CHECKING:
    from ablate.tokens.tokenizer import Tokenizer


def evaluate(
    model: MaskedLanguageModel,
    tokenizer: Tokenizer,
    *,
    measurements: Sequence[Measurement],
    seed: int,
    num_finetune_seeds: int = 1,
    out_dir: str | Path,
    fits_dir: str | Path | None = None,
    threads: int = 1,
    devices: Sequence[str] = ("cpu",),
    on_progress: Progress | None = None,
    plan: Plan | None = None,
    **settings: Any,
) -> EvaluationResult:
    """Take every measurement and write `out_dir/predictions/<name>.parquet`.

    Args:
        seed: the pretraining seed of the model; names the random streams.
        fits_dir: where parts are kept for other runs of these weights; `out_dir/fits` if None.
        threads: of each fit; part of a result's key, since it can change its last bits.
        devices: one worker process each; a single one is this process. The file that starts more
            needs an `if __name__ == "__main__"` guard.
        on_progress: called with (name, done, total): steps of a fit, or finished fits.
        plan: settings of single tasks, grids, and tasks that start from another's fit.
        settings: fields of `FinetuneSettings`.
    """
    if num_finetune_seeds < 1:
        raise ValueError(
            f"evaluation.finetune.num_seeds={num_finetune_seeds} is not possible: give 1 or more"
        )
    assert len({m.name for m in measurements}) == len(measurements), "one file and entry a name"
    plan = plan or Plan()
    shared = Setup(
        seed,
        FinetuneSettings(**settings),
        num_finetune_seeds,
        Path(fits_dir) if fits_dir is not None else Path(out_dir) / "fits",
    )
    subject = Subject(model, tokenizer, weights_hash(model))
    setups = {m.name: plan.setup_of(m, shared) for m in measurements}
    dependents = plan.dependents(measurements)
    device = devices[0].split(":")[0]
    keys = _keys(measurements, subject, setups, threads, device, plan.start_from, dependents)
    parts, missing = _stored(measurements, setups, keys)
    first, second, encoders = _waves(measurements, setups, keys, missing, plan, dependents)
    result = EvaluationResult(seconds={m.name: 0.0 for m in measurements})
    progress = on_progress or (lambda name, done, total: None)
    for wave in (first, second):
        made = _measured(subject, shared, wave, threads, devices, progress)
        with contextlib.closing(made):  # whatever ends this ends the workers too
            for task, done in made:
                name, number = task.measurement.name, task.number
                key = keys[name, number]
                predictions.write(_file(shared, name, number, key), done.part, key=key)
                parts[name, number] = done.part
                result.seconds[name] += done.seconds
    for measurement in measurements:
        setup = setups[measurement.name]
        numbers = range(measurement.num_parts(setup))
        own = [parts[measurement.name, number] for number in numbers]
        predictions.write(
            Path(out_dir) / "predictions" / f"{measurement.name}.parquet",
            predictions.joined(own),
            key={"parts": [keys[measurement.name, number] for number in numbers]},
        )
        measurement.add_to(result, own, setup)
    without_nan(result)
    add_averages(result)
    for average in result.averages.values():  # no average goes without it
        average["start_from"] = dict.fromkeys(dependents, plan.start_from)
    for file in encoders:
        file.unlink(missing_ok=True)
    return result


def _keys(
    measurements: Sequence[Measurement],
    subject: Subject,
    setups: Mapping[str, Setup],
    threads: int,
    device: str,
    source: str | None,
    dependents: Sequence[str],
) -> dict[tuple[str, int], dict[str, Any]]:
    """The key of each part; that of a fit which starts from another's encoder holds that one's."""
    keys = {
        (m.name, number): _key(m, subject, setups[m.name], number, threads, device)
        for m in measurements
        for number in range(m.num_parts(setups[m.name]))
    }
    starts = [key for (name, _), key in keys.items() if name == source]
    for (name, number), key in keys.items():
        if name in dependents:
            key["start_from"] = {"task": source, "key": starts[number % len(starts)]}
    return keys


def _waves(
    measurements: Sequence[Measurement],
    setups: dict[str, Setup],
    keys: Mapping[tuple[str, int], dict[str, Any]],
    missing: list[Task],
    plan: Plan,
    dependents: Sequence[str],
) -> tuple[list[Task], list[Task], list[Path]]:
    """What is measured first, what after it, and the encoders that lie in between.

    A fit of the source whose predictions are stored is done again where its encoder is needed and
    gone. Setups of source and dependents get the files.
    """
    source = next((m for m in measurements if m.name == plan.start_from), None)
    files: list[Path] = []
    if dependents and source is not None:
        folder = setups[source.name].folder
        files = [
            folder / "encoders" / _file(setups[source.name], *place, key).with_suffix(".pt").name
            for place, key in keys.items()
            if place[0] == source.name
        ]
        waiting = [t.number % len(files) for t in missing if t.measurement.name in dependents]
        there = {t.number for t in missing if t.measurement.name == source.name}
        again = [i for i in sorted({*waiting} - there) if not files[i].is_file()]
        missing = [*missing, *(Task(source, number) for number in again)]
        for name in dependents:
            setups[name] = dataclasses.replace(
                setups[name], start_from=source.name, encoder_in=tuple(files)
            )
        if waiting:
            setups[source.name] = dataclasses.replace(setups[source.name], encoder_out=tuple(files))
    tasks = [Task(m, number, setups[m.name]) for m, number, _ in missing]
    waits = [task.measurement.name in dependents for task in tasks]
    first, second = (
        [task for task, later in zip(tasks, waits, strict=True) if later is wanted]
        for wanted in (False, True)
    )
    return first, second, files


def _key(
    measurement: Measurement,
    subject: Subject,
    setup: Setup,
    number: int,
    threads: int,
    device: str,
) -> dict[str, Any]:
    return {
        "format": predictions.FORMAT_VERSION,
        "weights": subject.weights,
        "tokenizer": subject.tokenizer.hash,
        "threads": threads,
        "device": device,
        "measurement": measurement.key(setup),
        "part": number,
    }


def _file(setup: Setup, name: str, number: int, key: dict[str, Any]) -> Path:
    text = json.dumps(key, sort_keys=True).encode()
    mark = hashlib.blake2b(text, digest_size=6).hexdigest()
    return setup.folder / f"{name}-{number}-{mark}.parquet"


def _stored(
    measurements: Sequence[Measurement],
    setups: Mapping[str, Setup],
    keys: dict[tuple[str, int], dict[str, Any]],
) -> tuple[dict[tuple[str, int], Part], list[Task]]:
    """Parts that are there already, and the tasks of those that are not."""
    parts, missing = {}, []
    for measurement in measurements:
        setup = setups[measurement.name]
        for number in range(measurement.num_parts(setup)):
            key = keys[measurement.name, number]
            found = predictions.read(_file(setup, measurement.name, number, key), key=key)
            if found is None:
                missing.append(Task(measurement, number))
            else:
                parts[measurement.name, number] = found
    return parts, missing


def _measured(
    subject: Subject,
    setup: Setup,
    tasks: list[Task],
    threads: int,
    devices: Sequence[str],
    on_progress: Progress,
) -> Generator[tuple[Task, Done], None, None]:
    """(task, done) as they come; the model goes back to where it was."""
    devices = list(devices)[: len(tasks)]
    if len(devices) > 1:
        yield from workers.measure_in_workers(
            subject, setup, tasks, threads=threads, devices=devices, on_progress=on_progress
        )
    elif tasks:
        before = next(subject.model.parameters()).device
        here = Subject(subject.model.to(devices[0]), subject.tokenizer, subject.weights)
        try:
            yield from workers.measure_here(
                here, setup, tasks, threads=threads, on_progress=on_progress
            )
        finally:
            subject.model.to(before)
