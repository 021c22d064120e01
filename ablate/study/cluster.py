"""Runs as jobs of submitit: on this machine, or in the queue of a Slurm cluster.

A job is one run. Before its time limit the scheduler warns it: it finishes its step, keeps a
checkpoint and is queued again, where it continues. One that is stopped from outside (a node that is
taken away) is started again by the command. Slurm jobs outlive the command; the same command takes
up those that it finds in the queue, since `jobs.json` names them.
"""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import math
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ablate.pretraining import machine
from ablate.study import slurm
from ablate.study.cluster_job import Warned
from ablate.study.computes import Compute
from ablate.study.states import State
from ablate.tracking.record import locked, read_json, write_json

STARTS = 20  # of one run whose jobs are stopped from outside
LOOK_SECONDS = 0.5  # between looks for the answers of jobs
ASK_SECONDS = 30.0  # between questions to Slurm, which many users share
ANSWER_SECONDS = 15.0  # a shared file system may show an ended job's answer that late


@dataclass(eq=False)
class _Running:
    """A job that was started. `silent_since`: it is over, and its answer is not there yet."""

    work: Callable[[Any], State]
    job: Any
    at: Any  # submitit's job
    slot: int
    starts: int = 1
    since: float = -math.inf  # when it was submitted, by this command
    silent_since: float | None = None
    again_at: float = -math.inf


class _Refused(Exception):  # noqa: N818  (no fault of ours)
    """What sbatch said."""


