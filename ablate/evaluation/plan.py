"""A protocol beyond one set of hyper-parameters -> what each measurement gets of it.

Fixed settings of single tasks, grids, and tasks that start from the encoder of another task's fit
(MNLI's, for RTE, MRPC and STS-B). Each measurement is handed a `Setup` of its own, so that a part's
key holds what decides that part and nothing of other tasks.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ablate.evaluation.grids import points
from ablate.evaluation.measurement import Measurement, Setup


@dataclass(frozen=True)
class Plan:
    """The fields are those of the group `evaluation`; empty, it changes nothing."""

    per_task: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    grid: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    grid_per_task: Mapping[str, Mapping[str, Sequence[Any]]] = field(default_factory=dict)
    start_from: str | None = None
    start_from_tasks: tuple[str, ...] = ()

    def check_names(self, measurements: Sequence[Measurement]) -> None:
        """Nothing is said of what is not measured: it would be ignored.

        Raises:
            ValueError: a name that no measurement has.
        """
        known = [m.name for m in measurements]
        for group in ("per_task", "grid_per_task", "start_from_tasks"):
            for name in getattr(self, group):
                if name not in known:
                    raise ValueError(
                        f"evaluation.{group} names {name}, which is not measured; allowed: "
                        f"{', '.join(known)}. Leave it out, or add its task to evaluation.tasks"
                    )

    def setup_of(self, measurement: Measurement, shared: Setup) -> Setup:
        """The setup of one measurement: its settings, its number of seeds, its points.

        Raises:
            ValueError: settings that cannot be, or a grid for what is no classification.
        """
        name = measurement.name
        given = dict(self.per_task.get(name, {}))
        num_seeds = given.pop("num_seeds", shared.num_seeds)
        settings = shared.settings.changed(given, where=f"evaluation.per_task.{name}")
        found = points({**self.grid, **self.grid_per_task.get(name, {})})
        for point in found:
            settings.changed(point, where="evaluation.grid")
        setup = dataclasses.replace(shared, settings=settings, num_seeds=num_seeds)
        fitted = "settings" in measurement.key(setup)  # nothing is where it is zero-shot
        stops = bool(getattr(measurement, "stops_early", False))
        if fitted and settings.early_stopping is not None and not stops:
            raise ValueError(
                f"evaluation.finetune.early_stopping={settings.early_stopping} is not known to "
                f"{name}, which is of another kind; take its task out of evaluation.tasks, or type "
                f"'evaluation.per_task={{{name}: {{early_stopping: null}}}}'"
            )
        if not found or not fitted:
            return setup
        if not takes_plan(measurement):
            raise ValueError(
                f"evaluation.grid selects for tasks of kind classification, and {name} is of "
                f"another kind; take its task out of evaluation.tasks, or type evaluation.grid=null"
            )
        return dataclasses.replace(setup, points=found)

    def dependents(self, measurements: Sequence[Measurement]) -> list[str]:
        """Names of the measurements that start from `start_from`'s fits.

        Raises:
            ValueError: the source is not measured, or one of them cannot start from a fit.
        """
        if self.start_from is None:
            return []
        known = {m.name: m for m in measurements}
        found = [name for name in self.start_from_tasks if name in known]
        if found and self.start_from not in known:
            raise ValueError(
                f"evaluation.start_from={self.start_from} needs {self.start_from} in "
                f"evaluation.tasks; type 'evaluation.tasks=[{','.join([self.start_from, *known])}]'"
                " or evaluation.start_from=null"
            )
        for name in [*found, self.start_from] if found else []:
            if not takes_plan(known[name]) or (name == self.start_from and name in found):
                raise ValueError(
                    f"evaluation.start_from={self.start_from} with start_from_tasks={found}: "
                    f"{name} cannot take part; start_from names one task and start_from_tasks "
                    "others, all of kind classification. For example start_from=mnli "
                    "'start_from_tasks=[rte]'"
                )
        return found


def takes_plan(measurement: Measurement) -> bool:
    """Whether a measurement knows grids and encoders kept by another task's fit."""
    return bool(getattr(measurement, "takes_plan", False))
