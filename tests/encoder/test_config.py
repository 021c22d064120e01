"""Validation messages, layer kinds and the cost per token, against counts done by hand."""

import pytest
from torch.utils.flop_counter import FlopCounterMode

from ablate.encoder.backends import resolve
from ablate.encoder.config import EncoderConfig, flops_per_token
from ablate.encoder.heads import MaskedLanguageModel
from ablate.inputs.batches import collate

SIZES = {
    "vocab_size": 20,
    "hidden_size": 16,
    "num_hidden_layers": 7,
    "num_attention_heads": 2,
    "intermediate_size": 32,
}


def test_a_global_layer_each_third_is_0_3_6():
    kinds = EncoderConfig(**SIZES, global_attention_every_n=3).layer_types
    assert [i for i, kind in enumerate(kinds) if kind == "full_attention"] == [0, 3, 6]
    assert set(EncoderConfig(**SIZES).layer_types) == {"full_attention"}


def test_local_attention_is_the_total_window():
    config = EncoderConfig(**SIZES, local_attention=4)
    assert config.half_window == 2
    assert (config.global_rope_theta, config.local_rope_theta) == (160_000, 10_000)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"norm_position": "middle"}, r"encoder\.norm_position=middle.*post, pre"),
        ({"mlp": "swiglu"}, r"encoder\.mlp=swiglu.*plain, glu"),
        ({"activation": "tanh"}, r"encoder\.activation=tanh.*gelu"),
        ({"hidden_size": 0}, r"size\.hidden_size=0.*at least 1"),
        ({"num_attention_heads": 3}, r"size\.num_attention_heads=3.*num_attention_heads=2"),
        ({"local_attention": 5}, r"encoder\.local_attention=5.*even"),
        ({"hidden_dropout": 1.0}, r"encoder\.hidden_dropout=1\.0.*\[0, 1\)"),
        ({"norm_eps": 0.0}, r"encoder\.norm_eps=0\.0"),
        ({"init_std": float("nan")}, r"encoder\.init_std=nan"),
        ({"pad_token_id": 20}, r"encoder\.pad_token_id=20.*0 to 19"),
        ({"type_vocab_size": -1}, r"encoder\.type_vocab_size=-1"),
        (
            {"position_embedding": "rope", "num_attention_heads": 16},
            r"rope needs an even head size.*position_embedding=learned",
        ),
    ],
)
def test_impossible_values_say_what_to_type(options, message):
    with pytest.raises(ValueError, match=message):
        EncoderConfig(**{**SIZES, **options})


def test_flops_of_a_plain_layer_by_hand():
    config = EncoderConfig(**{**SIZES, "num_hidden_layers": 1})
    # 4 projections of 16 x 16, an MLP of 16 x 32 twice, 10 keys a query (scores and values)
    assert flops_per_token(config, 10, predict_rate=0) == 2 * (4 * 256 + 2 * 512 + 2 * 16 * 10)
    head = 2 * (16 * 16 + 16 * 20)
    assert flops_per_token(config, 10) == 2 * (4 * 256 + 2 * 512 + 2 * 16 * 10) + head


def test_a_window_of_4_in_a_row_of_6_shows_24_pairs():
    one = EncoderConfig(
        **{**SIZES, "num_hidden_layers": 2}, global_attention_every_n=2, local_attention=4
    )
    full = EncoderConfig(**{**SIZES, "num_hidden_layers": 2})
    # windows of 3 4 5 5 4 3 keys = 24 pairs against 36
    difference = flops_per_token(full, 6) - flops_per_token(one, 6)
    assert difference == pytest.approx(2 * 2 * 16 * (36 - 24) / 6)
    causal = EncoderConfig(**{**SIZES, "num_hidden_layers": 2}, causal=True)
    assert flops_per_token(full, 6) - flops_per_token(causal, 6) == pytest.approx(
        2 * 2 * 2 * 16 * (36 - 21) / 6
    )


def test_flops_equal_torchs_counter():
    config = EncoderConfig(**SIZES, mlp="glu")
    backend = resolve("eager", device="cpu", dtype=None, max_length=8)
    model = MaskedLanguageModel(config, backend)
    batch = collate([7] * 8, [8], predict_positions=list(range(8)), labels=[7] * 8)
    with FlopCounterMode(display=False) as counter:
        model(batch)
    assert counter.get_total_flops() == 8 * flops_per_token(config, 8)