class Cluster:
    """A pool of `compute.ended`."""

    stopping = "jobs finish their step and keep a checkpoint; once more leaves them to it"

    def __init__(self, compute: Compute, folder: Path) -> None:
        self.compute, self.folder = compute, folder
        self.is_slurm = compute.kind == "submitit_slurm"
        now = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
        self.place = (folder / "jobs" / f"{now}-{os.getpid()}").absolute()
        self._submitit = check(compute)
        self._executor = self._configured()
        self._queue = slurm.Queue()
        self._slots = set(range(compute.jobs))
        self._asked = False
        self._said = ""

    def _configured(self) -> Any:
        given = self.compute
        if self.is_slurm:
            return slurm.executor(self._submitit, given, self.place, self.folder.name)
        found = self._submitit.LocalExecutor(self.place, max_num_timeout=given.requeues)
        found.update_parameters(
            timeout_min=given.timeout_min,
            signal_delay_s=given.signal_seconds,
            stderr_to_stdout=True,
        )
        return found

    def give(self, work: Callable[[Any], State], job: Any) -> _Running | None:
        """Start a job, or take up the one that an earlier command left in the queue.

        Raises:
            ValueError: the scheduler refuses it, and it has no other job of ours to end first.
        """
        slot = min(self._slots)
        running = _Running(work, job, None, slot)
        try:
            running.at = self._left_behind(job) or self._submit(running)
        except _Refused as refused:
            if len(self._slots) == self.compute.jobs:
                raise ValueError(
                    f"compute=submitit_slurm: sbatch refuses the job: {refused}. Correct "
                    "compute.partition, compute.account and the like"
                ) from None
            self._say(f"sbatch takes no more jobs for now ({refused}); compute.jobs sets how many")
            return None
        self._slots.remove(slot)
        return running

    def _submit(self, running: _Running) -> Any:
        task = Warned(running.work, running.job)
        running.since, running.silent_since = time.monotonic(), None
        if self.is_slurm:
            try:
                found = self._executor.submit(task)
            except (self._submitit.core.utils.FailedJobError, subprocess.SubprocessError) as error:
                raise _Refused(" ".join(str(error).split())[-300:]) from None
            self._keep(running.job, {"id": found.job_id, "folder": str(self.place)})
            return found
        gpus = self.compute.gpus
        first = running.slot * gpus
        if gpus:
            there = list(range(first, first + gpus))
            self._executor.update_parameters(gpus_per_node=gpus, visible_gpus=there)
        with machine.thread_pools(self.compute.cores), _no_ctrl_c():
            return self._executor.submit(task)

    def _left_behind(self, job: Any) -> Any:
        """A Slurm job of an earlier command, or of another one; None where there is none."""
        entry = self._kept().get(_key(job)) if self.is_slurm else None
        if not isinstance(entry, dict):
            return None
        found = self._submitit.SlurmJob(folder=entry["folder"], job_id=entry["id"])
        if found.paths.result_pickle.exists():  # a failure is not taken up, but tried again
            return found if self._answer(found).status == "complete" else None
        self._queue.ask(every=5.0)
        return None if self._queue.lacks(found.job_id, -math.inf) else found

    def _kept(self) -> dict[str, Any]:
        """A damaged file is as good as none: a job that is not taken up waits for its twin."""
        found = read_json(self.folder / "jobs.json")
        return found if isinstance(found, dict) else {}

    def _keep(self, job: Any, entry: dict[str, str]) -> None:
        with locked(self.folder):
            write_json(self.folder / "jobs.json", {**self._kept(), _key(job): entry})

    def _forget(self, running: _Running) -> None:
        with locked(self.folder):
            kept = self._kept()
            if kept.get(_key(running.job), {}).get("id") == running.at.job_id:
                del kept[_key(running.job)]
                write_json(self.folder / "jobs.json", kept)

    def wait(self, handles: Sequence[_Running]) -> list[_Running]:
        """Those that have ended; one that was stopped from outside is started again."""
        while True:
            if self.is_slurm:
                impatient = self._asked or any(one.silent_since for one in handles)
                self._queue.ask(every=2.0 if impatient else ASK_SECONDS)
            over = [running for running in handles if self._is_over(running)]
            ended = [running for running in over if not self._starts_again(running)]
            if ended:
                return ended
            time.sleep(LOOK_SECONDS)

    def _is_over(self, running: _Running) -> bool:
        if running.at.paths.result_pickle.exists():
            return True
        if self.is_slurm:
            gone = self._queue.lacks(running.at.job_id, running.since)
        else:
            gone = running.at.done()
        if not gone:
            running.silent_since = None
            return False
        now = time.monotonic()
        running.silent_since = running.silent_since or now
        return now - running.silent_since >= (ANSWER_SECONDS if self.is_slurm else 0)

    def _starts_again(self, running: _Running) -> bool:
        if self._asked or running.starts >= STARTS:
            return False
        if time.monotonic() < running.again_at:
            return True
        at = running.at
        if at.paths.result_pickle.exists():
            if self._answer(at).status != "interrupted":
                return False
        elif not self.is_slurm or _end_of(at) not in slurm.BLAMELESS:
            return False
        try:
            running.at = self._submit(running)
        except _Refused as refused:
            self._say(f"sbatch refuses a job that is to go on ({refused}); asking again")
            running.again_at = time.monotonic() + ASK_SECONDS
            return True
        running.starts += 1
        self._clean(at)
        return True

    def _answer(self, at: Any) -> State:
        log = f"its log is {at.paths.stdout}"
        if not at.paths.result_pickle.exists():
            if self._asked:
                return State("interrupted", error="stopped; its newest checkpoint is kept")
            reason = _end_of(at).lower() if self.is_slurm else "killed, most likely"
            error = f"its job {at.job_id} ended without an answer ({reason}); {log}"
            return State("failed", error=error)
        kind, found = pickle.loads(at.paths.result_pickle.read_bytes())
        if kind == "success" and isinstance(found, State):
            return found
        last = str(found).strip().splitlines()[-1:] or [""]
        return State("failed", error=f"its job {at.job_id}: {last[0]}"[:200] + f"; {log}")

    def state(self, handle: _Running) -> State:
        found = self._answer(handle.at)
        self._slots.add(handle.slot)
        self._clean(handle.at)
        if self.is_slurm:
            self._forget(handle)
        return found

    def _clean(self, at: Any) -> None:
        """Numbers of processes come again, and with one an answer that is not its own."""
        if not self.is_slurm:
            at.paths.result_pickle.unlink(missing_ok=True)

    def _say(self, text: str) -> None:
        if text != self._said:
            print(f"ablate: {text}", file=sys.stderr, flush=True)
        self._said = text

    def ask_to_stop(self, handle: _Running) -> None:
        self._asked = True
        if self.is_slurm:
            handle.at.cancel(check=False)
        else:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(handle.at.job_id), signal.SIGTERM)

    def close(self) -> None:
        """Nothing: jobs that are left have been asked to stop, and end by themselves."""


def _end_of(at: Any) -> str:
    """What accounting says of a job; where there is none, UNKNOWN."""
    return ((at.get_info(mode="force").get("State") or "UNKNOWN").split() or ["UNKNOWN"])[0]


def check(compute: Compute) -> Any:
    """The package submitit.

    Raises:
        ValueError: it is not installed, or there is no Slurm here.
    """
    try:
        import submitit
    except ImportError:
        raise ValueError(
            f"compute={compute.kind} needs submitit; type pip install 'ablate[cluster]', or "
            "compute=joblib"
        ) from None
    if compute.kind == "submitit_slurm":
        slurm.check_commands()
    return submitit


@contextlib.contextmanager
def _no_ctrl_c() -> Iterator[None]:
    """Processes started inside do not hear it: the command passes it on as SIGTERM."""
    main = threading.current_thread() is threading.main_thread()
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN) if main else None
    try:
        yield
    finally:
        if main:
            signal.signal(signal.SIGINT, handler)


def _key(job: Any) -> str:
    """The same for the same run in another process."""
    return hashlib.blake2b(repr(job).encode(), digest_size=8).hexdigest()
