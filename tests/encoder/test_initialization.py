"""Values depend on the name alone; saved weights fit exactly or the error lists the names."""

import math

import pytest
import torch

from ablate import rng
from ablate.encoder.backends import resolve
from ablate.encoder.config import EncoderConfig
from ablate.encoder.heads import MaskedLanguageModel
from ablate.encoder.initialization import initialize, load_weights, num_parameters

SIZES = {
    "vocab_size": 37,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 16,
}
MODERN = {
    "norm_position": "pre",
    "norm_bias": False,
    "position_embedding": "rope",
    "mlp": "glu",
    "attention_bias": False,
    "mlp_bias": False,
    "head_dense_bias": False,
    "first_layer_norm": False,
    "final_norm": True,
    "type_vocab_size": 0,
    "init_scheme": "megatron",
}


def model_of(pair_classes=0, seed=0, **options):
    config = EncoderConfig(**{**SIZES, **options})
    backend = resolve("eager", device="cpu", dtype=torch.float32, max_length=16)
    model = MaskedLanguageModel(config, backend, pair_classes)
    initialize(model, config, lambda name: rng.torch_seed(seed, "init", name))
    return model


def values(model):
    return dict(model.named_parameters())


@pytest.mark.parametrize(
    "change",
    [
        {"pair_classes": 2},
        {"norm_position": "pre"},
        {"position_embedding": "rope"},
        {"type_vocab_size": 0},
        {"tie_word_embeddings": False},
        {"num_hidden_layers": 3},
        {"final_norm": True},
        {"attention_bias": False},
    ],
)
def test_a_changed_axis_leaves_every_shared_value(change):
    base, other = values(model_of()), values(model_of(**change))
    assert set(base) & set(other)
    for name in set(base) & set(other):
        assert torch.equal(base[name], other[name]), name


def test_seeds_and_names_give_different_values():
    base, other = values(model_of()), values(model_of(seed=1))
    name = "encoder.layers.{}.attention.qkv.weight"
    assert not torch.equal(base[name.format(0)], other[name.format(0)])
    assert not torch.equal(base[name.format(0)], base[name.format(1)])


def test_construction_and_initialization_leave_the_global_generator():
    state = torch.random.get_rng_state()
    model_of(pair_classes=2, **MODERN)
    assert torch.equal(torch.random.get_rng_state(), state)


def test_a_forgotten_initialization_shows_as_nan():
    backend = resolve("eager", device="cpu", dtype=torch.float32, max_length=16)
    model = MaskedLanguageModel(EncoderConfig(**SIZES), backend, 2)
    assert all(p.isnan().all() for p in model.parameters())


def test_normal_scheme():
    for name, parameter in values(model_of(2, init_std=0.05, hidden_size=64)).items():
        if parameter.dim() == 1:
            assert set(parameter.tolist()) == {0.0 if name.endswith("bias") else 1.0}, name
        elif parameter.numel() > 2000:
            assert parameter.std().item() == pytest.approx(0.05, rel=0.05), name
            assert parameter.abs().max() > 3 * 0.05, name  # not truncated


def test_megatron_scheme_truncates_and_scales_what_writes_to_the_residual():
    kept = 0.8796  # standard deviation of a unit normal cut at 2
    for name, parameter in values(model_of(**{**MODERN, "hidden_size": 128})).items():
        if parameter.dim() == 1:
            continue
        scaled = name.endswith(("output.weight", "mlm_head.dense.weight"))
        std = 0.02 / math.sqrt(2 * 2) if scaled else 0.02
        assert parameter.abs().max() <= 2 * std, name
        assert parameter.std().item() == pytest.approx(kept * std, rel=0.05), name


def test_truncated_normal_scheme_is_berts_own():
    options = {"init_scheme": "truncated_normal", "hidden_size": 128}
    for name, parameter in values(model_of(2, **options)).items():
        if parameter.dim() > 1 and parameter.numel() > 2000:
            assert 1.9 * 0.02 < parameter.abs().max() <= 2 * 0.02, name
            assert parameter.std().item() == pytest.approx(0.8796 * 0.02, rel=0.05), name


def test_modernbert_scheme_is_megatron_and_other_new_heads():
    modern = values(model_of(2, **{**MODERN, "init_scheme": "modernbert", "hidden_size": 128}))
    megatron = values(model_of(2, **{**MODERN, "hidden_size": 128}))
    for name, parameter in modern.items():
        if not name.startswith("pair_head"):
            assert torch.equal(parameter, megatron[name]), name
    stds = {"dense": 0.02 / math.sqrt(2 * 2), "classifier": 128**-0.5}
    for name, std in stds.items():
        parameter = modern[f"pair_head.{name}.weight"]
        assert parameter.abs().max() <= 2 * std
        assert parameter.std().item() == pytest.approx(0.8796 * std, rel=0.15)


