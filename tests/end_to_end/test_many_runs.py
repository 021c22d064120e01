"""Many short runs in one process, and on workers: nothing of a run outlives it but its record.

What a worker of a study does (`study.compute.run_job`) is done in a process of its own, which notes
after every run what it holds: Python's threads, open files, child processes, W&B's run, memory.

Memory: a run of these sizes has about 4 MiB that could be kept (weights, gradients and two moments
of 0.25 M parameters), and Lightning's trainer, which holds itself in cycles, costs 1.1 MiB a run
where nobody collects it (measured). What is left is wandb's and torch's own, 0.1 to 0.2 MiB a run
over the first 64 (measured) and less with each. The limit lies between, on the median of all
slopes between two runs, which no single step of the allocator moves.
"""

import itertools
import json
import os
import runpy
import statistics
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
run_of = runpy.run_path(str(ROOT / "tests" / "wandb_file.py"))["run_of"]

LIMIT = 0.4  # MiB a run
FAILING = 5  # the seed of the run that fails, before the warm-up is over
COMMON = [
    "budget.clock=steps", "budget.amount=3", "corpus.num_documents=60",
    "corpus.validation_fraction=0.1", "trainer.validation_rows=4", "trainer.num_validations=1",
    "trainer.threads=1", "trainer.global_batch_size=8", "trainer.progress_bar=false",
    "trainer.log_every=1", "evaluation=none", "evaluation.ngram_baseline=false",
    "paths.cache_dir=cache", "tracking.mode=offline",
]  # fmt: skip
DRIVER = """
import json, os, sys, threading
from pathlib import Path
from ablate.run import single
from ablate.study.compute import Job, run_all, run_job
from ablate.study.computes import Compute

number, workers, failing = map(int, sys.argv[1:4])
common = sys.argv[4:]


def holds():
    files = []
    for entry in os.listdir("/proc/self/fd"):
        try:
            files.append(os.readlink(f"/proc/self/fd/{entry}").partition(":")[0])
        except FileNotFoundError:  # the listing's own
            pass
    status = Path("/proc/self/status").read_text().split("VmRSS:")[1]
    wandb = sys.modules.get("wandb")
    return {
        "threads": sorted(thread.name for thread in threading.enumerate()),
        "files": sorted(files),
        "children": sorted(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()),
        "open_run": wandb is not None and wandb.run is not None,
        "mebibytes": int(status.split()[0]) / 1024,
    }


def work(job):
    def gone(*args, **more):
        raise OSError("asked for")
    kept = single.evaluate_stage
    if job.seed == failing:
        single.evaluate_stage = gone
    try:
        state = run_job(job)
    finally:
        single.evaluate_stage = kept
    with open(f"held-{os.getpid()}", "a") as file:
        file.write(json.dumps({**holds(), "status": state.status, "seed": job.seed}) + "\\n")
    return state


def jobs():
    for seed in range(number):
        rate = 0.1 + seed / 1000
        kind = "none" if seed % 4 == 3 else "wandb"
        words = [f"seed={seed}", f"arm=a{seed}", f"tracking={kind}", f"masking.mask_rate={rate}"]
        yield Job(f"a{seed}", seed, [*common, *words])


if workers == 1:
    for job in jobs():
        work(job)
else:
    before = holds()
    compute = Compute("joblib", jobs=workers, cpus=1)
    for _ in run_all(work, list(jobs()), compute, Path("study")):
        pass
    after = holds()
    commands = [Path(f"/proc/{pid}/cmdline").read_text() for pid in after["children"]]
    Path("parent").write_text(json.dumps([before, {**after, "children": commands}]))
"""


