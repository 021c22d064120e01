"""A study that is killed, stopped or out of room while its report is written."""

import pytest
import yaml

pytestmark = pytest.mark.slow
COMMON = [
    "budget.clock=steps", "budget.amount=4", "evaluation=none", "tracking=none",
    "corpus.num_documents=200", "corpus.validation_fraction=0.1", "size.hidden_size=16",
    "trainer.threads=1", "trainer.progress_bar=false", "trainer.validation_rows=16",
    "trainer.num_validations=2",
]  # fmt: skip


@pytest.fixture(scope="module")
def study(warm_process, tiny_study):
    """Runs the study in a folder, disturbed or not: (exit code, what it said, its report)."""

    def run(folder, **more):
        content = {**tiny_study, "common": COMMON}
        (folder / "tiny.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
        words = ["study=tiny.yaml", "paths.cache_dir=cache"]
        code, said = warm_process.run(folder, *words, **more)
        files = [path for path in folder.glob("reports/**/*") if path.is_file()]
        return code, said, {str(path.relative_to(folder)): lines_of(path) for path in files}

    return run


def lines_of(path):
    """All but what says when and by which version it was made, which may change meanwhile."""
    return [line for line in path.read_bytes().splitlines() if b"ommit" not in line]


@pytest.fixture(scope="module")
def undisturbed(study, tmp_path_factory):
    code, said, report = study(tmp_path_factory.mktemp("undisturbed"))
    assert code == 0, said
    return report


@pytest.mark.parametrize(
    ("moment", "action", "wanted"),
    [("page", "kill", -9), ("report", "term", 143), ("page", "interrupt", 130),
     ("report", "no room", 1)],
)  # fmt: skip
def test_disturbed_in_its_report_the_same_command_writes_the_same(
    study, undisturbed, tmp_path, moment, action, wanted
):
    code, said, _ = study(tmp_path, faults=[(moment, action)])
    assert code == wanted, said
    assert "Traceback" not in said
    if wanted == 1:
        assert "make room and type the same command" in said
    code, said, report = study(tmp_path)
    assert code == 0, said
    assert "4 runs, 4 of them complete" in said
    assert report.keys() == undisturbed.keys()
    assert [name for name in report if report[name] != undisturbed[name]] == []
