"""Flags that are off, however and wherever they are written; FAULTS B30."""

import dataclasses

import pytest
import yaml

from ablate.config.compose import compose_settings, conf_dir
from ablate.config.schema import Settings


def flags(settings, prefix=""):
    """Dotted names of all settings that are true or false."""
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        if dataclasses.is_dataclass(value):
            yield from flags(value, f"{prefix}{field.name}.")
        elif isinstance(value, bool):
            yield f"{prefix}{field.name}"


def value_of(settings, name):
    for part in name.split("."):
        settings = getattr(settings, part)
    return settings


@pytest.mark.parametrize("spelling", ["off", "0"])
def test_b30_no_spelling_of_off_switches_any_flag_on(spelling):
    """Where off is refused, as beside another setting, the message names the flag."""
    names = list(flags(Settings()))
    assert {"nsp", "sop", "force", "encoder.mlp_bias"} <= set(names)
    for name in names:
        message = None
        try:
            settings = compose_settings([f"{name}={spelling}"])
        except ValueError as refused:
            message = str(refused)
        assert name in message if message else value_of(settings, name) is False, name


def test_b30_flags_in_a_user_s_own_file_are_booleans(tmp_path):
    text = (conf_dir() / "encoder" / "bert.yaml").read_text()
    for was, now in (("mlp_bias: true", "mlp_bias: off"), ("final_norm: false", "final_norm: on")):
        assert text.count(was) == 1
        text = text.replace(was, now)
    (tmp_path / "encoder").mkdir()
    (tmp_path / "encoder" / "mine.yaml").write_text(text)
    found = compose_settings([f"hydra.searchpath=[file://{tmp_path}]", "encoder=mine"]).encoder
    assert (found.mlp_bias, found.final_norm) == (False, True)


def test_b30_no_name_of_an_option_is_read_as_something_else():
    for path in conf_dir().rglob("*.yaml"):
        assert yaml.safe_load(path.stem) == path.stem, path
