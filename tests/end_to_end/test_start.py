"""What is fast stays fast by what it does not import; the wheel carries all it needs."""

import os
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
HEAVY = ("torch", "pytorch_lightning", "datasets", "wandb", "transformers", "numba", "pandas")


def python(*words, cwd=None, executable=sys.executable, **env):
    return subprocess.run(
        [str(executable), *words], capture_output=True, text=True, cwd=cwd, timeout=300,
        env={**os.environ, **env},
    )  # fmt: skip


def test_help_imports_nothing_heavy_and_lists_the_groups(tmp_path):
    code = (
        "import sys; sys.argv = ['ablate', '--help']\n"
        "from ablate.__main__ import main\n"
        "try:\n    main()\nexcept SystemExit as stop:\n    assert not stop.code\n"
        f"print('heavy:', [m for m in {HEAVY!r} if m in sys.modules])"
    )
    done = python("-c", code, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "heavy: []" in done.stdout
    assert "masking: albert_ngram, all_mask, " in done.stdout
    assert "python -m ablate masking=all_mask nsp=true" in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_wheel_runs_from_another_folder_with_a_user_config_folder(tmp_path):
    """Built without isolation, installed without dependencies, beside the running packages."""
    from hatchling import build

    here = Path.cwd()
    os.chdir(ROOT)
    try:
        wheel = build.build_wheel(str(tmp_path))
    finally:
        os.chdir(here)
    new = tmp_path / "env"
    venv.create(new, with_pip=False)
    place = next(new.glob("lib/python*/site-packages"))
    (place / "running.pth").write_text(next(p for p in sys.path if p.endswith("site-packages")))
    executable = new / "bin" / "python"
    done = python(
        "-m", "pip", "--python", str(executable), "install", "-q", "--no-deps", "--no-index",
        str(tmp_path / wheel),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert (place / "ablate/conf/config.yaml").is_file()
    assert (place / "ablate/sweeps/mask_rate.yaml").is_file()

    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "mine" / "masking").mkdir(parents=True)
    (elsewhere / "mine/masking/half.yaml").write_text("mask_rate: 0.5\n")
    done = subprocess.run(
        [str(new / "bin" / "ablate"), "--help"], capture_output=True, text=True, cwd=elsewhere,
        timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "whole_word" in done.stdout
    words = ["-m", "ablate", "--config-dir", "mine", "masking=half", "nsp=true", "--cfg", "job"]
    done = python(*words, cwd=elsewhere, executable=executable, PYTHONPATH="")
    assert done.returncode == 0, done.stderr
    assert "mask_rate: 0.5" in done.stdout
    assert "nsp: true" in done.stdout
    assert f"{place}" in python(
        "-c", "import ablate; print(ablate.__file__)", cwd=elsewhere, executable=executable,
        PYTHONPATH="",
    ).stdout  # fmt: skip
