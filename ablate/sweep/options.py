"""Words of the command line -> which sweep file, how many points. Imports nothing heavy."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from ablate.study.computes import Compute, split

PROGRAM = "python -m ablate.sweep"
SAMPLERS = ("tpe", "gp")
_EPILOG = f"""\
The file is that of `wandb sweep`; no server, key or account is asked for. Finished points are not
trained again, so the same command continues, and a larger --count adds points.

Examples:
  {PROGRAM} sweeps/mask_rate.yaml
  {PROGRAM} sweeps/mask_rate.yaml --jobs 2 budget=smoke --name mask_rate-smoke
  {PROGRAM} sweeps/learning_rate.yaml --count 20
  {PROGRAM} sweeps/bayes.yaml --count 20 --sampler gp
  {PROGRAM} sweeps/mask_rate.yaml compute=submitit_slurm compute.partition=gpu compute.gpus=1
  python -m ablate.report sweep:mask_rate
"""


@dataclass(frozen=True)
class Options:
    """`count` None: as many as the file says."""

    file: str
    count: int | None = None
    compute: Compute = field(default_factory=Compute)
    seed: int = 0
    name: str | None = None
    sampler: str = "tpe"
    stop_at_failure: bool = False
    overrides: list[str] = field(default_factory=list)


class _Parser(argparse.ArgumentParser):
    """Errors become one message, as everywhere in this package."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{message}; type {PROGRAM} --help for the options")


def parse(argv: Sequence[str]) -> Options:
    """Options and overrides, in any order.

    Raises:
        ValueError: an unknown option or a bad number.
    """
    parser = _Parser(
        prog=PROGRAM,
        usage=f"{PROGRAM} FILE [options] [key=value ...]",
        description="Runs the points of a W&B sweep file here.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("file", metavar="FILE", help="a sweep file, or the name of a packaged one")
    parser.add_argument("--count", type=int, help="points in all (random and bayes need it)")
    parser.add_argument(
        "--jobs", type=int, help="points side by side: compute=joblib compute.jobs="
    )
    parser.add_argument("--seed", type=int, default=0, help="of the draws, not of the runs")
    parser.add_argument("--name", help="of the sweep (default: the file's)")
    parser.add_argument("--sampler", default="tpe", choices=SAMPLERS, help="of method: bayes")
    parser.add_argument("--stop-at-failure", action="store_true", help="leave out what follows one")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="common to all points")
    found = parser.parse_intermixed_args(list(argv))
    for name in ("count", "jobs"):
        value = getattr(found, name)
        if value is not None and value < 1:
            raise ValueError(f"--{name} {value} must be at least 1; type --{name} 2")
    wrong = [word for word in found.overrides if "=" not in word]
    if wrong:
        raise ValueError(f"{wrong[0]} is no override; type {PROGRAM} FILE key=value ...")
    jobs = vars(found).pop("jobs")
    words = list(found.overrides)
    if jobs is not None and any(word.startswith("compute=") for word in words):
        words.append(f"compute.jobs={jobs}")
    elif jobs is not None and jobs > 1:
        words += ["compute=joblib", f"compute.jobs={jobs}"]
    compute, found.overrides = split(words)
    return Options(**vars(found), compute=compute)


def find_file(given: str) -> Path:
    """A path, or the name of a file among the packaged ones.

    Raises:
        ValueError: there is none; the message lists those there are.
    """
    path = Path(given).expanduser()
    if path.is_file():
        return path
    folder = sweeps_dir()
    for name in (path.name, f"{path.name}.yaml"):
        if path.parent.name in ("", "sweeps") and (folder / name).is_file():
            return folder / name
    names = sorted(file.stem for file in folder.glob("*.yaml"))
    raise ValueError(
        f"{given}: there is no such sweep; type the path of a .yaml file, or one of the packaged "
        f"ones: {', '.join(names)}"
    )


def sweeps_dir() -> Path:
    """Packaged sweeps: beside the package in a checkout, inside it in a wheel."""
    package = Path(__file__).resolve().parent.parent
    for folder in (package / "sweeps", package.parent / "sweeps"):
        if folder.is_dir():
            return folder
    raise AssertionError("the package has lost its sweeps/ folder")
