"""Files and hub folders -> corpora: formats, counts, the split, the memo and the errors."""

import bz2
import csv
import gzip
import json
import lzma
import os
import shutil
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from ablate.corpus import files, hub, sources
from ablate.corpus.cache import stage

TEXTS = ["one. two.", "three\nfour", "fünf 😀", "six, “seven”", "eight"]


def load(path, cache, **options):
    options = {"validation_fraction": 0.2, "cache_dir": cache, **options}
    return sources.load_files(path, **options)


def write(path: Path, texts, field="text") -> Path:
    """One file in the format of its name."""
    kind = files.format_of(path)
    rows = [{"id": i, field: text, "note": "2020-01-01"} for i, text in enumerate(texts)]
    if kind == "text":
        data = "\n\n".join(texts).encode()
    elif kind == "jsonl":
        data = "".join(json.dumps(row) + "\n" for row in rows).encode()
    elif kind == "json":
        data = json.dumps(rows).encode()
    elif kind == "parquet":
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
        return path
    else:
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, rows[0], delimiter="\t" if kind == "tsv" else ",")
            writer.writeheader()
            writer.writerows(rows)
        data = path.read_bytes()
    packers = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}
    path.write_bytes(packers.get(path.suffix, bytes)(data))
    return path


NAMES = ["a.txt", "a.jsonl", "a.json", "a.csv", "a.tsv", "a.parquet"]
NAMES += ["a.txt.gz", "a.jsonl.gz", "a.csv.gz", "a.jsonl.bz2", "a.jsonl.xz"]


@pytest.mark.parametrize("name", NAMES)
def test_every_format_gives_the_same_corpus(tmp_path, name):
    corpus = load(write(tmp_path / name, TEXTS), tmp_path / "cache")
    assert list(corpus.open()) == TEXTS
    assert list(corpus.open()) == TEXTS, "open begins again"
    hashes = np.array([sources.document_hash(text) for text in TEXTS], dtype=np.uint64)
    assert corpus.fingerprint == sources.fingerprint_of(hashes)
    assert corpus.counts == {
        "documents": 5,
        "duplicates_dropped": 0,
        "empty_dropped": 0,
        "text_bytes": sum(len(text.encode()) for text in TEXTS),
        "validation_documents": int((hashes < np.uint64(corpus.validation_threshold)).sum()),
        "files": 1,
        "files_ignored": 0,
    }


LINES = "one\ntwo\u2029half\x85x\u2028y\x0cz\nthree\r\nfour\rfive\n\nsix"


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz"])
def test_a_line_ends_at_lf_crlf_or_cr_only(tmp_path, name):
    path = tmp_path / name
    data = LINES.encode()
    path.write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    corpus = load(path, tmp_path / "cache")
    assert list(corpus.open()) == ["one\ntwo\u2029half\x85x\u2028y\x0cz\nthree\nfour\nfive", "six"]


@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize("chunksize", [1, 2, 5, 25, 1 << 20])
def test_datasets_reads_seven_lines_streaming_or_not(tmp_path, streaming, chunksize):
    import datasets

    datasets.disable_progress_bars()
    (tmp_path / "a.txt").write_bytes(LINES.encode())
    rows = datasets.load_dataset(
        "text",
        data_files=str(tmp_path / "a.txt"),
        split="train",
        streaming=streaming,
        chunksize=chunksize,
        cache_dir=str(tmp_path / "cache"),
    )
    lines = [row["text"] for row in rows]
    assert lines == ["one", "two\u2029half\x85x\u2028y\x0cz", "three", "four", "five", "", "six"]
    documents = ["one\ntwo\u2029half\x85x\u2028y\x0cz\nthree\nfour\nfive", "six"]
    assert list(files.paragraphs(lines)) == documents


def test_a_blank_line_is_a_document_break_and_a_single_one_is_not(tmp_path):
    (tmp_path / "a.txt").write_text("a b .\n \t\n\nc d .\n\n")
    (tmp_path / "b.txt").write_text("\ufeffa b .\nc d .\n\nx")
    assert list(load(tmp_path / "a.txt", tmp_path / "cache").open()) == ["a b .", "c d ."]
    assert list(load(tmp_path / "b.txt", tmp_path / "cache").open()) == ["a b .\nc d .", "x"]


def test_folder_and_glob_in_the_order_of_paths_with_a_break_between_files(tmp_path):
    data = tmp_path / "data"
    (data / "sub").mkdir(parents=True)
    write(data / "b[1].txt", ["b one", "b two"])
    write(data / "a.jsonl", ["a one"])
    write(data / "c.txt", ["c one"])
    write(data / "sub" / "d.parquet", ["d one"])
    (data / "README.md").write_text("not read")
    (data / "e.txt").write_text("")
    folder = load(data, tmp_path / "cache")
    assert list(folder.open()) == ["a one", "b one", "b two", "c one", "d one"]
    assert (folder.counts["files"], folder.counts["files_ignored"]) == (5, 1)
    assert list(load(data / "*.txt", tmp_path / "cache").open()) == ["b one", "b two", "c one"]


