"""Preset studies: every file in conf/study can be run as it is, and says what it rests on."""

import csv
import itertools
import re
from functools import cache
from pathlib import Path

import pytest
import yaml

from ablate.config.compose import compose_settings
from ablate.config.rules import resolve
from ablate.study import design, guard
from ablate.study.states import settings_hash

FOLDER = Path(__file__).parents[2] / "conf" / "study"
FILES = sorted(FOLDER.glob("*.yaml"))
NAMED = {
    "replacement_rule", "mask_rate", "replacement_by_rate", "masking_strategy", "nsp",
    "static_dynamic", "rate_schedule", "corruption_vs_prediction", "bert_to_modernbert",
    "bert_to_modernbert_loo", "attention_backend", "noise_floor", "document_boundary",
    "whole_word_500", "encoder_vs_decoder", "planted",
}  # fmt: skip
SCALES = [(file, scale) for file in FILES for scale in yaml.safe_load(file.read_text())["scales"]]
IDS = [f"{file.stem}-{scale}" for file, scale in SCALES]
UNPUBLISHED = ("by construction, no publication", "planted")
_PUBLISHED = Path(__file__).parents[3] / "shared" / "literature" / "published.csv"
LITERATURE = [_PUBLISHED] if _PUBLISHED.is_file() else []
# masked-LM scores: the objective of training, up to the mask
OWN_OBJECTIVE = ("val/token_mask/", "val/whole_word_mask/", "val/clm/")


@cache
def preset(file: Path, scale: str) -> tuple[design.Study, dict[str, guard.Composed]]:
    study = design.load(file, scale=scale)
    return study, guard.compose_arms(study)


def test_every_named_study_has_a_file():
    assert {file.stem for file in FILES} >= NAMED


@pytest.mark.parametrize(("file", "scale"), SCALES, ids=IDS)
def test_arms_compose_and_move_only_what_they_declare(file, scale):
    study, composed = preset(file, scale)
    assert set(composed) == set(study.arms)
    assert len(study.treatments) >= 1


@pytest.mark.parametrize(("file", "scale"), SCALES, ids=IDS)
def test_no_two_arms_are_one_run(file, scale):
    study, composed = preset(file, scale)
    guard.check_fingerprints(study, {a: settings_hash(c.settings) for a, c in composed.items()})


@pytest.mark.parametrize(("file", "scale"), SCALES, ids=IDS)
def test_says_what_it_asks_and_rests_on(file, scale):
    study, _ = preset(file, scale)
    assert study.question.endswith("?")
    assert study.source
    assert study.held_fixed
    assert study.cost
    assert len(study.seeds) >= 3
    assert study.gates
    assert all(gate.why for gate in study.gates)
    names = [gate_arm for gate in study.gates for gate_arm in gate.arms]
    assert set(names) <= set(study.arms)
    assert study.primary not in study.secondary


@pytest.mark.parametrize(("file", "scale"), SCALES, ids=IDS)
def test_each_arm_has_an_expectation_or_the_head_says_why_not(file, scale):
    study, _ = preset(file, scale)
    assert study.expected
    if set(study.treatments) - set(study.expected):
        head = " ".join(_head(file).split())
        assert re.search(r"nothing is expected of|single steps|most parts", head), file.name


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_has_a_laptop_scale_its_command_and_the_cost_of_each_scale(file):
    given = yaml.safe_load(file.read_text())
    assert next(iter(given["scales"])) == "laptop"
    assert "paper" in given["scales"] or "paper: none" in given["cost"]
    for scale in given["scales"]:
        assert f"{scale}:" in given["cost"]
    head = _head(file)
    assert f"python -m ablate study={file.stem} scale=laptop" in head
    assert "Expected" in head
    assert "Margin" in file.read_text()


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_laptop_scale_needs_no_file_and_no_network(file):
    _, composed = preset(file, "laptop")
    for arm in composed.values():
        assert arm.settings.corpus.kind == "synthetic"
        assert arm.settings.evaluation.kind in ("synthetic", "none")
        assert resolve(arm.settings).size.hidden_size == 64


@pytest.mark.parametrize(("file", "scale"), SCALES, ids=IDS)
def test_a_masking_factor_is_not_decided_by_masked_lm_loss(file, scale):
    study, composed = preset(file, scale)
    moved = {key for arm in composed.values() for key in arm.moved}
    of_objective = {key for key in moved if key.startswith(("masking.", "objective.", "nsp"))}
    if of_objective and file.stem != "planted":  # answers planted there, whatever the metric
        assert not study.primary.startswith(OWN_OBJECTIVE)


@pytest.mark.parametrize(("file", "scale"), SCALES, ids=IDS)
def test_loss_is_lower_better_and_scores_higher(file, scale):
    study, _ = preset(file, scale)
    assert study.higher_is_better != study.primary.endswith("/loss")


def test_cumulative_steps_move_one_knob_each_and_end_at_modernbert():
    study, composed = preset(FOLDER / "bert_to_modernbert.yaml", "paper")
    before: set[str] = set()
    for name in study.treatments:
        moved = set(composed[name].moved)
        assert before < moved, name
        before = moved
    last = study.overrides(study.treatments[-1])
    target = [o for o in study.common if not o.startswith("encoder")] + ["encoder=modernbert"]
    assert guard.flat(resolve(compose_settings(last))) == guard.flat(
        resolve(compose_settings(target))
    )


def test_leave_one_out_moves_the_parts_of_the_path():
    _, path = preset(FOLDER / "bert_to_modernbert.yaml", "laptop")
    _, left_out = preset(FOLDER / "bert_to_modernbert_loo.yaml", "laptop")
    whole = left_out["all"].settings
    assert settings_hash(whole) == settings_hash(list(path.values())[-1].settings)
    moved = [set(arm.moved) for name, arm in left_out.items() if name != "all"]
    assert sum(map(len, moved)) == len(set().union(*moved))  # no knob in two parts


def test_null_arms_have_names_that_say_so():
    for file, scale in SCALES:
        study, composed = preset(file, scale)
        for name in study.treatments:
            reseeded = all(key.startswith("replicate.") for key in composed[name].moved)
            backend = set(composed[name].moved) == {"attention_backend"}
            assert (reseeded or backend) == name.startswith(design.NULL_PREFIX), (file.stem, name)


@pytest.mark.skipif(not LITERATURE, reason="shared/literature is not there")
@pytest.mark.parametrize(("file", "scale"), SCALES, ids=IDS)
def test_published_figures_are_those_of_the_named_table(file, scale):
    with LITERATURE[0].open(encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))
    study, _ = preset(file, scale)
    for arm, expected in study.expected.items():
        if expected.source in UNPUBLISHED:
            continue
        paper, _, table = expected.source.rpartition(", ")
        of_paper = [row for row in rows if row["paper"] == paper]
        assert of_paper, f"{arm}: no figures of {paper}"
        there = {
            abs(float(row["value"])) for row in of_paper if re.match(rf"{table}\b", row["table"])
        }
        figures = [float(n) for n in re.findall(r"(?<!SQuAD )\b\d+\.\d+\b", expected.note)]
        missing = [figure for figure in figures if figure not in there]
        assert not missing, f"{arm}: {missing} are not in {expected.source}"


def _head(file: Path) -> str:
    lines = file.read_text(encoding="utf-8").splitlines()
    return "\n".join(itertools.takewhile(lambda line: line.startswith("#"), lines))
