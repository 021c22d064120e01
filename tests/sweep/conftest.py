"""A sweep file in a folder of its own, and runs that train nothing."""

import pytest
import yaml

COMMAND = ["${env}", "python", "-m", "ablate", "${args_no_hyphens}"]


@pytest.fixture
def written(tmp_path):
    """Writes a sweep file; `parameters` and further keys as given."""

    def write(parameters, method="grid", name="tiny", **more):
        content = {
            "method": method,
            "metric": {"name": "val/token_mask/loss", "goal": "minimize"},
            "parameters": parameters,
            "command": COMMAND,
            **more,
        }
        path = tmp_path / f"{name}.yaml"
        path.write_text(yaml.safe_dump(content, sort_keys=False))
        return path

    return write


@pytest.fixture
def pretend(tmp_path, monkeypatch):
    """`run_job` replaced: leaves a record whose score follows from the overrides, trains nothing.

    `calls` lists the overrides of each; a word in `fails` makes a point fail.
    """
    from ablate.config.compose import compose_settings
    from ablate.config.rules import resolve
    from ablate.run.single import write_config
    from ablate.study.states import State, settings_hash
    from ablate.sweep import jobs
    from ablate.tracking.record import write_json

    monkeypatch.chdir(tmp_path)

    class Pretend:
        def __init__(self):
            self.calls, self.fails = [], set()

        def score(self, settings):
            return settings.masking.mask_rate + settings.seed / 100

        def __call__(self, job):
            self.calls.append(job.overrides)
            if self.fails & set(job.overrides):
                return State("failed", error="ValueError: asked for")
            settings = compose_settings(job.overrides)
            name = f"{job.arm}-s{job.seed}-{settings_hash(settings)[:6]}"
            folder = tmp_path / "runs" / "single" / name
            scores = {"val/token_mask/loss": self.score(settings)}
            write_json(folder / "record.json", {"status": "complete", "scores": scores})
            write_config(folder, resolve(settings))
            return State("complete", name, settings_hash(settings))

    found = Pretend()
    monkeypatch.setattr(jobs, "run_job", found)
    return found
