"""Groups of documents -> encoded groups in the same order, by worker processes side by side.

A worker is a fresh Python that imports the tokenizer and nothing else (no torch, not the user's
script), reads groups from its standard input and answers on its standard output. It ends when that
input ends, and the system closes it with the process that owns it, however that goes. Not a fork: a
process that has used threads may hang in one. Each worker's tokenizer has one thread.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from ablate.tokens.encoding import EncodedDocuments, encode_documents
from ablate.tokens.tokenizer import Tokenizer

_COMMAND = (sys.executable, "-c", "from ablate.tokens.encoders import serve; serve()")
THREAD_POOLS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
_ALONE = {
    "TOKENIZERS_PARALLELISM": "false",
    **dict.fromkeys(("RAYON_NUM_THREADS", *THREAD_POOLS), "1"),
}


def encode_here(chunks: Iterable[list[str]], tokenizer: Tokenizer) -> Generator[EncodedDocuments]:
    """One group after another in this process; the tokenizer may use threads of its own."""
    for chunk in chunks:
        yield encode_documents(chunk, tokenizer)


def encode_in_workers(
    chunks: Iterable[list[str]], tokenizer: Tokenizer, jobs: int
) -> Generator[EncodedDocuments]:
    """In `jobs` processes. At most `jobs` + 1 groups are held here at a time.

    Raises:
        RuntimeError: a worker was killed.
    """
    with contextlib.ExitStack() as stack:
        pool = stack.enter_context(_threads(jobs))
        workers = [stack.enter_context(_Worker(tokenizer)) for _ in range(jobs)]
        idle: queue.SimpleQueue[_Worker] = queue.SimpleQueue()
        for worker in workers:
            idle.put(worker)

        def encode(chunk: list[str]) -> EncodedDocuments:
            worker = idle.get()
            try:
                return worker.ask(chunk)
            finally:
                idle.put(worker)

        waiting: deque[Future[EncodedDocuments]] = deque()
        for chunk in chunks:
            waiting.append(pool.submit(encode, chunk))
            if len(waiting) > jobs:  # one more than there are workers, so that none is idle
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


@contextlib.contextmanager
def _threads(count: int) -> Iterator[ThreadPoolExecutor]:
    """Threads that wait for the workers; at the end, what has not begun is dropped."""
    pool = ThreadPoolExecutor(count)
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


class _Worker:
    """One process; a context, at whose end it is gone."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        here = str(Path(__file__).resolve().parents[2])
        paths = [here, *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {**os.environ, **_ALONE, "PYTHONPATH": os.pathsep.join(paths)}
        self._process = subprocess.Popen(
            _COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
        )
        self._begin = (tokenizer.file.resolve(), tokenizer.names, tokenizer.hash)
        self._begun = False

    def __enter__(self) -> _Worker:
        return self

    def __exit__(self, *error: Any) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):  # what could not be written goes with the worker
                pipe.close()  # type: ignore[union-attr]

    def ask(self, chunk: list[str]) -> EncodedDocuments:
        """Encode a group there."""
        if not self._begun:
            self._ask(self._begin)
            self._begun = True
        return self._ask(chunk)

    def _ask(self, what: Any) -> Any:
        given, answers = self._process.stdin, self._process.stdout
        assert given is not None
        assert answers is not None
        try:
            pickle.dump(what, given, protocol=pickle.HIGHEST_PROTOCOL)
            given.flush()
            answer = pickle.load(answers)
        except (OSError, EOFError, pickle.UnpicklingError):
            raise RuntimeError(
                f"a worker that encodes documents {_ending(self._process.wait())}; the store was "
                "not built and nothing half-made is left. The same command builds it; "
                "corpus.jobs=1 needs least memory"
            ) from None
        if isinstance(answer, BaseException):
            raise answer
        return answer


def _ending(code: int) -> str:
    if code == -signal.SIGKILL:
        return "was killed, most likely because memory ran out"
    return f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"


def serve() -> None:
    """What a worker does: answer until its input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that started us
    given, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever is printed here is no answer
    with contextlib.suppress(EOFError, OSError, pickle.UnpicklingError):  # the owner is gone
        file, names, expected = pickle.load(given)
        answer: Any = None
        try:
            tokenizer = Tokenizer(file, names)
            if tokenizer.hash != expected:
                raise ValueError(f"{file} changed while it was used; run the command again")
        except Exception as error:
            answer = error
        while True:
            pickle.dump(answer, answers, protocol=pickle.HIGHEST_PROTOCOL)
            answers.flush()
            chunk = pickle.load(given)
            try:
                answer = encode_documents(chunk, tokenizer)
            except Exception as error:
                answer = error
    os._exit(0)
