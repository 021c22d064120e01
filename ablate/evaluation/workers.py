"""Parts of measurements -> measured, one after another here or side by side in worker processes.

Every part runs with the threads of its setup, here or there, so that the number of workers changes
no bit of a result. Workers are fresh processes (a fork of one that has used torch may hang); they
end with the process that started them, however that ends.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any, NamedTuple

from ablate.evaluation.measurement import Measurement, Part, Setup, Subject
from ablate.pretraining import machine

_WATCH_SECONDS = 1.0
_subject: Subject | None = None  # of this worker


class Task(NamedTuple):
    """Part `number` of a measurement, with a setup of its own where it has one."""

    measurement: Measurement
    number: int
    setup: Setup | None = None


class Done(NamedTuple):
    part: Part
    seconds: float


Progress = Callable[[str, int, int], None]


def measure_here(
    subject: Subject, setup: Setup, tasks: Sequence[Task], *, threads: int, on_progress: Progress
) -> Iterator[tuple[Task, Done]]:
    """One after another in this process; progress counts the steps inside a part."""
    import torch

    before = torch.get_num_threads()
    machine.set_threads(threads)
    try:
        for task in tasks:
            name = task.measurement.name

            def on_step(done: int, total: int, name: str = name) -> None:
                on_progress(name, done, total)

            yield task, _measure(subject, setup, task, on_step)
    finally:
        machine.set_threads(before)


def measure_in_workers(
    subject: Subject,
    setup: Setup,
    tasks: Sequence[Task],
    *,
    threads: int,
    devices: Sequence[str],
    on_progress: Progress,
) -> Iterator[tuple[Task, Done]]:
    """In one worker a device (`cpu` several times for several), in the order of completion.

    Progress counts finished parts.

    Raises:
        RuntimeError: a worker was killed; what the others finished has been handed out.
    """
    import torch

    context = multiprocessing.get_context("spawn")
    free = context.SimpleQueue()
    for device in devices:
        free.put(device)
    with tempfile.TemporaryDirectory(prefix="ablate-") as folder:
        file = Path(folder) / "subject.pt"
        torch.save(subject, file)
        with machine.thread_pools(threads):
            pool = ProcessPoolExecutor(
                len(devices), mp_context=context, initializer=_begin,
                initargs=(str(file), threads, free, os.getpid()),
            )  # fmt: skip
            futures = {pool.submit(_measure_there, setup, task): task for task in tasks}
        try:
            yield from _finished(futures, on_progress)  # an error of a part comes out here
        except BrokenProcessPool:
            raise RuntimeError(
                "a worker of the evaluation was killed, most likely because memory ran out; the "
                "same command continues, evaluation.jobs=1 needs least memory"
            ) from None
        finally:
            for process in (processes := list((pool._processes or {}).values())):
                process.kill()  # their parts are whole files or nothing
            pool.shutdown(wait=False, cancel_futures=True)
            for process in processes:
                process.join()


def _finished(
    futures: dict[Future[Done], Task], on_progress: Progress
) -> Iterator[tuple[Task, Done]]:
    totals: dict[str, int] = {}
    for task in futures.values():
        totals[task.measurement.name] = totals.get(task.measurement.name, 0) + 1
    counts = dict.fromkeys(totals, 0)
    for future in as_completed(futures):
        task = futures[future]
        done = future.result()
        name = task.measurement.name
        counts[name] += 1
        on_progress(name, counts[name], totals[name])
        yield task, done


def _begin(file: str, threads: int, free: Any, parent: int) -> None:
    """Once in each worker: memory, threads, the model on the worker's device."""
    global _subject
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that started us
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    machine.keep_freed_memory()
    machine.set_threads(threads)
    import torch

    subject: Subject = torch.load(file, weights_only=False)  # our own file of a moment ago
    subject.model.to(free.get())
    _subject = subject


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_WATCH_SECONDS)
    os._exit(1)


def _measure_there(setup: Setup, task: Task) -> Done:
    assert _subject is not None
    return _measure(_subject, setup, task, lambda done, total: None)


def _measure(
    subject: Subject, setup: Setup, task: Task, on_step: Callable[[int, int], None]
) -> Done:
    began = time.perf_counter()
    part = task.measurement.measure(subject, task.setup or setup, task.number, on_step)
    return Done(part, time.perf_counter() - began)
