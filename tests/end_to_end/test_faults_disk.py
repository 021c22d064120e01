"""A disk that is full or may not be written: one message, and nothing that was finished is lost."""

import shutil
import subprocess

import pytest

SETTINGS = ("bert", 0, 1)
PHASES = {  # moment from which nothing can be written -> what the message names
    "tokenizer": "cache",
    "store": "cache/stores",
    "first step": "metrics.jsonl",
    "step taken": "checkpoints/step-00000004.ckpt",
    "before weights": "model.safetensors",
    "fine-tuning": "fits/minimal_pairs-0",
    "last record": "record.json",
}
DEFAULT = ("store", "step taken", "fine-tuning")


def one_message(said):
    """The only message of a command; it has no traceback."""
    assert "Traceback" not in said
    (line,) = [line for line in said.splitlines() if line.startswith("ablate: ")]
    return line


def finished(folder):
    """What is whole, and when it was written."""
    patterns = ("cache/*/*/*", "runs/pretrained/*/model.safetensors", "runs/pretrained/*/fits/*",
                "runs/pretrained/*/checkpoints/step-*.ckpt")  # fmt: skip
    found = [path for pattern in patterns for path in folder.glob(pattern)]
    return {path: path.stat().st_mtime_ns for path in found if path.name[0] != "."}


@pytest.mark.parametrize(
    "moment",
    [pytest.param(m, marks=[] if m in DEFAULT else pytest.mark.slow) for m in PHASES],
)
def test_no_room_in_any_phase(warm, whole, tmp_path, moment):
    """The system lets no file grow any more; then it does again."""
    words = whole.words(*SETTINGS)
    code, said = warm.run(tmp_path, *words, faults=[(moment, "no room")])
    assert code == 1, said
    message = one_message(said)
    assert PHASES[moment] in message
    assert "cannot be written (File too large), " in message
    assert "free on its disk: make room and type the same command" in message
    before = finished(tmp_path)
    process = warm.start(tmp_path, *words, faults=[("last record", "hold")])
    while not (tmp_path / "reached").exists() and process.poll() is None:
        process.said  # noqa: B018
    after = finished(tmp_path)
    assert {path: time for path, time in before.items() if path.suffix != ".ckpt"}.items() <= (
        after.items()
    )
    (tmp_path / "go").touch()
    assert process.wait() == 0, process.said
    assert whole.contents(tmp_path) == whole.undisturbed("bert", 1)


@pytest.mark.parametrize(
    "moment",
    [m if m == "before weights" else pytest.param(m, marks=pytest.mark.slow) for m in PHASES],
)
def test_a_disk_that_is_really_full(warm, whole, tmp_path, moment):
    """A small file system of its own, where mounting is allowed."""
    place = tmp_path / "small"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(place)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("no mounts here; the test above is of the same places")
    try:
        words = whole.words(*SETTINGS)
        code, said = warm.run(place, *words, faults=[(moment, "fill")])
        assert code == 1, said
        assert "(No space left on device), 0.0 MB free on its disk" in one_message(said)
        (place / "filler").unlink()
        code, said = warm.run(place, *words)
        assert code == 0, said
        assert whole.contents(place) == whole.undisturbed("bert", 1)
    finally:
        warm.forget()
        subprocess.run(["umount", str(place)], check=True)


@pytest.mark.parametrize("setting", ["runs_dir", "cache_dir"])
def test_a_folder_that_cannot_be_one_is_refused_before_anything_is_read(
    warm, whole, tmp_path, setting
):
    (tmp_path / "file").touch()
    words = [*whole.words(*SETTINGS), f"paths.{setting}=file/folder"]
    code, said = warm.run(tmp_path, *words, faults=[("corpus scan", "kill")])
    assert code == 2, said
    message = one_message(said)
    assert message.startswith(f"ablate: paths.{setting}=file/folder cannot be written (")
    assert message.endswith(f"; type paths.{setting}=FOLDER")
    assert not (tmp_path / "runs/single").is_dir() or not list(tmp_path.glob("runs/single/*"))


def test_a_folder_that_may_not_be_written_is_refused(warm, whole, tmp_path):
    """The tests may run as root, for whom no folder is read-only: the system's answer is given."""
    words = whole.words(*SETTINGS)
    faults = [("temporary file", "refuse"), ("corpus scan", "kill")]
    code, said = warm.run(tmp_path, *words, faults=faults)
    assert code == 2, said
    assert "paths.runs_dir=runs cannot be written (Permission denied)" in one_message(said)
    assert not list(tmp_path.glob("runs/*/*"))


def test_a_folder_that_becomes_read_only_is_one_message(warm, whole, tmp_path):
    words = whole.words(*SETTINGS)
    code, said = warm.run(tmp_path, *words, faults=[("before weights", "refuse")])
    assert code == 1, said
    message = one_message(said)
    assert "model.safetensors cannot be written (Permission denied)" in message
    assert "make its folder writable and type the same command" in message


def test_reports_that_cannot_be_written_are_refused_before_a_study_runs(warm, tmp_path):
    (tmp_path / "file").touch()
    words = ["study=noise_floor", "paths.reports_dir=file/folder", "paths.cache_dir=cache"]
    code, said = warm.run(tmp_path, *words, faults=[("corpus scan", "kill")])
    assert code == 2, said
    assert "paths.reports_dir=file/folder cannot be written (" in one_message(said)
    assert not list(tmp_path.glob("runs/*/*"))
