"""Single axes and presets of the encoder from the command line, and widths that follow a rule."""

from dataclasses import replace

import pytest

from ablate.config.compose import compose_settings
from ablate.config.encoder_rules import check_unread, window_hides_nothing
from ablate.config.encoder_source import named_settings
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


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            ["encoder=bert", "encoder.local_attention=2"],
            r"local_attention=2 .*no layer has a window",
        ),
        (["encoder=bert", "encoder.global_rope_theta=3"], r"position_embedding=learned rotates"),
        (["encoder.global_attention_every_n=1", "encoder.local_rope_theta=3"], "has a window"),
        (["encoder.max_position_embeddings=4"], r"rope has no table of positions"),
        (["encoder=lstm", "encoder.local_attention=32"], "no layer has a window"),
        (["encoder=albert", "encoder.embedding_size=48"], r"type encoder.embedding_rule=exact"),
        (["encoder=lstm", "attention_backend=eager"], "attention_backend=eager has no effect"),
        (["encoder=lstm", "encoder.init_scheme=megatron"], r"init_scheme=normal"),
        (["encoder.dropout=0.1", "attention_backend=flash"], r"encoder.dropout is above 0"),
        (["encoder.dropout=0.1", "attention_backend=flex"], r"encoder.dropout is above 0"),
        (
            ["encoder.position_embedding=alibi", "attention_backend=flash"],
            r"adds no bias.*backend=sdpa",
        ),
        (["encoder.init_std=inf"], r"init_std=inf.*less than 10"),
        (["encoder.norm_eps=inf"], r"norm_eps=inf.*less than 1"),
        (["encoder.body=lstm"], r"type encoder=lstm, or .*mlp=plain.*mlp_bias=true"),
    ],
)
def test_axes_without_effect_or_sense_are_refused(overrides, message):
    with pytest.raises(ValueError, match=f"(?i){message}"):
        compose_settings(overrides)


@pytest.mark.parametrize(
    ("overrides", "name"),
    [
        (["encoder=bert", "encoder.glu_width=parameter_matched"], "encoder.glu_width"),
        (["encoder=bert", "encoder.local_attention=128"], "encoder.local_attention"),
        (["encoder=lstm", "size.num_attention_heads=8"], "size.num_attention_heads"),
    ],
)
def test_a_typed_default_without_effect_is_refused_too(overrides, name):
    settings = compose_settings(overrides)
    check_unread(settings)
    with pytest.raises(ValueError, match=f"{name}.* has no effect"):
        check_unread(settings, named_settings(overrides))


def test_a_resolved_configuration_passes_again():
    for overrides in ([], ["encoder=bert"], ["encoder=albert", "size=base"], ["encoder=albert"]):
        resolved = resolve(compose_settings(overrides))
        check(resolved)
        assert resolve(resolved) == resolved


def test_a_window_longer_than_the_rows_is_said():
    hides = [
        window_hides_nothing(compose_settings(words))
        for words in (
            [], ["input_format.max_length=128"], ["encoder=bert"], ["encoder.local_attention=64"],
        )
    ]  # fmt: skip
    assert hides == [True, False, False, False]
