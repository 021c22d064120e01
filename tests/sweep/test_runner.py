"""Points that are run, skipped, failed; FAULTS B28 and B29. Nothing is trained here."""

import json

import pytest

from ablate.study import states
from ablate.sweep.__main__ import main
from ablate.sweep.folder import SweepFolder

RATES = {"masking.mask_rate": {"values": [0.15, 0.3, 0.4]}, "seed": {"values": [0, 1]}}


def test_all_points_run_once_and_the_same_command_runs_none(written, pretend, capsys):
    path = str(written(RATES))
    assert main([path, "tracking=none"]) == 0
    assert len(pretend.calls) == 6
    assert "point 6 of 6: masking.mask_rate=0.4 seed=1 complete" in capsys.readouterr().out
    assert main([path, "tracking=none"]) == 0
    assert len(pretend.calls) == 6
    assert "6 points, 6 of them ended" in capsys.readouterr().out


def test_a_value_added_to_a_grid_runs_alone(written, pretend):
    main([str(written(RATES)), "tracking=none"])
    more = {**RATES, "masking.mask_rate": {"values": [0.15, 0.2, 0.3, 0.4]}}
    assert main([str(written(more)), "tracking=none"]) == 0
    assert len(pretend.calls) == 8
    assert all("masking.mask_rate=0.2" in words for words in pretend.calls[6:])


def test_b29_a_failed_point_stops_no_other_and_stands_in_the_table(written, pretend, capsys):
    pretend.fails = {"masking.mask_rate=0.3"}
    assert main([str(written(RATES)), "tracking=none"]) == 1
    said = capsys.readouterr().out
    assert len(pretend.calls) == 6
    assert said.count("failed (ValueError: asked for)") == 2
    table = said[said.index("   #  state") :]
    assert table.count("complete   ") == 4
    assert table.count("ValueError: asked for") == 2
    assert "4 complete, 2 failed" in table
    pretend.fails = set()
    assert main([str(written(RATES)), "tracking=none"]) == 0
    assert len(pretend.calls) == 8


def test_b29_stop_at_the_first_failure_where_asked(written, pretend, capsys):
    pretend.fails = {"masking.mask_rate=0.15"}
    assert main([str(written(RATES)), "tracking=none", "--stop-at-failure"]) == 1
    assert len(pretend.calls) == 1
    assert "1 failed" in capsys.readouterr().out


def test_b28_a_key_that_is_no_setting_is_said_before_the_first_point(written, pretend, capsys):
    path = written({"seed": {"values": [0]}, "optimizer.lerning_rate": {"values": [0.1]}})
    assert main([str(path), "tracking=none"]) == 2
    assert "did you mean optimizer.learning_rate" in capsys.readouterr().err
    assert not pretend.calls
    assert not (path.parent / "runs").exists()


def test_the_last_point_is_composed_beforehand(written, pretend, capsys):
    path = written({"masking.mask_rate": {"values": [0.15, 1.5]}})
    assert main([str(path), "tracking=none"]) == 2
    assert "the point masking.mask_rate=1.5" in capsys.readouterr().err
    assert not pretend.calls


def test_a_swept_setting_cannot_be_overridden(written, pretend, capsys):
    assert main([str(written(RATES)), "seed=3"]) == 2
    assert "the file sweeps seed" in capsys.readouterr().err


def test_other_overrides_want_another_name(written, pretend, capsys):
    path = str(written(RATES))
    main([path, "tracking=none", "nsp=true"])
    assert main([path, "tracking=none"]) == 2
    assert "--name tiny-2" in capsys.readouterr().err
    assert main([path, "tracking=none", "--name", "tiny-2"]) == 0


