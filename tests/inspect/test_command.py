"""What the command prints, in each of its ways, and what it refuses."""

import re
import subprocess
import sys

import pytest
from scipy.stats import beta

from ablate.inspect.__main__ import main

PRESETS = ["bert_80_10_10", "whole_word", "span", "albert_ngram", "bert_whole_word"]
ESCAPES = re.compile(r"\x1b\[[0-9;]*m")


def line_of(found, name):
    return next(line for line in found["table"] if line["name"] == name)


def test_help_answers_without_the_heavy_packages():
    code = (
        "import sys\nfrom ablate.inspect.__main__ import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit as stop:\n    assert not stop.code\n"
        "print('heavy:', [m for m in ('torch', 'hydra', 'numpy', 'rich') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "heavy: []" in done.stdout
    assert len(re.findall(r"^  python -m ablate\.inspect ", done.stdout, re.M)) == 3


@pytest.mark.parametrize("preset", PRESETS)
def test_json_counts_add_up(findings, preset):
    found = findings(f"masking={preset}", "--rows", "2")
    counts, scope = found["counts"], found["scope"]
    assert counts["eligible"] >= 3000
    assert counts["masked"] + counts["random"] + counts["kept"] == counts["selected"]
    assert counts["units_selected"] == sum(counts["unit_words"])
    assert sum(n * runs for n, runs in enumerate(counts["span_tokens"])) == counts["selected"]
    places = found["histograms"]["positions"]["bins"]
    assert sum(place["count"] for place in places) == counts["selected"]
    assert sum(place["total"] for place in places) == counts["eligible"]
    assert scope["rows"] == counts["rows"]
    assert found["settings"]["masking"]["mask_rate"] == 0.15
    assert line_of(found, "mask rate")["count"] == counts["selected"]
    for line in found["table"]:
        assert line["share"] == pytest.approx(line["count"] / line["total"])


def test_intervals_are_the_quantiles_of_the_beta_distribution(findings):
    """The definition of Clopper and Pearson."""
    lines = [line for line in findings("--rows", "0")["table"] if line["interval"]]
    assert len(lines) >= 5
    for line in lines:
        k, n = line["count"], line["total"]
        low = beta.ppf(0.025, k, n - k + 1) if k else 0.0
        high = beta.ppf(0.975, k + 1, n - k) if k < n else 1.0
        assert line["interval"] == pytest.approx([low, high], abs=1e-9)
        assert line["nominal_inside"] == (low <= line["nominal"] <= high)


@pytest.mark.parametrize(
    ("overrides", "without", "within"),
    [
        (["masking=bert_80_10_10"], ["prediction rate"], ["mask rate", "[MASK], tokens"]),
        (["masking=bert_original"], ["mask rate", "mask rate of the row"], ["random, tokens"]),
        (["masking=whole_word"], ["mask rate"], ["words selected", "kept, tokens"]),
        (["masking=ltg_whole_word"], ["mask rate", "[MASK], tokens", "looks unchanged"],
         ["words selected", "[MASK], words"]),
        (["masking=span"], ["mask rate", "spans selected", "[MASK], tokens",
                            "random, the same again"], ["[MASK], spans"]),
        (["masking=bert_80_10_10", "masking.max_predictions_per_row=3"], ["mask rate"],
         ["kept, tokens"]),
        (["masking=all_mask"], ["[MASK], tokens", "kept, tokens", "looks unchanged"],
         ["mask rate"]),
        (["masking=bert_80_10_10", "input_format.pairing=ordered_or_swapped"], [],
         ["swapped pairs"]),
    ],
    ids=lambda value: " ".join(value) if value and "=" in value[0] else "",
)  # fmt: skip
def test_an_interval_stands_only_where_draws_are_independent(findings, overrides, without, within):
    found = findings(*overrides, "--rows", "0")
    for name in without:
        assert line_of(found, name)["interval"] is None, name
        assert line_of(found, name)["nominal_inside"] is None
        assert (
            "no interval" in line_of(found, name)["note"]
            or "see mask" in (line_of(found, name)["note"])
        )
    for name in within:
        assert line_of(found, name)["interval"] is not None, name


def test_no_colour_codes_where_stdout_is_no_terminal(inspect, monkeypatch):
    code, plain, _ = inspect("masking=bert_80_10_10")
    assert code == 0
    assert "\x1b" not in plain
    assert "[MASK:" in plain
    monkeypatch.setenv("COLUMNS", "120")
    _, colored, _ = inspect("masking=bert_80_10_10", "--color", "always")
    _, bare, _ = inspect("masking=bert_80_10_10", "--color", "never")
    assert "\x1b[1;30;106m" in colored
    assert ESCAPES.sub("", colored) == bare


def test_no_color_in_the_environment_wins_over_a_terminal(monkeypatch):
    from ablate.inspect.terminal import console

    class Terminal:
        encoding = "utf-8"

        def isatty(self):
            return True

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert console(Terminal(), "auto").color_system == "standard"
    monkeypatch.setenv("NO_COLOR", "1")
    assert console(Terminal(), "auto").color_system is None
    assert console(Terminal(), "always").color_system == "standard"


def test_labels_of_pairs_are_shown(inspect, findings):
    _, out, _ = inspect("nsp=true", "--rows", "40")
    assert "next: B follows A" in out
    assert "random: B is from another document" in out
    _, out, _ = inspect("input_format.pairing=ordered_or_swapped", "--rows", "40")
    assert "in order: B follows A" in out
    assert "swapped: A follows B in the text" in out
    found = findings("input_format=full_sentences", "--rows", "3")
    assert {row["pair"] for row in found["rows"]} == {None}
    assert not [line for line in found["table"] if line["group"] == "pairs"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--bogus"], "there is no option --bogus; allowed: --rows, "),
        (["--rows", "-1"], "-1 is not a whole number of at least 0"),
        (["--tokens", "0"], "0 is not a whole number of at least 1"),
        (["--progress", "2"], "2 is not a number from 0 to 1"),
        (["--color", "green"], "choose from"),
        (["masking=nope"], "masking=nope is not possible; allowed: albert_ngram"),
        (["masking.mask_rate=2"], "outside (0, 1]"),
        (["--progress", "0.5"], "has no effect on masking.mask_rate_schedule=constant"),
        (["objective=clm", "encoder.causal=true"], "objective=clm masks nothing"),
        (["--html", "missing/page.html"], "there is no folder missing"),
        (["--config-dir", "missing"], "is no folder"),
        (["seed"], "is no override"),
    ],
)
def test_bad_input_is_one_message_and_code_2(inspect, words, said):
    code, out, err = inspect(*words)
    assert code == 2
    assert out == ""
    assert said in err
    assert err.startswith("ablate: ")
    assert err.count("\n") == 1


