"""Every axis by itself, from both corners: cost as README says, training, initial values, rows.

The costs are read from the table of README, "Encoder axes": each value of an axis has a formula,
and the difference of two is what a flip of that axis alone may change.
"""

import copy
import functools
import re
from dataclasses import fields, replace
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from ablate import rng
from ablate.encoder import refusals
from ablate.encoder.attention import Reach
from ablate.encoder.backends import resolve
from ablate.encoder.config import EncoderConfig, flops_per_token, parameter_count
from ablate.encoder.heads import MaskedLanguageModel
from ablate.encoder.initialization import initialize, num_parameters
from ablate.inputs.batches import collate
from ablate.pretraining.optimizers import decay_groups

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
SIZES = {
    "vocab_size": 37,
    "hidden_size": 16,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 20,
    "local_attention": 4,
    "init_std": 0.1,
}
BERT = EncoderConfig(**SIZES)
MODERNBERT = EncoderConfig(
    **SIZES, norm_position="pre", norm_bias=False, position_embedding="rope", mlp="glu",
    attention_bias=False, mlp_bias=False, head_dense_bias=False, global_attention_every_n=3,
    first_layer_norm=False, final_norm=True, type_vocab_size=0, init_scheme="megatron",
)  # fmt: skip
SWITCHES = [
    "norm_bias", "attention_bias", "mlp_bias", "head_dense_bias", "head_bias", "embedding_norm",
    "first_layer_norm", "final_norm", "tie_word_embeddings", "causal",
]  # fmt: skip
CORNERS = {"bert": BERT, "modernbert": MODERNBERT}
VALUES = {
    **refusals.CHOICES,
    **dict.fromkeys(SWITCHES, (True, False)),
    "embedding_size": (None, 8),
    "type_vocab_size": (0, 2, 3),
    "max_position_embeddings": (20, 24),
    "global_attention_every_n": (1, 2),
    "local_attention": (4, 6),
    "global_rope_theta": (1e4,),
    "local_rope_theta": (1e5,),
    "norm_eps": (1e-6,),
    "init_std": (0.05,),
    "attention_dropout": (0.1,),
    "hidden_dropout": (0.1,),
    "embedding_dropout": (0.1,),
    "mlp_dropout": (0.1,),
}
NEEDS = {  # what ModernBERT's other axes must be for a flip to be legal
    ("body", "lstm"): {
        "position_embedding": "none", "global_attention_every_n": 1, "mlp": "plain",
        "attention_bias": True, "mlp_bias": True, "init_scheme": "normal",
    },
    ("shared_layers", "attention"): {"first_layer_norm": True},
    ("shared_layers", "all"): {"first_layer_norm": True},
}  # fmt: skip
FLIPS = [
    (corner, axis, value)
    for corner, config in CORNERS.items()
    for axis, values in VALUES.items()
    for value in values
    if value != getattr(config, axis)
]
MOVES = {  # names that an axis may add, take away or give another shape
    "body": r"layers\.\d\.",
    "embedding_size": r"embeddings\.|mlm_head\.",
    "shared_layers": r"layers\.[12]\.(attention|mlp)",
    "norm_position": r"(attention|mlp)_output_norm",
    "norm_bias": r"norm\.bias",
    "position_embedding": r"embeddings\.position\.",
    "mlp": r"mlp\.input\.",
    "attention_bias": r"attention\.\w+\.bias",
    "mlp_bias": r"mlp\.\w+\.bias",
    "head_dense_bias": r"mlm_head\.dense\.bias",
    "head_bias": r"mlm_head\.decoder_bias",
    "embedding_norm": r"embeddings\.norm\.",
    "first_layer_norm": r"layers\.0\.attention_norm\.",
    "final_norm": r"final_norm\.",
    "tie_word_embeddings": r"mlm_head\.decoder_weight",
    "type_vocab_size": r"embeddings\.token_type\.",
    "max_position_embeddings": r"embeddings\.position\.",
}
each_flip = pytest.mark.parametrize(("corner", "axis", "value"), FLIPS)


def pair_of(corner, axis, value):
    """(config before, config after) of one flip."""
    base = replace(CORNERS[corner], **NEEDS.get((axis, value), {}))
    return base, replace(base, **{axis: value})


@functools.cache
def backend_of(name):
    return resolve(name, device="cpu", dtype=torch.float32, max_length=20)


def model_of(config, backend="auto", pair_classes=0):
    model = MaskedLanguageModel(config, backend_of(backend), pair_classes)
    initialize(model, config, lambda name: rng.torch_seed(0, "init", name))
    return model


