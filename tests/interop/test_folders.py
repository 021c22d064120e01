"""A folder is written whole or not at all, and `--force` deletes a model and nothing else."""

import json
import shutil

import pytest

from ablate.interop.__main__ import main


@pytest.fixture
def place(tmp_path):
    made = tmp_path / "place"
    made.mkdir()
    return made


def test_model_that_is_there_is_kept_unless_forced(trained, exported, tmp_path, refused):
    _, folder, _ = exported("bert_unigram")
    place = shutil.copytree(folder, tmp_path / "place")
    before = (place / "tokenizer.json").read_bytes()
    assert "--force" in refused("export", trained("bert"), place)
    assert (place / "tokenizer.json").read_bytes() == before
    (place / "vocab.txt").write_text("of another tokenizer")
    assert main(["export", str(trained("bert")), str(place), "--force"]) == 0
    assert (place / "tokenizer.json").read_bytes() != before
    assert not (place / "vocab.txt").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["place"]


def test_empty_folder_is_free(trained, place):
    assert main(["export", str(trained("bert")), str(place)]) == 0
    assert (place / "config.json").is_file()


@pytest.mark.parametrize("entry", ["mine.txt", "record.json", "single/x", "pretrained/x", ".git/x"])
def test_force_deletes_nothing_but_a_model(trained, exported, tmp_path, refused, entry):
    _, folder, _ = exported("bert")
    place = shutil.copytree(folder, tmp_path / "place")
    (place / entry).parent.mkdir(exist_ok=True)
    (place / entry).write_text("x")
    said = refused("export", trained("bert"), place, "--force")
    assert entry.split("/")[0] in said
    assert (place / entry).read_text() == "x"


def test_force_wants_the_config_of_a_model(trained, place, refused):
    (place / "tokenizer.json").write_text("{}")
    assert "no config.json" in refused("export", trained("bert"), place, "--force")
    assert (place / "tokenizer.json").exists()


def test_place_of_what_is_read_is_refused(trained, exported, refused):
    run = trained("bert")
    for place in (run, run.parent, run.parent.parent):
        before = sorted(place.rglob("*"))
        assert "is or holds what is read" in refused("export", run, place, "--force")
        assert sorted(place.rglob("*")) == before
    _, folder, _ = exported("bert")
    assert "is or holds what is read" in refused("import", folder, folder, "--force")
    assert (folder / "config.json").is_file()


def test_place_that_one_stands_in_is_refused(trained, place, refused, monkeypatch):
    monkeypatch.chdir(place)
    for word in (".", "..", place, place.parent):
        assert "the folder you are in" in refused("export", trained("bert"), word)
    assert place.is_dir()


def test_link_stays_a_link(trained, exported, tmp_path):
    _, folder, _ = exported("bert_unigram")
    real = shutil.copytree(folder, tmp_path / "real")
    link = tmp_path / "link"
    link.symlink_to(real)
    assert main(["export", str(trained("bert")), str(link), "--force"]) == 0
    assert link.is_symlink()
    assert json.loads((real / "config.json").read_text())["model_type"] == "bert"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "real"]
