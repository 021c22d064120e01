"""Kill a whole run at a named point: the same command then ends in the bytes of one that was not.

12 points x (bert, modernbert) x (0, 2 workers) x (1, 2 micro-batches). By default 12 cases, each
killed at two points one after the other, which covers every pair of values; all 96 are slow.
"""

import itertools
import json

import pytest

POINTS = (
    "tokenizer", "store", "first step", "micro-batch", "step taken", "checkpoint torn",
    "before rename", "after rename", "validation", "weights", "fine-tuning", "record",
)  # fmt: skip
ENCODERS, WORKERS, MICRO = ("bert", "modernbert"), (0, 2), (1, 2)
SETTINGS = list(itertools.product(ENCODERS, WORKERS, MICRO))
STEPS = 6
TINY = [
    "arm=tiny", "size.hidden_size=16", "corpus.num_documents=200", "paths.cache_dir=cache",
    "corpus.validation_fraction=0.1", "tokenizer.vocabulary=trained", "tokenizer.vocab_size=128",
    "budget.clock=steps", f"budget.amount={STEPS}", "trainer.log_every=1", "trainer.threads=1",
    "trainer.validation_rows=16", "trainer.num_validations=2", "trainer.checkpoint_every=2",
    "trainer.progress_bar=false", "encoder.dropout=0.1", "evaluation=synthetic",
    "evaluation.tasks=[acceptability]", "evaluation.num_train_examples=32",
    "evaluation.num_validation_examples=16", "evaluation.pairs_per_paradigm=2",
    "evaluation.jobs=1", "evaluation.finetune.min_steps=2", "evaluation.finetune.num_epochs=1",
    "tracking=none",
]  # fmt: skip
# of a record, what two processes do not share: how long they took, what they were, what was typed
NOT_RESULTS = {"timings", "provenance", "overrides", "notes"}


def _cases():
    """Each of six pairs of points in settings and in their opposite: all pairs of two values."""
    pairs = (
        ("tokenizer", "step taken"), ("store", "before rename"), ("first step", "weights"),
        ("micro-batch", "fine-tuning"), ("checkpoint torn", "record"),
        ("validation", "after rename"),
    )  # fmt: skip
    for number, points in enumerate(pairs):
        for opposite in (False, True):
            chosen = [(0, 0, 0), (0, 1, 0), (0, 1, 1)][number % 3]
            yield (
                points,
                tuple(
                    values[index != opposite]
                    for values, index in zip((ENCODERS, WORKERS, MICRO), chosen, strict=True)
                ),
            )


CASES = list(_cases())


def words_of(encoder, workers, micro):
    return [
        *TINY, f"encoder={encoder}", f"trainer.num_workers={workers}",
        f"trainer.micro_batch_size={16 // micro}",
    ]  # fmt: skip


def contents(folder):
    """All that a run leaves, by path: bytes, of records what does not depend on the process."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        kept = name.startswith("runs/") or (name.startswith("cache/") and "/." not in name)
        if not path.is_file() or not kept or path.name == ".lock":
            continue
        if path.name == "record.json":
            record = json.loads(path.read_text())
            found[name] = {k: v for k, v in record.items() if k not in NOT_RESULTS}
        elif path.name == "config.yaml":
            lines = path.read_text().splitlines()
            found[name] = [line for line in lines if "num_workers" not in line]
        else:
            found[name] = path.read_bytes()
    return found


def assert_same(folder, reference):
    mine = contents(folder)
    assert mine.keys() == reference.keys()
    for name, content in mine.items():
        assert content == reference[name], name
    kinds = [name.rpartition("/")[2] for name in mine]
    assert kinds.count("model.safetensors") == 1
    assert kinds.count("metrics.jsonl") == kinds.count("record.json") == 2
    assert sum(name.endswith(".parquet") for name in kinds) == 4
    (lines,) = [text for name, text in mine.items() if name.startswith("runs/pretrained/")
                and name.endswith("metrics.jsonl")]  # fmt: skip
    rows = [json.loads(line) for line in lines.splitlines()]
    assert [row["step"] for row in rows if "train/loss" in row] == list(range(1, STEPS + 1))
    assert [row["step"] for row in rows if "val/token_mask/loss" in row] == [3, 6]


@pytest.fixture(scope="module")
def undisturbed(warm_process, tmp_path_factory):
    """(encoder, micro-batches) -> what a run leaves that nothing disturbs; it has no workers, which
    change no number."""
    known = {}

    def run(encoder, micro):
        if (encoder, micro) not in known:
            folder = tmp_path_factory.mktemp("undisturbed")
            code, said = warm_process.run(folder, *words_of(encoder, 0, micro))
            assert code == 0, said
            known[encoder, micro] = contents(folder)
        return known[encoder, micro]

    return run


def killed(warm, folder, points, settings, reference):
    for point in points:
        code, said = warm.run(folder, *words_of(*settings), faults=[(point, "kill")])
        assert code == -9, f"{point} was not reached: {said}"
    code, said = warm.run(folder, *words_of(*settings))
    assert code == 0, said
    assert_same(folder, reference)


def name_of(value):
    return "-".join(str(part).replace(" ", "_") for part in value)


@pytest.mark.parametrize(("points", "settings"), CASES, ids=name_of)
def test_killed_twice_a_run_ends_in_the_same_bytes(warm, undisturbed, tmp_path, points, settings):
    killed(warm, tmp_path, points, settings, undisturbed(settings[0], settings[2]))


@pytest.mark.slow
@pytest.mark.parametrize("settings", SETTINGS, ids=name_of)
@pytest.mark.parametrize("point", POINTS)
def test_killed_at_any_point_a_run_ends_in_the_same_bytes(
    warm, undisturbed, tmp_path, point, settings
):
    killed(warm, tmp_path, [point], settings, undisturbed(settings[0], settings[2]))


def test_the_default_cases_cover_every_pair_of_values():
    assert len(CASES) == 12
    factors = [POINTS, ENCODERS, WORKERS, MICRO]
    covered = set()
    for points, settings in CASES:
        for point in points:
            values = list(enumerate((point, *settings)))
            covered |= set(itertools.combinations(values, 2))
    for (i, first), (j, second) in itertools.combinations(enumerate(factors), 2):
        for pair in itertools.product(first, second):
            assert ((i, pair[0]), (j, pair[1])) in covered, pair


def test_killed_in_the_corpus_scan(warm, undisturbed, tmp_path):
    killed(warm, tmp_path, ["corpus scan"], ("bert", 0, 1), undisturbed("bert", 1))
