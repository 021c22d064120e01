"""A run's metrics and summary, a study's table and figures -> their mirror on Weights & Biases.

The only file that imports wandb. The mirror is offline unless a key is present, gets its id from
the fingerprint, keeps the x axis in tokens, and can fail without hurting the run: one warning, and
the local record stays whole.
"""

from __future__ import annotations

import contextlib
import netrc
import os
import re
import shutil
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ablate.tracking.tracker import Table, Tracker
from ablate.tracking.tracker import guarded as guarded  # for whoever calls `summary_run`

MODES = ("auto", "online", "offline", "disabled")
_SECONDS = 25.0  # that W&B may take at the start, and again at the end


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


def _quiet() -> None:
    os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
    os.environ.setdefault("WANDB_SILENT", "true")


@dataclass(frozen=True)
class Shown:
    """What a study's summary run holds: settings, final values, tables, and pages of HTML."""

    config: Mapping[str, Any]
    values: Mapping[str, Any]
    tables: Mapping[str, tuple[Sequence[str], Sequence[Sequence[Any]]]]  # columns, rows
    pages: Mapping[str, str]


def summary_run(
    shown: Shown,
    *,
    mode: str,
    project: str,
    entity: str | None,
    run_id: str,
    name: str,
    group: str,
    tags: list[str],
    folder: Path,
) -> None:
    """One W&B run of job type `study` that shows what a study found; under `guarded`.

    The same `run_id` again continues that run, so its tables and values become the newer ones;
    offline, the pieces are put together by `wandb sync`.
    """
    _quiet()
    folder.mkdir(parents=True, exist_ok=True)
    locked = os.environ.get("WANDB_SWEEP_ID") is not None

    import wandb

    if wandb.run is not None:
        wandb.finish()  # an unfinished run would swallow this one
    run, code = None, 1
    try:
        run = wandb.init(
            mode=mode,  # type: ignore[arg-type]
            dir=str(folder),
            project=None if locked else project,
            entity=None if locked else entity,
            id=None if locked else run_id,
            name=name,
            group=group,
            tags=tags,
            job_type="study",
            resume="allow",
            settings=_limits(_SECONDS),
        )
        run.config.update(dict(shown.config), allow_val_change=True)
        media: dict[str, Any] = {
            key: wandb.Table(columns=list(columns), data=[list(row) for row in rows])
            for key, (columns, rows) in shown.tables.items()
        }
        for key, page in shown.pages.items():  # without W&B's own style sheet, which is a request
            media[key] = wandb.Html(page, inject=False, data_is_not_path=True)
        run.log(media)
        run.summary.update(dict(shown.values))
        code = 0
    finally:
        if run is not None:
            run.finish(exit_code=code)


