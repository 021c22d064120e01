"""A process that has imported what a run needs, and forks `python -m ablate` at each request.

A fresh interpreter spends ten seconds on imports for a run of one second; a fork of this one, which
has run nothing and has no thread, does all that `python -m ablate` does after them, in a process of
its own that can be killed.

Standard input has one JSON request a line, standard output its answer: {"words", "folder", "env",
"said": a FIFO for what it prints, "faults": [(moment, action)] of `moments`} -> process id, which
leads a session; {"wait": process id} -> exit code as in `subprocess`, or null while it runs.
"""

import importlib
import json
import os
import signal
import sys
from pathlib import Path

import numba

sys.path.insert(0, str(Path(__file__).parent))
IMPORTED = (
    "ablate.__main__", "ablate.corpus.synthetic", "ablate.encoder.initialization",
    "ablate.evaluation.classification", "ablate.evaluation.finetune", "ablate.evaluation.kinds",
    "ablate.evaluation.minimal_pairs", "ablate.evaluation.ngram_baseline",
    "ablate.evaluation.pair_task", "ablate.evaluation.protocol", "ablate.evaluation.tasks",
    "ablate.pretraining.pretrain", "ablate.run.single", "ablate.tokens.training",
    "ablate.tracking.lightning", "cloudpickle", "dateutil", "fsspec.implementations.local",
    "hydra._internal.hydra", "moments", "pandas", "pyarrow.parquet", "rich.console",
    "rich.table", "safetensors.torch", "torch._dynamo", "torch.utils.data",
)  # fmt: skip


def run(request):
    """In the child: what `python -m ablate` does."""
    said = os.open(request["said"], os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(said, stream)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.setsid()
    os.chdir(request["folder"])
    os.environ.update(request["env"])
    import moments

    from ablate.__main__ import main

    for moment, action in request["faults"]:
        moments.prepare(moment, action)
    sys.argv = ["ablate", *request["words"]]
    return main()


def fork(request):
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        code = run(request)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def ended(pid):
    found, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if found else None


def main():
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends pytest, which closes our input
    for name in IMPORTED:
        importlib.import_module(name)
    numba.njit(lambda: 1)()  # most of numba is imported when it first compiles
    answers = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        request = json.loads(line)
        answer = ended(request["wait"]) if "wait" in request else fork(request)
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
