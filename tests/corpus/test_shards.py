"""How many files the same documents lie in decides nothing: not the corpus, nor rows and masks."""

import itertools
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
import torch

from ablate.config.compose import compose_settings
from ablate.corpus import files, sources, synthetic
from ablate.corpus.cache import parquet_tables
from ablate.run.arm import Arm, prepare

DOCUMENTS = list(synthetic.documents(0, 150))
NUM_ROWS = 200


def write_shards(folder: Path, texts, count: int, name="part-{i}.parquet") -> Path:
    """Files of unequal sizes with small row groups; their numbers have no leading zeros."""
    folder.mkdir(parents=True)
    bounds = [len(texts) * i * i // count**2 for i in range(count + 1)]
    for i, (begin, end) in enumerate(itertools.pairwise(bounds), start=1):
        table = pyarrow.table({"id": list(range(begin, end)), "text": texts[begin:end]})
        pyarrow.parquet.write_table(
            table, folder / name.format(i=i, count=count), row_group_size=1 + i
        )
    return folder


def arm_of(cache: Path, *words: str) -> Arm:
    return prepare(
        compose_settings(
            [
                "tokenizer.vocab_size=300", "evaluation=none", "tracking=none", "trainer.threads=1",
                "trainer.progress_bar=false", "trainer.precision=fp32", "budget.clock=steps",
                "budget.amount=40", "trainer.validation_rows=20", "corpus.validation_fraction=0.1",
                f"paths.cache_dir={cache}", *words,
            ]
        )
    )  # fmt: skip


def first_rows(arm: Arm) -> list[tuple]:
    """Ids as the encoder sees them, predicted positions and labels, row by row."""
    found: list[tuple] = []
    for item in arm.data.train_dataloader():
        for batch in item.micro_batches:
            ends = batch.cu_seqlens.tolist()
            row_of = torch.searchsorted(batch.cu_seqlens, batch.predict_positions, right=True) - 1
            for row, (begin, end) in enumerate(itertools.pairwise(ends)):
                at = row_of == row
                places = (batch.predict_positions[at] - begin).tolist()
                labels = batch.labels[at].tolist()
                found.append((batch.input_ids[begin:end].tolist(), places, labels))
        if len(found) >= NUM_ROWS:
            return found[:NUM_ROWS]
    raise AssertionError(f"{len(found)} rows")


def everything(arm: Arm) -> dict:
    store = arm.store
    return {
        "corpus": (arm.corpus.fingerprint, arm.corpus.validation_threshold),
        "tokenizer": arm.tokenizer.hash,
        "pretraining": arm.pretraining,
        "store": {path.name: path.read_bytes() for path in store.folder.iterdir()},
        "split": [part.tolist() for part in store.split(arm.corpus.validation_threshold)],
        "rows": first_rows(arm),
    }


@pytest.fixture(scope="module")
def one_file(tmp_path_factory):
    """Everything of the documents in one file, built by one process."""
    folder = tmp_path_factory.mktemp("one")
    shards = write_shards(folder / "data", DOCUMENTS, 1)
    return everything(arm_of(folder / "cache", "corpus=files", f"corpus.path={shards}"))


@pytest.mark.parametrize(("count", "jobs"), [(3, 1), (7, 2), (11, 1)])
def test_files_cut_otherwise_give_the_same_rows_and_masks(tmp_path, one_file, count, jobs):
    shards = write_shards(tmp_path / "data", DOCUMENTS, count)
    words = ["corpus=files", f"corpus.path={shards}/*.parquet", f"corpus.jobs={jobs}"]
    found = everything(arm_of(tmp_path / "cache", *words))
    assert found.keys() == one_file.keys()
    for name, value in found.items():
        assert value == one_file[name], name


@pytest.mark.parametrize("streaming", [True, False])
def test_so_does_a_hub_folder_of_many_shards(tmp_path, one_file, streaming):
    shards = write_shards(tmp_path / "data", DOCUMENTS, 11, "train-{i:05d}-of-{count:05d}.parquet")
    words = ["corpus=hub", f"corpus.name={shards}", f"corpus.streaming={str(streaming).lower()}"]
    found = everything(arm_of(tmp_path / "cache", *words, "corpus.jobs=2"))
    for name, value in found.items():
        assert value == one_file[name], name


def test_jobs_below_one_are_refused():
    with pytest.raises(ValueError, match=r"corpus.jobs=0 must be from 1 .*corpus.jobs=2"):
        compose_settings(["corpus.jobs=0"])


def load(path, cache, **options):
    return sources.load_files(path, validation_fraction=0.2, cache_dir=cache, **options)


def test_another_order_of_files_is_another_corpus_with_the_same_documents_held_out(tmp_path):
    one = load(write_shards(tmp_path / "a", DOCUMENTS, 3), tmp_path / "cache")
    turned = tmp_path / "b"
    turned.mkdir()
    for i, path in enumerate(sorted((tmp_path / "a").iterdir(), reverse=True)):
        (turned / f"{i}.parquet").write_bytes(path.read_bytes())
    two = load(turned, tmp_path / "cache")
    assert one.fingerprint != two.fingerprint
    assert one.counts == two.counts
    assert one.validation_threshold == two.validation_threshold
    held_out = [
        {text for text in corpus.open() if sources.document_hash(text) < one.validation_threshold}
        for corpus in (one, two)
    ]
    assert held_out[0] == held_out[1]


@pytest.mark.parametrize(
    "names",
    [
        ["shard-00002.txt", "shard-00010.txt", "shard-00100.txt"],
        ["shard-2.txt", "shard-10.txt", "shard-100.txt"],
        ["2/10.txt", "10/2.txt", "10/10.txt"],
        ["a.txt", "a2.txt", "a10.txt", "b1.txt"],
        ["01.txt", "1.txt", "2.txt"],
    ],
)
def test_numbers_in_paths_count_by_their_value(tmp_path, names):
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    found, _ = files.find_files(tmp_path)
    assert [path.relative_to(tmp_path).as_posix() for path in found] == names
    if "/" not in names[0]:
        assert files.find_files(tmp_path / "*.txt")[0] == found


def test_a_parquet_file_is_read_as_far_as_it_is_needed(tmp_path):
    """Neither the next file nor rows far ahead are touched before their turn."""
    texts = [f"document {i}" for i in range(2000)]
    (tmp_path / "data").mkdir()
    path = tmp_path / "data" / "1.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"text": texts}), path, row_group_size=100)
    group = pyarrow.parquet.ParquetFile(path).metadata.row_group(10).column(0)
    place = group.dictionary_page_offset or group.data_page_offset
    data = bytearray(path.read_bytes())
    data[place : place + group.total_compressed_size] = bytes(group.total_compressed_size)
    path.write_bytes(data)
    (tmp_path / "data" / "2.parquet").write_bytes(b"no Parquet")
    enough = load(tmp_path / "data", tmp_path / "cache", max_documents=700)
    assert list(enough.open()) == texts[:700]
    with pytest.raises(ValueError, match=r"cannot read .*1.parquet as parquet"):
        load(tmp_path / "data", tmp_path / "cache")
    assert len(list((tmp_path / "cache" / "corpora").iterdir())) == 1
    tables = parquet_tables(path, "text", 128)
    assert [next(tables).num_rows for _ in range(5)] == [128] * 5
