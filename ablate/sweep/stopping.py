"""Early ending of bad points: optuna's HyperbandPruner over the values that runs log as they train.

An iteration is one value of the sweep's metric in a run's `metrics.jsonl`, as it is one row of
history to W&B: with a `val/` metric, one validation. The rule is asked as soon as a value is
logged, before the next step; where it says stop, the process gets the signal that ends a run after
its step, with its checkpoint, so that a stopped point can be continued by hand like any interrupted
run. What other points logged is read from the sweep's folder, so that workers and shells need no
server.

Points one after another are ended alike every time. What was decided of a point is kept beside its
values and stands when the point is continued after a kill; side by side (`--jobs`), what the others
have logged by then is a matter of time, as with W&B.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ablate.sweep.optional import optuna
from ablate.tracking.record import MetricsFile, read_kept, read_record, write_json

POLL_SECONDS = 0.2


@dataclass(frozen=True)
class Rule:
    """Hyperband's numbers, in values of the metric."""

    min_resource: int
    max_resource: int
    reduction_factor: int
    maximize: bool

    @property
    def words(self) -> str:
        return (
            f"optuna's HyperbandPruner(min_resource={self.min_resource}, max_resource="
            f"{self.max_resource}, reduction_factor={self.reduction_factor}) ends points early; "
            "W&B's own hyperband is not run here: it has one bracket, optuna's deals the points "
            "over several, of which the last never stops any"
        )


@dataclass(frozen=True)
class Stop:
    """The rule for one point: which it is, its metric, and where points leave their values."""

    rule: Rule
    metric: str
    number: int
    folder: Path


def rule_of(given: Mapping[str, Any], *, values: int, maximize: bool) -> Rule:
    """W&B's keys -> optuna's numbers; `values` is how many a run logs."""
    eta = given.get("eta", 3)
    highest = given.get("max_iter", values)
    lowest = given.get("min_iter") or max(highest // eta ** given["s"], 1)
    if lowest >= highest:
        raise ValueError(
            f"early_terminate: a run logs {values} values of the metric (trainer.num_validations), "
            f"so hyperband from the {lowest}. one could end nothing; type "
            "trainer.num_validations=27, or min_iter: 1"
        )
    return Rule(lowest, highest, eta, maximize)


def says_stop(rule: Rule, points: Mapping[int, Sequence[float]], number: int) -> bool:
    """Whether point `number` is to be ended after the last of its values.

    All points go through optuna's pruner again, in their order: its state lies in a study's trials,
    and this one lives as long as the question.
    """
    found = optuna("early_terminate")
    pruner = found.pruners.HyperbandPruner(
        min_resource=rule.min_resource,
        max_resource=rule.max_resource,
        reduction_factor=rule.reduction_factor,
    )
    study = found.create_study(
        study_name="sweep", direction="maximize" if rule.maximize else "minimize", pruner=pruner
    )
    trials = [study.ask() for _ in range(max([*points, number]) + 1)]
    said = False
    for each in [*sorted(set(points) - {number}), number]:
        for step, value in enumerate(points.get(each, ()), 1):
            trials[each].report(value, step)
            said = trials[each].should_prune()
    return said


def values_file(folder: Path, number: int) -> Path:
    return folder / "values" / f"{number}.json"


def _kept(file: Path) -> dict[str, Any]:
    """`seen`: values that were judged; `values`: those of them that are numbers; `stopped`."""
    found: dict[str, Any] | None = read_kept(file, dict)
    return found or {"seen": 0, "values": [], "stopped": False}


def all_values(folder: Path) -> dict[int, list[float]]:
    """Number of a point -> the metric's values that it logged so far."""
    files = sorted((folder / "values").glob("*.json"))
    return {int(file.stem): _kept(file)["values"] for file in files}


class Watch:
    """Reads one run's metric as it grows. `fired` says why the run was ended; None where not."""

    def __init__(self, stop: Stop, metrics: MetricsFile) -> None:
        self.stop, self.metrics = stop, metrics
        self.fired: str | None = None
        self._file = values_file(stop.folder, stop.number)
        self._before = _kept(self._file)  # by a process that was stopped
        self._seen = 0

    def look(self, *, decides: bool = True) -> bool:
        """Take in new values, one after another; True where the run is to end."""
        rows = self.metrics.rows()
        values = [row[self.stop.metric] for row in rows if self.stop.metric in row]
        while self._seen < len(values):
            self._seen += 1
            if self._says_stop(values[: self._seen], decides=decides):
                self.fired = (
                    f"ended early at value {self._seen} of {self.stop.rule.max_resource}: "
                    f"{self.stop.metric} = {values[self._seen - 1]:.6g}"
                )
                return True
        return False

    def _says_stop(self, values: Sequence[float], *, decides: bool) -> bool:
        """Whether to end after the last of these; a point with all its values is at its end."""
        before = self._before
        if self._seen <= before["seen"]:
            return decides and before["stopped"] and self._seen == before["seen"]
        numbers = [value for value in values if math.isfinite(value)]
        points = {**all_values(self.stop.folder), self.stop.number: numbers}
        said = decides and bool(numbers) and self._seen < self.stop.rule.max_resource
        said = said and says_stop(self.stop.rule, points, self.stop.number)
        write_json(self._file, {"seen": self._seen, "values": numbers, "stopped": said})
        return said


@contextlib.contextmanager
def stopped_early(stop: Stop, overrides: Sequence[str]) -> Iterator[Watch]:
    """Watch the pretraining that these overrides lead to; SIGTERM to this process where it is bad.

    The signal may come as late as the end of this context: whoever enters it catches outside. A
    pretraining that is complete already is left alone, since there is nothing to save.
    """
    from ablate.tracking.lightning import listening

    folder, elsewhere = _pretraining(overrides)
    metrics = Path(os.devnull) if folder is None else folder / "metrics.jsonl"
    watch, turn = Watch(stop, MetricsFile(metrics)), threading.Lock()

    def look() -> None:
        with turn:
            if watch.fired is None and watch.look():
                os.kill(os.getpid(), signal.SIGTERM)

    if folder is None or _is_trained(folder):
        yield watch
    elif elsewhere:
        with _looking(folder, look):
            yield watch
    else:
        with listening(look):
            yield watch
    if watch.fired is None:  # what nobody was asked about counts for the others
        watch.look(decides=False)


@contextlib.contextmanager
def _looking(folder: Path, look: Callable[[], None]) -> Iterator[None]:
    """Look every moment, at what processes of several devices write, until they are done."""
    over = threading.Event()

    def follow() -> None:
        while not over.wait(POLL_SECONDS):
            if not _is_trained(folder):
                look()

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _is_trained(folder: Path) -> bool:
    return (read_record(folder) or {}).get("status") == "complete"


def _pretraining(overrides: Sequence[str]) -> tuple[Path | None, bool]:
    """Where the run keeps its training, and whether other processes write it; (None, False) for
    refused overrides, of which the run tells."""
    from ablate.config.compose import compose_settings
    from ablate.pretraining.distributed import are_children
    from ablate.run.arm import prepare

    try:
        settings = compose_settings(overrides)
        arm = prepare(settings, overrides)
    except ValueError:
        return None, False
    elsewhere = are_children(arm.machine.get("strategy"))
    return Path(settings.paths.runs_dir) / "pretrained" / arm.pretraining, elsewhere
