"""A study -> its missing runs, run; finished ones skipped, unfinished continued, failed retried.

One failed arm never stops the others: it is tried once more when the rest is done, and reported.
Seeds go outermost, so that whatever is there at any moment is paired. A run is an ordinary run of
its overrides, kept in `runs/single`, where other studies and `python -m ablate` find it; two shells
that drive one study wait for each other's runs and do none twice.
"""

from __future__ import annotations

import copy
import os
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ablate.config.compose import compose_settings
from ablate.config.failures import raised_by_us
from ablate.config.rules import resolve
from ablate.pretraining import machine
from ablate.study.collect import StudyResult, collect, look_of
from ablate.study.design import Study, merged
from ablate.study.guard import Composed, check_fingerprints, compose_arms
from ablate.study.options import Options, open_study
from ablate.study.states import State, StudyFolder, expected_runs, settings_hash


@dataclass(frozen=True)
class Job:
    """One run of a study, picklable."""

    arm: str
    seed: int
    overrides: list[str]
    threads: int | None  # of each worker; None = as the run itself chooses


@dataclass(frozen=True)
class Driven:
    """A study after its runs; `failed` are those that failed twice."""

    study: Study
    composed: Mapping[str, Composed]
    folder: StudyFolder
    seeds: Mapping[str, Sequence[int]]
    extra: list[str]
    failed: int

    def result(self) -> StudyResult:
        """What all records say now; a look is kept once all runs have ended."""
        found = collect(self.study, self.composed, self.folder, self.seeds, self.extra)
        return replace(found, changes=self.folder.changes(self.study, self.composed))


def drive(options: Options, *, today: str, say: Callable[[str], None] = print) -> Driven:
    """Run what a study lacks.

    Raises:
        ValueError: a study that is none, or that its guard refuses; nothing has run then.
    """
    study = open_study(options.study, options.scale)
    extra = list(options.overrides)
    if options.compute == "joblib":
        extra = merged(extra, [f"trainer.threads={_threads(options.jobs)}", "evaluation.jobs=1"])
    composed = compose_arms(study, extra)
    check_fingerprints(
        study, {arm: settings_hash(resolve(c.settings)) for arm, c in composed.items()}
    )
    runs_dir = Path(composed[study.baseline].settings.paths.runs_dir)
    folder = StudyFolder(runs_dir, study)
    seeds = _seeds(study, composed, folder, extra, options.more_seeds)
    folder.take_lock(study, composed, today)
    jobs = _missing(study, composed, folder, seeds, extra, options)
    total = sum(len(of_arm) for of_arm in seeds.values())
    say(f"study {study.name}: {total} runs, {total - len(jobs)} of them complete")
    failed = _run_all(jobs, folder, options, say)
    if failed:
        say(f"{len(failed)} runs failed; each is tried once more")
        failed = _run_all(failed, folder, options, say)
    driven = Driven(study, composed, folder, seeds, extra, len(failed))
    _keep_look(driven)
    return driven


def _keep_look(driven: Driven) -> None:
    result = driven.result()
    if result.looks > len(driven.folder.looks) and any(a.records for a in result.arms.values()):
        driven.folder.add_look(look_of(result))


def _seeds(
    study: Study,
    composed: Mapping[str, Composed],
    folder: StudyFolder,
    extra: Sequence[str],
    more: int,
) -> dict[str, list[int]]:
    """Seeds of each arm: those of the file, those of earlier looks, and `more` where undecided."""
    seeds = {arm: list(study.seeds) for arm in study.arms}
    for look in folder.looks:
        for arm, seen in look["seeds"].items():
            if arm in seeds:
                seeds[arm] = sorted({*seeds[arm], *seen})
    if not more:
        return seeds
    if not folder.looks:
        raise ValueError(
            f"study.more_seeds={more} adds to a study that was run: type the command without it "
            "first"
        )
    result = collect(study, composed, folder, seeds, extra)
    undecided = [arm for arm, d in result.decisions.items() if d.verdict == "undecided"]
    if not undecided:
        return seeds
    first = max(max(of_arm) for of_arm in seeds.values()) + 1
    for arm in (study.baseline, *undecided):
        seeds[arm] = [*seeds[arm], *range(first, first + more)]
    return seeds


def _missing(
    study: Study,
    composed: Mapping[str, Composed],
    folder: StudyFolder,
    seeds: Mapping[str, Sequence[int]],
    extra: Sequence[str],
    options: Options,
) -> list[Job]:
    threads = _threads(options.jobs) if options.compute == "joblib" else None
    group = f"tracking.group={study.name}"
    found = []
    for arm, seed in expected_runs(study, seeds):
        state = folder.state(arm, seed)
        settings = copy.deepcopy(composed[arm].settings)
        settings.seed = seed
        if state.status == "complete" and state.settings == settings_hash(settings):
            continue
        overrides = merged(study.overrides(arm, extra), [f"seed={seed}", f"arm={arm}"])
        if settings.tracking.kind == "wandb" and settings.tracking.group is None:
            overrides = merged(overrides, [group])
        found.append(Job(arm, seed, overrides, threads))
    return found


def _run_all(
    jobs: Sequence[Job], folder: StudyFolder, options: Options, say: Callable[[str], None]
) -> list[Job]:
    """The jobs that failed."""
    if not jobs:
        return []
    began = time.monotonic()
    failed = []
    for number, (job, state) in enumerate(_ended(jobs, options), 1):
        folder.note(job.arm, job.seed, state)
        if state.status != "complete":
            failed.append(job)
        left = (time.monotonic() - began) / number * (len(jobs) - number)
        say(
            f"run {number} of {len(jobs)}: {job.arm} seed {job.seed} {state.status}"
            + (f" ({state.error})" if state.error else "")
            + (f"; about {left / 60:.0f} min left" if number < len(jobs) else "")
        )
    return failed


def _ended(jobs: Sequence[Job], options: Options) -> Any:
    """(job, state) as they end, here or on joblib's workers."""
    if options.compute == "serial":
        yield from ((job, run_job(job)) for job in jobs)
        return
    try:
        from joblib import Parallel, delayed
    except ImportError:
        raise ValueError(
            "compute=joblib needs joblib; type pip install 'ablate[cluster]', or compute=serial"
        ) from None
    threads = str(_threads(options.jobs))
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = threads
    work = Parallel(n_jobs=options.jobs, backend="loky", return_as="generator_unordered")
    yield from work(delayed(_pair)(job) for job in jobs)


def _pair(job: Job) -> tuple[Job, State]:
    return job, run_job(job)


def run_job(job: Job) -> State:
    """Run one arm at one seed; its failure is a state and no exception."""
    from ablate.run.single import run

    settings = compose_settings(job.overrides)
    mark = settings_hash(settings)
    try:
        record = run(settings, overrides=job.overrides, quiet=True)
    except Exception as error:
        if hasattr(error, "exit_code"):  # a signal: the study stops, and goes on where it was
            raise
        if not (isinstance(error, ValueError) and raised_by_us(error)):
            traceback.print_exc(file=sys.stderr)
        return State("failed", None, mark, f"{type(error).__name__}: {error}"[:300])
    return State("complete", record["folder"], mark)


def _threads(jobs: int) -> int:
    return max(machine.available_cores() // jobs, 1)
