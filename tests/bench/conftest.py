"""The command line of `ablate.bench` run inside the test's own process."""

import sys

import pytest

from ablate.bench.__main__ import main


@pytest.fixture
def bench(monkeypatch, capsys):
    """arguments -> (exit code, stdout, stderr)"""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["ablate.bench", *arguments])
        code = main()
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run