def test_repeats_and_empty_documents_are_dropped_and_counted(tmp_path):
    path = write(tmp_path / "a.jsonl", ["x", "", "y", "x", "  \n", "z", "y", "w"])
    with path.open("a") as file:
        file.write('{"text": null}\n\n')
    corpus = load(path, tmp_path / "cache")
    assert list(corpus.open()) == ["x", "y", "z", "w"]
    counts = corpus.counts
    assert (counts["documents"], counts["duplicates_dropped"], counts["empty_dropped"]) == (4, 2, 3)


def test_max_documents_counts_kept_ones_and_stops_reading(tmp_path):
    path = write(tmp_path / "a.jsonl", ["x", "x", "", "y", "z"])
    with path.open("a") as file:
        file.write("this line would be an error\n")
    corpus = load(path, tmp_path / "cache", max_documents=3)
    assert list(corpus.open()) == ["x", "y", "z"]


def test_the_split_follows_the_text_alone(tmp_path):
    texts = [f"document {i}" for i in range(400)]
    one = load(write(tmp_path / "a.jsonl", texts), tmp_path / "cache")
    two = load(write(tmp_path / "b.txt", texts[::-1] + texts[:9]), tmp_path / "cache")
    assert one.validation_threshold == two.validation_threshold == int(0.2 * 2**64)
    assert one.counts["validation_documents"] == two.counts["validation_documents"]
    assert 50 < one.counts["validation_documents"] < 110  # binomial(400, .2), 4 sd = 32
    assert one.fingerprint != two.fingerprint, "order is part of the fingerprint"


@pytest.mark.parametrize("fraction", [1e-9, 0.5, 1 - 1e-9])
def test_both_sides_have_a_document_even_of_two(tmp_path, fraction):
    path = write(tmp_path / "a.jsonl", ["x", "y"])
    corpus = load(path, tmp_path / "cache", validation_fraction=fraction)
    assert corpus.counts["validation_documents"] == 1


def test_a_second_load_reads_nothing_and_a_changed_file_is_read_again(tmp_path, monkeypatch):
    path = write(tmp_path / "a.jsonl", TEXTS)
    first = load(path, tmp_path / "cache")
    with monkeypatch.context() as patch:
        patch.setattr(files, "read_texts", None)  # calling it would be an error
        again = load(path, tmp_path / "cache")
    assert (again.counts, again.fingerprint) == (first.counts, first.fingerprint)
    status = path.stat()
    data = path.read_bytes()
    path.write_bytes(data.replace(b"eight", b"ninth"))  # same size
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))  # same time of change
    changed = load(path, tmp_path / "cache")
    assert changed.fingerprint != first.fingerprint
    assert list(changed.open())[-1] == "ninth"


def test_optional_keys_and_date_like_texts_are_read_as_they_are(tmp_path):
    rows = [{"text": "2020-01-01", "a": 1}, {"text": "2021-01-01", "b": {"c": [1]}}]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert list(load(tmp_path / "a.jsonl", tmp_path / "cache").open()) == [
        "2020-01-01",
        "2021-01-01",
    ]
    (tmp_path / "a.csv").write_text("text,a\nNA,1\n7,2\nnull,x\n")
    assert list(load(tmp_path / "a.csv", tmp_path / "cache").open()) == ["NA", "7", "null"]


def bad(tmp_path: Path, name: str, data: bytes) -> Path:
    path = tmp_path / name
    path.write_bytes(data)
    return path


