"""Progress on the screen, timings, and checkpoints that fall between steps."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Callback

from ablate.pretraining.checkpoints import StraightToDisk, checkpoint_path, found_checkpoints
from ablate.pretraining.disk import writing
from ablate.pretraining.interrupted import Interrupted, RankStopped
from ablate.pretraining.module import PretrainingModule


class Throughput(Callback):
    """Tokens a second, seconds spent, and a progress line.

    On a terminal a bar (rich); elsewhere a plain line at each tenth of the budget. Timings go to
    `timings` and never into the metrics, which stay the same to the byte from run to run.
    """

    def __init__(self, *, total_steps: int, show: bool, label: str = "pretraining") -> None:
        self.total_steps, self.show, self.label = total_steps, show, label
        self.seconds = 0.0  # of earlier processes, from the checkpoint
        self.tokens_at_start = self.step_at_start = 0
        self.begin: float | None = None
        self._bar: Any = None
        self._task: Any = None
        self._tenth = -1

    def on_train_start(self, trainer: pl.Trainer, module: Any) -> None:
        self.show &= trainer.is_global_zero
        self.begin, self.tokens_at_start = time.perf_counter(), module.tokens
        self.step_at_start = trainer.global_step
        if self.show and sys.stderr.isatty():
            self._bar = _bar()
            self._bar.start()
            self._task = self._bar.add_task(
                self.label, total=self.total_steps, completed=trainer.global_step, note=""
            )

    @property
    def state_key(self) -> str:
        return "Throughput"

    @property
    def elapsed(self) -> float:
        return 0.0 if self.begin is None else time.perf_counter() - self.begin

    def rate(self, tokens: int) -> float | None:
        """Tokens a second of this process, None where it trained nothing."""
        spent = tokens - self.tokens_at_start
        return spent / self.elapsed if self.begin is not None and spent else None

    def on_train_batch_end(
        self, trainer: pl.Trainer, module: Any, outputs: Any, item: Any, index: int
    ) -> None:
        step = trainer.global_step
        if not self.show or (step % 10 and step < self.total_steps):
            return
        note = _note(module, self.rate(module.tokens) or 0.0)
        if self._bar is not None:
            self._bar.update(self._task, completed=step, note=note)
        elif step * 10 // self.total_steps != self._tenth:
            self._tenth = step * 10 // self.total_steps
            left = (self.total_steps - step) * self.elapsed / max(step - self.step_at_start, 1)
            line = f"{self.label}: step {step} of {self.total_steps} | {note} | {left:.0f} s left"
            print(line, file=sys.stderr, flush=True)

    def on_train_end(self, trainer: pl.Trainer, module: Any) -> None:
        self._stop()

    def on_exception(self, trainer: pl.Trainer, module: Any, error: Any) -> None:
        self._stop()

    def _stop(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def state_dict(self) -> dict[str, float]:
        return {"seconds": self.seconds + self.elapsed}

    def load_state_dict(self, state: dict[str, float]) -> None:
        self.seconds = state["seconds"]


def _note(module: PretrainingModule, rate: float) -> str:
    parts = [f"{rate / 1000:.1f}k tokens/s"]
    if "train/loss" in module.latest:
        parts.append(f"loss {module.latest['train/loss']:.3f}")
    for loss, name in (("mlm", "MLM"), ("clm", "next-token")):
        if f"train/{loss}_accuracy" in module.latest:
            parts.append(f"{name} accuracy {module.latest[f'train/{loss}_accuracy']:.3f}")
    return ", ".join(parts)


def _bar() -> Any:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
        console=Console(stderr=True),
    )


class Checkpoints(Callback):
    """The two newest checkpoints, written between steps: every `every` steps, and on a signal.

    SIGTERM and Ctrl-C let the step finish, write its checkpoint and raise `Interrupted` (Lightning
    itself saves in the middle of a step on Ctrl-C and exits 0 on SIGTERM). A second Ctrl-C stops at
    once. Where a validation follows the step (`validate_every`), the checkpoint comes after it: a
    kill in between then repeats the step and its validation, and no line is lost. With several
    ranks the first one that has a signal stops all of them after the same step.
    """

    def __init__(
        self,
        folder: Path,
        *,
        every: int,
        validate_every: int,
        keep: int = 2,
        signals: tuple[int, ...] = (signal.SIGTERM, signal.SIGINT),
    ) -> None:
        self.folder, self.every, self.keep = folder, every, keep
        self.validate_every, self.signals = validate_every, signals
        self.signum: int | None = None
        self._handlers: dict[int, Any] = {}

    @property
    def state_key(self) -> str:
        return "Checkpoints"

    def state_dict(self) -> dict[str, str]:
        return {"run": self.folder.parent.name}

    def setup(self, trainer: pl.Trainer, module: pl.LightningModule, stage: str) -> None:
        trainer.strategy.checkpoint_io = StraightToDisk()
        if trainer.is_global_zero:
            for path in self.folder.glob("*.part"):  # of a process that was killed
                path.unlink(missing_ok=True)

    def on_train_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        for path, step in found_checkpoints(self.folder) if trainer.is_global_zero else []:
            if step > trainer.global_step:  # passed over: its step is taken again
                path.unlink(missing_ok=True)
        if threading.current_thread() is threading.main_thread():
            for signum in self.signals:
                self._handlers[signum] = signal.signal(signum, self._note)

    def _note(self, signum: int, frame: Any) -> None:
        if self.signum is not None and signum == signal.SIGINT:
            raise Interrupted(signum, "inside a step: the checkpoint before it is kept")
        self.signum = signum

    def on_train_batch_end(
        self, trainer: pl.Trainer, module: pl.LightningModule, outputs: Any, item: Any, index: int
    ) -> None:
        if trainer.global_step % self.validate_every:
            self._save(trainer)

    def on_validation_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        if trainer.state.fn == "fit":
            self._save(trainer)

    def _save(self, trainer: pl.Trainer) -> None:
        step, signum = trainer.global_step, self._agreed(trainer)
        if step % self.every and signum is None:
            return
        path = checkpoint_path(self.folder, step)
        temporary = path.with_suffix(".part")
        with writing(path):
            self.folder.mkdir(parents=True, exist_ok=True)
            trainer.save_checkpoint(temporary)
        if trainer.is_global_zero:
            os.replace(temporary, path)
            for path, _ in found_checkpoints(self.folder)[: -self.keep]:
                path.unlink(missing_ok=True)
        trainer.strategy.barrier("the checkpoint has its name")
        if signum is not None:
            if signal.SIGINT not in self.signals:  # the parent speaks for its child ranks
                raise RankStopped(f"after step {step}")
            raise Interrupted(signum, f"after step {step}")

    def _agreed(self, trainer: pl.Trainer) -> int | None:
        """The signal that some rank has, the same on all of them."""
        if trainer.world_size == 1:
            return self.signum
        own = torch.tensor(self.signum or 0, device=trainer.strategy.root_device)
        return int(trainer.strategy.reduce(own, reduce_op="max")) or None

    def on_train_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        self._restore()

    def on_exception(self, trainer: pl.Trainer, module: pl.LightningModule, error: Any) -> None:
        self._restore()

    def _restore(self) -> None:
        for signum, handler in self._handlers.items():
            signal.signal(signum, handler)
        self._handlers.clear()
