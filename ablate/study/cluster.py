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
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ablate.pretraining import machine
from ablate.study.cluster_job import Warned
from ablate.study.compute import NOT_BEGUN
from ablate.study.computes import Compute
from ablate.study.states import State
from ablate.tokens.encoders import THREAD_POOLS
from ablate.tracking.record import locked, read_json, write_json

_SLURM = ("sbatch", "srun", "sacct", "scancel", "scontrol")
STARTS = 20  # of one run whose jobs are stopped from outside
LOOK_SECONDS = 0.5  # between looks for the answers of jobs
ASK_SECONDS = 60.0  # between questions to Slurm, which many users share
ANSWER_SECONDS = 15.0  # a shared file system may show an ended job's answer that late


@dataclass(eq=False)
class _Running:
    """A job that was started; `silent_since`: it is over, and its answer is not there yet."""

    work: Callable[[Any], State]
    job: Any
    at: Any  # submitit's job
    slot: int
    starts: int = 1
    silent_since: float | None = None


class Cluster:
    """A pool of `compute.ended`."""

    stopping = "jobs finish their step and keep a checkpoint; once more leaves them to it"

    def __init__(self, compute: Compute, folder: Path) -> None:
        self.compute, self.folder = compute, folder
        now = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
        self.place = (folder / "jobs" / f"{now}-{os.getpid()}").absolute()
        self._submitit = _import(compute)
        self._executor = self._configured()
        self._slots = set(range(compute.jobs))
        self._asked = False
        self._asked_slurm = time.monotonic()

    @property
    def _is_slurm(self) -> bool:
        return self.compute.kind == "submitit_slurm"

    def _configured(self) -> Any:
        """submitit's executor.

        Raises:
            ValueError: no Slurm here, or an option that it does not know.
        """
        given = self.compute
        common = {"signal_delay_s": given.signal_seconds, "stderr_to_stdout": True}
        if not self._is_slurm:
            executor = self._submitit.LocalExecutor(self.place, max_num_timeout=given.requeues)
            executor.update_parameters(timeout_min=given.timeout_min, **common)
            return executor
        missing = [name for name in _SLURM if shutil.which(name) is None]
        if missing:
            raise ValueError(
                f"compute=submitit_slurm needs {', '.join(missing)}, which is not on this machine; "
                "type it on a login node of the cluster, or compute=submitit_local to rehearse it"
            )
        executor = self._submitit.SlurmExecutor(self.place, max_num_timeout=given.requeues)
        optional = {
            "partition": given.partition,
            "account": given.account,
            "qos": given.qos,
            "constraint": given.constraint,
            "gpus_per_node": given.gpus or None,
            "mem": None if given.mem_gb is None else f"{math.ceil(given.mem_gb * 1024)}M",
        }
        executor.update_parameters(
            job_name=f"ablate-{self.folder.name}",
            time=given.timeout_min,
            nodes=1,
            ntasks_per_node=1,
            cpus_per_task=given.threads,
            srun_args=[f"--cpus-per-task={given.threads}"],  # not passed on since Slurm 22.05
            setup=[*(f"export {name}={given.threads}" for name in THREAD_POOLS), *given.setup],
            additional_parameters={"requeue": True, **given.sbatch},
            **common,
            **{name: value for name, value in optional.items() if value is not None},
        )
        return executor

    def give(self, work: Callable[[Any], State], job: Any) -> _Running:
        """Start a job, or take up the one that an earlier command left in the queue.

        Raises:
            ValueError: the scheduler refuses it.
        """
        running = _Running(work, job, None, self._slots.pop())
        running.at = self._left_behind(job) or self._submit(running)
        return running

    def _submit(self, running: _Running) -> Any:
        task = Warned(running.work, running.job)
        if self._is_slurm:
            try:
                found = self._executor.submit(task)
            except (self._submitit.core.utils.FailedJobError, subprocess.SubprocessError) as error:
                reason = " ".join(str(error).split())[-300:]
                raise ValueError(
                    f"compute=submitit_slurm: sbatch refuses the job: {reason}. Correct "
                    "compute.partition, compute.account and the like"
                ) from None
            self._keep(running.job, {"id": found.job_id, "folder": str(self.place)})
            return found
        gpus = self.compute.gpus
        first = running.slot * gpus
        if gpus:
            there = list(range(first, first + gpus))
            self._executor.update_parameters(gpus_per_node=gpus, visible_gpus=there)
        with machine.thread_pools(self.compute.threads), _no_ctrl_c():
            return self._executor.submit(task)

    def _left_behind(self, job: Any) -> Any:
        """A Slurm job of an earlier command, or of another one; None where there is none."""
        if not self._is_slurm:
            return None
        entry = self._kept().get(_key(job))
        if entry is None:
            return None
        found = self._submitit.SlurmJob(folder=entry["folder"], job_id=entry["id"])
        if found.paths.result_pickle.exists():  # a failure is not taken up, but tried again
            return found if self._answer(found).status == "complete" else None
        over = found.done(force_check=True) or found.state == "UNKNOWN"
        return None if over else found

    def _kept(self) -> dict[str, Any]:
        """A damaged file is as good as none: a job that is not taken up waits for its twin."""
        found = read_json(self.folder / "jobs.json")
        return found if isinstance(found, dict) else {}

    def _keep(self, job: Any, entry: dict[str, str] | None) -> None:
        with locked(self.folder):
            kept = self._kept()
            kept.pop(_key(job), None)
            if entry is not None:
                kept[_key(job)] = entry
            write_json(self.folder / "jobs.json", kept)

    def wait(self, handles: Sequence[_Running]) -> list[_Running]:
        """Those that have ended; one that was stopped from outside is started again."""
        while True:
            self._ask_slurm(handles)
            over = [running for running in handles if self._is_over(running)]
            ended = [running for running in over if not self._starts_again(running)]
            if ended:
                return ended
            time.sleep(LOOK_SECONDS)

    def _ask_slurm(self, handles: Sequence[_Running]) -> None:
        """One question for all jobs; submitit's own become rare after hours."""
        now = time.monotonic()
        if self._is_slurm and now - self._asked_slurm >= (2.0 if self._asked else ASK_SECONDS):
            self._asked_slurm = now
            handles[0].at.done(force_check=True)

    def _is_over(self, running: _Running) -> bool:
        if running.at.paths.result_pickle.exists():
            return True
        if not running.at.done():
            running.silent_since = None
            return False
        now = time.monotonic()
        running.silent_since = running.silent_since or now
        return self._asked or now - running.silent_since >= (ANSWER_SECONDS * self._is_slurm)

    def _starts_again(self, running: _Running) -> bool:
        if self._asked or running.starts >= STARTS:
            return False
        if not running.at.paths.result_pickle.exists():
            return False
        if self._answer(running.at).status != "interrupted":
            return False
        running.starts += 1
        running.at, running.silent_since = self._submit(running), None
        return True

    def _answer(self, at: Any) -> State:
        log = f"its log is {at.paths.stdout}"
        if not at.paths.result_pickle.exists():
            if self._asked:
                return NOT_BEGUN
            reason = at.state.lower() if self._is_slurm else "killed, most likely"
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
        if self._is_slurm:
            self._keep(handle.job, None)
        return found

    def ask_to_stop(self, handle: _Running) -> None:
        self._asked = True
        if self._is_slurm:
            handle.at.cancel(check=False)
        else:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(handle.at.job_id), signal.SIGTERM)

    def close(self) -> None:
        """Nothing: jobs that are left have been asked to stop, and end by themselves."""


def _import(compute: Compute) -> Any:
    try:
        import submitit
    except ImportError:
        raise ValueError(
            f"compute={compute.kind} needs submitit; type pip install 'ablate[cluster]', or "
            "compute=joblib"
        ) from None
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
