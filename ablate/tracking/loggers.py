"""A run's metrics and summary -> its mirror on Weights & Biases.

The only file that imports wandb. The mirror is offline unless a key is present, gets its id from
the fingerprint, keeps the x axis in tokens, and can fail without hurting the run: one warning, and
the local record stays whole.
"""

from __future__ import annotations

import netrc
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

MODES = ("auto", "online", "offline", "disabled")


def resolve_mode(mode: str) -> str:
    """`auto` -> `online` where an API key is present (environment, netrc), else `offline`.

    WANDB_MODE, where set, decides for `auto`.

    Raises:
        ValueError: unknown word.
    """
    if mode not in MODES:
        raise ValueError(f"tracking.mode={mode!r} is not one of {', '.join(MODES)}")
    if mode != "auto":
        return mode
    wanted = os.environ.get("WANDB_MODE", "")
    if wanted in ("online", "offline", "disabled"):
        return wanted
    return "online" if os.environ.get("WANDB_API_KEY") or _netrc_has_key() else "offline"


def _netrc_has_key() -> bool:
    host = os.environ.get("WANDB_BASE_URL", "https://api.wandb.ai").split("//")[-1]
    try:
        return netrc.netrc().authenticators(host.split("/")[0].split(":")[0]) is not None
    except (OSError, netrc.NetrcParseError):
        return False


class Mirror:
    """One W&B run. Every call is guarded: a failing mirror is reported once and then left alone."""

    def __init__(
        self,
        *,
        mode: str,
        project: str,
        entity: str | None,
        run_id: str,
        name: str,
        group: str | None,
        tags: list[str],
        folder: Path,
        config: Mapping[str, Any],
        axes: Mapping[str, Any],
    ) -> None:
        """Open the run. `config` is stored whole under `cfg`, `axes` flat beside it.

        Inside a W&B agent the run id and the project are the agent's.
        """
        self._run: Any = None
        self._failed = False
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        os.environ.setdefault("WANDB_SILENT", "true")
        folder.mkdir(parents=True, exist_ok=True)
        locked = os.environ.get("WANDB_SWEEP_ID") is not None
        self.run_id = os.environ.get("WANDB_RUN_ID", run_id)

        def start() -> None:
            import wandb

            if wandb.run is not None:
                wandb.finish()  # an unfinished run would swallow this one
            self._run = wandb.init(
                mode=mode,  # type: ignore[arg-type]
                dir=str(folder),
                project=None if locked else project,
                entity=None if locked else entity,
                id=None if locked else self.run_id,
                name=name,
                group=group,
                tags=tags,
                job_type="arm",
                resume="allow" if mode == "online" else None,
                config={"cfg": dict(config), **({} if locked else axes)},
            )
            self._run.define_metric("tokens")
            self._run.define_metric("*", step_metric="tokens")

        self._guard(start)

    def _guard(self, call: Any) -> None:
        if self._failed:
            return
        try:
            call()
        except Exception as error:
            self._failed = True
            print(
                f"warning: the W&B mirror stopped ({type(error).__name__}: {error}); the run goes "
                "on, its record is local",
                file=sys.stderr,
            )

    def log(self, metrics: dict[str, float], step: int) -> None:
        """One row; `step` (optimizer steps) is a field, so that no row is ever out of order."""
        if self._run is not None:
            self._guard(lambda: self._run.log({**metrics, "step": step}))

    def replay(self, rows: list[dict[str, float]]) -> None:
        """Rows of a `MetricsFile` that an earlier process wrote."""
        for row in rows:
            self.log({k: v for k, v in row.items() if k != "step"}, int(row["step"]))

    def summary(self, values: Mapping[str, Any]) -> None:
        """Final values of the run."""
        if self._run is not None:
            self._guard(lambda: self._run.summary.update(dict(values)))

    def finish(self, exit_code: int) -> None:
        """Close the run with the process's true exit code; later calls do nothing."""
        run, self._run = self._run, None
        if run is not None:
            self._guard(lambda: run.finish(exit_code=exit_code))
