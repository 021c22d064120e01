"""A checkpoint that is damaged is found out, the one before it is continued, and it is said."""

import json
import random
import shutil

import pytest
import torch

from ablate.pretraining.checkpoints import checkpoint_path, newest_checkpoint
from ablate.tracking.record import MetricsFile

OLD, NEW = 4, 6  # steps of the checkpoints that a finished fit of `OPTIONS` leaves
OPTIONS = {"amount": 6, "every": 2, "module_options": {"log_every": 1}}


def truncated(path, size):
    path.write_bytes(path.read_bytes()[: size // 2])


def cut_at_its_end(path, size):
    path.write_bytes(path.read_bytes()[:-10])


def zeroed(path, size):
    content = bytearray(path.read_bytes())
    content[size // 2 : size // 2 + 4096] = bytes(4096)
    path.write_bytes(content)


def flipped(path, size):
    content = bytearray(path.read_bytes())
    content[size // 3] ^= 1
    path.write_bytes(content)


def empty(path, size):
    path.write_bytes(b"")


def wrong_pickle(path, size):
    torch.save({"step": NEW}, path)


def text(path, size):
    path.write_text("no checkpoint\n" * 1000)


def of_another_step(path, size):
    shutil.copyfile(checkpoint_path(path.parent, OLD), path)


def of_another_run(path, size):
    content = torch.load(path, weights_only=True)
    content["callbacks"]["Checkpoints"]["run"] = "other"
    torch.save(content, path)


DAMAGES = [
    truncated, cut_at_its_end, zeroed, flipped, empty, wrong_pickle, text,
    of_another_step, of_another_run,
]  # fmt: skip


@pytest.fixture
def run(fit, tmp_path):
    """A finished fit whose checkpoints are still there: its folder of them, and (fit again)()."""
    model, result, metrics = fit("run", **OPTIONS)
    lines, weights = metrics.path.read_bytes(), model.state_dict()

    def again():
        model, found, metrics = fit("run", **OPTIONS)
        assert found.metrics == result.metrics
        assert metrics.path.read_bytes() == lines
        for name, value in model.state_dict().items():
            assert torch.equal(value, weights[name]), name
        return found.resumed_from

    return tmp_path / "run" / "checkpoints", again


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_the_one_before_a_damaged_checkpoint_is_continued(run, capsys, damage):
    folder, again = run
    newest = checkpoint_path(folder, NEW)
    damage(newest, newest.stat().st_size)
    assert again() == OLD
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"warning: checkpoint {newest} is ")
    assert line.endswith("the one before it is taken")


def test_without_a_whole_checkpoint_training_begins_again(run, capsys):
    folder, again = run
    for step, damage in ((OLD, zeroed), (NEW, truncated)):
        path = checkpoint_path(folder, step)
        damage(path, path.stat().st_size)
    assert again() is None
    first, second = capsys.readouterr().err.splitlines()
    assert first.endswith("the one before it is taken")
    assert second.endswith("there is none before it: step 0")


def test_a_flipped_bit_is_found_or_changes_nothing(run):
    """One bit anywhere in the file; some lie in padding that nothing reads."""
    folder, _ = run
    path = checkpoint_path(folder, NEW)
    whole, content = path.read_bytes(), torch.load(path, weights_only=True)
    draw, found = random.Random(0), 0
    for _ in range(60):
        damaged = bytearray(whole)
        damaged[draw.randrange(len(whole))] ^= 1 << draw.randrange(8)
        path.write_bytes(damaged)
        taken = newest_checkpoint(folder, say=str)
        if taken[1] == OLD:
            found += 1
        else:
            assert same(torch.load(path, weights_only=True), content)
    assert found > 30


def same(ours, theirs):
    """Whether two nested values are equal to the bit."""
    if isinstance(ours, torch.Tensor):
        return torch.equal(ours, theirs)
    if isinstance(ours, dict):
        return ours.keys() == theirs.keys() and all(same(ours[key], theirs[key]) for key in ours)
    if isinstance(ours, (list, tuple)):
        return len(ours) == len(theirs) and all(map(same, ours, theirs))
    return ours == theirs


@pytest.mark.parametrize("damage", ["cut", "zeroed", "gone"])
def test_a_checkpoint_is_not_continued_without_the_lines_before_it(run, tmp_path, capsys, damage):
    """Each step is in metrics.jsonl, or is taken again."""
    _, again = run
    file = tmp_path / "run" / "metrics.jsonl"
    lines = file.read_bytes().split(b"\n")
    at = next(i for i, line in enumerate(lines) if json.loads(line)["step"] == OLD + 1)
    if damage == "cut":
        file.write_bytes(b"\n".join(lines[:at]) + b"\n" + lines[at][:9])
    elif damage == "zeroed":
        lines[at] = bytes(len(lines[at]))
        file.write_bytes(b"\n".join(lines))
    else:
        file.unlink()
    assert again() == (None if damage == "gone" else OLD)
    assert "lines of metrics behind it" in capsys.readouterr().err


def test_bytes_that_are_no_text_are_no_line(tmp_path):
    file = MetricsFile(tmp_path / "metrics.jsonl")
    file.append(1, {"train/loss": 2.0})
    with open(file.path, "ab") as raw:
        raw.write(b"\xff\xfe\x00\n[1, 2]\n7\n")
    file.append(2, {"train/loss": 1.0})
    assert [row["step"] for row in file.rows()] == [1, 2]


def test_a_half_written_checkpoint_of_a_killed_process_is_removed(run):
    folder, again = run
    (folder / "step-00000003.part").write_bytes(b"half")
    again()
    assert not list(folder.glob("*.part"))


def test_what_was_passed_over_takes_no_place_among_the_two_that_are_kept(run):
    folder, again = run
    shutil.copyfile(checkpoint_path(folder, NEW), checkpoint_path(folder, 100))  # of a wrong step
    again()
    assert [path.name for path in sorted(folder.iterdir())] == [
        checkpoint_path(folder, step).name for step in (OLD, NEW)
    ]
