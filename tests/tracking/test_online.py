"""Online runs with W&B's own client: what arrives is what the record holds, also after a kill."""

import json
import os
import shutil
import signal
import subprocess
import sys

import pytest

STEPS = 700  # long enough to be met in the middle: wandb sends its first lines after seconds
linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
pytestmark = linux
EVALUATED = [
    "evaluation=synthetic", "evaluation.tasks=[acceptability]", "evaluation.num_train_examples=32",
    "evaluation.num_validation_examples=16", "evaluation.pairs_per_paradigm=2",
    "evaluation.finetune.min_steps=2", "evaluation.finetune.num_epochs=1", "evaluation.jobs=1",
]  # fmt: skip


def only(server):
    (run,) = server.runs.values()
    return run


def table(run, name):
    """A table as it was uploaded: (columns, rows)."""
    content = json.loads(run.uploads[run.summary[name]["path"]])
    return content["columns"], content["data"]


def test_an_online_run_arrives_whole(shell, wandb_server, is_whole):
    code = shell.run(
        "tracking.mode=online", "tracking.group=made", "tracking.tags=[small,mine]",
        "tracking.project=deeds", "tracking.log_checkpoint=true", "masking.mask_rate=0.3",
        *EVALUATED, steps=12,
    )  # fmt: skip
    assert code == 0, shell.said
    record, run = shell.record, only(wandb_server)
    assert wandb_server.unknown == []
    assert shell.warnings == []
    assert run.name == record["fingerprint"]
    assert record["wandb"] == [{"id": run.name, "sweep": None, "mode": "online"}]
    assert is_whole(run, shell.rows())
    assert run.exit_codes == [0]
    sent = run.settings
    assert (sent["project"], sent["groupName"], sent["jobType"]) == ("deeds", "made", "arm")
    assert set(sent["tags"]) == {"small", "mine"}
    assert sent["displayName"].endswith(record["fingerprint"])
    assert run.config["cfg"]["masking"]["mask_rate"] == 0.3
    axes = {"arm": record["arm"], "seed": 0, "mask_rate": 0.3, "fingerprint": run.name}
    assert axes.items() <= run.config.items()
    metrics = json.loads(sent["config"])["_wandb"]["value"]["m"]  # 1 name, 2 glob, 5 its x axis
    tokens = next(i for i, metric in enumerate(metrics, 1) if metric.get("1") == "tokens")
    assert {metric["5"] for metric in metrics if "5" in metric} == {tokens}
    for name, value in record["scores"].items():
        assert run.summary[name] == pytest.approx(value, rel=1e-12), name
    assert run.summary["status"] == "complete"
    columns, rows = table(run, "scores")
    assert columns[:2] == ["score", "value"]
    assert "synthetic/acceptability/mcc" in {row[0] for row in rows}
    _, rows = table(run, "masked_rows")
    assert any("[MASK]" in shown and wanted for _, shown, wanted in rows)
    (artifact,) = wandb_server.artifacts.values()
    assert (artifact["type"], artifact["whole"]) == ("model", True)
    weights = next(shell.folder.glob("runs/pretrained/*/model.safetensors"))
    assert artifact["files"]["model.safetensors"] == weights.read_bytes()


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, pytest.param(signal.SIGKILL, marks=pytest.mark.slow)]
)
def test_a_run_that_is_stopped_and_continued_is_one_run(shell, wandb_server, is_whole, number):
    first = shell.ablate("tracking.mode=online", steps=STEPS)
    wandb_server.wait_for(lambda s: any(len(run.history) > 30 for run in s.runs.values()), 400)
    os.kill(first.pid, number)
    assert first.wait(300) == (143 if number == signal.SIGTERM else -9)
    run = only(wandb_server)
    if number == signal.SIGTERM:
        assert run.exit_codes == [143]
        assert shell.record["status"] == "interrupted"
    assert len(run.history) < STEPS
    assert shell.run("tracking.mode=online", steps=STEPS) == 0, shell.said
    assert only(wandb_server) is run
    assert shell.record["timings"]["pretraining"]["resumed_from_step"] > 0
    assert is_whole(run, shell.rows())
    assert len(run.history) == STEPS + 2  # and two validations
    assert run.exit_codes[-1] == 0
    assert shell.warnings == []


def test_an_offline_folder_is_synced_whole(offline, shell, wandb_server, is_whole):
    (piece,) = offline.folder.glob("runs/single/*/wandb/offline-run-*")
    copy = shutil.copytree(piece, shell.folder / piece.name)
    done = subprocess.run(
        ["wandb", "sync", str(copy)], env=shell.env, cwd=shell.folder, timeout=400,
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    run, record = only(wandb_server), offline.record
    assert run.name == record["fingerprint"]
    assert is_whole(run, offline.rows())
    assert run.settings["groupName"] == "made"
    assert run.exit_codes == [0]
    assert run.summary["val/token_mask/loss"] == record["scores"]["val/token_mask/loss"]


@pytest.mark.slow
def test_pieces_of_a_killed_offline_run_are_synced_as_one(shell, wandb_server, is_whole):
    first = shell.ablate("tracking.mode=offline", steps=STEPS)
    shell.wait_for_rows(60, first)
    first.kill()
    first.wait()
    assert shell.run("tracking.mode=offline", steps=STEPS) == 0, shell.said
    pieces = [str(path) for path in shell.folder.glob("runs/single/*/wandb/offline-run-*")]
    done = subprocess.run(["wandb", "sync", *pieces], env=shell.env, cwd=shell.folder, timeout=400)
    assert done.returncode == 0
    assert is_whole(only(wandb_server), shell.rows())


@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")
@pytest.mark.slow
def test_an_offline_run_asks_no_one_for_an_address(shell):
    trace = shell.folder / "trace"
    before = ("strace", "-f", "-qq", "-e", "trace=connect,sendto,sendmmsg", "-o", str(trace))
    code = shell.run("tracking.mode=offline", steps=2, before=before)
    if code and "ptrace" in shell.said:
        pytest.skip("strace is not allowed here")
    assert code == 0, shell.said
    assert shell.warnings == []
    assert "AF_UNIX" in trace.read_text()  # wandb's own processes were seen
    assert "AF_INET" not in trace.read_text()