def table():
    """axis -> [(values in words, parameters, FLOPs)] of README's table."""
    section = README.split("## Encoder axes")[1].split("\n| choice |")[0]
    found, axes = {}, []
    for line in section.splitlines():
        if line.startswith("| ") and not line.startswith("| axis"):
            named, value, parameters, flops = (c.strip() for c in line.strip("|").split("|"))
            axes = re.findall(r"`(\w+)`", named) or axes
            for axis in axes:
                found.setdefault(axis, []).append((value, parameters.strip("`"), flops.strip("`")))
    return found


TABLE = table()
TABLE |= {name: TABLE["dropout"] for name in VALUES if name.endswith("_dropout")}


def line_of(axis, value):
    """(parameters, FLOPs) that the table gives for a value, as formulas."""
    word = "null" if value is None else str(value).lower()
    for values, *formulas in TABLE[axis]:
        if word in re.findall(r"`(\w+)`", values) or (
            values == "any" or (values.startswith("a number") and value is not None)
        ):
            return formulas
    raise AssertionError(f"{axis}={word} is not in README's table")


def keys_seen(config, length):
    """Keys that a token may see, mean over a row, summed over layers, by counting."""
    position = torch.arange(length)
    total = 0.0
    for kind in config.layer_types:
        half = None if kind == "full_attention" else config.half_window
        bounds = torch.tensor([0, length], dtype=torch.int32)
        seen = Reach(bounds, length, half, config.causal).allowed(
            position[:, None], position[None, :]
        )
        total += length if seen is None else seen.sum().item() / length
    return total


def symbols(config, base, length):
    """The letters of the table at `config`; blocks are counted in the model of `base`."""
    names = dict(model_of(replace(base, shared_layers="none")).named_parameters())
    second = {n: p.numel() for n, p in names.items() if n.startswith("encoder.layers.1.")}
    vectors = 2 if config.norm_bias else 1
    return {
        "V": config.vocab_size, "D": config.hidden_size, "L": config.num_hidden_layers,
        "I": config.intermediate_size, "P": config.max_position_embeddings,
        "T": config.type_vocab_size, "E": config.embedding_size,
        "Q": config.max_position_embeddings * (config.position_embedding == "learned"),
        "n": vectors, "N": vectors * config.hidden_size,
        "C": sum("norm.weight" in name for name in names),
        "A": sum(size for name, size in second.items() if ".attention" in name),
        "F": sum(size for name, size in second.items() if ".mlp" in name),
        "m": int(config.mlp_bias), "h": int(config.head_dense_bias),
        "g": 2 if config.mlp == "glu" else 1, "K": keys_seen(config, length),
    }  # fmt: skip


@each_flip
def test_a_flip_costs_what_the_table_says(corner, axis, value):
    base, flipped = pair_of(corner, axis, value)
    costs = []
    for config in (base, flipped):
        formulas = line_of(axis, getattr(config, axis))
        costs.append([eval(f, symbols(config, base, 10)) for f in formulas])
    before, after = (num_parameters(model_of(config)) for config in (base, flipped))
    assert after - before == costs[1][0] - costs[0][0]
    flops = flops_per_token(flipped, 10) - flops_per_token(base, 10)
    assert flops == pytest.approx(costs[1][1] - costs[0][1])


def test_the_table_names_every_axis_and_every_value():
    sizes = "vocab_size hidden_size num_hidden_layers num_attention_heads intermediate_size"
    settings = {field.name for field in fields(EncoderConfig)} - {*sizes.split(), "pad_token_id"}
    assert settings == set(VALUES)
    assert settings <= set(TABLE)
    for axis, values in VALUES.items():
        for value in values:
            line_of(axis, value)


@each_flip
def test_the_closed_form_counts_the_model(corner, axis, value):
    for config in pair_of(corner, axis, value):
        for classes in (0, 2):
            counted = num_parameters(model_of(config, pair_classes=classes))
            assert parameter_count(config, pair_classes=classes) == counted


@each_flip
def test_flops_are_those_of_torchs_counter(corner, axis, value):
    config = pair_of(corner, axis, value)[1]
    if config.body == "lstm":
        return  # the counter does not know torch's LSTM; tests/encoder/test_recurrent.py
    config = replace(config, causal=False, global_attention_every_n=1)  # eager computes all pairs
    batch = collate([7] * 8, [8], predict_positions=list(range(8)), labels=[7] * 8)
    with FlopCounterMode(display=False) as counter:
        model_of(config, "eager")(batch)
    assert counter.get_total_flops() == 8 * flops_per_token(config, 8)


