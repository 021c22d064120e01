"""Runs side by side, with their share of the cores each, against one run alone: tokens a second.

What `compute=joblib` does with the toy arm: every worker has cores // jobs threads. The sides take
turns (alone with all cores, alone with one thread, all jobs at once), each in processes that live
through the measurement; a turn trains the default arm for some steps from its beginning. Seconds
are those of the driving process, from its word to the last answer: a slow start counts.
"""

from __future__ import annotations

import multiprocessing
import statistics
import tempfile
import time
import traceback
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

BAR = 0.95  # tokens/s of all jobs together, over those of one run alone
_QUIETLY = [
    "budget.clock=steps", "evaluation=none", "tracking=none", "trainer.progress_bar=false",
    "trainer.num_validations=1", "trainer.validation_rows=1",
]  # fmt: skip


def measure(
    *, jobs: int, steps: int, repeats: int, overrides: tuple[str, ...] = ()
) -> dict[str, Any]:
    """Tokens a second of each side, and their ratio to the faster of those alone.

    Raises:
        ValueError: a number below its least.
    """
    for name, value, least in (("jobs", jobs, 2), ("steps", steps, 2), ("repeats", repeats, 1)):
        if value < least:
            raise ValueError(
                f"--{name} {value} must be at least {least}; type for example --{name} {least}"
            )
    from ablate.pretraining.machine import available_cores

    cores = available_cores()
    threads = max(cores // jobs, 1)
    words = [*_QUIETLY, f"budget.amount={steps}", *overrides]
    workers: list[_Worker] = []
    with tempfile.TemporaryDirectory(prefix="ablate-bench-") as folder:
        try:
            alone = [] if threads == 1 else [1]  # else one of those of the jobs is its twin
            for number, count in enumerate([cores, *[threads] * jobs, *alone]):
                own = [f"trainer.threads={count}", f'paths.runs_dir="{folder}/{number}"']
                workers.append(_Worker([*words, *own]))
                workers[-1].receive()  # one after another: the first makes what all read
            sides = {
                "alone, all cores": workers[:1],
                "alone, 1 thread": workers[-1:],
                f"{jobs} at once": workers[1 : jobs + 1],
            }
            found: dict[str, list[float]] = {name: [] for name in sides}
            for _ in range(repeats):
                for name, side in sides.items():
                    found[name].append(_turn(side))
        finally:
            for worker in workers:
                worker.kill()
    speeds = {name: statistics.median(turns) for name, turns in found.items()}
    together = speeds.pop(f"{jobs} at once")
    ratio = together / max(speeds.values())
    return {
        "cores": cores,
        "jobs": jobs,
        "threads_a_job": threads,
        "steps": steps,
        "repeats": repeats,
        "tokens_per_second": {**speeds, f"{jobs} at once": together},
        "turns": found,
        "ratio": ratio,
        "bar": BAR,
        "pass": ratio >= BAR,
    }


class _Worker:
    """The parent's end of a process that trains whenever it is told to."""

    def __init__(self, overrides: list[str]) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, overrides), daemon=True)
        self._process.start()
        theirs.close()

    def go(self) -> None:
        self._connection.send("train")

    def receive(self) -> float:
        """Tokens of the turn that has ended; 0 of the first answer, which says it is ready."""
        try:
            answer = self._connection.recv()
        except EOFError:
            raise ValueError("a worker was killed, most likely because memory ran out") from None
        if isinstance(answer, str):
            raise RuntimeError(f"a worker failed:\n{answer}")
        return float(answer)

    def kill(self) -> None:
        if self._process.is_alive():
            self._process.kill()
        self._process.join()


def _turn(side: list[_Worker]) -> float:
    """Tokens a second of all workers of a side together."""
    begun = time.perf_counter()
    for worker in side:
        worker.go()
    tokens = sum(worker.receive() for worker in side)
    return tokens / (time.perf_counter() - begun)


def _serve(connection: Connection, overrides: list[str]) -> None:
    """The worker's process: a first training, which is thrown away, then one a word."""
    try:
        from ablate.config.compose import compose_settings
        from ablate.run.arm import prepare

        arm = prepare(compose_settings(overrides), overrides)
        _train(arm)
        connection.send(0.0)
        while connection.recv() == "train":
            connection.send(_train(arm))
    except EOFError:  # the parent has gone
        return
    except Exception:
        connection.send(traceback.format_exc())


def _train(arm: Any) -> float:
    """The stage that trains, in a folder that is new each time; how many tokens it took."""
    from ablate.run.stages import pretrain_stage

    with tempfile.TemporaryDirectory(dir=_folder(arm)) as folder:
        _, trained = pretrain_stage(arm, Path(folder) / "run", None)
    return float(trained.record["clocks"]["tokens"])


def _folder(arm: Any) -> Path:
    place = Path(arm.settings.paths.runs_dir)
    place.mkdir(parents=True, exist_ok=True)
    return place


def table(found: dict[str, Any]) -> list[str]:
    """The result as lines for people."""
    lines = [
        f"the default arm, {found['steps']} steps a turn, {found['repeats']} turns a side, "
        f"{found['cores']} cores; {found['jobs']} jobs have {found['threads_a_job']} thread(s) each"
    ]
    for name, speed in found["tokens_per_second"].items():
        lines.append(f"{name:<18}{speed:>12,.0f} tokens/s")
    verdict = "pass" if found["pass"] else "short"
    lines.append(
        f"ratio to the faster one alone {found['ratio']:.2f}; bar {found['bar']:.2f}  {verdict}"
    )
    return lines
