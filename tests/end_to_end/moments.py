"""Named moments of a run, and what may happen at them; none of it is in the code that is tested.

Each moment wraps a function of the package or of the system in the process that is to be disturbed.
"""

import errno
import fnmatch
import functools
import importlib
import io
import os
import resource
import signal
import time
from pathlib import Path

MODULE = "ablate.pretraining.module:PretrainingModule"
OWNER = None  # the run's own process: what a worker of it meets happens to the run


def kill():
    os.kill(OWNER, signal.SIGKILL)
    time.sleep(60)  # if this is a worker


def send(*numbers):
    def act():
        for number in numbers:
            os.kill(OWNER, number)

    return act


def no_room():
    """No file can grow any more."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


def fill():
    """Nothing more fits on the disk under the current folder."""
    with open("filler", "wb", buffering=0) as file:
        for size in (1 << 16, 1 << 12, 1):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                continue


def hold():
    """Say that it is reached, and wait."""
    Path("reached").touch()
    while not Path("go").exists():
        time.sleep(0.01)


def refuse():
    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


ACTIONS = {
    "kill": kill,
    "term": send(signal.SIGTERM),
    "interrupt": send(signal.SIGINT),
    "term twice": send(signal.SIGTERM, signal.SIGTERM),
    "interrupt twice": send(signal.SIGINT, signal.SIGINT),
    "no room": no_room,
    "refuse": refuse,
    "fill": fill,
    "hold": hold,
}


def wrap(owner, name, before=None, after=None):
    """Call `before(*arguments)` and `after(*arguments)` around a function of a module or class."""
    module, _, inner = owner.partition(":")
    place = importlib.import_module(module)
    place = getattr(place, inner) if inner else place
    plain = getattr(place, name)

    @functools.wraps(plain)
    def wrapped(*arguments, **named):
        if before is not None:
            before(*arguments)
        result = plain(*arguments, **named)
        if after is not None:
            after(*arguments)
        return result

    setattr(place, name, wrapped)


def at_call(owner, name, number=1, *, after=False):
    """At the beginning, or the end, of the n-th call."""

    def moment(action):
        left = [number]

        def count(*_):
            left[0] -= 1
            if left[0] == 0:
                action()

        wrap(owner, name, **{"after" if after else "before": count})

    return moment


def at_rename(pattern, number=1, *, after=False, holds=None):
    """When the n-th file or folder of that name is whole and about to get its name, or has it."""

    def moment(action):
        left = [number]

        def count(source, target, *_):
            if not fnmatch.fnmatch(os.path.abspath(target), f"*/{pattern}"):
                return
            if holds is not None and holds not in Path(target if after else source).read_text():
                return
            left[0] -= 1
            if left[0] == 0:
                action()

        for name in ("replace", "rename"):
            wrap("os", name, **{"after" if after else "before": count})

    return moment


def while_reading_documents(owner, name, number=50):
    """At the n-th document of the corpus that is read inside a function."""

    def moment(action):
        inside, left = [False], [number]
        wrap(owner, name, lambda *_: inside.__setitem__(0, True))
        from ablate.corpus import synthetic

        plain = synthetic.documents

        def documents(*arguments):
            for document in plain(*arguments):
                left[0] -= inside[0]
                if left[0] == 0:
                    action()
                yield document

        synthetic.documents = documents

    return moment


def between_micro_batches(action):
    """In step 3, before the last micro-batch adds its gradient to those before it."""
    left = []
    wrap(MODULE, "training_step", lambda module, item, _: left.append(len(item.micro_batches)))

    def count(*_):
        if len(left) == 3:
            left[-1] -= 1
            if left[-1] == 0:
                action()

    wrap(MODULE, "losses", after=count)


def in_a_torn_checkpoint(action):
    """When half of the bytes of the second one are written."""
    import torch

    plain, left = torch.save, [2]

    def save(content, file, *arguments, **named):
        torn = str(getattr(file, "name", file)).endswith(".part")
        left[0] -= torn
        if not torn or left[0]:
            return plain(content, file, *arguments, **named)
        whole = io.BytesIO()
        plain(content, whole)
        file.write(whole.getvalue()[: whole.tell() // 2])
        file.flush()
        action()
        return file.write(whole.getvalue()[whole.tell() // 2 :])

    torch.save = save


MOMENTS = {
    "temporary file": at_call("tempfile", "TemporaryFile"),
    "corpus scan": while_reading_documents("ablate.corpus.sources", "load_synthetic"),
    "tokenizer": while_reading_documents("ablate.tokens.training", "train"),
    "store": while_reading_documents("ablate.tokens.store", "build"),
    "store whole": at_rename("stores/*"),
    "first step": at_call(MODULE, "training_step"),
    "micro-batch": between_micro_batches,
    "step taken": at_call("ablate.pretraining.callbacks:Throughput", "on_train_batch_end", 4),
    "end of the fit": at_call("ablate.pretraining.callbacks:Checkpoints", "on_train_end"),
    "checkpoint torn": in_a_torn_checkpoint,
    "before rename": at_rename("step-*.ckpt", 2),
    "after rename": at_rename("step-*.ckpt", 2, after=True),
    "validation": at_call(MODULE, "validation_step", 2),
    "weights": at_rename("model.safetensors", after=True),
    "record of weights": at_rename("pretrained/*/record.json", holds='"complete"'),
    "before weights": at_call("safetensors.torch", "save_file"),
    "fine-tuning": at_rename("fits/*.parquet", after=True),
    "second task": at_call("ablate.evaluation.predictions", "write", 2),
    "record": at_rename("single/*/record.json", holds='"complete"'),
    "last record": at_call("ablate.run.single", "record_results"),
    "end of record": at_rename("single/*/record.json", holds='"interrupted"'),
    "summary": at_call("ablate.run.single", "print_summary"),
    "report": at_call("ablate.report.build", "write"),
    "page": at_rename("reports/*/report.html"),
}


def prepare(moment, action):
    """Let `action` happen in this process at the moment of that name."""
    global OWNER
    OWNER = os.getpid()
    MOMENTS[moment](ACTIONS[action])