@each_flip
def test_ten_steps_lower_the_loss(corner, axis, value):
    model = model_of(pair_of(corner, axis, value)[1]).train()
    ids = [2, 5, 6, 4, 3, 2, 4, 9, 10, 4, 12, 3, 2, 3]
    batch = collate(ids, [5, 7, 2], predict_positions=[1, 3, 6, 9], labels=[5, 7, 8, 11])
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    torch.manual_seed(0)  # dropout
    losses = []
    for _ in range(10):
        loss = F.cross_entropy(model(batch).mlm_logits, batch.labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.8 * losses[0], losses
    assert all(parameter.isfinite().all() for parameter in model.parameters())


@each_flip
def test_a_flip_moves_no_other_initial_value(corner, axis, value):
    base, other = (
        dict(model_of(config).named_parameters()) for config in pair_of(corner, axis, value)
    )
    moved = {
        name
        for name in base.keys() | other.keys()
        if name not in base or name not in other or base[name].shape != other[name].shape
    }
    allowed = MOVES.get(axis, r"\0")
    assert all(re.search(allowed, name) for name in moved), moved
    if axis in ("init_scheme", "init_std"):
        return
    for name in (base.keys() & other.keys()) - moved:
        assert torch.equal(base[name], other[name]), name


@each_flip
def test_rows_are_independent(corner, axis, value):
    model = model_of(pair_of(corner, axis, value)[1]).eval()
    rows = [[2, 5, 6, 7, 3], [2], [2, 9, 8, 7, 6, 5, 9, 9, 3], [2, 9, 8, 7, 6, 5, 9, 4, 3], [2, 3]]
    packed = model(collate([i for row in rows for i in row], [len(row) for row in rows])).hidden
    alone = [model(collate(row, [len(row)])).hidden for row in rows]
    torch.testing.assert_close(packed, torch.cat(alone), atol=1e-5, rtol=0)


@pytest.mark.parametrize("shared", ["attention", "mlp", "all"])
def test_shared_parts_are_saved_and_counted_once(shared):
    model = model_of(replace(BERT, shared_layers=shared))
    state = model.state_dict()
    assert set(state) == {name for name, _ in model.named_parameters()}
    assert len({value.data_ptr() for value in state.values()}) == len(state)
    names = {"attention": ["attention"], "mlp": ["mlp"], "all": ["attention", "mlp"]}[shared]
    for name in names:
        layers = [n for n in state if re.search(rf"layers\.\d\.{name}", n)]
        assert layers
        assert all(".layers.0." in n for n in layers)
    again = model_of(replace(BERT, shared_layers=shared, init_std=0.3))
    again.load_state_dict(state)
    batch = collate([2, 5, 6, 3], [4], predict_positions=[1], labels=[5])
    assert torch.equal(again(batch).mlm_logits, model(batch).mlm_logits)


def test_sharing_all_is_a_stack_of_equal_layers():
    shared = model_of(replace(BERT, shared_layers="all"))
    apart = model_of(BERT)
    state = apart.state_dict()
    for name in state:
        state[name] = shared.state_dict()[re.sub(r"layers\.\d", "layers.0", name)]
    apart.load_state_dict(state)
    batch = collate([2, 5, 6, 3], [4], predict_positions=[1], labels=[5])
    assert torch.equal(apart(batch).mlm_logits, shared(batch).mlm_logits)
    shared(batch).mlm_logits.sum().backward()
    apart(batch).mlm_logits.sum().backward()
    name = "encoder.layers.{}.mlp.input.weight"
    summed = sum(apart.get_parameter(name.format(i)).grad for i in range(3))
    torch.testing.assert_close(shared.get_parameter(name.format(0)).grad, summed)


def test_sandwich_by_hand():
    layer = model_of(replace(BERT, norm_position="sandwich")).encoder.layers[0]
    x = torch.randn(4, 16)
    with torch.no_grad():
        layer.mlp_output_norm.weight.fill_(2.0)
        inner = layer.mlp(F.layer_norm(x, (16,), eps=1e-12))
        expected = x + 2 * F.layer_norm(inner, (16,), eps=1e-12)
        torch.testing.assert_close(layer.feed_forward(x), expected)


def test_sinusoids_by_hand():
    from ablate.encoder.positions import sinusoids

    table = sinusoids(torch.tensor([0, 3]), 4, 4)
    three = torch.tensor([3.0, 0.03])
    torch.testing.assert_close(table[0], torch.tensor([0.0, 1.0, 0.0, 1.0]))
    torch.testing.assert_close(table[1], torch.stack([three.sin(), three.cos()], 1).flatten())
    config = replace(BERT, position_embedding="sinusoidal", embedding_norm=False)
    none = replace(config, position_embedding="none")
    ids = torch.tensor([5, 6])
    embedded = [
        model_of(c).encoder.embeddings(ids, ids * 0, torch.tensor([0, 3]), 4)
        for c in (config, none)
    ]
    expected = 0.1 * sinusoids(torch.tensor([0, 3]), 4, 16)
    torch.testing.assert_close(embedded[0] - embedded[1], expected)


@pytest.mark.parametrize("position", ["learned", "sinusoidal", "rope", "alibi"])
def test_positions_tell_orders_apart_and_none_does_not(position):
    ids, swapped = [2, 5, 6, 7, 3], [2, 6, 5, 7, 3]

    def last(kind):
        model = model_of(replace(BERT, position_embedding=kind))
        return [model(collate(row, [5])).hidden[-1] for row in (ids, swapped)]

    torch.testing.assert_close(*last("none"), atol=1e-6, rtol=0)
    before, after = last(position)
    assert (before - after).abs().max() > 1e-4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"embedding_size": 17}, r"embedding_size=17.*from 2 to the hidden size 16.*=8"),
        ({"embedding_size": 0}, r"embedding_size=0.*null"),
        ({"body": "gru"}, r"body=gru.*transformer, lstm"),
        ({"shared_layers": "norms"}, r"none, attention, mlp, all"),
        ({"position_embedding": "t5"}, r"learned, sinusoidal, rope, alibi, none"),
        ({"init_scheme": "kaiming"}, r"normal, truncated_normal, megatron, modernbert"),
        (
            {"shared_layers": "all", "first_layer_norm": False},
            r"first_layer_norm=false.*shared_layers=all.*first_layer_norm=true",
        ),
        ({"body": "lstm", "position_embedding": "rope"}, r"=rope.*position_embedding=none"),
        ({"body": "lstm", "position_embedding": "alibi"}, r"=alibi.*position_embedding=none"),
        ({"body": "lstm", "causal": True}, r"causal=true.*both ways.*causal=false"),
        ({"body": "lstm", "shared_layers": "mlp"}, r"shared_layers=mlp.*shared_layers=all"),
        ({"body": "lstm", "global_attention_every_n": 3}, r"windows.*every_n=1"),
        ({"body": "lstm", "mlp": "glu"}, r"mlp=glu.*mlp=plain"),
        ({"body": "lstm", "mlp_bias": False}, r"mlp_bias=false.*mlp_bias=true"),
        ({"body": "lstm", "attention_bias": False}, r"attention_bias=true"),
        (
            {"body": "lstm", "hidden_size": 15, "num_attention_heads": 3},
            r"size\.hidden_size=15.*even.*16",
        ),
    ],
)
def test_combinations_that_mean_nothing_say_what_to_type(options, message):
    with pytest.raises(ValueError, match=message):
        replace(BERT, **options)


