"""sbatch, srun, squeue, sacct, scancel and scontrol of one machine, as far as submitit asks them.

Jobs live in the folder of the variable SLURM_STAND_IN: `<id>.sh` is what was submitted, `<id>.json`
says {"state": ..., "step": pid of what srun has started}. While a file `hold` is there, jobs wait.
`install(folder)` writes the commands; a partition called `nowhere` is refused, a file `most` holds
how many jobs may be in the queue, and while there is a file `silent` no question is answered.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

COMMANDS = ("sbatch", "srun", "squeue", "sacct", "scancel", "scontrol")
WAITING = ("PENDING", "RUNNING", "REQUEUED", "SUSPENDED", "COMPLETING")


def install(folder):
    """The folder of the commands, for PATH."""
    there = Path(folder) / "bin"
    there.mkdir(parents=True)
    for name in COMMANDS:
        command = there / name
        command.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{__file__}" {name} "$@"\n')
        command.chmod(0o755)
    return there


def _jobs():
    return Path(os.environ["SLURM_STAND_IN"])


def read(number):
    return json.loads((_jobs() / f"{number}.json").read_text())


def write(number, **values):
    file = _jobs() / f"{number}.json"
    known = json.loads(file.read_text()) if file.exists() else {}
    temporary = file.with_suffix(f".{os.getpid()}")
    temporary.write_text(json.dumps({**known, **values}))
    temporary.replace(file)


def numbers():
    return sorted(int(file.stem) for file in _jobs().glob("*.json"))


def sbatch(script):
    text = Path(script).read_text()
    if "--partition=nowhere" in text:
        print("sbatch: error: invalid partition specified: nowhere", file=sys.stderr)
        return 1
    most = _jobs() / "most"
    waiting = [n for n in numbers() if read(n)["state"] in WAITING]
    if most.exists() and len(waiting) >= int(most.read_text()):
        print("sbatch: error: QOSMaxSubmitJobPerUserLimit", file=sys.stderr)
        return 1
    first = time.time_ns() // 10**7  # submitit keeps in mind what it heard of an earlier test's
    number = max(numbers(), default=first) + 1
    (_jobs() / f"{number}.sh").write_text(text)
    write(number, state="PENDING", step=None)
    subprocess.Popen(
        [sys.executable, __file__, "_run", str(number)], start_new_session=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    print(f"Submitted batch job {number}")
    return 0


def _run(number):
    again = _jobs() / f"{number}.again"
    while True:
        while (_jobs() / "hold").exists():
            if read(number)["state"] == "CANCELLED":
                return 0
            time.sleep(0.05)
        again.unlink(missing_ok=True)
        write(number, state="RUNNING")
        here = {"SLURM_JOB_ID": number, "SLURM_NTASKS": 1, "SLURM_JOB_NUM_NODES": 1}
        here |= {"SLURM_NODEID": 0, "SLURM_JOB_NODELIST": "node1", "SLURM_JOB_NAME": "ablate"}
        env = {**os.environ, **{name: str(value) for name, value in here.items()}}
        code = subprocess.run(["bash", str(_jobs() / f"{number}.sh")], env=env, check=False)
        if again.exists():
            write(number, state="REQUEUED", step=None)
        elif read(number)["state"] == "COMPLETING":
            write(number, state="CANCELLED", step=None)
        elif read(number)["state"] == "RUNNING":
            state = "COMPLETED" if code.returncode == 0 else "FAILED"
            write(number, state=state, step=None)
        if not again.exists():
            return 0


def srun(*words):
    words = list(words)
    output = None
    while words[0].startswith("--"):
        option = words.pop(0)
        if option in ("--output", "--error"):
            value = words.pop(0)
            output = value if option == "--output" else output
    number = os.environ["SLURM_JOB_ID"]
    file = output.replace("%j", number).replace("%t", "0")
    env = {**os.environ, "SLURM_PROCID": "0", "SLURM_LOCALID": "0"}
    with open(file, "a") as log:
        step = subprocess.Popen(words, env=env, stdout=log, stderr=log)
        write(int(number), step=step.pid)
        return step.wait() and 1


def squeue(*words):
    if (_jobs() / "silent").exists():
        print("squeue: error: Socket timed out", file=sys.stderr)
        return 1
    print(*(n for n in numbers() if read(n)["state"] in WAITING), sep="\n")
    return 0


def sacct(*words):
    if (_jobs() / "silent").exists():
        return 1
    print("JobID|State|NodeList")
    for number in re.findall(r"\d+", " ".join(words)):
        if int(number) in numbers():
            print(f"{number}|{read(int(number))['state']}|node1")
    return 0


def scancel(number, *words):
    signum = signal.Signals[f"SIG{words[1].removeprefix('SIG')}"] if words else signal.SIGTERM
    job = read(int(number))
    if not words:
        write(int(number), state="COMPLETING" if job["step"] else "CANCELLED")
    if job["step"]:
        os.kill(job["step"], signum)
    return 0


def scontrol(verb, number):
    assert verb == "requeue"
    (_jobs() / f"{number}.again").touch()
    return 0


if __name__ == "__main__":
    name, *arguments = sys.argv[1:]
    sys.exit(globals()[name](*(map(int, arguments) if name == "_run" else arguments)))
