"""Files of a run that were damaged: found out, said, and made again to the same bytes."""

import json
import shutil

import pytest

TINY = [
    "arm=tiny", "size.hidden_size=16", "corpus.num_documents=200", "paths.cache_dir=cache",
    "corpus.validation_fraction=0.1", "budget.clock=steps", "budget.amount=4",
    "trainer.log_every=1", "trainer.threads=1", "trainer.validation_rows=16",
    "trainer.num_validations=1", "trainer.checkpoint_every=2", "trainer.progress_bar=false",
    "evaluation=none", "tracking=none",
]  # fmt: skip
EVALUATED = [
    "arm=evaluated", "evaluation=synthetic", "evaluation.tasks=[acceptability]",
    "evaluation.num_train_examples=32", "evaluation.num_validation_examples=16",
    "evaluation.pairs_per_paradigm=2", "evaluation.jobs=1", "evaluation.finetune.min_steps=2",
    "evaluation.finetune.num_epochs=1",
]  # fmt: skip


def cut(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def no_text(path):
    path.write_bytes(b"\xff\xfe" * 100)


def no_record(path):
    path.write_text("[1, 2]\n")


def no_content(path):
    path.write_text('{"status": "complete"}\n')


def remove(path):
    path.unlink()


def slow(*values):
    return pytest.param(*values, marks=pytest.mark.slow)


class Run:
    """A finished run in a folder, and what it left."""

    def __init__(self, warm, folder):
        self.warm, self.folder = warm, folder
        self.before = self.results()

    def one(self, pattern):
        (found,) = self.folder.glob(f"runs/{pattern}")
        return found

    @property
    def record(self):
        return json.loads(self.one("single/tiny-*/record.json").read_text())

    def results(self):
        """Weights, lines of metrics, and scores."""
        files = [path for kind in ("pretrained/*", "single/tiny-*")
                 for path in self.folder.glob(f"runs/{kind}/m*")]  # fmt: skip
        return {path.parts[-3:]: path.read_bytes() for path in files}, self.record["scores"]

    def again(self, *words):
        """The same command; what it said on stderr."""
        code, said = self.warm.run(self.folder, *TINY, *words)
        assert code == 0, said
        assert "Traceback" not in said
        return said


@pytest.fixture(scope="module")
def finished(warm_process, tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished")
    code, said = warm_process.run(folder, *TINY)
    assert code == 0, said
    return folder


@pytest.fixture
def run(warm, finished, tmp_path):
    """A copy of a finished run."""
    return Run(warm, shutil.copytree(finished, tmp_path / "copy", symlinks=True))


@pytest.mark.parametrize("damage", [flip, slow(cut), slow(remove)])
def test_damaged_weights_are_not_shared_with_another_run(run, damage):
    """They are trained again, and the other run's scores are those of whole ones."""
    damage(run.one("pretrained/*/model.safetensors"))
    said = run.again("evaluation.ngram_baseline=false", "arm=other")
    assert said.count("warning: ") == 1
    assert "training again" in said
    (other,) = run.folder.glob("runs/single/other-*/record.json")
    record = json.loads(other.read_text())
    assert len(record["notes"]) == 1
    assert record["scores"] == {
        name: value for name, value in run.before[1].items() if name in record["scores"]
    }
    assert run.results() == run.before


def test_damaged_weights_are_not_asked_or_started_from(run):
    from ablate.interop.checkpoint import open_source
    from ablate.run.saved import open_saved

    weights = run.one("pretrained/*/model.safetensors")
    flip(weights)
    with pytest.raises(ValueError, match="are damaged.*put the file back, or type the command"):
        open_saved(weights.parent)
    with pytest.raises(ValueError, match="are damaged"):
        open_source(weights.parent).load()
    flip(weights)
    open_saved(weights.parent)
    open_source(weights.parent).load()


@pytest.mark.parametrize("damage", [cut, no_content, slow(no_text), slow(no_record)])
def test_a_damaged_record_is_made_again(run, damage):
    file = run.one("single/*/record.json")
    before = json.loads(file.read_text())
    damage(file)
    said = run.again()
    assert "record.json was damaged: it is made again" in said
    record = run.record
    (note,) = record.pop("notes")
    assert str(file.name) in note
    before.pop("provenance")
    assert {name: record[name] for name in before} == before
    assert run.results() == run.before


@pytest.mark.slow
def test_a_damaged_record_of_the_weights_trains_them_again(run):
    cut(run.one("pretrained/*/record.json"))
    cut(run.one("single/*/record.json"))
    said = run.again()
    assert said.count("was damaged") == 2
    assert len(run.record["notes"]) == 2
    assert run.results() == run.before


@pytest.mark.parametrize(
    ("name", "damage"), [("metrics.jsonl", cut), slow("metrics.jsonl", remove),
                         slow("record.json", no_content)],
)  # fmt: skip
def test_a_pretraining_that_lacks_something_is_not_shared(run, name, damage):
    damage(run.one(f"pretrained/*/{name}"))
    run.one("single/tiny-*/record.json").unlink()
    said = run.again()
    assert "damaged" in said
    assert run.results() == run.before


def test_an_interrupted_forced_run_goes_on_and_trains_once(run, warm):
    before = run.one("pretrained/*/model.safetensors").stat().st_mtime_ns
    words = (*TINY, *EVALUATED, "arm=tiny", "force=true")
    run.again(*EVALUATED, "arm=tiny")  # the complete run that is forced
    code, said = warm.run(run.folder, *words, faults=[("fine-tuning", "term")])
    assert code == 143, said
    trained = run.one("pretrained/*/model.safetensors").stat().st_mtime_ns
    assert trained != before
    code, said = warm.run(run.folder, *words)
    assert code == 0, said
    assert run.one("pretrained/*/model.safetensors").stat().st_mtime_ns == trained
    attempts = [json.loads(path.read_text())["attempt"]
                for path in run.folder.glob("runs/single/*/record.json")]  # fmt: skip
    assert sorted(attempts) == [0, 1]


def test_damaged_checkpoints_and_metrics_of_a_killed_run(run, warm):
    """The newest of two is damaged, and the tail of the lines; both are said and noted."""
    shutil.rmtree(run.folder / "runs")
    code, _ = warm.run(run.folder, *TINY, faults=[("before weights", "kill")])
    assert code == -9
    newest = run.one("pretrained/*/checkpoints/step-00000004.ckpt")
    cut(newest)
    with open(run.one("pretrained/*/metrics.jsonl"), "ab") as lines:
        lines.write(b"\xff\x00 torn")
    said = run.again()
    assert said.count("warning: ") == 1
    assert f"{newest.relative_to(run.folder)} is not whole; the one before it is taken" in said
    assert len(run.record["notes"]) == 1
    assert run.record["timings"]["pretraining"]["resumed_from_step"] == 2
    assert run.results() == run.before


def test_a_damaged_part_of_the_evaluation_is_measured_again(run):
    run.again(*EVALUATED)
    predictions = run.one("single/evaluated-*/predictions/acceptability.parquet")
    record = run.one("single/evaluated-*/record.json")
    before, scores = predictions.read_bytes(), json.loads(record.read_text())["scores"]
    no_text(run.one("pretrained/*/fits/acceptability-*.parquet"))
    no_text(predictions)
    cut(record)
    run.again(*EVALUATED)
    assert predictions.read_bytes() == before
    assert json.loads(record.read_text())["scores"] == scores