def test_table_follows_a_schedule_to_the_progress_given(findings):
    found = findings("masking=ankner_linear", "--progress", "1", "--rows", "0")
    assert line_of(found, "mask rate")["nominal"] == pytest.approx(0.15)
    assert found["scope"]["progress"] == 1.0
    found = findings("masking=ankner_linear", "--rows", "0")
    assert line_of(found, "mask rate")["nominal"] == pytest.approx(0.30)


def test_scope_names_the_progress(inspect):
    _, out, _ = inspect("masking=ankner_linear", "--progress", "0.5", "--rows", "0")
    assert "mask rate 0.225, due at progress 0.5 of the linear schedule" in " ".join(out.split())


def test_static_masks_are_counted_once(findings):
    found = findings(
        "masking=roberta_static", "masking.copies=2", "input_format.copies=2", "--rows", "0",
        "--tokens", "1000000",
    )  # fmt: skip
    assert found["scope"]["epochs"] == 2
    assert "masking.copies=2" in found["scope"]["ended_by"]


def test_epoch_e_shows_other_rows(findings):
    first, second = (findings("--epoch", e, "--rows", "2")["rows"] for e in ("0", "1"))
    assert first != second


def test_collocations_are_listed_for_pmi(inspect, findings):
    found = findings("masking=pmi", "masking.pmi_min_count=3", "--rows", "0")
    assert {entry["words"] for entry in found["collocations"]} >= {2, 3}
    _, out, _ = inspect("masking=pmi", "masking.pmi_min_count=3", "--rows", "0")
    assert found["collocations"][0]["text"] in out


def test_a_folder_of_ones_own_configuration(findings, tmp_path):
    (tmp_path / "mine" / "masking").mkdir(parents=True)
    (tmp_path / "mine/masking/half.yaml").write_text("mask_rate: 0.5\n")
    found = findings("--config-dir", "mine", "masking=half", "--rows", "0")
    assert line_of(found, "mask rate")["nominal"] == 0.5


def test_nothing_is_written_but_the_page(inspect, tmp_path):
    assert inspect("--html", "page.html")[0] == 0
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]


def test_the_command_shown_gives_the_same_numbers(findings):
    found = findings("masking=span", "--rows", "1")
    words = found["command"].split()[3:]
    assert "masking=span" in words
    assert main([*words, "--color", "never"]) == 0
