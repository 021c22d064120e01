"""Encoder classes of transformers as bodies: equal to themselves row by row, and to our BERT."""

import dataclasses
import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.nn import functional as F

from ablate import rng
from ablate.encoder import backends
from ablate.encoder.config import flops_per_token
from ablate.encoder.heads import MaskedLanguageModel
from ablate.encoder.initialization import load_weights, num_parameters
from ablate.inputs.batches import Batch
from ablate.interop import bert, hf_config, hf_encoder, hf_trial

VOCAB, PAD, MASK, LONGEST = 41, 0, 4, 24
SIZES = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48,
    "initializer_range": 0.1,  # at which every part matters
}  # fmt: skip
DEBERTA_V3 = {
    "relative_attention": True, "position_buckets": 8, "pos_att_type": ["p2c", "c2p"],
    "share_att_key": True, "norm_rel_ebd": "layer_norm", "position_biased_input": False,
    "max_relative_positions": -1, "layer_norm_eps": 1e-7,
}  # fmt: skip
FILES = {
    "bert": {"model_type": "bert", **SIZES},
    "roberta": {"model_type": "roberta", **SIZES, "type_vocab_size": 1},
    "albert": {"model_type": "albert", **SIZES, "embedding_size": 16, "num_hidden_groups": 1},
    "electra": {"model_type": "electra", **SIZES, "embedding_size": 16},
    "deberta-v2": {
        "model_type": "deberta-v2", **SIZES, "conv_kernel_size": 3, "relative_attention": True,
        "pos_att_type": ["p2c", "c2p"], "type_vocab_size": 2,
    },
    "deberta-v3": {"model_type": "deberta-v2", **SIZES, **DEBERTA_V3},
    "mobilebert": {
        "model_type": "mobilebert", **SIZES, "embedding_size": 16, "intra_bottleneck_size": 16,
    },
    "distilbert": {
        "model_type": "distilbert", "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48,
        "initializer_range": 0.1,
    },
    "modernbert": {"model_type": "modernbert", **SIZES, "local_attention": 8},
}  # fmt: skip
ALL = list(FILES)


def write(folder, values):
    path = folder / "config.json"
    path.write_text(json.dumps(values))
    return str(path)


def describe(folder, values, *, attention="auto", pad=PAD, longest=LONGEST):
    path = write(folder, values)
    backend = hf_config.resolve_backend(path, attention)
    config = hf_config.describe(
        path, backend, vocab_size=VOCAB, pad_token_id=pad, mask_token_id=MASK,
        max_position_embeddings=longest,
    )  # fmt: skip
    return config, backend


@pytest.fixture
def make(tmp_path):
    def build(name, *, seed=0, classes=2, dropout=None, **options):
        config, backend = describe(tmp_path, FILES[name], **options)
        if dropout is not None:
            config = dataclasses.replace(
                config, attention_dropout=dropout, hidden_dropout=dropout, embedding_dropout=dropout
            )
        return hf_encoder.build(
            config, backend, pair_classes=classes, seed_of=lambda n: rng.torch_seed(seed, "init", n)
        )

    return build


