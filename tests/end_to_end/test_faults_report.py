"""A study that is killed, stopped or out of room while its report is written."""

import pytest
import yaml

pytestmark = pytest.mark.slow
STUDY = {
    "question": "Does a larger learning rate help?",
    "baseline": "plain",
    "arms": {"plain": [], "fast": ["optimizer.learning_rate=0.01"]},
    "moves": ["optimizer.learning_rate"],
    "seeds": 2,
    "primary": "val/token_mask/loss",
    "higher_is_better": False,
    "margin": 0.1,
    "common": [
        "budget.clock=steps", "budget.amount=4", "evaluation=none", "tracking=none",
        "corpus.num_documents=200", "corpus.validation_fraction=0.1", "size.hidden_size=16",
        "trainer.threads=1", "trainer.progress_bar=false", "trainer.validation_rows=16",
        "trainer.num_validations=2", "paths.cache_dir=cache",
    ],
}  # fmt: skip


@pytest.fixture
def study(warm, tmp_path):
    """Runs the study in a folder, disturbed or not: (exit code, what it said, its report)."""

    def run(name, **more):
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        (folder / "tiny.yaml").write_text(yaml.safe_dump(STUDY, sort_keys=False))
        code, said = warm.run(folder, "study=tiny.yaml", **more)
        files = {path.relative_to(folder): path for path in folder.glob("reports/**/*")}
        return code, said, {name: path.read_bytes() for name, path in files.items()
                            if path.is_file() and path.suffix != ".md"}  # fmt: skip

    return run


@pytest.mark.parametrize(
    ("moment", "action", "wanted"),
    [("page", "kill", -9), ("report", "term", 143), ("page", "interrupt", 130),
     ("report", "no room", 1)],
)  # fmt: skip
def test_disturbed_in_its_report_the_same_command_writes_the_same(study, moment, action, wanted):
    code, said, whole = study("undisturbed")
    assert code == 0, said
    code, said, _ = study("disturbed", faults=[(moment, action)])
    assert code == wanted, said
    assert "Traceback" not in said
    if wanted == 1:
        assert "make room and type the same command" in said
    code, said, report = study("disturbed")
    assert code == 0, said
    assert "4 runs, 4 of them complete" in said
    assert report.keys() == whole.keys()
    differing = [str(name) for name in whole if report[name] != whole[name]]
    assert differing == []
