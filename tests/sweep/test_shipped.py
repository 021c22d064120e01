"""Every file in sweeps/: W&B's schema, our reader, its first and last point, its words."""

import json
from pathlib import Path

import jsonschema
import pytest
import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser

from ablate.config.compose import compose_settings
from ablate.sweep import points
from ablate.sweep.files import load
from ablate.sweep.options import sweeps_dir

FILES = sorted(sweeps_dir().glob("*.yaml"))
SCHEMA = json.loads((Path(__file__).parent / "wandb_schema.json").read_text())


def ends(sweep):
    if sweep.method == "grid":
        every = points.grid(sweep)
        return every[0], every[-1]
    return points.random_point(sweep.parameters, 0, 0), *points.corners(sweep.parameters)


def test_the_files_are_those_of_the_readme():
    names = {path.stem for path in FILES}
    assert names >= {
        "mask_rate", "masking_nsp", "architecture", "learning_rate", "bayes", "hyperband"
    }  # fmt: skip


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_file_is_valid_by_the_published_schema(path):
    jsonschema.validate(yaml.safe_load(path.read_text()), SCHEMA)


def test_the_schema_refuses_what_it_should():
    content = yaml.safe_load((sweeps_dir() / "mask_rate.yaml").read_text())
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**content, "metod": "grid"}, SCHEMA)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_file_opens_with_what_it_is_and_both_commands(path):
    head = path.read_text().split("\nprogram:")[0]
    assert f"wandb sweep sweeps/{path.name}" in head
    assert f"python -m ablate.sweep sweeps/{path.name}" in head
    assert "minute" in head


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_first_and_last_point_compose(path):
    sweep = load(path)
    assert not sweep.notes
    for point in ends(sweep):
        compose_settings(points.words_of(point))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_agents_words_read_as_ours(path):
    """`${args_no_hyphens}` prints Python's form of each value."""
    parser = OverridesParser.create()
    for point in ends(load(path)):
        agents = [f"{name}={value}" for name, value in point.items()]
        assert [o.value() for o in parser.parse_overrides(agents)] == list(point.values())
        ours = parser.parse_overrides(points.words_of(point))
        assert [o.value() for o in ours] == list(point.values())
