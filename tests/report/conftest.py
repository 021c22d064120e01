"""Studies made of records as dicts: nothing is trained, the numbers are drawn."""

import json
from pathlib import Path

import numpy as np
import pytest

from ablate.study import collect
from ablate.study.design import Expectation, Gate, from_dict
from ablate.study.states import State, StudyFolder

SCORES = {"glue/cola/mcc": 0.3, "glue/sst2/accuracy": 0.8, "glue/rte/accuracy": 0.55}


def record_of(arm, seed, scores, *, parameters=120_000, commit="a" * 40, loss=0.0):
    """A record with what a report reads of it."""
    return {
        "status": "complete",
        "fingerprint": f"{arm}{seed}",
        "arm": arm,
        "seed": seed,
        "overrides": [f"masking={arm}", f"seed={seed}"],
        "provenance": {
            "versions": {"python": "3.11.2", "torch": "2.13.0"},
            "git": {"commit": commit, "modified": False},
            "command": ["ablate"],
            "platform": "Linux",
            "processor": "made up",
        },
        "scores": {**scores, "val/token_mask/loss": 2.0 + loss, "val/token_mask/accuracy": 0.6},
        "evaluation": {
            "sst2": {
                "hyper_parameters": {"num_epochs": 3, "learning_rate": 1e-3},
                "num_train_examples": 500,
                "num_train_available": 67349,
                "n": {"validation": 872},
                "metrics": {},
            }
        },
        "averages": {},
        "clocks": {"steps": 100, "tokens": 1_500_434, "predictions": 3000, "flops": 1e12},
        "derived": {"parameters": parameters, "epochs": 2.0},
        "data": {"tokenizer": "t", "store": "s", "vocab_size": 215},
        "machine": {"device": "cpu", "kernel": "flash", "precision": "fp32", "threads": 1},
    }


@pytest.fixture
def make(tmp_path):
    """`make(effects, seeds=5, ...)`: a `StudyResult` whose arms are that far from the baseline."""

    def build(
        effects, *, seeds=5, noise=0.01, missing=(), failed=(), gates=(), name="made", scale="",
        question="Does it help?", expected=None, curves=False, more_scores=0, looks=None,
        locked="2026-11-01", changes=(), higher=True, commits=("a" * 40,),
    ):  # fmt: skip
        runs_dir = tmp_path / "runs"
        base = "standard"
        study = from_dict(
            {
                "question": question,
                "baseline": base,
                "arms": {base: [], **{arm: [f"masking={arm}"] for arm in effects}},
                "moves": ["masking.*"],
                "seeds": seeds,
                "primary": "glue/mean8",
                "margin": 0.01,
                "higher_is_better": higher,
                "secondary": list(SCORES),
                "held_fixed": ["the corpus", "the budget in tokens"],
                "common": ["size=toy"],
                **({"scales": {scale: {}}} if scale else {}),
            },
            name=name,
        )
        study = _with(study, gates=tuple(gates), expected=expected or {})
        rng = np.random.default_rng(0)
        shared = rng.normal(0, 0.02, seeds)
        arms = {}
        for number, arm in enumerate([base, *effects]):
            effect = effects.get(arm, 0.0)
            states, records = {}, {}
            for seed in range(seeds):
                run = f"{arm}-s{seed}-{number:012d}"
                jitter = rng.normal(0, noise, 4 + more_scores)
                if (arm, seed) in missing:
                    states[seed] = State("missing")
                    continue
                if (arm, seed) in failed:
                    states[seed] = State("failed", run, error="FloatingPointError: loss is nan")
                    continue
                scores = {
                    score: value + effect + shared[seed] + j
                    for (score, value), j in zip(SCORES.items(), jitter, strict=False)
                }
                for extra in range(more_scores):
                    scores[f"blimp/paradigm_{extra}"] = 0.7 + effect + jitter[4 + extra]
                scores["glue/mean8"] = 0.6 + effect + shared[seed] + jitter[3]
                states[seed] = State("complete", run)
                records[seed] = record_of(
                    arm, seed, scores, parameters=120_000 + 5_000 * number, loss=-effect,
                    commit=commits[number % len(commits)],
                )  # fmt: skip
                if curves:
                    _write_metrics(runs_dir / "single" / run, effect, jitter[0])
            arms[arm] = collect.ArmResult(
                arm,
                study.overrides(arm),
                states,
                records,
                collect._scores(records),
                collect.failed_gates(study, arm, records),
                {} if arm == base else {"masking.mask_rate": (0.15, 0.4)},
                {} if arm == base else {"parameters": (120_000, 120_000 + 5_000 * number)},
            )
        folder = StudyFolder(runs_dir, study)
        for look in looks or []:
            folder.add_look(look)
        result = collect.decided(study, arms, folder)
        return _with(result, locked=locked, changes=list(changes))

    build.runs_dir = tmp_path / "runs"
    return build


def _with(value, **changes):
    import dataclasses

    return dataclasses.replace(value, **changes)


def _write_metrics(folder: Path, effect, jitter):
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "metrics.jsonl", "w", encoding="utf-8") as file:
        for step in range(50, 1001, 50):
            loss = 2.0 + 3.0 * np.exp(-step / 300) - effect * step / 100 + jitter
            row = {"step": step, "tokens": step * 800.0, "val/token_mask/loss": loss}
            file.write(json.dumps(row) + "\n")


@pytest.fixture
def three(make):
    """One that wins, one that loses, one null; with everything that a report can hold."""
    return make(
        {"all_mask": 0.05, "mask_95": -0.06, "null_draws": 0.0},
        curves=True,
        expected={"all_mask": Expectation("+", "BERT, table 8"), "mask_95": Expectation("0", "x")},
        gates=(Gate("val/token_mask/accuracy", 0.5, "masked-LM accuracy above counting"),),
    )
