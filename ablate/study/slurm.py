"""Slurm, as far as submitit does not ask it: its options, and which jobs are still in the queue.

Accounting (sacct) is absent, late or down at many sites, and its words for a job that will come
back and for one that will not are the same; the queue itself (squeue) knows.
"""

from __future__ import annotations

import getpass
import math
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

from ablate.study.computes import Compute
from ablate.tokens.encoders import THREAD_POOLS

COMMANDS = ("sbatch", "srun", "squeue", "scancel", "scontrol")
BLAMELESS = ("PREEMPTED", "NODE_FAIL", "BOOT_FAIL")  # ends that say nothing against the job


def check_commands() -> None:
    """Raises:
    ValueError: this is no machine of a Slurm cluster.
    """
    missing = [name for name in COMMANDS if shutil.which(name) is None]
    if missing:
        raise ValueError(
            f"compute=submitit_slurm needs {', '.join(missing)}, which is not on this machine; "
            "type it on a login node of the cluster, or compute=submitit_local to rehearse it"
        )


def executor(submitit: Any, given: Compute, place: Path, name: str) -> Any:
    """submitit's executor: one task a job, logs and answers in `place`."""
    found = submitit.SlurmExecutor(place, max_num_timeout=given.requeues)
    optional = {
        "partition": given.partition,
        "account": given.account,
        "qos": given.qos,
        "constraint": given.constraint,
        "gpus_per_node": given.gpus or None,
        "mem": None if given.mem_gb is None else f"{math.ceil(given.mem_gb * 1024)}M",
    }
    found.update_parameters(
        job_name=f"ablate-{name}",
        time=given.timeout_min,
        signal_delay_s=given.signal_seconds,
        nodes=1,
        ntasks_per_node=1,
        cpus_per_task=given.cores,
        srun_args=[f"--cpus-per-task={given.cores}"],  # not passed on since Slurm 22.05
        setup=[*(f"export {pool}={given.cores}" for pool in THREAD_POOLS), *given.setup],
        stderr_to_stdout=True,
        additional_parameters={"requeue": True, **given.sbatch},
        **{name: value for name, value in optional.items() if value is not None},
    )
    return found


class Queue:
    """This user's jobs, waiting or running, as squeue has last listed them."""

    def __init__(self) -> None:
        self._listed: set[str] = set()
        self._at = self._tried = -math.inf

    def ask(self, every: float) -> None:
        """Ask, but for the last `every` seconds; where Slurm is silent what it said last stands."""
        now = time.monotonic()
        if now - self._tried < every:
            return
        self._tried = now
        words = ["squeue", "--noheader", "--format=%i", f"--user={getpass.getuser()}"]
        try:
            done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
        except (OSError, subprocess.TimeoutExpired):
            return
        if done.returncode == 0:
            self._listed, self._at = set(done.stdout.split()), now

    def lacks(self, job_id: str, since: float) -> bool:
        """Whether it was not there when asked after `since`; False where nobody knows."""
        return self._at > since and job_id not in self._listed