def driven(folder, number, workers):
    """What each process held after each of its runs, by process."""
    not_ours = ("WANDB_MODE", "WANDB_SERVICE")  # the core of a test before this one
    env = {k: v for k, v in os.environ.items() if k not in not_ours}
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, str(number), str(workers), str(FAILING), *COMMON],
        cwd=folder, env={**env, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True,
        timeout=1800,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "warning" not in done.stderr, done.stderr
    assert done.stderr.count("OSError: asked for") == 1
    return [
        [json.loads(line) for line in path.read_text().splitlines()]
        for path in sorted(folder.glob("held-*"))
    ]


def slope(values):
    """Theil and Sen's: the median of the slopes between every two."""
    pairs = itertools.combinations(enumerate(values), 2)
    return statistics.median((b - a) / (j - i) for (i, a), (j, b) in pairs)


def check_nothing_is_left(held, warm):
    first = held[warm]
    for after in held[warm:]:
        assert after["threads"] == first["threads"]
        assert after["files"] == first["files"]
        assert after["children"] == first["children"]  # W&B's core; no worker of a loader
        assert not after["open_run"]


def check_records(folder, number):
    """Each run has its own record, settings and W&B run; the failed one says so everywhere."""
    found = {}
    for path in folder.glob("runs/single/*/record.json"):
        record = json.loads(path.read_text())
        found[record["seed"]] = record
        rate = 0.1 + record["seed"] / 1000
        settings = yaml.safe_load((path.parent / "config.yaml").read_text())
        assert (settings["seed"], settings["masking"]["mask_rate"]) == (record["seed"], rate)
        failed = record["seed"] == FAILING
        assert record["status"] == ("failed" if failed else "complete")
        assert record.get("failure") == ("OSError: asked for" if failed else None)
        if record["seed"] % 4 == 3:
            assert not (path.parent / "wandb").exists()
            continue
        (shown,) = record["wandb"]
        rows = run_of(path.parent)
        (run,) = [row.run for row in rows if row.HasField("run")]
        assert run.run_id == shown["id"]
        keys = [item for row in rows if row.HasField("run") for item in row.run.config.update]
        (whole,) = [json.loads(item.value_json) for item in keys if item.key == "cfg"]
        assert (whole["seed"], whole["masking"]["mask_rate"]) == (record["seed"], rate)
        if not failed:
            lines = (path.parent / "metrics.jsonl").read_text().splitlines()
            assert sum(row.HasField("history") for row in rows) == len(lines)
        assert [row.exit.exit_code for row in rows if row.HasField("exit")] == [int(failed)]
    assert sorted(found) == list(range(number))
    ids = [run["id"] for record in found.values() for run in record.get("wandb", [])]
    assert len(set(ids)) == len(ids) == sum(seed % 4 != 3 for seed in range(number))


@pytest.mark.parametrize(
    ("number", "warm", "limit"),
    [(10, 6, 3 * LIMIT), pytest.param(64, 8, LIMIT, marks=pytest.mark.slow)],
)
def test_runs_of_one_process_leave_nothing(tmp_path, number, warm, limit):
    """A few runs still have first times among them, so that their limit is wider."""
    (held,) = driven(tmp_path, number, workers=1)
    assert len(held) == number
    check_nothing_is_left(held, warm)
    check_records(tmp_path, number)
    grown = slope([after["mebibytes"] for after in held[warm:]])
    assert grown < limit, [after["mebibytes"] for after in held]


@pytest.mark.slow
def test_runs_of_two_workers_leave_nothing(tmp_path):
    held = driven(tmp_path, 64, workers=2)
    assert len(held) == 2  # no worker was lost and replaced
    assert sum(map(len, held)) == 64
    for of_worker in held:
        check_nothing_is_left(of_worker, 8)
        assert slope([after["mebibytes"] for after in of_worker[8:]]) < LIMIT
    check_records(tmp_path, 64)
    before, after = json.loads((tmp_path / "parent").read_text())
    assert after["threads"] == before["threads"]
    trackers = [command for command in after["children"] if "resource_tracker" in command]
    assert after["children"] == trackers  # Python's and loky's, once in a process
    assert len(after["files"]) <= len(before["files"]) + len(trackers)  # a pipe to each
