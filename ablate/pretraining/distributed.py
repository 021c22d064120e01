"""A fit over several devices of one machine: how its ranks start, stop, and what comes back.

`ddp_fork` and `ddp_spawn` start all ranks as children, and this process waits: it passes signals
on, gets the weights back by Lightning and what rank 0 has counted by a file. Under `ddp` and `fsdp`
this process is rank 0 and the others run its command again (`run.stages.follow`). Either way what
follows the fit goes on in this process alone, as after a fit on one device.

What the ranks compute is in `module`: sums over all ranks, so every rank knows the same.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import multiprocessing
import os
import pickle
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Callback
from pytorch_lightning.plugins.environments import LightningEnvironment
from pytorch_lightning.strategies import DDPStrategy, Strategy
from torch import distributed as torch_distributed
from torch.multiprocessing.spawn import ProcessException

from ablate.encoder.heads import MaskedLanguageModel
from ablate.inputs.mask_counts import MaskCounts
from ablate.pretraining import machine
from ablate.pretraining.interrupted import Interrupted
from ablate.pretraining.sharded import Sharded, gathered

_STARTS = {"ddp": "popen", "ddp_fork": "fork", "ddp_spawn": "spawn"}
_LEFT_BEHIND = (  # by Lightning, in the environment of this process
    "LOCAL_RANK", "NODE_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "OMP_NUM_THREADS",
    machine.MARK,
)  # fmt: skip


def _ranks(strategy: str, devices: int, *, find_unused: bool) -> dict[str, Any]:
    """Arguments of the Trainer that spread a fit over `devices`.

    The buffers are constants, so they are not sent at each step. `find_unused` is for models some
    of whose parameters get no gradient.
    """
    chosen: Strategy
    if strategy == "fsdp":
        chosen = Sharded(devices)
    else:
        chosen = DDPStrategy(
            start_method=_STARTS[strategy],  # type: ignore[arg-type]
            broadcast_buffers=False,
            gradient_as_bucket_view=True,
            find_unused_parameters=find_unused,
        )
    # one machine, whatever a cluster's environment says
    return {"strategy": chosen, "devices": devices, "plugins": [LightningEnvironment()]}


def are_children(strategy: str | None) -> bool:
    """Whether all ranks are children of this process."""
    return strategy in ("ddp_fork", "ddp_spawn")


def summed_counts(counts: MaskCounts, summed: Callable[[list[float]], list[float]]) -> MaskCounts:
    """Counts over all ranks; `summed` adds up a list of numbers over them."""
    lists = {n: v if isinstance(v, list) else [v] for n, v in vars(counts).items()}
    total = iter(summed([float(number) for values in lists.values() for number in values]))
    found = {name: [int(next(total)) for _ in values] for name, values in lists.items()}
    parts: dict[str, Any] = {
        name: values if isinstance(vars(counts)[name], list) else values[0]
        for name, values in found.items()
    }
    return MaskCounts(**parts)


class RankProcess(Callback):
    """Prepares each rank's process; rank 0, where it is a child, writes what it knows at the end.

    `quiet` is called in every process: what it filters, a spawned one has not inherited.
    """

    def __init__(
        self, outcome: Path, *, threads: int, children: bool, quiet: Callable[[], None]
    ) -> None:
        self.outcome, self.threads, self.children = outcome, threads, children
        self.quiet = quiet
        self.parent = os.getpid()
        self.weights: dict[str, Any] = {}  # of rank 0, whole, where they were spread

    def setup(self, trainer: pl.Trainer, module: Any, stage: str) -> None:
        machine.set_threads(self.threads)  # Lightning has set its own number
        machine.keep_freed_memory()
        self.quiet()
        if self.children:
            # Ctrl-C reaches a terminal's whole group: the parent decides, and passes it on as
            # SIGTERM. The kernel sends SIGINT too when the parent is dead (torch asks for it).
            signal.signal(signal.SIGINT, self._ends_with_its_parent)

    def _ends_with_its_parent(self, signum: int, frame: Any) -> None:
        if os.getppid() != self.parent:
            os._exit(128 + signum)

    def on_train_end(self, trainer: pl.Trainer, module: Any) -> None:
        if isinstance(trainer.strategy, Sharded):
            self.weights = gathered(module.model)
        if self.children and trainer.is_global_zero:
            callbacks: list[Any] = trainer.callbacks  # type: ignore[attr-defined]
            throughput = next(c for c in callbacks if c.state_key == "Throughput")
            known = {
                "module": module.knowledge(),
                "seconds": throughput.seconds,
                "rate": throughput.rate(module.tokens),
            }
            self.outcome.write_bytes(pickle.dumps(known))


def ignore_signal(signum: int, frame: Any) -> None:
    """In place of Lightning's handler of SIGTERM, which talks to the other ranks wherever it is
    called, in the middle of their talk."""


def fit(
    module: Any,
    data: pl.LightningDataModule,
    settings: Mapping[str, Any],
    *,
    strategy: str,
    devices: int,
    checkpoint: str | None,
    newest: Callable[[], tuple[Path, int] | None],
    quiet: Callable[[], None],
) -> float | None:
    """Fit on several devices; afterwards no other rank runs, however it ended.

    `module` then holds the weights and all that was counted. Returns tokens a second, of rank 0.

    Args:
        settings: of the Trainer, the devices aside; one of the callbacks is a `Throughput`.
        checkpoint: where to continue, or None.
        newest: (path, step) of the newest checkpoint.

    Raises:
        Interrupted: a signal reached this process; the ranks have saved their step.
        FloatingPointError: what a rank said.
    """
    children = are_children(strategy)
    throughput: Any = next(c for c in settings["callbacks"] if c.state_key == "Throughput")
    with tempfile.TemporaryDirectory() as folder, _environment():
        outcome = Path(folder) / "outcome"
        process = RankProcess(
            outcome, threads=torch.get_num_threads(), children=children, quiet=quiet
        )
        find_unused = not isinstance(module.model, MaskedLanguageModel)
        trainer = pl.Trainer(
            **{**settings, "callbacks": [process, *settings["callbacks"]]},
            **_ranks(strategy, devices, find_unused=find_unused),
        )
        connector: Any = trainer._signal_connector
        connector._sigterm_notifier_fn = ignore_signal
        start = functools.partial(trainer.fit, module, datamodule=data, ckpt_path=checkpoint)
        if not children:
            plain = module.model
            if strategy == "fsdp":
                module.model = copy.deepcopy(plain)
            try:
                _as_rank_zero(start, trainer)
            finally:
                module.model = plain
            if process.weights:
                plain.load_state_dict(process.weights)
            return throughput.rate(module.tokens)
        _wait_for_children(start, newest)
        known = pickle.loads(outcome.read_bytes())
    module.learn(known["module"])
    throughput.seconds = known["seconds"]
    return known["rate"]


@contextlib.contextmanager
def _environment() -> Iterator[None]:
    """Leaves the environment as it was: a later fit in this process would read it."""
    with machine.environment_left(_LEFT_BEHIND):
        os.environ[machine.MARK] = str(os.getpid())
        yield


def _wait_for_children(start: Callable[[], None], newest: Callable[[], Any]) -> None:
    parent, before = os.getpid(), set(multiprocessing.active_children())
    noted: list[int] = []

    def children() -> list[Any]:
        return [child for child in multiprocessing.active_children() if child not in before]

    def pass_on(signum: int, frame: Any) -> None:
        running = children() if os.getpid() == parent else []
        if not running:  # nothing has begun, or a child that has not begun to train
            raise Interrupted(signum, "before training")
        at_once = signum == signal.SIGINT and signal.SIGINT in noted
        noted.append(signum)
        for child in running:
            if at_once:
                child.kill()
            else:
                child.terminate()

    with _handled(pass_on):
        try:
            start()
        except BaseException as error:
            for child in children():
                child.kill()
                child.join()
            if noted:
                found = newest()
                where = f"after step {found[1]}" if found else "before its first checkpoint"
                raise Interrupted(noted[0], where) from None
            if isinstance(error, ProcessException):
                _raise_ours(str(error))
            raise
    if noted:
        raise Interrupted(noted[0], "after training")


@contextlib.contextmanager
def _handled(handler: Callable[[int, Any], None]) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {n: signal.signal(n, handler) for n in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for signum, old in before.items():
            signal.signal(signum, old)


def _raise_ours(text: str) -> None:
    """What a rank says to the user comes as it does from one process, without the traceback."""
    kind, _, message = text.strip().rpartition("\n")[2].partition(": ")
    if kind == "FloatingPointError":
        raise FloatingPointError(message) from None


def _as_rank_zero(start: Callable[[], None], trainer: pl.Trainer) -> None:
    processes: list[subprocess.Popen] = []
    try:
        start()
    except BaseException as error:
        processes = _followers(trainer)
        for process in processes:
            if not isinstance(error, Interrupted):
                process.kill()
        raise
    finally:
        if torch_distributed.is_initialized():
            torch_distributed.destroy_process_group()
        for process in processes or _followers(trainer):
            try:
                process.wait(timeout=60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _followers(trainer: pl.Trainer) -> list[subprocess.Popen]:
    """The other ranks, taken from Lightning's watch, which kills this process when one of them has
    not ended well."""
    launched: Any = trainer.strategy.launcher
    if launched is None:  # this is one of them
        return []
    found = list(launched.procs)
    launched.procs.clear()
    return found
