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


def assert_same(mine, reference):
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
    assert [row["step"] for row in rows if "train/loss" in row] == [1, 2, 3, 4, 5, 6]
    assert [row["step"] for row in rows if "val/token_mask/loss" in row] == [3, 6]


@pytest.fixture
def killed(warm, whole, tmp_path):
    """Kills a run at each point, one after the other, and lets it end."""

    def check(points, encoder, workers, micro):
        words = whole.words(encoder, workers, micro)
        for point in points:
            code, said = warm.run(tmp_path, *words, faults=[(point, "kill")])
            assert code == -9, f"{point} was not reached: {said}"
        code, said = warm.run(tmp_path, *words)
        assert code == 0, said
        assert_same(whole.contents(tmp_path), whole.undisturbed(encoder, micro))

    return check


def name_of(value):
    return "-".join(str(part).replace(" ", "_") for part in value)


@pytest.mark.parametrize(("points", "settings"), CASES, ids=name_of)
def test_killed_twice_a_run_ends_in_the_same_bytes(killed, points, settings):
    killed(points, *settings)


@pytest.mark.slow
@pytest.mark.parametrize("settings", SETTINGS, ids=name_of)
@pytest.mark.parametrize("point", POINTS)
def test_killed_at_any_point_a_run_ends_in_the_same_bytes(killed, point, settings):
    killed([point], *settings)


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


def test_killed_in_the_corpus_scan(killed):
    killed(["corpus scan"], "bert", 0, 1)


@pytest.mark.slow
def test_killed_three_times_it_is_one_run_of_the_server(warm, whole, tmp_path, wandb_server):
    """Its history has the lines of metrics.jsonl: each, once, in order."""
    words = [*whole.words("bert", 0, 1), "tracking=wandb", "tracking.mode=online"]
    online = {
        "WANDB_BASE_URL": wandb_server.url, "WANDB_API_KEY": "k" * 40, "WANDB_MODE": "online",
        "WANDB_X_FILE_STREAM_TRANSMIT_INTERVAL": "0.2",
    }  # fmt: skip
    for point in ("step taken", "after rename", "fine-tuning"):
        code, said = warm.run(tmp_path, *words, faults=[(point, "kill")], **online)
        assert code == -9, said
    code, said = warm.run(tmp_path, *words, **online)
    assert code == 0, said
    (run,) = wandb_server.runs.values()
    (file,) = tmp_path.glob("runs/single/*/metrics.jsonl")
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [row["_step"] for row in run.history] == list(range(len(lines)))
    assert [row["tokens"] for row in run.history] == sorted(row["tokens"] for row in lines)
    for row, line in zip(run.history, lines, strict=True):
        ours = {name: row[name] for name in line}
        assert ours == pytest.approx(line, rel=1e-8)
    assert run.exit_codes[-1] == 0
