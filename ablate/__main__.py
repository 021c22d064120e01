"""`python -m ablate [group=option] [key=value]`: compose, check, hand over to `run`.

Bad input ends in one message and exit code 2; a run stopped by a signal in 128 + its number;
anything else is our mistake or the machine's, with its traceback and exit code 1.
"""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path
from typing import Any

os.environ.setdefault("HYDRA_FULL_ERROR", "1")

import hydra
from hydra.errors import HydraException
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from ablate.config.compose import conf_dir, readable, register, settings_from

register()


@hydra.main(version_base="1.3", config_path=str(conf_dir()), config_name="config")
def _job(config: DictConfig) -> Any:
    from hydra.core.hydra_config import HydraConfig

    settings = settings_from(config)
    from ablate.run import run

    overrides = list(HydraConfig.get().overrides.task)
    return run(settings, overrides=overrides)


def raised_by_us(error: BaseException) -> bool:
    """Whether the innermost frame of the traceback is code of this package."""
    frames = traceback.extract_tb(error.__traceback__)
    here = str(Path(__file__).resolve().parent)
    return bool(frames) and str(Path(frames[-1].filename).resolve()).startswith(here)


def fail(message: str) -> int:
    print(f"ablate: {message}", file=sys.stderr)
    return 2


def main() -> int:
    """Entry point; returns the exit code."""
    try:
        _job()
    except (HydraException, OmegaConfBaseException) as error:
        return fail(readable(error))
    except ValueError as error:
        if not raised_by_us(error):
            raise
        return fail(str(error))
    except KeyboardInterrupt:
        print("ablate: stopped; the same command continues", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
