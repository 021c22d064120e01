"""One run of a few steps a kind of arm, made once."""

import contextlib
import io

import pytest

from ablate.config.compose import compose_settings
from ablate.run.single import run

TINY = [
    "corpus.num_documents=200", "corpus.validation_fraction=0.1", "budget.clock=steps",
    "budget.amount=3", "trainer.log_every=2", "trainer.validation_rows=16",
    "trainer.num_validations=1", "trainer.threads=1", "trainer.progress_bar=false",
    "trainer.precision=fp32", "evaluation=none", "tracking=none",
]  # fmt: skip


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """Overrides -> the folder of a finished run with them."""
    root, made = tmp_path_factory.mktemp("predict"), {}

    def get(*overrides):
        if overrides not in made:
            words = [*TINY, f"paths.runs_dir={root / 'runs'}", *overrides]
            with (
                contextlib.redirect_stdout(io.StringIO()),
                contextlib.redirect_stderr(io.StringIO()),
            ):
                record = run(compose_settings(words))
            made[overrides] = next(root.glob(f"runs/single/*-{record['fingerprint']}"))
        return made[overrides]

    return get