PACKED = gzip.compress(b'{"text": "x"}\n' * 999 + os.urandom(3000).hex().encode())


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("a.doc", b"x", ["a.doc", ".jsonl", ".parquet"]),
        ("a.txt", b"", ["no documents", "two"]),
        ("a.txt", b"one\ntwo", ["1 document ", "blank line"]),
        ("a.jsonl", b'{"text": "x"}\n{"text": \n', ["a.jsonl", "line 2", "JSON"]),
        ("a.jsonl", b'{"title": "x", "body": "y"}\n', ["'text'", "body, title", "text_field"]),
        ("a.jsonl", b'{"text": 3}\n', ["line 1", "int"]),
        ("a.jsonl", b"[1, 2]\n", ["line 1", "object"]),
        ("a.jsonl", b'{"text": "\\ud83d"}\n', ["line 1", "surrogate"]),
        ("a.json", b'[{"title": "x", "body": "y"}]', ["'text'", "body, title", "text_field"]),
        ("a.csv", b"title,body\nx,y\n", ["'text'", "body, title", "text_field"]),
        ("a.csv", b'text,body\n"x,y\nz', ["a.csv"]),
        ("a.txt", b"caf\xe9 au lait\n\nx", ["a.txt", "utf-8"]),
        ("a.parquet", b"PAR1 no", ["a.parquet"]),
        ("a.jsonl.gz", b'{"text": "x"}', ["a.jsonl.gz"]),
        ("a.jsonl.gz", PACKED[:-1500], ["a.jsonl.gz"]),
        ("a.jsonl.gz", PACKED[:900] + b"\x00\xff\x00" + PACKED[903:], ["a.jsonl.gz"]),
        ("a.jsonl.gz", PACKED[:-8] + b"12345678", ["a.jsonl.gz"]),
    ],
)
def test_user_errors_are_one_message(tmp_path, name, data, words):
    path = bad(tmp_path, name, data)
    with pytest.raises(ValueError, match=r"corpus|document|cannot|line") as caught:
        load(path, tmp_path / "cache")
    message = str(caught.value)
    assert not [word for word in words if word not in message], message
    assert "\n" not in message
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    assert not list((tmp_path / "cache").glob("corpora/*")), "nothing half-made is cached"


@pytest.mark.parametrize(
    ("path", "options", "words"),
    [
        ("nothing.txt", {}, ["nothing.txt", "does not exist", "corpus.path="]),
        ("*.txt", {}, ["*.txt", "does not exist"]),
        ("", {}, ["no file that can be read", ".parquet"]),
        (None, {}, ["needs corpus.path"]),
        ("a.jsonl", {"validation_fraction": 0.0}, ["validation_fraction=0.0", "between 0 and 1"]),
        ("a.jsonl", {"max_documents": 1}, ["max_documents=1"]),
    ],
)
def test_errors_before_anything_is_read(tmp_path, path, options, words):
    folder = tmp_path / "data"
    folder.mkdir()
    if path == "a.jsonl":
        write(folder / path, TEXTS)
    with pytest.raises(ValueError, match=r"corpus|document|cannot|line") as caught:
        load(None if path is None else f"{folder}/{path}", tmp_path / "cache", **options)
    assert not [word for word in words if word not in str(caught.value)], str(caught.value)


def test_parquet_names_its_columns(tmp_path):
    path = write(tmp_path / "a.parquet", TEXTS, field="body")
    with pytest.raises(ValueError, match="it has: body, id, note"):
        load(path, tmp_path / "cache")
    with pytest.raises(ValueError, match="holds int64, not text"):
        load(path, tmp_path / "cache", text_field="id")


def hub_folder(tmp_path: Path, texts=TEXTS) -> Path:
    """A dataset repository as on the hub: two configs, two splits, a card with YAML."""
    folder = tmp_path / "repository"
    for config in ("small", "other"):
        (folder / config).mkdir(parents=True)
        for split in ("train", "test"):
            rows = texts if (config, split) == ("small", "train") else ["u", "v"]
            write(folder / config / f"{split}-00000-of-00001.parquet", rows)
    entries = "".join(
        f"- config_name: {c}\n  data_files:\n"
        + "".join(f"  - split: {s}\n    path: {c}/{s}-*\n" for s in ("train", "test"))
        for c in ("small", "other")
    )
    (folder / "README.md").write_text(f"---\nconfigs:\n{entries}---\n# Card\n")
    return folder


def load_hub(folder, cache, **options):
    options = {"config": "small", "split": "train", "streaming": False, **options}
    return sources.load_hub(str(folder), validation_fraction=0.2, cache_dir=cache, **options)


@pytest.mark.parametrize("streaming", [True, False])
def test_a_hub_folder_streaming_or_not(tmp_path, streaming, capfd):
    folder = hub_folder(tmp_path, ["x", *TEXTS, "x", ""])
    corpus = load_hub(folder, tmp_path / "cache", streaming=streaming)
    assert list(corpus.open()) == ["x", *TEXTS]
    assert (corpus.counts["duplicates_dropped"], corpus.counts["empty_dropped"]) == (1, 1)
    same = load(write(tmp_path / "a.jsonl", ["x", *TEXTS]), tmp_path / "cache")
    assert corpus.fingerprint == same.fingerprint
    three = load_hub(folder, tmp_path / "cache", streaming=streaming, max_documents=3)
    assert list(three.open()) == ["x", *TEXTS[:2]]
    other = load_hub(folder, tmp_path / "cache", config="other", split="test", streaming=streaming)
    assert list(other.open()) == ["u", "v"]
    assert "it/s" not in capfd.readouterr().err, "no progress bar"


