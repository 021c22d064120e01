"""`wandb sweep` and `wandb agent` as they come, against the stand-in of the server."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent.parent
FILE = ROOT / "sweeps" / "mask_rate.yaml"
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
# the agent asks every 5 s otherwise
AGENT = (
    "import sys, wandb, wandb.wandb_agent as a; a.Agent.POLL_INTERVAL = 0.2; "
    "wandb.agent(sys.argv[1])"
)


def sweep(shell, server, file):
    """`wandb sweep FILE`; the sweep as the server has it."""
    done = subprocess.run(
        ["wandb", "sweep", str(file)], cwd=shell.folder, env=shell.env,
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    made = list(server.sweeps.values())[-1]
    assert f"wandb agent me/ablate/{made.name}" in done.stdout + done.stderr
    return made


def small(shell, common, **parameters):
    """A copy of the file that trains for seconds."""
    content = yaml.safe_load(FILE.read_text())
    fixed = dict(word.split("=", 1) for word in [*common, "budget.amount=6"])
    content["parameters"] = {
        **{name: {"values": values} for name, values in parameters.items()},
        **{name: {"value": yaml.safe_load(value)} for name, value in fixed.items()},
    }
    path = shell.folder / "small.yaml"
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    return path


def agent(shell, made):
    return shell.start("-c", AGENT, f"me/ablate/{made.name}", WANDB_AGENT_DISABLE_FLAPPING="true")


def test_the_file_is_taken_as_it_is(shell, wandb_server):
    made = sweep(shell, wandb_server, FILE)
    assert made.config["method"] == "grid"
    assert len(made.points) == 12
    assert made.config["command"] == ["${env}", "python", "-m", "ablate", "${args_no_hyphens}"]


def test_points_are_run_once_and_a_second_sweep_replays_them(shell, wandb_server, is_whole):
    """A point that is refused (a rate of 7) fails alone."""
    file = small(shell, shell.common, **{"masking.mask_rate": [0.3, 7], "seed": [0]})
    first = sweep(shell, wandb_server, file)
    assert agent(shell, first).wait(900) == 0, shell.said
    assert [point["masking.mask_rate"] for _, _, point in first.given] == [0.3, 7]
    good, bad = (run_id for _, run_id, _ in first.given)
    assert bad not in wandb_server.runs  # refused before a run was opened
    (record,) = shell.records()
    assert record["wandb"] == [{"id": good, "sweep": first.name, "mode": "online"}]
    run = wandb_server.runs[good]
    assert run.settings["sweep"] == first.name
    assert run.config["fingerprint"] == record["fingerprint"]
    assert run.config["cfg"]["masking"]["mask_rate"] == 0.3
    assert is_whole(run, shell.rows())
    assert run.exit_codes == [0]
    scores = record["scores"]

    file = small(shell, shell.common, **{"masking.mask_rate": [0.3], "seed": [0]})
    second = sweep(shell, wandb_server, file)
    assert agent(shell, second).wait(900) == 0, shell.said
    ((_, again, _),) = second.given
    (record,) = shell.records()
    assert [run["id"] for run in record["wandb"]] == [good, again]
    assert record["scores"] == scores
    assert record["timings"]["pretraining"]["resumed_from_step"] is None
    assert "This run is complete" in shell.said
    replayed = wandb_server.runs[again]
    assert is_whole(replayed, shell.rows())
    assert replayed.exit_codes == [0]
    assert replayed.summary["val/token_mask/loss"] == scores["val/token_mask/loss"]


def test_an_installed_package_carries_its_sweep(shell, wandb_server):
    """The wheel, unpacked, from a folder that is not the repository."""
    from hatchling import build

    here = Path.cwd()
    os.chdir(ROOT)
    try:
        wheel = shell.folder / build.build_wheel(str(shell.folder))
    finally:
        os.chdir(here)
    place = shell.folder / "installed"
    zipfile.ZipFile(wheel).extractall(place)
    made = sweep(shell, wandb_server, place / "ablate" / "sweeps" / "mask_rate.yaml")
    point = [f"{key}={value}" for key, value in made.points[-1].items()]
    composed = shell.start("-m", "ablate", *point, "--cfg", "job", PYTHONPATH=str(place))
    assert composed.wait(300) == 0, shell.said
    assert "mask_rate: 0.5" in shell.said


@pytest.mark.slow
def test_two_agents_share_a_sweep(shell, wandb_server):
    common = [*shell.common, "tracking.timeout=200"]  # of four processes on a busy machine
    file = small(shell, common, **{"masking.mask_rate": [0.15, 0.3], "seed": [0, 1]})
    made = sweep(shell, wandb_server, file)
    agents = [agent(shell, made) for _ in range(2)]
    assert [one.wait(1200) for one in agents] == [0, 0], shell.said
    assert len({who for who, _, _ in made.given}) == 2
    records = shell.records()
    assert len(records) == 4
    ids = [run["id"] for record in records for run in record["wandb"]]
    assert sorted(ids) == sorted(run_id for _, run_id, _ in made.given)
    assert shell.warnings == []
    codes = {name: wandb_server.runs[name].exit_codes for name in ids}
    assert all(found[-1:] == [0] for found in codes.values()), codes
