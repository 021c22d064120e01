"""Failures of several kinds in one sweep, odd paths in printed commands; FAULTS B29, B31."""

import shlex
from types import SimpleNamespace

import pytest

from ablate.config.compose import compose_settings
from ablate.sweep.__main__ import main
from ablate.sweep.report import report_sweep

POINTS = {"masking.mask_rate": {"values": [0.15, 0.3, 0.4]}}


@pytest.fixture
def fails(monkeypatch, tmp_path):
    """`run` that raises what is given for a mask rate, and trains nothing."""
    monkeypatch.chdir(tmp_path)
    errors = {}

    def run(settings, **more):
        rate = settings.masking.mask_rate
        if rate in errors:
            raise errors[rate]
        return {"folder": f"run-{rate}"}

    monkeypatch.setattr("ablate.run.single.run", run)
    return errors


def test_b29_two_failures_of_two_kinds_are_both_shown(written, fails, capsys):
    fails |= {0.3: RuntimeError("out of luck"), 0.4: OSError("out of disk")}
    assert main([str(written(POINTS)), "tracking=none"]) == 1
    said = capsys.readouterr()
    begun, table = said.out.split("   #  state")
    for error in ("RuntimeError: out of luck", "OSError: out of disk"):
        assert f"failed ({error})" in begun  # when it happens
        assert error in table  # and at the end
        assert said.err.count(error) == 1  # with its traceback
    assert said.err.count("Traceback") == 2
    rows = table.splitlines()
    assert [row.split()[1] for row in rows[1:4]] == ["complete", "failed", "failed"]
    assert rows[4] == "2 failed, 1 complete"


def test_b29_one_failure_in_the_middle(written, fails, capsys):
    fails[0.3] = RuntimeError("out of luck")
    assert main([str(written(POINTS)), "tracking=none"]) == 1
    assert "2 complete, 1 failed" in capsys.readouterr().out
    fails.clear()
    assert main([str(written(POINTS)), "tracking=none"]) == 0


@pytest.mark.parametrize("path", ["runs/epoch=9-step=99.txt", "a b, c.txt", "模.txt", "it's.txt"])
def test_b31_a_printed_command_can_be_pasted(written, pretend, path):
    """Through a shell's quoting and the overrides' own, the path comes back as it was."""
    word = f'corpus.path="{path}"'
    words = ["corpus=files", word, "evaluation=none", "tracking=none"]
    assert main([str(written({"seed": {"values": [3]}})), *words]) == 0
    asked = SimpleNamespace(runs_dir=None, reports_dir=None, metric=None, overrides=[])
    text = (report_sweep("tiny", asked) / "README.md").read_text()
    lines = [line for line in text.splitlines() if line.startswith("python -m ablate ")]
    (pasted,) = [shlex.split(line)[3:] for line in lines]
    settings = compose_settings(pasted)
    assert (settings.corpus.path, settings.seed) == (path, 3)
