"""Worker processes encode the documents: same bytes, clear ends, nothing half-made."""

import dataclasses
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import ablate
from ablate.corpus import sources
from ablate.corpus.cache import stage
from ablate.tokens import encoders, store, training
from ablate.tokens.store import build, resolve_jobs

WORDS = ["un", "cat", "##s", "##able", "the", ".", "ran"]
DOCUMENTS = [f"The cats ran {i}.\nUnable . 😀 [MASK]" for i in range(40)] + [
    "\u200b",
    "ran\n\u200b",
]


def corpus_of(documents) -> sources.Corpus:
    hashes = np.array([sources.document_hash(text) for text in documents], dtype=np.uint64)
    return sources.Corpus(
        name="by hand",
        fingerprint=sources.fingerprint_of(hashes),
        open=lambda: iter(documents),
        validation_threshold=2**63,
        counts={},
    )


@pytest.fixture
def tokenizer(tmp_path):
    return training.from_morphemes(WORDS, cache_dir=tmp_path)


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("kind", ["wordpiece", "byte_bpe"])
def test_the_same_bytes_for_any_number_of_jobs_and_chunk_size(tmp_path, kind):
    made = training.train(
        kind, DOCUMENTS, vocab_size=300, lowercase=True, cache_dir=tmp_path / "tokenizer"
    )
    cases = [(1, 1 << 20), (1, 50), (2, 50), (2, 1), (3, 200)]
    built = [
        build(corpus_of(DOCUMENTS), made, cache_dir=tmp_path / f"{i}", jobs=jobs,
              chunk_characters=size)
        for i, (jobs, size) in enumerate(cases)
    ]  # fmt: skip
    assert built[0].meta["documents"] == 42 - (kind == "wordpiece")
    assert all(content(one.folder) == content(built[0].folder) for one in built)
    assert len({one.hash for one in built}) == 1


def test_special_ids_under_other_names_reach_the_workers(tmp_path, tokenizer):
    """`names` come from the files beside a pretrained tokenizer, and are part of its hash."""
    file = tmp_path / "pretrained" / "tokenizer.json"
    file.parent.mkdir()
    file.write_text(tokenizer.file.read_text().replace("[MASK]", "<hole>"))
    renamed = store.Tokenizer(file, {"mask": "<hole>"})
    one, two = (
        build(corpus_of(DOCUMENTS), renamed, cache_dir=tmp_path / f"{jobs}", jobs=jobs)
        for jobs in (1, 2)
    )
    assert content(one.folder) == content(two.folder)


def test_a_tokenizer_file_that_changed_meanwhile_is_refused(tmp_path, tokenizer):
    tokenizer.file.write_text(tokenizer.file.read_text().replace('"ran"', '"run"'))
    with pytest.raises(ValueError, match="changed while it was used"):
        build(corpus_of(DOCUMENTS), tokenizer, cache_dir=tmp_path, jobs=2)
    assert list((tmp_path / "stores").iterdir()) == []


@pytest.mark.parametrize(("number", "at"), [(0, 0), (1, 7), (0, 40)])
def test_a_killed_worker_is_one_error_and_no_store(tmp_path, tokenizer, monkeypatch, number, at):
    started = []

    class Watched(encoders._Worker):
        def __init__(self, *given):
            super().__init__(*given)
            started.append(self._process)

    def texts():
        for i, text in enumerate(DOCUMENTS):
            if i == at:
                os.kill(started[number].pid, signal.SIGKILL)
                started[number].wait()
            yield text

    monkeypatch.setattr(encoders, "_Worker", Watched)
    broken = dataclasses.replace(corpus_of(DOCUMENTS), open=texts)
    with pytest.raises(RuntimeError, match="was killed, most likely .* corpus.jobs=1"):
        build(broken, tokenizer, cache_dir=tmp_path, jobs=2, chunk_characters=1)
    assert list((tmp_path / "stores").iterdir()) == []
    assert [process.poll() is not None for process in started] == [True, True]
    monkeypatch.undo()
    again = build(corpus_of(DOCUMENTS), tokenizer, cache_dir=tmp_path, jobs=2)
    assert again.meta["documents"] == 41


def test_an_error_of_the_corpus_comes_out_and_the_workers_are_gone(tmp_path, tokenizer):
    def texts():
        yield from DOCUMENTS[:9]
        raise KeyError("stopped")

    broken = dataclasses.replace(corpus_of(DOCUMENTS), open=texts)
    with pytest.raises(KeyError, match="stopped"):
        build(broken, tokenizer, cache_dir=tmp_path, jobs=2, chunk_characters=1)
    fewer = dataclasses.replace(corpus_of(DOCUMENTS), open=lambda: iter(DOCUMENTS[:-1]))
    with pytest.raises(ValueError, match="changed while it was read"):
        build(fewer, tokenizer, cache_dir=tmp_path, jobs=2)
    assert list((tmp_path / "stores").iterdir()) == []


def test_groups_come_in_order_and_few_are_held(tokenizer):
    taken = []

    def chunks():
        for number in range(40):
            taken.append(number)
            yield [f"{number} cat"]

    for number, documents in enumerate(encoders.encode_in_workers(chunks(), tokenizer, 2)):
        assert documents.seen.tolist() == [sources.document_hash(f"{number} cat")]
        assert len(taken) <= number + 3
    assert number == 39


