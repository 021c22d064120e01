"""What every evaluation of a model has in common: a measurement, its parts, the results.

A measurement (a GLUE task, BLiMP, tagging ...) is asked in parts, one a fine-tuning seed; a
zero-shot one has a single part. A part is a table of predictions with the facts of how it came
about, stored under a key of all that decides its content. Scores follow from the parts alone, so
that a finished run can be scored again without a model; nothing here imports torch.
"""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from ablate.encoder.heads import MaskedLanguageModel
    from ablate.evaluation.fitting import FinetuneSettings
    from ablate.tokens.tokenizer import Tokenizer

Table = dict[str, list[Any]]


@dataclass(frozen=True)
class Setup:
    """What decides the parts of one measurement, beside its data and the model. `folder` (of the
    cached parts), `num_seeds` (how many parts are asked for) and the files decide no prediction."""

    seed: int  # of the pretraining; names the random streams
    settings: FinetuneSettings
    num_seeds: int
    folder: Path
    points: tuple[Mapping[str, Any], ...] = ()  # of a grid: replaced fields of `settings`
    start_from: str | None = None  # task whose tuned encoder is the start
    encoder_in: tuple[Path, ...] = ()  # files of such encoders; part i takes i modulo their number
    encoder_out: tuple[Path, ...] = ()  # where part i keeps its encoder for others


@dataclass(frozen=True)
class Subject:
    """The model that is measured. `weights` is their hash."""

    model: MaskedLanguageModel
    tokenizer: Tokenizer
    weights: str


@dataclass(frozen=True)
class Part:
    """Columns of equal length, `finetune_seed` among them, and plain facts for the record."""

    table: Table
    facts: dict[str, Any]


class Measurement(Protocol):
    """One thing to be measured; picklable, since parts may be measured in worker processes."""

    @property
    def name(self) -> str:
        """File name of its predictions and key of its details."""
        ...

    def hash(self) -> str:
        """Identity of its definition and data."""
        ...

    def key(self, setup: Setup) -> dict[str, Any]:
        """All that decides a part, but weights, tokenizer and the number of the part."""
        ...

    def num_parts(self, setup: Setup) -> int: ...

    def measure(
        self,
        subject: Subject,
        setup: Setup,
        number: int,
        on_progress: Callable[[int, int], None],
    ) -> Part:
        """Part `number`; `on_progress` is called with (done, total)."""
        ...

    def add_to(self, result: EvaluationResult, parts: Sequence[Part], setup: Setup) -> None:
        """Scores and details from the stored parts."""
        ...


class Fitted:
    """What measurements of one data set share that are fitted once a fine-tuning seed."""

    data: Any  # with `spec.name` and `hash()`

    @property
    def name(self) -> str:
        return str(self.data.spec.name)

    @property
    def stops_early(self) -> bool:
        """`early_stopping` is read here (see `plan.Plan.setup_of`)."""
        return True

    def hash(self) -> str:
        return self._hash

    @functools.cached_property
    def _hash(self) -> str:
        return str(self.data.hash())

    def num_parts(self, setup: Setup) -> int:
        return setup.num_seeds


@dataclass
class EvaluationResult:
    """`scores`: name -> number (shares and correlations in [0, 1] or [-1, 1], never NaN).

    `details[task]` holds what the scores rest on and depends on nothing but the inputs;
    `averages[rule]` has the value or what was missing; `seconds` is the time spent now, by task,
    summed over workers (next to nothing for a task taken from its files).
    """

    scores: dict[str, float] = field(default_factory=dict)
    details: dict[str, dict[str, Any]] = field(default_factory=dict)
    averages: dict[str, dict[str, Any]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)


def without_nan(result: EvaluationResult) -> None:
    """Scores that are no numbers become 0 with the flag `not_finite`, details None, in place."""
    for entry in result.details.values():
        for name, measured in entry.get("metrics", {}).items():
            bad = [not math.isfinite(value) for value in measured["by_seed"]]
            if any(bad):
                measured["flags"] = [
                    "not_finite" if wrong else flag
                    for flag, wrong in zip(measured["flags"], bad, strict=True)
                ]
                measured["by_seed"] = [
                    0.0 if wrong else value
                    for value, wrong in zip(measured["by_seed"], bad, strict=True)
                ]
                result.scores[name] = sum(measured["by_seed"]) / len(bad)
    result.scores.update({n: 0.0 for n, v in result.scores.items() if not math.isfinite(v)})
    result.details = {name: _plain(entry) for name, entry in result.details.items()}


def _plain(value: Any) -> Any:
    """Numbers that JSON does not have -> None."""
    if isinstance(value, dict):
        return {name: _plain(inside) for name, inside in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inside) for inside in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def weights_hash(model: MaskedLanguageModel) -> str:
    """Identity of parameters and configuration: a result of others is never taken for this model's
    (equal weights say something else with a mask over what follows)."""
    digest = hashlib.blake2b(repr(model.config).encode(), digest_size=16)
    digest.update(model.encoder.backend.name.encode())
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name}{tuple(tensor.shape)}{tensor.dtype}".encode())
        digest.update(tensor.detach().float().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()