def test_random_needs_a_count_and_a_larger_one_continues(written, pretend, capsys):
    parameters = {"masking.mask_rate": {"min": 0.1, "max": 0.5}}
    path = str(written(parameters, "random"))
    assert main([path, "tracking=none"]) == 2
    assert "--count 10, or run_cap" in capsys.readouterr().err
    assert main([path, "tracking=none", "--count", "2"]) == 0
    first = list(pretend.calls)
    assert main([path, "tracking=none", "--count", "4"]) == 0
    assert pretend.calls[:2] == first
    assert len(pretend.calls) == 4
    capped = str(written(parameters, "random", "capped", run_cap=3))
    assert main([capped, "tracking=none"]) == 0
    assert len(pretend.calls) == 7


def test_target_ends_the_sweep(written, pretend, capsys):
    metric = {"name": "val/token_mask/loss", "goal": "minimize", "target": 0.35}
    path = written({"masking.mask_rate": {"values": [0.5, 0.3, 0.4]}}, metric=metric)
    assert main([str(path), "tracking=none"]) == 1
    assert len(pretend.calls) == 2
    assert "metric.target 0.35 is reached" in capsys.readouterr().out


def test_a_named_group_is_kept_and_points_are_grouped_by_the_sweep(written, pretend):
    main([str(written({"seed": {"values": [0]}}))])
    assert "tracking.group=tiny" in pretend.calls[0]
    main([str(written({"seed": {"values": [0]}}, name="other")), "tracking.group=mine"])
    assert "tracking.group=mine" in pretend.calls[1]


def test_states_say_where_each_run_lies(written, pretend, tmp_path):
    main([str(written(RATES)), "tracking=none"])
    states = SweepFolder(tmp_path / "runs", "tiny").states()
    assert [one.number for one in states.values()] == list(range(6))
    for one in states.values():
        record = json.loads((tmp_path / "runs/single" / one.state.run / "record.json").read_text())
        assert record["scores"]["val/token_mask/loss"] == one.score


@pytest.mark.parametrize("words", [["nosuch"], ["mask_rate", "--count", "0"], ["mask_rate", "x"]])
def test_bad_words_are_one_message(words, pretend, capsys):
    assert main(words) == 2
    assert capsys.readouterr().err.startswith("ablate: ")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("sweep.json", '{"meth'),
        ("sweep.json", '{"a": 1}'),
        ("states.json", ""),
        ("states.json", '{"x": 1}'),
    ],
)
def test_a_damaged_folder_is_refused_and_nothing_runs(
    written, pretend, capsys, tmp_path, name, content
):
    path = str(written({"seed": {"values": [0]}}))
    main([path, "tracking=none"])
    file = tmp_path / "runs/sweeps/tiny" / name
    file.write_text(content)
    capsys.readouterr()
    assert main([path, "tracking=none"]) == 2
    said = capsys.readouterr().err
    assert f"{name} is damaged; put back a copy of it" in said
    assert "Traceback" not in said
    assert len(pretend.calls) == 1
    assert file.read_text() == content


def test_a_folder_that_holds_something_else_is_refused(tmp_path):
    folder = SweepFolder(tmp_path, "tiny")
    folder.path.mkdir(parents=True)
    (folder.path / "states.json").write_text("[]")
    (folder.path / "sweep.json").write_text("null")
    with pytest.raises(ValueError, match="states.json is damaged"):
        folder.states()
    with pytest.raises(ValueError, match="sweep.json is damaged"):
        _ = folder.identity


@pytest.mark.parametrize("content", [None, '{"st', "[1, 2]", '{"status": "complete"}'])
def test_a_point_whose_record_is_lost_or_damaged_runs_again(
    written, pretend, capsys, tmp_path, content
):
    path = str(written({"seed": {"values": [0, 1]}}))
    assert main([path, "tracking=none"]) == 0
    record = next(tmp_path.glob("runs/single/*-s1-*/record.json"))
    whole = record.read_text()
    record.unlink() if content is None else record.write_text(content)
    states._say_lost.cache_clear()
    capsys.readouterr()
    assert main([path, "tracking=none"]) == 0
    said = capsys.readouterr()
    assert said.err.count("counts as missing") == 1
    assert "2 points, 1 of them ended" in said.out
    assert len(pretend.calls) == 3
    assert record.read_text() == whole
