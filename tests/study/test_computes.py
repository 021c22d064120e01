"""Words that say where runs are computed; they touch nothing else."""

import pytest
import yaml

from ablate.config.compose import compose_settings, conf_dir
from ablate.study.computes import KINDS, Compute, split


def test_words_are_split_from_the_others_in_any_order():
    words = ["size=tiny", "compute.jobs=3", "seed=1", "compute=joblib"]
    assert split(words) == (Compute("joblib", jobs=3), ["size=tiny", "seed=1"])
    assert split(["size=tiny"]) == (Compute(), ["size=tiny"])


@pytest.mark.parametrize("kind", KINDS)
def test_there_is_a_file_for_each(kind):
    assert split([f"compute={kind}"])[0].kind == kind
    assert (conf_dir() / "compute" / f"{kind}.yaml").read_text().startswith("# ")


def test_a_file_of_ones_own_says_what_differs(tmp_path):
    file = tmp_path / "mine.yaml"
    mine = {"kind": "submitit_slurm", "partition": "gpu", "gpus": 1, "setup": ["module load cuda"]}
    file.write_text(yaml.safe_dump(mine))
    found, _ = split([f"compute={file}", "compute.cpus=8"])
    assert (found.partition, found.gpus, found.cpus, found.timeout_min) == ("gpu", 1, 8, 240)
    assert found.setup == ("module load cuda",)


def test_runs_at_once_share_the_cores_and_what_was_typed_wins():
    compute, alone = Compute("joblib", jobs=2, cpus=3), ["corpus.jobs=1", "evaluation.jobs=1"]
    wide = compose_settings(["size=base"])
    assert compute.overrides([], wide) == ["trainer.threads=3", *alone]
    assert compute.overrides(["trainer.threads=1"], wide) == alone
    assert Compute("submitit_slurm", cpus=8).overrides([], wide) == ["trainer.threads=8"]
    wide.trainer.devices = 4  # threads are a rank's
    assert Compute("submitit_slurm", cpus=8).overrides([], wide) == ["trainer.threads=2"]
    assert Compute().overrides([], wide) == []


@pytest.mark.parametrize("kind", KINDS[1:])
def test_a_narrow_encoder_has_the_one_thread_that_it_has_alone(kind):
    """Else its finished runs would be trained again wherever else they are computed."""
    found = Compute(kind, cpus=8).overrides([], compose_settings([]))
    assert found[0] == "trainer.threads=1"


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["compute=slurm"], ["compute=slurm", "serial, joblib, submitit_local, submitit_slurm"]),
        (["compute=there_is_none.yaml"], ["there_is_none.yaml", "cannot be read"]),
        (["compute.jobs=2"], ["no effect", "compute=joblib"]),
        (["compute=joblib", "compute.partition=gpu"], ["no partition", "jobs, cpus"]),
        (["compute=joblib", "compute.jobs=0"], ["at least 1"]),
        (["compute=joblib", "compute.jobs=two"], ["whole number"]),
        (["compute=joblib", "compute.kind=serial"], ["no kind"]),
        (["compute=submitit_slurm", "compute.mem_gb=-1"], ["number of GB"]),
        (["compute=submitit_slurm", "compute.cpus=null"], ["compute.cpus=8"]),
        (["compute=submitit_local", "compute.timeout_min=2"], ["signal_seconds=120", "too much"]),
        (["compute=submitit_slurm", "compute.mem_gb=.nan"], ["number of GB"]),
        (["compute=submitit_slurm", "compute.sbatch={1: 2}"], ["{nice: 100}"]),
        (["compute=submitit_slurm", "compute.sbatch={ntasks-per-node: 2}"], ["ntasks_per_node"]),
        (["compute=joblib", "compute=serial"], ["type one of them"]),
        (["compute="], ["compute= is not possible"]),
        (["compute=submitit_slurm", "compute.partition=[a]"], ["must be a text"]),
        (["compute=submitit_slurm", "compute.setup=module load cuda"], ["[module load cuda]"]),
        (["compute=submitit_slurm", "compute.sbatch=nice"], ["{nice: 100}"]),
    ],
)
def test_bad_words_are_one_message(words, parts):
    with pytest.raises(ValueError, match=".") as caught:
        split(words)
    for part in parts:
        assert part in str(caught.value)


@pytest.mark.parametrize("content", ["[1]", "kind: cloud", "kind: joblib\npartition: gpu", "{"])
def test_a_bad_file_is_one_message(tmp_path, content):
    file = tmp_path / "mine.yaml"
    file.write_text(content)
    with pytest.raises(ValueError, match="mine.yaml"):
        split([f"compute={file}"])
