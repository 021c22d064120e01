"""A study -> its missing runs, run; finished ones skipped, unfinished continued, failed retried.

One failed arm never stops the others: it is tried once more when the rest is done, and reported.
Seeds go outermost, so that whatever is there at any moment is paired. A run is an ordinary run of
its overrides, kept in `runs/single`, where other studies and `python -m ablate` find it; two shells
that drive one study wait for each other's runs and do none twice.
"""

from __future__ import annotations

import contextlib
import copy
import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ablate.config.compose import compose_settings
from ablate.pretraining.disk import make_folder
from ablate.pretraining.interrupted import stoppable
from ablate.study import tuning
from ablate.study.collect import StudyResult, collect, look_of
from ablate.study.compute import Job, check_possible, run_all, run_job
from ablate.study.design import Study, merged
from ablate.study.guard import Composed, compose_arms
from ablate.study.options import Options, open_study
from ablate.study.states import State, StudyFolder, expected_runs, settings_hash
from ablate.tracking.record import locked


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


def drive(
    options: Options,
    *,
    today: str,
    say: Callable[[str], None] = print,
    study: Study | None = None,
) -> Driven:
    """Run what a study lacks: the one that the options name, or `study` in its place.

    Raises:
        ValueError: a study that is none, or that its guard refuses; nothing has run then.
    """
    study = study or open_study(options.study, options.scale)
    check_possible(options.compute)
    extra = list(options.overrides)
    first = compose_settings(study.overrides(study.baseline, extra))
    extra = merged(extra, options.compute.overrides(extra, first))
    composed = compose_arms(study, extra)
    paths = composed[study.baseline].settings.paths
    folder = StudyFolder(Path(paths.runs_dir), study)
    plan = tuning.prepare(study, folder, extra)
    seeds = _seeds(study, composed, folder, extra, options.more_seeds)
    make_folder("paths.reports_dir", Path(paths.reports_dir))
    make_folder("paths.runs_dir", Path(paths.runs_dir))
    folder.take_lock(study, composed, today)
    untuned = _tune(plan, folder, seeds, extra, options, say)
    if study.tune is not None:
        study = tuning.applied(study, folder)
        composed = compose_arms(study, extra)
    jobs = _missing(study, composed, folder, seeds, extra)
    jobs = [job for job in jobs if job.arm not in untuned]
    total, lost = (sum(len(seeds[arm]) for arm in arms) for arms in (seeds, untuned))
    say(f"study {study.name}: {total} runs, {total - lost - len(jobs)} of them complete")
    failed = _run_all(jobs, folder, options, say, study.primary)
    if failed:
        say(f"{len(failed)} runs failed; each is tried once more")
        failed = _run_all(failed, folder, options, say, study.primary)
    driven = Driven(study, composed, folder, seeds, extra, len(failed) + lost)
    _keep_look(driven)
    return driven


def _tune(
    plan: tuning.Plan | None,
    folder: StudyFolder,
    seeds: Mapping[str, Sequence[int]],
    extra: Sequence[str],
    options: Options,
    say: Callable[[str], None],
) -> list[str]:
    """Run what tuning lacks and choose; returns the arms that it failed for, as failed runs."""
    if plan is None:
        return []
    jobs = _missing(plan.study, plan.composed, plan.folder, plan.seeds, extra)
    total = len(plan.study.arms) * len(plan.tune.seeds)
    say(f"tuning: {total} runs of seeds that no table shows, {total - len(jobs)} of them complete")
    failed = _run_all(jobs, plan.folder, options, say)
    if failed:
        say(f"{len(failed)} runs failed; each is tried once more")
        _run_all(failed, plan.folder, options, say)
    found = plan.choose(folder)
    for arm, tuned in found.items():
        say(f"tuning: {arm}: {' '.join(tuned.overrides) or tuned.failure}")
        for seed in seeds[arm] if tuned.failure else ():
            folder.note(arm, seed, State("failed", None, None, tuned.failure[:300]))
    return [arm for arm, tuned in found.items() if tuned.failure]


def _keep_look(driven: Driven) -> None:
    with locked(driven.folder.path):  # of two processes that end at once, one sees the other's
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
    seeds = folder.asked(study)
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
    taken = study.tune.seeds if study.tune else ()  # a seed that arms were tuned on is skipped
    free = (seed for seed in itertools.count(first) if seed not in taken)
    added = list(itertools.islice(free, more))
    for arm in (study.baseline, *undecided):
        seeds[arm] = [*seeds[arm], *added]
    return seeds


def _missing(
    study: Study,
    composed: Mapping[str, Composed],
    folder: StudyFolder,
    seeds: Mapping[str, Sequence[int]],
    extra: Sequence[str],
) -> list[Job]:
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
        found.append(Job(arm, seed, overrides))
    return found


def _run_all(
    jobs: Sequence[Job],
    folder: StudyFolder,
    options: Options,
    say: Callable[[str], None],
    primary: str | None = None,
) -> list[Job]:
    """The jobs that failed."""
    if not jobs:
        return []
    began = time.monotonic()
    failed = []
    ended = run_all(run_job, jobs, options.compute, folder.path)
    with stoppable(), contextlib.closing(ended) as found:
        for number, (job, state) in enumerate(found, 1):
            if primary is not None and state.status == "complete":
                state = _judged(job, state, folder, primary)
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


def _judged(job: Job, state: State, folder: StudyFolder, primary: str) -> State:
    """A complete run that no verdict can use is a failed one.

    Raises:
        ValueError: it has no score of the study's metric, so no other run will.
    """
    scores = (folder.record(state) or {}).get("scores", {})
    if primary not in scores:
        raise ValueError(
            f"primary: {primary} is no score of the runs, as the first of them shows; there are "
            f"{', '.join(sorted(scores))}. Correct the study's file, or its evaluation"
        )
    twins = [arm for arm in folder.arms_of_run(state.run or "") if arm != job.arm]
    if twins:
        error = f"it is the same run as arm {twins[0]}, by other settings; take one of them out"
        return replace(state, status="failed", run=None, error=error)
    return state