class Mirror(Tracker):
    """One W&B run.

    Row i of the run is row i of `metrics.jsonl` (W&B's own step), so that a process which continues
    a run hands in all rows again and only those that W&B has not seen are sent.
    """

    name = "W&B mirror"

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
        timeout: float = _SECONDS,
    ) -> None:
        """Open the run. `config` is stored whole under `cfg`, `axes` flat beside it.

        Inside a W&B agent the run id and the project are the agent's, and so are the axes that it
        has set. Where W&B cannot be reached the run is kept offline, which `mode` then says.

        Args:
            timeout: seconds that W&B may take at the start, and again at the end.
        """
        super().__init__()
        self._run: Any = None
        self._row = self._seen = 0
        self.mode, self._timeout = mode, timeout
        self.sweep, agents = of_agent()
        self.run_id = agents or run_id
        _quiet()
        where: dict[str, Any] = {"dir": str(folder), "name": name, "group": group, "tags": tags}
        if self.sweep is None:
            where |= {"project": project, "entity": entity, "id": self.run_id}
        whole = {"cfg": dict(config), **({} if self.sweep else axes)}
        self._guard(lambda: self._open(folder, where, whole, axes))

    def _open(
        self,
        folder: Path,
        where: Mapping[str, Any],
        config: dict[str, Any],
        axes: Mapping[str, Any],
    ) -> None:
        import wandb

        folder.mkdir(parents=True, exist_ok=True)
        forget_pieces(folder, self.run_id)
        if wandb.run is not None:
            with contextlib.suppress(TimeoutError):
                wandb.finish()  # an unfinished run would swallow this one
        try:
            self._run = self._init(where, config)
        except Exception as error:
            if self.mode != "online":
                raise
            self.mode = "offline"
            self._warn(error, f"it goes on offline: wandb sync {folder}/wandb/offline-*")
            wandb.teardown()  # the client still holds the run's id
            self._run = self._init(where, config)
        if self.mode == "online":
            later = f"wandb sync --include-online {folder}/wandb/run-*"
            self.after_failure = f"the run goes on, its record is local; for the rest: {later}"
        self._seen = int(getattr(self._run, "starting_step", 0) or 0)
        self._run.config.update({k: v for k, v in axes.items() if k not in self._run.config})
        self._run.define_metric("tokens")
        self._run.define_metric("*", step_metric="tokens")

    def _init(self, where: Mapping[str, Any], config: dict[str, Any]) -> Any:
        """Offline there is nothing to resume: the rows of all earlier pieces are handed in."""
        import wandb

        return wandb.init(
            mode=self.mode,  # type: ignore[arg-type]
            job_type="arm",
            resume="allow" if self.mode == "online" else None,
            config=config,
            settings=_limits(self._timeout),
            **where,
        )

    def _log(self, row: dict[str, float]) -> None:
        number, self._row = self._row, self._row + 1
        if self._run is not None and number >= self._seen:
            self._run.log(row, step=number, commit=True)

    def _summary(self, values: dict[str, Any]) -> None:
        if self._run is not None:
            self._run.summary.update(values)

    def _tables(self, tables: Mapping[str, Table]) -> None:
        """As files of the run: W&B's way through artifacts waits for its answers."""
        import wandb

        for name, (columns, rows) in tables.items():
            table = wandb.Table(columns=list(columns), data=[list(row) for row in rows])
            table.bind_to_run(self._run, name, "summary")
            self._run.summary.update({name: table})

    def _keep_files(self, files: Sequence[Path], name: str) -> None:
        """As an artifact of type `model`."""
        import wandb

        artifact = wandb.Artifact(name, "model")
        for file in files:
            artifact.add_file(str(file))
        _within(self._timeout, lambda: self._run.log_artifact(artifact))

    def finish(self, exit_code: int) -> None:
        """Close the run with the process's true exit code; later calls do nothing.

        A mirror that has failed is closed too: an unfinished run would swallow the next one.
        """
        run, self._run = self._run, None
        if run is None:
            return
        try:
            run.finish(exit_code=exit_code)
        except Exception as error:
            self._fail(error)


def of_agent() -> tuple[str | None, str | None]:
    """(sweep, run) that a W&B agent has started this process for. A run's id without a sweep's is
    somebody's own variable, under which all runs of this process would be one."""
    sweep = os.environ.get("WANDB_SWEEP_ID")
    return sweep, os.environ.get("WANDB_RUN_ID") if sweep else None


def _limits(seconds: float) -> Any:
    """W&B's own are 90 s at the start and none at the end."""
    import wandb

    return wandb.Settings(init_timeout=seconds, finish_timeout=seconds, finish_timeout_raises=True)


def forget_pieces(folder: Path, run_id: str) -> None:
    """Remove what earlier processes left of this run for `wandb sync`.

    Their rows are handed in again; synced as well, each row would be there twice.
    """
    ours = re.compile(rf"(offline-)?run-\d+_\d+-{re.escape(run_id)}(-\d+)?")
    for piece in (folder / "wandb").glob("*run-*"):
        if ours.fullmatch(piece.name) and piece.is_dir() and not piece.is_symlink():
            shutil.rmtree(piece, ignore_errors=True)


def _within(seconds: float, call: Callable[[], Any]) -> None:
    """Run a call that has no limit of its own; what it raises is raised here.

    Raises:
        TimeoutError: it has not come back.
    """
    raised: list[Exception] = []

    def attempt() -> None:
        try:
            call()
        except Exception as error:
            raised.append(error)

    thread = threading.Thread(target=attempt, daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        raise TimeoutError(f"no answer within {seconds:g} s")
    if raised:
        raise raised[0]
