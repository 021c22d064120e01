"""Words `compute=...` and `compute.key=value` -> where the runs of a study or sweep are computed.

The options stand in `conf/compute`; `compute=my_cluster.yaml` takes a file of one's own. They say
nothing of what a run is, so they are no part of its settings. Imports nothing heavy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ablate.config.schema import Settings

KINDS = ("serial", "joblib", "submitit_local", "submitit_slurm")
_LEAST = {
    "jobs": 1, "cpus": 1, "gpus": 0, "timeout_min": 1, "signal_seconds": 1, "requeues": 0,
}  # fmt: skip


_OURS = {
    "array", "chdir", "cpus_per_task", "error", "gpus_per_node", "job_name", "mem", "nodes",
    "ntasks", "ntasks_per_node", "open_mode", "output", "requeue", "signal", "time",
}  # fmt: skip


@dataclass(frozen=True)
class Compute:
    """`cpus`, `gpus`, `mem_gb`, `timeout_min` are those of one run; see `conf/compute`."""

    kind: str = "serial"
    jobs: int = 1
    cpus: int | None = None
    gpus: int = 0
    mem_gb: float | None = None
    timeout_min: int = 240
    signal_seconds: int = 120
    requeues: int = 20
    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    constraint: str | None = None
    setup: Sequence[str] = ()
    sbatch: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_here(self) -> bool:
        """Whether the runs share this machine's cores."""
        return self.kind != "submitit_slurm"

    @property
    def cores(self) -> int:
        """Of each run."""
        from ablate.pretraining import machine

        return self.cpus or max(machine.available_cores() // self.jobs, 1)

    def overrides(self, typed: Sequence[str], settings: Settings) -> list[str]:
        """What the runs are told beside what was typed: all arms have the threads that the first
        one, whose settings these are, would have alone on so many cores."""
        if self.kind == "serial":
            return []
        from ablate.pretraining import machine

        threads = machine.resolve_threads(
            settings.trainer.threads,
            hidden_size=settings.size.hidden_size,
            devices=settings.trainer.devices,
            cores=self.cores,
        )
        more = [f"trainer.threads={threads}"]
        if self.is_here:
            more += ["corpus.jobs=1", "evaluation.jobs=1"]
        names = {word.partition("=")[0] for word in typed}
        return [word for word in more if word.partition("=")[0] not in names]


def split(words: Sequence[str]) -> tuple[Compute, list[str]]:
    """The words that say how to compute, and all others in their order.

    Raises:
        ValueError: no such option, key or value.
    """
    chosen: str | None = None
    values: dict[str, tuple[str, str]] = {}
    rest = []
    for word in words:
        name, sign, value = word.partition("=")
        if name == "compute" and sign:
            if chosen is not None:
                raise ValueError(f"compute={chosen} and {word}: type one of them")
            chosen = value
        elif name.startswith("compute.") and sign:
            values[name[len("compute.") :]] = (word, value)
        else:
            rest.append(word)
    return _compute("serial" if chosen is None else chosen, values), rest


def _compute(name: str, values: Mapping[str, tuple[str, str]]) -> Compute:
    import yaml

    given = _read(name)
    where = f"compute={name}"
    for key, (word, value) in values.items():
        if key not in given or key == "kind":
            if given["kind"] == "serial":
                raise ValueError(
                    f"{word} has no effect on compute=serial; type compute=joblib too, or one of "
                    f"{', '.join(KINDS[2:])}"
                )
            keys = ", ".join(k for k in given if k != "kind")
            raise ValueError(f"{word}: {where} has no {key}; there are {keys}")
        try:
            given[key] = yaml.safe_load(value)
        except yaml.YAMLError:
            raise ValueError(f"{word} is no YAML value; put it in quotes") from None
    for key, value in given.items():
        _check(f"{where}: compute.{key}={value}", key, value)
    if given["kind"] == "submitit_slurm" and given["cpus"] is None:
        raise ValueError(f"{where}: type compute.cpus=8, or what one run needs of a node")
    limit = 60 * given.get("timeout_min", 240)
    # an earlier warning is, to submitit, no end of the time: it would not count against `requeues`
    if given.get("signal_seconds", 0) > min(max(limit // 5, 600), limit // 2):
        raise ValueError(
            f"{where}: compute.signal_seconds={given['signal_seconds']} is too much of the time "
            f"limit, compute.timeout_min={given['timeout_min']}; type compute.timeout_min=240"
        )
    given["setup"] = tuple(given.get("setup", ()))
    return Compute(**given)


def _read(name: str) -> dict[str, Any]:
    """The file's content; a file of one's own may leave out what its kind has defaults for."""
    import yaml

    from ablate.config.compose import conf_dir

    is_file = name.endswith((".yaml", ".yml"))
    if not is_file and name not in KINDS:
        raise ValueError(
            f"compute={name} is not possible; allowed: {', '.join(KINDS)}, or the path of a .yaml "
            "file. For example compute=joblib compute.jobs=2"
        )
    path = Path(name).expanduser() if is_file else conf_dir() / "compute" / f"{name}.yaml"
    try:
        given = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"compute={name} cannot be read: {reason}") from None
    if not isinstance(given, dict) or given.get("kind") not in KINDS:
        raise ValueError(
            f"compute={name}: the file must say kind: one of {', '.join(KINDS)}; "
            f"{conf_dir() / 'compute' / 'submitit_slurm.yaml'} is one to copy"
        )
    if not is_file:
        return given
    known = _read(given["kind"])
    unknown = sorted(set(given) - set(known))
    if unknown:
        raise ValueError(
            f"compute={name}: {given['kind']} has no {', '.join(unknown)}; there are "
            f"{', '.join(known)}"
        )
    return {**known, **given}


def _check(what: str, key: str, value: Any) -> None:
    """One message where a value is not of its kind."""
    texts = ("partition", "account", "qos", "constraint")
    if key in _LEAST and not (value is None and key == "cpus"):
        low = _LEAST[key]
        if type(value) is not int or value < low:
            raise ValueError(f"{what} must be a whole number of at least {low}")
    elif key == "mem_gb" and value is not None:
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e6:
            raise ValueError(f"{what} must be a number of GB, such as 16")
    elif key in texts and value is not None and not isinstance(value, str):
        raise ValueError(f"{what} must be a text; put it in quotes: \"'{value}'\"")
    elif key == "setup" and not (
        isinstance(value, list) and all(isinstance(line, str) for line in value)
    ):
        raise ValueError(f"{what} must be a list of shell lines, such as [module load cuda]")
    elif key == "sbatch":
        if not isinstance(value, dict) or not all(isinstance(name, str) for name in value):
            raise ValueError(f"{what} must be a mapping of options, such as {{nice: 100}}")
        ours = sorted(_OURS & {name.replace("-", "_") for name in value})
        if ours:
            raise ValueError(f"{what}: {', '.join(ours)} is set by the other keys, or for all jobs")