def ragged(lengths, *, first=5):
    generator = torch.Generator().manual_seed(sum(lengths))
    rows = [torch.randint(first, VOCAB, (n,), generator=generator) for n in lengths]
    bounds = torch.tensor([0, *lengths]).cumsum(0)
    ids = torch.cat(rows)
    places = torch.arange(0, len(ids), 3)
    return Batch(
        input_ids=ids,
        token_type_ids=torch.cat([(torch.arange(n) >= n // 2).long() for n in lengths]),
        position_ids=torch.cat([torch.arange(n) for n in lengths]),
        cu_seqlens=bounds.int(),
        max_seqlen=max(lengths),
        predict_positions=places,
        labels=ids[places],
        pair_labels=torch.arange(len(lengths)) % 2,
    )


def rows_of(batch):
    return list(zip(batch.cu_seqlens[:-1].tolist(), batch.cu_seqlens[1:].tolist(), strict=True))


def losses(model, batch):
    out = model(batch)
    return F.cross_entropy(out.mlm_logits, batch.labels, reduction="sum") + F.cross_entropy(
        out.pair_logits, batch.pair_labels, reduction="sum"
    )


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("attention", ["auto", "eager"])
def test_hidden_states_equal_the_class_on_each_row_alone(make, name, attention):
    model = make(name, attention=attention).eval()
    batch = ragged((5, 24, 1, 9))
    ours = model(batch).hidden
    theirs = []
    for begin, end in rows_of(batch):
        inputs = {"input_ids": batch.input_ids[None, begin:end]}
        if model.encoder.takes_token_types:
            inputs["token_type_ids"] = batch.token_type_ids[None, begin:end]
        theirs.append(model.encoder.body(**inputs).last_hidden_state[0])
    assert (ours - torch.cat(theirs)).abs().max() <= 1e-5
    assert ours.abs().max() > 0.1


@pytest.mark.parametrize("pad", [0, 1, 3])
def test_roberta_counts_positions_from_its_padding_id(make, pad):
    model = make("roberta", pad=pad).eval()
    table = model.encoder.body.embeddings.position_embeddings
    assert table.num_embeddings == LONGEST + pad + 1
    batch = ragged((LONGEST, 3))
    out = model(batch).hidden
    alone = model.encoder.body(batch.input_ids[None, :LONGEST]).last_hidden_state[0]
    assert (out[:LONGEST] - alone).abs().max() <= 1e-5


@pytest.mark.parametrize("name", ALL)
def test_packing_leaks_nothing_forward_or_backward(make, name):
    model = make(name).eval()
    batch = ragged((6, 17, 11))
    before = model(batch).hidden
    changed = dataclasses.replace(batch, input_ids=batch.input_ids.clone())
    changed.input_ids[6:23] = changed.input_ids[6:23].flip(0)
    after = model(changed).hidden
    outside = torch.ones(34, dtype=torch.bool)
    outside[6:23] = False
    assert (before - after)[outside].abs().max() <= 1e-5
    assert (before - after)[~outside].abs().max() > 1e-3

    model.zero_grad()
    model(batch).hidden[outside].square().sum().backward()
    together = {n: p.grad for n, p in model.encoder.named_parameters() if p.grad is not None}
    model.zero_grad()
    one, two = ragged((6,)), ragged((11,))
    for part, (begin, end) in ((one, (0, 6)), (two, (23, 34))):
        part.input_ids, part.token_type_ids = (
            batch.input_ids[begin:end], batch.token_type_ids[begin:end],
        )  # fmt: skip
        model(part).hidden.square().sum().backward()
    for name_of, p in model.encoder.named_parameters():
        if name_of in together:
            assert torch.allclose(p.grad, together[name_of], atol=2e-3, rtol=1e-3), name_of


def with_our_names(values, model):
    """Values of the BERT body and our heads under BertForPreTraining's names."""
    theirs = {}
    for name, value in values.items():
        for ours, hf in (
            ("encoder.body.", "bert."),
            ("mlm_head.dense", "cls.predictions.transform.dense"),
            ("mlm_head.norm", "cls.predictions.transform.LayerNorm"),
            ("mlm_head.decoder_bias", "cls.predictions.bias"),
            ("pair_head.dense", "bert.pooler.dense"),
            ("pair_head.classifier", "cls.seq_relationship"),
        ):
            if name.startswith(ours):
                theirs[hf + name.removeprefix(ours)] = value
    return bert.state_dict_from_hf(theirs, model.config)


def test_bert_class_has_the_loss_and_gradients_of_our_bert(make):
    theirs = make("bert").eval()
    config = bert.config_from_hf(theirs.encoder.body.config)
    backend = backends.resolve("sdpa", device="cpu", dtype=torch.float32, max_length=LONGEST)
    ours = MaskedLanguageModel(config, backend, pair_classes=2).eval()
    load_weights(ours, with_our_names(dict(theirs.named_parameters()), ours))
    batch = ragged((5, 24, 1, 9))
    losses_of = [losses(model, batch) for model in (ours, theirs)]
    assert torch.allclose(*losses_of, rtol=1e-6)
    for loss in losses_of:
        loss.backward()
    wanted = with_our_names({n: p.grad for n, p in theirs.named_parameters()}, ours)
    for name, parameter in ours.named_parameters():
        assert torch.allclose(parameter.grad, wanted[name], atol=2e-5, rtol=1e-4), name
    assert num_parameters(ours) == num_parameters(theirs)


@pytest.mark.parametrize("name", ALL)
def test_ten_steps_lower_the_loss(make, name):
    model = make(name, dropout=0.0).train()
    batch = ragged((12, 20, 7))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    found = []
    for _ in range(11):
        loss = losses(model, batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(float(loss.detach()))
    assert found[-1] < 0.9 * found[0]
    silent = [n for n, p in model.named_parameters() if p.grad is None]
    assert silent == []


@pytest.mark.parametrize("name", ALL)
def test_dropout_is_the_files_can_be_replaced_and_follows_torchs_seed(make, name):
    batch = ragged((12, 7))
    without = make(name, dropout=0.0)
    expected = without.eval()(batch).hidden
    assert torch.equal(without.train()(batch).hidden, expected)
    half = make(name, dropout=0.5).train()
    outputs = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        outputs.append(half(batch).hidden)
    assert torch.equal(outputs[0], outputs[1])
    assert not torch.allclose(outputs[0], outputs[2])
    file = make(name).config.dropout()
    assert file
    assert hf_trial.facts(half)["dropout"] == file


@pytest.mark.parametrize("name", ALL)
def test_half_precision_is_near_single(make, name):
    model = make(name, dropout=0.0)
    batch = ragged((12, 20, 7))
    single = model(batch).hidden
    with torch.autocast("cpu", torch.bfloat16):
        loss = losses(model, batch)
        half = model(batch).hidden
    loss.backward()
    assert (half.float() - single).abs().max() <= 0.06 * single.abs().max()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters())


@pytest.mark.parametrize("name", ALL)
def test_each_value_is_a_function_of_seed_and_name(make, name):
    state = torch.get_rng_state()
    first = make(name).state_dict()
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(5)
    again, headless, other = make(name), make(name, classes=0), make(name, seed=1)
    assert all(torch.equal(value, first[n]) for n, value in again.state_dict().items())
    assert all(torch.equal(value, first[n]) for n, value in headless.state_dict().items())
    drawn = [n for n, p in again.named_parameters() if p.ndim > 1 and p.std() > 0]
    assert all(not torch.equal(other.state_dict()[n], first[n]) for n in drawn)
    flat = [first[n].flatten()[:50].tolist() for n in drawn]
    assert len({tuple(values) for values in flat}) == len(flat), "no two share a stream"
    assert all(torch.isfinite(value.float()).all() for value in first.values())


def test_the_scheme_is_the_class_s_own(tmp_path):
    config, backend = describe(tmp_path, {**FILES["bert"], "initializer_range": 0.3})
    model = hf_encoder.build(config, backend, pair_classes=0, seed_of=lambda n: len(n))
    body = model.encoder.body
    for weight in (body.embeddings.word_embeddings.weight, model.mlm_head.dense.weight):
        assert float(weight.detach().std()) == pytest.approx(0.3, rel=0.15)
    assert body.embeddings.word_embeddings.weight[PAD].abs().sum() == 0  # as transformers' own
    assert body.encoder.layer[0].output.dense.bias.abs().sum() == 0


@pytest.mark.parametrize("name", ALL)
def test_weights_are_saved_once_and_come_back(make, name, tmp_path):
    model, other = make(name).eval(), make(name, seed=1).eval()
    state = model.state_dict()
    pointers = [value.untyped_storage().data_ptr() for value in state.values()]
    assert len(set(pointers)) == len(pointers)
    save_file(state, tmp_path / "w.safetensors")
    other.load_state_dict(load_file(tmp_path / "w.safetensors"))
    batch = ragged((7, 3))
    assert torch.equal(model(batch).mlm_logits, other(batch).mlm_logits)


def test_tensors_shared_inside_a_class_are_saved_once(make, tmp_path, monkeypatch):
    plain = hf_encoder._body

    def shared(config):
        body = plain(config)
        body.encoder.layer[1].intermediate.dense = body.encoder.layer[0].intermediate.dense
        return body

    monkeypatch.setattr(hf_encoder, "_body", shared)
    model, other = make("bert").eval(), make("bert", seed=1).eval()
    assert sorted(model.encoder.aliases) == [
        f"body.encoder.layer.1.intermediate.dense.{part}" for part in ("bias", "weight")
    ]
    save_file(model.state_dict(), tmp_path / "w.safetensors")
    other.load_state_dict(load_file(tmp_path / "w.safetensors"))
    assert torch.equal(model(ragged((7,))).hidden, other(ragged((7,))).hidden)


def test_flops_of_the_bert_class_are_those_of_our_bert(make):
    model = make("bert")
    config = bert.config_from_hf(model.encoder.body.config)
    for rate in (0.0, 0.15):
        counted = hf_trial.flops_per_token(model, LONGEST, predict_rate=rate)
        assert counted == pytest.approx(flops_per_token(config, LONGEST, predict_rate=rate))


def test_vocabulary_padding_and_positions_are_ours_and_the_record_says_so(tmp_path):
    values = {
        **FILES["roberta"], "vocab_size": 50_265, "pad_token_id": 1, "eos_token_id": 50_000,
        "max_position_embeddings": 514, "torch_dtype": "bfloat16",
    }  # fmt: skip
    config, backend = describe(tmp_path, values)
    assert config.overridden == {
        "vocab_size": [50_265, VOCAB], "pad_token_id": [1, PAD], "eos_token_id": [50_000, None],
        "max_position_embeddings": [514, LONGEST],
    }  # fmt: skip
    identity = config.identity()
    assert identity["class"] == "RobertaModel"
    assert json.loads(json.dumps(identity, allow_nan=False)) == identity
    model = hf_encoder.build(config, backend, pair_classes=0, seed_of=len)
    assert model.encoder.embedding_weight.shape == (VOCAB, 32)
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    names = {**values, "architectures": ["X"], "transformers_version": "4.0", "torch_dtype": None}
    assert describe(tmp_path, names)[0].identity() == identity


def test_rows_beyond_the_positions_are_refused(make):
    with pytest.raises(ValueError, match="encoder.max_position_embeddings=25"):
        make("bert")(ragged((25,)))


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"hidden_size": 32}, "model_type"),
        ({"model_type": "brt"}, "bert"),
        ({"model_type": "gpt2"}, "both sides"),
        ({"model_type": "llama"}, "both sides"),
        ({"model_type": "t5"}, "encoder-decoder"),
        ({"model_type": "bart"}, "encoder-decoder"),
        ({"model_type": "vit"}, "both sides"),
        ({**FILES["bert"], "is_decoder": True}, "is_decoder"),
        ({**FILES["bert"], "hidden_size": "wide"}, "refuses it"),
        ({**FILES["bert"], "num_attention_heads": 5}, "cannot be built"),
        ({"model_type": "big_bird", **SIZES}, "original_full"),
        ({"model_type": "convbert", **SIZES, "embedding_size": 16}, "padding change"),
        ({"model_type": "fnet", "hidden_size": 32, "num_hidden_layers": 2}, "padding change"),
        ({"model_type": "mpnet", **SIZES}, "id 1 for padding"),
        ({"model_type": "xlm", "emb_dim": 8, "n_layers": 1, "n_heads": 2, "causal": True}, "right"),
    ],
)  # fmt: skip
def test_other_models_are_refused(tmp_path, values, says):
    with pytest.raises(ValueError, match="encoder.hf_config") as caught:
        hf_encoder.build(*describe(tmp_path, values), pair_classes=0, seed_of=len)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_files_that_cannot_be_read_are_refused(tmp_path):
    (tmp_path / "torn.json").write_text('{"model_type": ')
    (tmp_path / "folder").mkdir()
    for given, says in (
        (None, "encoder.hf_config="),
        (str(tmp_path / "none.json"), "none.json"),
        (str(tmp_path / "folder"), "config.json"),
        (str(tmp_path / "torn.json"), "not JSON"),
        ("google/bert", "nothing is downloaded"),
    ):
        with pytest.raises(ValueError, match="type") as caught:
            hf_config.read(given)
        assert says in str(caught.value)
    assert hf_config.read(write(tmp_path / "folder", FILES["bert"])).model_type == "bert"
    assert hf_config.read(str(tmp_path / "folder")).model_type == "bert"


def test_attention_is_one_that_the_class_has(tmp_path):
    assert describe(tmp_path, FILES["bert"])[1].kernel_for(0.1, "cpu") == "hf:sdpa"
    assert describe(tmp_path, FILES["bert"], attention="eager")[1].name == "hf:eager"
    assert describe(tmp_path, FILES["deberta-v3"])[1].name == "hf:eager"
    for name, attention in (("bert", "flash"), ("deberta-v3", "sdpa")):
        with pytest.raises(ValueError, match="attention_backend=auto"):
            describe(tmp_path, FILES[name], attention=attention)