def test_workers_import_nothing_heavy():
    code = (
        "import sys; import ablate.tokens.encoders\n"
        "assert not {'torch', 'datasets', 'pyarrow', 'hydra', 'joblib'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env=environment())


@pytest.mark.parametrize(
    ("jobs", "text_bytes", "cores", "found"),
    [(None, 10**6, 8, 1), (None, 10**8, 8, 8), (None, 10**8, 128, 16), (3, 10, 2, 3)],
)  # fmt: skip
def test_jobs_follow_the_size_of_the_corpus_unless_given(jobs, text_bytes, cores, found):
    assert resolve_jobs(jobs, text_bytes=text_bytes, cores=cores) == found


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(Path(ablate.__file__).parents[1])}


# the whole way from files to a store, killed by itself: after so many documents of the store, or
# after so many seconds of anything (0 = never)
_COMMAND = """
import os, signal, sys, threading, time
from ablate.corpus import sources
from ablate.tokens import store, training

cache, text, jobs, documents, seconds = *sys.argv[1:3], int(sys.argv[3]), *map(float, sys.argv[4:])

def kill():
    os.kill(os.getpid(), signal.SIGKILL)

def progress(count, done=[0]):
    done[0] += count
    if documents and done[0] >= documents:
        kill()

if seconds:
    threading.Timer(seconds, kill).start()
if text.isdigit():  # the built-in language, without the seconds that importing `datasets` takes
    corpus = sources.load_synthetic(
        seed=0, num_documents=int(text), validation_fraction=0.1, cache_dir=cache
    )
else:
    corpus = sources.load_files(text, validation_fraction=0.1, cache_dir=cache)
tokenizer = training.train(
    "wordpiece", sources.TrainingDocuments(corpus), vocab_size=400, lowercase=True,
    cache_dir=cache, documents_key=corpus.fingerprint,
)
made = store.build(
    corpus, tokenizer, cache_dir=cache, jobs=jobs, chunk_characters=4000, progress=progress
)
print(made.folder)
"""


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-c", _COMMAND, *map(str, arguments)]


def run(*arguments: object) -> subprocess.CompletedProcess:
    """Returns when every process that holds its stderr has ended, workers among them."""
    return subprocess.run(
        command(*arguments), capture_output=True, text=True, timeout=120, env=environment()
    )  # fmt: skip


def write_text(path: Path, num_documents: int) -> Path:
    rows = random.Random(0)
    words = [f"w{rows.randrange(900)}" for _ in range(60 * num_documents)]
    documents = (" ".join(words[60 * i : 60 * i + 60]) for i in range(num_documents))
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in documents))
    return path


def everything(cache: Path) -> dict[str, bytes]:
    """All files of a cache by their relative path, but for those of `datasets`."""
    return {
        path.relative_to(cache).as_posix(): path.read_bytes()
        for path in sorted(cache.rglob("*"))
        if path.is_file() and path.relative_to(cache).parts[0] != "datasets"
    }


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_killed_build_leaves_no_store_and_the_same_command_builds_it(tmp_path, jobs):
    text = "200"
    whole = run(tmp_path / "whole", text, 1, 0, 0)
    assert whole.returncode == 0, whole.stderr
    moments = random.Random(jobs)
    cache = tmp_path / "cache"
    for _ in range(2):
        done = run(cache, text, jobs, moments.randrange(1, 190), 0)
        assert done.returncode == -signal.SIGKILL, done.stderr
        left = list((cache / "stores").iterdir())
        assert [path.suffix for path in left] == [".part"], "of the last one alone"
        assert not list((cache / "stores").glob("*/meta.json"))
    assert run(cache, text, jobs, 0, 0).returncode == 0
    assert everything(cache) == everything(tmp_path / "whole")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("jobs", [1, 2])
def test_killed_at_any_moment_of_scanning_training_and_building(tmp_path, jobs, seed):
    text = write_text(tmp_path / "a.jsonl", 4000)
    began = time.monotonic()
    whole = run(tmp_path / "whole", text, 1, 0, 0)
    taken = time.monotonic() - began
    assert whole.returncode == 0, whole.stderr
    moments = random.Random(seed)
    cache = tmp_path / "cache"
    codes = []
    for _ in range(6):
        codes.append(run(cache, text, jobs, 0, moments.uniform(0.01, taken)).returncode)
        assert codes[-1] in (0, -signal.SIGKILL)
    assert -signal.SIGKILL in codes
    last = run(cache, text, jobs, 0, 0)
    assert last.returncode == 0, last.stderr
    # what a kill left of a part that nobody has built since is swept by the next build beside it
    for room in ("corpora", "tokenizers", "stores"):
        with stage(cache / room / "one more") as file:
            file.write_text("")
        (cache / room / "one more").unlink()
    assert everything(cache) == everything(tmp_path / "whole")


def test_two_commands_at_once_make_one_store(tmp_path):
    text = "200"
    assert run(tmp_path / "whole", text, 1, 0, 0).returncode == 0
    cache = tmp_path / "cache"
    started = [
        subprocess.Popen(command(cache, text, jobs, 0, 0), env=environment(), stdout=-1, stderr=-1)
        for jobs in (2, 1, 2)
    ]
    ended = [(process.communicate(timeout=120), process.returncode) for process in started]
    assert [code for _, code in ended] == [0, 0, 0], ended
    assert everything(cache) == everything(tmp_path / "whole")