def test_a_stream_is_read_once(tmp_path, monkeypatch):
    folder = hub_folder(tmp_path)
    first = load_hub(folder, tmp_path / "cache", streaming=True)
    monkeypatch.setattr(hub, "rows", None)
    again = load_hub(folder, tmp_path / "cache", streaming=True)
    assert list(first.open()) == list(again.open()) == TEXTS


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"config": "huge"}, ["corpus.config=huge", "small"]),
        ({"split": "dev"}, ["dev", "train"]),
        ({"text_field": "body"}, ["'body'", "id, note, text", "corpus.text_field"]),
        ({"document_rule": "pages"}, ["pages", "rows | wikitext_headings"]),
    ],
)
@pytest.mark.parametrize("streaming", [True, False])
def test_hub_errors_name_what_there_is(tmp_path, options, words, streaming):
    with pytest.raises(ValueError, match=r"corpus|document|cannot|line") as caught:
        load_hub(hub_folder(tmp_path), tmp_path / "cache", streaming=streaming, **options)
    assert not [word for word in words if word not in str(caught.value)], str(caught.value)
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_no_such_folder(tmp_path):
    with pytest.raises(ValueError, match="no such folder"):
        load_hub(tmp_path / "nowhere", tmp_path / "cache")


@pytest.fixture
def offline(tmp_path, monkeypatch):
    import datasets
    import huggingface_hub.constants

    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "home"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)


@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize("where", ["cache/datasets", "home"])
def test_offline_and_cached_is_found_in_our_cache_or_the_user_s(tmp_path, streaming, where):
    import datasets

    path = str(write(tmp_path / "a.parquet", TEXTS))
    with files.quiet():
        builder = datasets.load_dataset_builder(
            "parquet", data_files={"train": path}, cache_dir=str(tmp_path / "x")
        )
        builder.download_and_prepare()
    place = tmp_path / where / "someone___something" / "small" / "0.0.0" / ("0" * 40)
    shutil.copytree(builder.cache_dir, place)
    (place / "parquet-train.arrow").rename(place / "something-train.arrow")
    info = json.loads((place / "dataset_info.json").read_text())
    info |= {"dataset_name": "something", "config_name": "small"}
    (place / "dataset_info.json").write_text(json.dumps(info))
    corpus = load_hub("someone/something", tmp_path / "cache", streaming=streaming)
    assert list(corpus.open()) == TEXTS


@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize("streaming", [True, False])
def test_offline_and_not_cached_says_how_to_fetch_or_what_else_to_use(tmp_path, streaming):
    with pytest.raises(ValueError, match=r"corpus.name=someone/something") as caught:
        load_hub("someone/something", tmp_path, streaming=streaming)
    for words in ("hf download someone/something", "corpus=files", "corpus.name=DIR"):
        assert words in str(caught.value)


def test_the_built_in_language_is_scanned_once(tmp_path, monkeypatch):
    options = {"seed": 3, "num_documents": 40, "validation_fraction": 0.1}
    plain = sources.load_synthetic(**options)
    corpus = sources.load_synthetic(**options, cache_dir=tmp_path)
    assert corpus.fingerprint == plain.fingerprint
    assert len(list(corpus.open())) == corpus.counts["documents"] > 30
    assert corpus.morphemes
    assert sources.load_synthetic(**{**options, "seed": 4}).fingerprint != corpus.fingerprint
    monkeypatch.setattr(sources, "_scan", None)
    assert sources.load_synthetic(**options, cache_dir=tmp_path).counts == corpus.counts


def test_wikitext_rows_become_articles():
    rows = ["", " = One = \n", "", " First . \n", "", " = = Part = = \n", "", " Second . \n"]
    rows += [" = not a title = \n", "", " = Two = \n", "", " Third . \n", None]
    assert list(hub.articles(rows)) == [
        "= One =\nFirst .\n= = Part = =\nSecond .\n= not a title =",
        "= Two =\nThird .",
    ]


def test_a_lost_race_keeps_the_first_and_a_failure_leaves_nothing(tmp_path):
    place = tmp_path / "store"
    with stage(place) as mine:
        mine.mkdir()
        (mine / "x").write_text("second")
        with stage(place) as other:
            other.mkdir()
            (other / "x").write_text("first")
    assert (place / "x").read_text() == "first"

    def fail():
        with stage(tmp_path / "other") as half:
            half.mkdir()
            raise KeyError("stopped half-way")

    with pytest.raises(KeyError):
        fail()
    assert [path.name for path in tmp_path.iterdir()] == ["store"]