def test_modernberts_classifier_spreads_like_hugging_faces():
    from transformers import ModernBertConfig, ModernBertForSequenceClassification

    torch.manual_seed(0)
    ids = {"pad_token_id": 0, "cls_token_id": 2, "sep_token_id": 3, "num_labels": 40}
    sizes = {**SIZES, "hidden_size": 128, "num_hidden_layers": 1}
    hf_config = ModernBertConfig(**sizes, **ids, bos_token_id=2, eos_token_id=3)
    theirs = ModernBertForSequenceClassification(hf_config)
    ours = values(model_of(40, hidden_size=128, num_hidden_layers=1, init_scheme="modernbert"))
    for name, expected in (
        ("pair_head.classifier.weight", theirs.classifier.weight),
        ("pair_head.dense.weight", theirs.head.dense.weight),
    ):
        size = expected.abs().mean().item()
        assert ours[name].abs().mean().item() == pytest.approx(size, rel=0.04), name


def test_values_are_hugging_faces_in_distribution():
    from transformers import ModernBertConfig, ModernBertForMaskedLM

    from ablate.interop import modernbert

    torch.manual_seed(0)
    ids = {"pad_token_id": 0, "cls_token_id": 2, "sep_token_id": 3}
    sizes = {**SIZES, "vocab_size": 300, "hidden_size": 128, "intermediate_size": 128}
    hf_config = ModernBertConfig(**sizes, **ids, bos_token_id=2, eos_token_id=3)
    config = modernbert.config_from_hf(hf_config)
    theirs = modernbert.state_dict_from_hf(ModernBertForMaskedLM(hf_config).state_dict(), config)
    backend = resolve("eager", device="cpu", dtype=torch.float32, max_length=16)
    ours = MaskedLanguageModel(config, backend)
    initialize(ours, config, lambda name: rng.torch_seed(0, name))
    for name, parameter in values(ours).items():
        expected = theirs[name]
        assert parameter.mean().item() == pytest.approx(expected.mean().item(), abs=1e-3), name
        assert parameter.abs().mean().item() == pytest.approx(
            expected.abs().mean().item(), rel=0.04
        ), name


@pytest.mark.parametrize("scheme", ["megatron", "modernbert"])
def test_an_untied_decoder_is_scaled_like_other_outputs(scheme):
    options = {"tie_word_embeddings": False, "init_scheme": scheme, "init_std": 0.02}
    found = values(model_of(**options, vocab_size=900))
    whole = found["encoder.embeddings.token.weight"].std().item()
    scaled = found["mlm_head.decoder_weight"].std().item()
    assert scaled == pytest.approx(whole / (2 * 2) ** 0.5, rel=0.03)


def test_wrapper_prefixes_load_and_foreign_ones_are_listed():
    saved = model_of(seed=1).state_dict()
    for prefix in ("", "_orig_mod.", "model._orig_mod.", "model."):
        model = model_of()
        missing = load_weights(model, {prefix + name: value for name, value in saved.items()})
        assert missing == []
        assert all(torch.equal(value, saved[name]) for name, value in model.state_dict().items())
    foreign = {f"foo.{name}": value for name, value in saved.items()}
    with pytest.raises(ValueError, match=r"Missing: encoder\..*Unexpected: foo\.encoder\."):
        load_weights(model_of(), foreign)


def test_missing_weights_must_be_asked_for_by_name():
    saved = model_of(seed=1).state_dict()
    model = model_of(pair_classes=2)
    with pytest.raises(ValueError, match=r"Missing: pair_head\.classifier\.bias, pair_head\."):
        load_weights(model, saved)
    assert load_weights(model, saved, allow_missing=("pair_head.",)) == [
        "pair_head.classifier.bias",
        "pair_head.classifier.weight",
        "pair_head.dense.bias",
        "pair_head.dense.weight",
    ]


def test_nothing_is_loaded_when_a_shape_differs():
    saved = model_of(seed=1).state_dict()
    model = model_of(intermediate_size=48)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(ValueError, match=r"mlp\.input\.bias \(32,\) for \(48,\)"):
        load_weights(model, saved)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize("options", [{}, MODERN])
def test_one_dimensional_parameters_are_the_norms_and_biases(options):
    model = model_of(2, **options)
    vectors = {name for name, p in model.named_parameters() if p.dim() < 2}
    by_name = {n for n, _ in model.named_parameters() if n.endswith("bias") or "norm" in n}
    assert vectors == by_name
    total = sum(p.numel() for p in model.parameters())
    assert num_parameters(model) == total == sum(p.numel() for p in values(model).values())


def test_bert_has_the_parameters_of_its_counterpart():
    # 37 + 16 + 2 vectors of 16 and a norm; a layer: 4 x (16 x 16 + 16), MLP 16 x 32 twice with
    # 32 + 16 biases, two norms; head: dense, norm, 37 biases
    layer = 4 * (256 + 16) + 2 * 512 + 48 + 4 * 16
    expected = (37 + 16 + 2) * 16 + 32 + 2 * layer + 256 + 16 + 32 + 37
    assert num_parameters(model_of()) == expected
