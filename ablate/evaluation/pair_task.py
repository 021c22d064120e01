"""Minimal pairs as a measurement: zero-shot, in parts of whole paradigms.

The parts depend on the pairs alone, never on the number of workers. Every number follows from the
stored log-likelihoods of the pairs.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ablate.evaluation.measurement import EvaluationResult, Part, Setup, Subject, Table
from ablate.evaluation.minimal_pairs import score_pairs
from ablate.evaluation.pair_files import PairSpec, load_pairs
from ablate.evaluation.pair_likelihood import is_causal
from ablate.evaluation.pair_scores import GROUPS, add_pairs

PAIRS_PER_PART = 4_000  # at least, where there are as many


@dataclass(frozen=True)
class MinimalPairs:
    """Pairs with `sentence_good`, `sentence_bad`, `paradigm` and optionally `idx`, `phenomenon`,
    `field`. The score is `<suite>/<name>/accuracy`, or `<name>/accuracy` where the two are one."""

    suite: str
    name: str
    pairs: Sequence[Mapping[str, Any]]
    likelihood: str = "original"
    tier: str = "full"

    def hash(self) -> str:
        return self._hash

    @functools.cached_property
    def _hash(self) -> str:
        content: list[Any] = [sorted(pair.items()) for pair in self.pairs]
        if self.likelihood != "original":
            content.append(self.likelihood)
        text = json.dumps(content, default=str).encode()
        return hashlib.blake2b(text, digest_size=8).hexdigest()

    @functools.cached_property
    def _parts(self) -> list[list[int]]:
        """Numbers of the pairs of each part; a paradigm is never divided."""
        of_paradigm: dict[Any, list[int]] = {}
        for number, pair in enumerate(self.pairs):
            of_paradigm.setdefault(pair.get("paradigm"), []).append(number)
        found: list[list[int]] = [[]]
        for numbers in of_paradigm.values():
            if len(found[-1]) >= PAIRS_PER_PART:
                found.append([])
            found[-1] += numbers
        return found

    def key(self, setup: Setup) -> dict[str, Any]:
        return {
            "data": self.hash(),
            "likelihood": self.likelihood,
            "max_length": setup.settings.max_length,
            "precision": setup.settings.precision,
        }

    def num_parts(self, setup: Setup) -> int:
        return len(self._parts)

    def measure(
        self, subject: Subject, setup: Setup, number: int, on_progress: Callable[[int, int], None]
    ) -> Part:
        pairs = [self.pairs[i] for i in self._parts[number]]
        found = score_pairs(
            subject.model,
            subject.tokenizer,
            [{"idx": i, **pair} for i, pair in zip(self._parts[number], pairs, strict=True)],
            likelihood=self.likelihood,
            max_length=setup.settings.max_length,
            precision=setup.settings.precision,
            on_progress=on_progress,
        )
        table: Table = {
            "example_id": found.ids,
            "label": [1.0] * len(found.ids),
            "prediction": found.wins.tolist(),
            "split": ["validation"] * len(found.ids),
            "finetune_seed": [0] * len(found.ids),
            "part": [number] * len(found.ids),
            "paradigm": found.paradigms,
            **{group: [str(pair.get(group, "")) for pair in pairs] for group in GROUPS},
            "log_likelihood_good": found.good.tolist(),
            "log_likelihood_bad": found.bad.tolist(),
        }
        return Part(
            table,
            {
                "suite": self.suite,
                "name": self.name,
                "likelihood": _likelihood(subject, self.likelihood),
                "tier": self.tier,
                "truncated_tokens": found.truncated_tokens,
                "unknown_tokens": found.unknown_tokens,
            },
        )

    def add_to(self, result: EvaluationResult, parts: Sequence[Part], setup: Setup) -> None:
        add_pairs(result, parts)


def _likelihood(subject: Subject, likelihood: str) -> str:
    if is_causal(subject.model):
        return "log-likelihood"
    corrected = likelihood != "original"
    return f"pseudo-log-likelihood {likelihood}" if corrected else "pseudo-log-likelihood"


def load(
    definition: Mapping[str, Any], *, path: str | Path | None, cache_dir: str | Path | None
) -> MinimalPairs:
    """The measurement of a definition in `conf/evaluation/task` (see `pair_files.PairSpec`)."""
    spec = PairSpec.from_dict(definition)
    return MinimalPairs(spec.suite, spec.name, load_pairs(spec, path), spec.likelihood, spec.tier)
