"""The commands of `ablate.predict` and `ablate.interop` in the README are ones they take."""

import re
import shlex
from pathlib import Path

import pytest

from ablate.interop.options import parse as parse_interop
from ablate.predict.options import parse as parse_predict

README = (Path(__file__).resolve().parents[2] / "README.md").read_text(encoding="utf-8")
LINES = re.findall(r"^python -m ablate\.(predict|interop) (.*?)\s*(?:#.*)?$", README, re.M)
PARSERS = {"predict": parse_predict, "interop": parse_interop}


@pytest.mark.parametrize(("program", "words"), LINES)
def test_command_is_accepted(program, words):
    PARSERS[program](shlex.split(words))


def test_each_program_is_shown():
    assert {program for program, _ in LINES} == set(PARSERS)
