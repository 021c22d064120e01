"""`python -m ablate [group=option] [key=value]`: compose, check, hand over to `run`.

Bad input ends in one message and exit code 2; a run stopped by a signal in 128 + its number;
anything else is our mistake or the machine's, and exit code 1 (`config.failures`).
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

os.environ.setdefault("HYDRA_FULL_ERROR", "1")

import hydra
from omegaconf import DictConfig

from ablate.config.commands import exit_code
from ablate.config.compose import compose_settings, conf_dir, refuse_overlays, settings_from
from ablate.config.failures import report
from ablate.pretraining.interrupted import Interrupted, stoppable
from ablate.study.options import asks_for_study

_codes: list[int] = []  # of this process's jobs: one, or under -m several


@hydra.main(version_base="1.3", config_path=str(conf_dir()), config_name="config")
def _job(config: DictConfig) -> Any:
    """One point. Its failure is said when it happens and does not stop the points after it."""
    from hydra.core.hydra_config import HydraConfig
    from hydra.types import RunMode

    overrides = list(HydraConfig.get().overrides.task)
    try:
        refuse_overlays(overrides)
        settings = settings_from(config)
        from ablate.run.single import run

        record = run(settings, overrides=overrides)
        _codes.append(0)
        return record["fingerprint"]
    except (Exception, Interrupted) as error:
        if HydraConfig.get().mode is RunMode.MULTIRUN:
            print(f"ablate: the point {' '.join(overrides)} failed:", file=sys.stderr)
        _codes.append(report(error))
        if hasattr(error, "exit_code"):  # a signal ends all points, not this one
            raise SystemExit(_codes[-1]) from None
        return None


def _check_shown(words: list[str]) -> None:
    """Judge what --cfg has printed, since Hydra composes it and calls no job (points of -m aside).

    Raises:
        ValueError: it would be refused.
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--config-dir", "-cd")
    parser.add_argument("--cfg", "-c")
    parser.add_argument("--multirun", "-m", action="store_true")
    known, rest = parser.parse_known_args(words)
    if known.cfg is None or known.multirun:
        return
    overrides = [word for word in rest if "=" in word and not word.startswith("-")]
    if known.config_dir is not None:
        overrides.append(f"hydra.searchpath=[file://{Path(known.config_dir).resolve()}]")
    compose_settings(overrides)


def _study(words: list[str]) -> int:
    """Run a study and write its report: 0, or 1 where runs failed."""
    import datetime

    from ablate.report.build import write
    from ablate.report.wandb_summary import show
    from ablate.study.options import parse
    from ablate.study.plan import status_lines
    from ablate.study.runner import drive

    driven = drive(parse(words), today=datetime.date.today().isoformat())
    seeds = {arm: list(of_arm) for arm, of_arm in driven.seeds.items()}
    print(*status_lines(driven.study, driven.folder, seeds)[0], sep="\n")
    result = driven.result()
    baseline = driven.composed[driven.study.baseline].settings
    paths, folder = baseline.paths, driven.folder
    written = write(result, Path(paths.reports_dir), Path(paths.runs_dir))
    print(f"report {written}")
    show(result, written, tracking=baseline.tracking, lock=folder.lock, folder=folder.path)
    return 1 if driven.failed else 0


def _jobs(words: list[str]) -> int:
    """One point, or under -m several: the exit code of the worst."""
    _codes.clear()
    _job()
    _check_shown(words)  # shown by --cfg, and refused all the same
    return max(_codes, default=0)


def main() -> int:
    """Entry point; returns the exit code."""
    words, codes = sys.argv[1:], list[int]()
    work = _study if asks_for_study(words) else _jobs

    def stoppably() -> None:
        with stoppable():
            codes.append(work(words))

    stopped = exit_code(stoppably)
    return stopped or codes[0]


if __name__ == "__main__":
    sys.exit(main())
