"""Runs side by side measured: what is told, at sizes that say nothing about speed."""

import json

import pytest

from ablate.bench import jobs

TINY = [
    "--override", "corpus.num_documents=200", "--override", "corpus.validation_fraction=0.1",
    "--override", "size.hidden_size=16", "--override", "size.intermediate_size=16",
]  # fmt: skip


@pytest.mark.slow
def test_sides_are_measured_and_compared(bench):
    code, out, err = bench("jobs", "--json", "--steps", "2", "--repeats", "1", *TINY)
    assert code == 0, err
    found = json.loads(out)
    speeds = found["tokens_per_second"]
    assert set(speeds) == {"alone, all cores", "alone, 1 thread", "2 at once"}
    assert min(speeds.values()) > 0
    assert found["threads_a_job"] == max(found["cores"] // 2, 1)
    alone = max(speeds["alone, all cores"], speeds["alone, 1 thread"])
    assert found["ratio"] == pytest.approx(speeds["2 at once"] / alone)
    assert found["pass"] == (found["ratio"] >= 0.95)
    assert "bar 0.95" in "\n".join(jobs.table(found))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--jobs", "1"], "--jobs 1 must be at least 2; type"),
        (["--steps", "0"], "--steps 0 must be at least 2; type"),
        (["--repeats", "0"], "--repeats 0 must be at least 1; type"),
    ],
)
def test_bad_numbers_are_refused(bench, arguments, said):
    code, out, err = bench("jobs", *arguments)
    assert (code, out) == (2, "")
    assert said in err
