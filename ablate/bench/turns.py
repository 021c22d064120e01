"""Long-lived workers that take turns: ours, theirs, ours, theirs, each in a process of its own.

A worker sets its memory allocator and threads before torch is imported, builds its side, warms up,
and then runs some steps whenever it is told to. Between turns it waits without using a processor.
With each turn it tells how many processors others kept busy meanwhile (Linux), so that turns which
something else disturbed can be left out.
"""

from __future__ import annotations

import multiprocessing
import os
import statistics
import time
import traceback
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from ablate.bench.encoder_rows import Side
from ablate.bench.processes import peak_megabytes

QUIET = 0.15  # processors busy with something else, up to which a turn counts
TURN_SECONDS, MOST_STEPS = 1.0, 50  # a turn is as many steps as take about so long, at least 1
_STAT = Path("/proc/stat")


class Worker:
    """The parent's end of one worker."""

    def __init__(self, side: Side, threads: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=serve, args=(theirs, side, threads), daemon=True)
        self._name = side.model
        self.turns: list[Turn] = []
        self._process.start()
        theirs.close()

    def about(self) -> dict[str, Any]:
        """What it is, after its warm-up: probe, number of parameters, kernel, ..."""
        return self._receive()

    def turn(self) -> None:
        """Let it run some steps, and keep what they took."""
        self._connection.send("turn")
        self.turns.append(Turn(**self._receive()))

    def end(self) -> float:
        """Stop it; its peak memory in 10^6 bytes."""
        self._connection.send("end")
        peak = self._receive()["peak_mb"]
        self._process.join()
        return peak

    def kill(self) -> None:
        """Stop it without asking."""
        if self._process.is_alive():
            self._process.kill()
        self._process.join()

    def _receive(self) -> dict[str, Any]:
        try:
            answer = self._connection.recv()
        except EOFError:
            raise ValueError(
                f"the worker of {self._name} was killed, most likely because memory ran out; "
                "type --only A_default for a small row"
            ) from None
        if "error" in answer:
            raise RuntimeError(f"the worker of {self._name} failed:\n{answer['error']}")
        return answer


@dataclass
class Turn:
    """What one turn took: seconds of each step, processors busy with something else."""

    seconds: list[float] = field(default_factory=list)
    others: float = 0.0


def median_seconds(turns: list[Turn]) -> tuple[float, int]:
    """(median seconds a step, undisturbed turns): over those turns, over all if there are none."""
    quiet = [turn for turn in turns if turn.others <= QUIET]
    return statistics.median(s for turn in quiet or turns for s in turn.seconds), len(quiet)


def take_turns(workers: list[Worker], repeats: int, *, patience: float) -> None:
    """`repeats` rounds, each worker once a round.

    `patience` is how many seconds may be spent, over all rounds, waiting for others to finish.
    """
    for _ in range(repeats):
        for worker in workers:
            patience -= _wait_until_quiet(patience)
            worker.turn()


def _wait_until_quiet(patience: float) -> float:
    """Wait until nothing else works, for `patience` seconds at most; the seconds it took."""
    begin = time.perf_counter()
    while time.perf_counter() - begin < patience:
        busy, before = _busy_seconds(), time.perf_counter()
        time.sleep(0.2)
        if _busy_seconds() - busy <= QUIET * (time.perf_counter() - before):
            break
    return time.perf_counter() - begin


def serve(connection: Connection, side: Side, threads: int) -> None:
    """The worker's process: build, warm up, then answer until told to end."""
    try:
        if side.keep_memory:
            from ablate.pretraining.machine import keep_freed_memory

            keep_freed_memory()
        import torch

        torch.set_num_threads(threads)
        from ablate.bench import encoder_sides

        made = encoder_sides.build(side)
        begin = time.perf_counter()
        made.step()
        steps = round(TURN_SECONDS / (time.perf_counter() - begin))
        steps = min(max(1, steps), MOST_STEPS)
        connection.send(made.about)
        while connection.recv() == "turn":
            connection.send(one_turn(made.step, steps))
        connection.send({"peak_mb": peak_megabytes()})
    except Exception:
        connection.send({"error": traceback.format_exc()})


def one_turn(step: Any, steps: int) -> dict[str, Any]:
    """The fields of a `Turn` of so many steps."""
    seconds = []
    busy, own, begin = _busy_seconds(), time.process_time(), time.perf_counter()
    for _ in range(steps):
        before = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - before)
    took = time.perf_counter() - begin
    others = (_busy_seconds() - busy) - (time.process_time() - own)
    return {"seconds": seconds, "others": max(0.0, others / took)}


def _busy_seconds() -> float:
    """Seconds that all processors have worked since the start of the system; 0 where unknown."""
    if not _STAT.exists():
        return time.process_time()
    user, nice, system, _, _, irq, softirq, *_ = (
        int(number) for number in _STAT.read_text().split("\n", 1)[0].split()[1:]
    )
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")
