"""`python -m ablate.inspect` in this process, on small corpora."""

import json

import pytest

from ablate.inspect.__main__ import main

SMALL = ["corpus.num_documents=60", "corpus.validation_fraction=0.1", "trainer.threads=1",
         "trainer.progress_bar=false"]  # fmt: skip


@pytest.fixture
def inspect(tmp_path, monkeypatch, capsys):
    """Run the command line in an empty folder; returns (exit code, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)

    def run(*words):
        own_corpus = any(word.startswith("corpus=") for word in words)
        code = main([*SMALL[own_corpus:], "--tokens", "3000", *words])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return run


@pytest.fixture
def findings(inspect):
    """The object of --json."""

    def run(*words):
        code, out, err = inspect("--json", *words)
        assert code == 0, err
        return json.loads(out)

    return run


@pytest.fixture
def strange_corpus(tmp_path):
    """Overrides for a text file with markup, control signs and letters outside of ASCII."""
    lines = [
        f'<b>bold</b> & "quoted" café number {i} costs €{i} \x1b[31mred\x1b[0m for søren ☃ .'
        for i in range(60)
    ]
    documents = ["\n".join(lines[i : i + 3]) for i in range(0, 60, 3)]
    (tmp_path / "strange.txt").write_text("\n\n".join(documents), encoding="utf-8")
    return [
        "corpus=files", f"corpus.path={tmp_path / 'strange.txt'}", "corpus.validation_fraction=0.2",
    ]  # fmt: skip