@pytest.mark.parametrize(
    "options",
    [
        {"first_layer_norm": False},  # post: the first sum is left as it is
        {"final_norm": True},  # post: one norm more
        {"norm_position": "sandwich", "first_layer_norm": False},
        {"shared_layers": "mlp", "first_layer_norm": False},
        {"embedding_size": 16},  # as in ALBERT's code: no projection
        {"body": "lstm", "shared_layers": "all", "embedding_size": 8},
    ],
)
def test_odd_points_are_legal_and_run(options):
    model = model_of(replace(BERT, **options))
    assert model(collate([2, 5, 3], [3])).hidden.isfinite().all()
    assert parameter_count(model.config) == num_parameters(model)


@pytest.mark.parametrize(
    "options",
    [
        {"body": "lstm"},
        {"shared_layers": "all", "embedding_size": 8},
        {"norm_position": "sandwich", "norm_bias": False},
    ],
)
def test_decay_goes_by_shape_and_each_parameter_once(options):
    model = model_of(replace(BERT, **options), pair_classes=2)
    decayed, rest = (group["params"] for group in decay_groups(model, 0.1))
    names = {id(p): name for name, p in model.named_parameters()}
    assert sorted(names) == sorted(id(p) for p in [*decayed, *rest])
    assert all("norm" in names[id(p)] or "bias" in names[id(p)] for p in rest)
    assert not any("norm" in names[id(p)] or "bias" in names[id(p)] for p in decayed)


def test_a_factorised_decoder_stays_tied():
    model = copy.deepcopy(model_of(replace(BERT, embedding_size=8)))
    batch = collate([2, 5, 6, 3], [4], predict_positions=[1], labels=[5])
    before = model(batch).mlm_logits
    with torch.no_grad():
        model.encoder.embeddings.token.weight[30] += 1.0  # 30 is not in the batch
    moved = (model(batch).mlm_logits - before).abs().sum(0).nonzero().flatten().tolist()
    assert moved == [30]
