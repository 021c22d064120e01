"""Streams: a connection that drops, processes that are killed or at work at the same time."""

import http.server
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

import ablate
from ablate.corpus import cache, hub, sources
from ablate.corpus.cache import read_texts, stage, write_texts

NUM_SHARDS, NUM_ROWS = 4, 2000
TEXTS = [f"row {i} " + f"x{i * 7919 % 10007} " * 40 for i in range(NUM_SHARDS * NUM_ROWS)]


class Server(http.server.ThreadingHTTPServer):
    """Serves a folder by ranges of bytes; `drops` says how often each file breaks off."""

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.folder, self.drops = folder, dict[str, int]()
        self.dropped = 0
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, request, client_address):
        """A client that hangs up is no news."""


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *words):
        pass

    def do_HEAD(self):
        self.answer(body=False)

    def do_GET(self):
        self.answer(body=True)

    def answer(self, *, body: bool) -> None:
        name = self.path.lstrip("/")
        data = (self.server.folder / name).read_bytes()
        asked = re.match(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        begin, end = 0, len(data)
        if asked:
            begin = int(asked[1])
            end = min(int(asked[2]) + 1, end) if asked[2] else end
        self.send_response(206 if asked else 200)
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("Content-Length", str(end - begin))
        if asked:
            self.send_header("Content-Range", f"bytes {begin}-{end - 1}/{len(data)}")
        self.end_headers()
        part = data[begin:end] if body else b""
        in_the_middle = 0 < begin < len(data) - 70_000  # not the footer, which is read first
        if body and in_the_middle and self.server.drops.get(name, 0):
            self.server.drops[name] -= 1
            self.server.dropped += 1
            self.wfile.write(part[: len(part) // 2])
            self.close_connection = True
            self.connection.shutdown(2)
            return
        self.wfile.write(part)


def write_shards(folder: Path) -> list[str]:
    folder.mkdir()
    names = [f"train-{i:05d}-of-{NUM_SHARDS:05d}.parquet" for i in range(NUM_SHARDS)]
    for i, name in enumerate(names):
        table = pyarrow.table({"text": TEXTS[i * NUM_ROWS : (i + 1) * NUM_ROWS]})
        pyarrow.parquet.write_table(table, folder / name, row_group_size=200, compression="none")
    return names


@pytest.fixture
def served(tmp_path, monkeypatch):
    """(a hub folder whose shards lie on a server, the server)"""
    import datasets

    monkeypatch.setattr(datasets.config, "STREAMING_READ_RETRY_INTERVAL", 0)
    monkeypatch.setattr(datasets.config, "STREAMING_READ_MAX_RETRIES", 3)
    names = write_shards(tmp_path / "served")
    server = Server(tmp_path / "served")
    address = f"http://127.0.0.1:{server.server_port}"
    paths = "".join(f'    - "{address}/{name}"\n' for name in names)
    folder = tmp_path / "repository"
    folder.mkdir()
    (folder / "README.md").write_text(
        "---\nconfigs:\n- config_name: default\n  data_files:\n  - split: train\n    path:\n"
        f"{paths}---\n"
    )
    yield folder, server
    server.shutdown()
    server.server_close()


def load(folder: Path, cache_dir: Path, **options):
    options = {"streaming": True, "validation_fraction": 0.2, **options}
    return sources.load_hub(str(folder), cache_dir=cache_dir, **options)


def test_a_connection_that_comes_back_loses_nothing(tmp_path, served):
    folder, server = served
    server.drops = {"train-00002-of-00004.parquet": 2}
    assert list(load(folder, tmp_path / "cache").open()) == TEXTS
    assert server.dropped == 2


def test_a_connection_that_stays_away_is_one_message_and_no_corpus(tmp_path, served):
    folder, server = served
    server.drops = {"train-00002-of-00004.parquet": 10**6}
    with pytest.raises(ValueError, match="connection was lost after [0-9,]+ rows") as caught:
        load(folder, tmp_path / "cache")
    message = str(caught.value)
    assert "Run the same command again" in message
    assert "\n" not in message
    assert caught.value.__suppress_context__
    assert 4000 - 256 <= int(re.search("after ([0-9,]+) rows", message)[1].replace(",", "")) < 6000
    assert list((tmp_path / "cache" / "corpora").iterdir()) == []
    server.drops = {}
    assert list(load(folder, tmp_path / "cache").open()) == TEXTS


def test_an_error_of_a_network_library_is_told_like_a_lost_connection(tmp_path, monkeypatch):
    """They are no OSErrors, and not all of them pass through the retries of `datasets`."""
    import aiohttp

    class Broken:
        def __init__(self, data):
            self.data = data

        def with_format(self, kind):
            return self

        def iter(self, batch_size):
            yield from self.data.with_format("arrow").iter(batch_size)
            raise aiohttp.ClientPayloadError("not enough data")

    write_shards(tmp_path / "data")
    builder, _ = hub.find(str(tmp_path / "data"), config=None, revision=None, cache_dir=tmp_path)
    whole = builder.as_streaming_dataset
    monkeypatch.setattr(builder, "as_streaming_dataset", lambda split: Broken(whole(split=split)))
    options = {"split": "train", "text_field": "text", "streaming": True, "cache_dir": tmp_path}
    with pytest.raises(ValueError, match="lost after 8,000 rows .*not enough data"):
        list(hub.rows(builder, name="someone/something", **options))


_KILLED = """
import os, signal, sys
from ablate.corpus import hub, sources

rows = hub.rows

def until(*given, **named):
    for number, text in enumerate(rows(*given, **named)):
        if number == int(sys.argv[3]):
            os.kill(os.getpid(), signal.SIGKILL)
        yield text

hub.rows = until
sources.load_hub(sys.argv[1], streaming=True, validation_fraction=0.2, cache_dir=sys.argv[2])
"""


def test_a_killed_stream_leaves_no_corpus_and_is_read_anew(tmp_path):
    write_shards(tmp_path / "data")
    cache_dir = tmp_path / "cache"
    root = str(Path(ablate.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", _KILLED, tmp_path / "data", cache_dir, "5555"],
        env={**os.environ, "PYTHONPATH": root}, capture_output=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == -signal.SIGKILL, done.stderr
    left = [path.name for path in (cache_dir / "corpora").iterdir()]
    assert [
        re.fullmatch(r"\..+\.parquet\.[0-9a-f]{8}\.part", name) is not None for name in left
    ] == [True]
    again, undisturbed = load(tmp_path / "data", cache_dir), load(tmp_path / "data", tmp_path / "b")
    assert list(again.open()) == TEXTS
    files = [
        {path.name: path.read_bytes() for path in (place / "corpora").iterdir()}
        for place in (cache_dir, tmp_path / "b")
    ]
    assert files[0] == files[1]
    assert again.fingerprint == undisturbed.fingerprint


def test_two_writers_at_once_leave_one_whole_file(tmp_path):
    place = tmp_path / "texts.parquet"
    barrier = threading.Barrier(3)

    def write():
        def texts():
            for number, text in enumerate(TEXTS):
                if number == 1500:
                    barrier.wait()  # all are in the middle
                yield text

        write_texts(place, texts())

    writers = [threading.Thread(target=write) for _ in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert list(read_texts(place)) == TEXTS
    assert list(tmp_path.iterdir()) == [place]


def test_what_a_dead_owner_left_is_swept_and_nothing_else(tmp_path):
    dead, unlocked = tmp_path / ".store.0123abcd.part", tmp_path / ".store.89abcdef.part"
    for folder in (dead, unlocked):
        folder.mkdir()
        (folder / "store").write_text("half")
    (dead / "lock").write_text("")
    (tmp_path / ".other").mkdir()
    (tmp_path / ".mine.part").mkdir()
    with stage(tmp_path / "store") as living:
        assert not dead.exists()
        with stage(tmp_path / "beside") as other:
            other.write_text("x")
        assert living.parent.is_dir(), "its owner lives"
        living.write_text("whole")
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"store", "beside", ".other", ".mine.part", unlocked.name}


def test_without_locks_nothing_is_swept_and_all_else_works(tmp_path, monkeypatch):
    monkeypatch.setattr(cache, "_try_lock", lambda file: None)
    with stage(tmp_path / "one") as first, stage(tmp_path / "two") as second:
        first.write_text("1")
        second.write_text("2")
        assert len(list(tmp_path.iterdir())) == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one", "two"]


def test_a_folder_swept_while_it_is_made_is_made_again(tmp_path, monkeypatch):
    """Between making the folder and locking it, another process may take it for a dead one's."""
    answers = iter([False, True])
    real = cache._try_lock
    monkeypatch.setattr(cache, "_try_lock", lambda file: next(answers) and real(file))
    with stage(tmp_path / "one") as place:
        place.write_text("1")
    assert (tmp_path / "one").read_text() == "1"
    assert next(answers, None) is None
