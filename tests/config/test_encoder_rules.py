"""Single axes and presets of the encoder from the command line, and widths that follow a rule."""

from dataclasses import replace

import pytest

from ablate.config.compose import compose_settings
from ablate.config.rules import check, encoder_arguments, resolve
from ablate.encoder.config import EncoderConfig, parameter_count


def encoder_of(*overrides):
    settings = compose_settings(overrides)
    check(settings)
    return EncoderConfig(**encoder_arguments(resolve(settings), 1000, 0))


@pytest.mark.parametrize(
    ("size", "expected"), [("toy", 32), ("tiny", 64), ("mini", 128), ("base", 128), ("large", 128)]
)
def test_albert_has_its_own_128_where_the_width_allows(size, expected):
    assert encoder_of("encoder=albert", f"size={size}").embedding_size == expected


def test_albert_base_has_the_published_millions_of_parameters():
    config = encoder_of("encoder=albert", "size=base", "input_format.max_length=512")
    published = replace(config, vocab_size=30_000)
    for changes, millions in (  # tables 3 and 4
        ({}, 12),
        ({"shared_layers": "none"}, 89),
        ({"shared_layers": "mlp"}, 38),
        ({"shared_layers": "attention"}, 64),
        ({"embedding_size": None}, 31),
        ({"embedding_size": None, "shared_layers": "none"}, 108),
    ):
        counted = parameter_count(replace(published, **changes), pair_classes=2)
        assert counted / 1e6 == pytest.approx(millions, abs=1.8), changes


@pytest.mark.parametrize(
    "override",
    [
        "encoder.body=lstm", "encoder.embedding_size=32", "encoder.shared_layers=all",
        "encoder.norm_position=sandwich", "encoder.norm_position=pre", "encoder.norm_type=rms",
        "encoder.position_embedding=sinusoidal", "encoder.position_embedding=rope",
        "encoder.position_embedding=alibi", "encoder.position_embedding=none", "encoder.mlp=glu",
        "encoder.init_scheme=truncated_normal", "encoder.init_scheme=modernbert",
        "encoder.global_attention_every_n=3",
    ],
)  # fmt: skip
def test_one_axis_of_bert_needs_no_file(override):
    name, value = override.removeprefix("encoder.").split("=")
    assert str(getattr(encoder_of("encoder=bert", override), name)) == value


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["encoder.embedding_rule=half"], "exact, at_most_half"),
        (["encoder.embedding_rule=at_most_half"], "type encoder.embedding_size=128"),
        (["encoder=bert", "encoder.embedding_size=128"], "encoder.embedding_size=32"),
        (["encoder.body=lstm"], "encoder.position_embedding=none"),
        (["encoder.shared_layers=all"], "encoder.first_layer_norm=true"),
        (["encoder=lstm", "encoder.shared_layers=attention"], "encoder.shared_layers=all"),
    ],
)
def test_refused_with_what_to_type(overrides, message):
    with pytest.raises(ValueError, match=r"encoder\.") as caught:
        encoder_of(*overrides)
    assert message in str(caught.value)
