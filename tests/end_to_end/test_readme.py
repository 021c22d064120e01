"""Every code block of README.md: Python is run, commands are composed."""

import re
import shlex
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.S)
PYTHON = [body for language, body in BLOCKS if language == "python"]
COMMANDS = [
    line.split("#")[0].strip()
    for language, body in BLOCKS
    if language == "bash"
    for line in body.splitlines()
]


def test_there_are_blocks_of_both_kinds():
    assert len(PYTHON) >= 1
    assert sum(line.startswith("python -m ablate") for line in COMMANDS) >= 5


@pytest.mark.parametrize("body", PYTHON)
def test_python_blocks_run(body):
    space = {}
    exec(compile(body, "README.md", "exec"), space)
    assert space["logits"].shape[1] == 37


@pytest.mark.parametrize("line", [c for c in COMMANDS if c.startswith("python -m ablate")])
def test_commands_compose_and_pass_the_checks(line):
    from ablate.config.compose import compose_settings

    module, *words = shlex.split(line, comments=True)[2:]
    if module == "ablate.sweep":
        from ablate.sweep.options import parse as parse_sweep

        assert (ROOT / words[0]).is_file()
        assert parse_sweep(words)
        return
    if module == "ablate.report" and ("*" in words[0] or words[0].startswith("sweep:")):
        from ablate.report.options import parse as parse_report

        assert parse_report(words).what == words[:1]
        return
    if module in ("ablate.study", "ablate.report") or words[0].startswith("study="):
        from ablate.study.guard import compose_arms
        from ablate.study.options import open_study, parse

        rest = words[1:] if module == "ablate.study" else words
        options = parse(rest if rest[0].startswith("study=") else [f"study={rest[0]}", *rest[1:]])
        assert compose_arms(open_study(options.study, options.scale), options.overrides)
        return
    options = [i for i, word in enumerate(words) if word.startswith("--")]
    compose_settings(words[: options[0]] if options else words)


@pytest.mark.parametrize("line", [c for c in COMMANDS if c.startswith(("make", "wandb"))])
def test_other_commands_name_what_exists(line):
    words = line.split()
    if words[0] == "make":
        assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(), re.M)
    else:
        assert (ROOT / words[2]).is_file()
