"""Ours == transformers' BERT: hidden states, logits, loss and every gradient, float32, ragged."""

import pytest
import torch
from torch.nn import functional as F
from transformers import BertConfig, BertForMaskedLM, BertForPreTraining

from ablate.encoder.backends import resolve
from ablate.encoder.config import EncoderConfig
from ablate.encoder.heads import MaskedLanguageModel
from ablate.encoder.initialization import load_weights
from ablate.inputs.batches import Batch
from ablate.interop import bert

VOCAB = 37
SIZES = {
    "vocab_size": VOCAB,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 24,
    "max_position_embeddings": 40,
}
LENGTHS = [(5,), (8, 8, 8), (7, 1, 12, 3), (40, 2, 33)]
BACKENDS = ["eager", "sdpa"]


def theirs_and_ours(cls, backend, **options):
    torch.manual_seed(0)
    hf_config = BertConfig(**SIZES, attn_implementation="eager", **options)
    theirs = cls(hf_config).eval()
    with torch.no_grad():  # values at which every parameter matters, biases and norms too
        for name, parameter in theirs.named_parameters():
            parameter.normal_(1.0 if "LayerNorm.weight" in name else 0.0, 0.2)
    config = bert.config_from_hf(hf_config)
    chosen = resolve(backend, device="cpu", dtype=torch.float32, max_length=40)
    ours = MaskedLanguageModel(config, chosen, 2 if cls is BertForPreTraining else 0)
    missing = load_weights(ours, bert.state_dict_from_hf(theirs.state_dict(), config))
    assert missing == []
    return theirs, ours.eval()


def ragged(lengths):
    """(their padded inputs, our batch) for the same rows; a third of the tokens is predicted."""
    generator = torch.Generator().manual_seed(sum(lengths))
    rows = [torch.randint(5, VOCAB, (n,), generator=generator) for n in lengths]
    types = [(torch.arange(n) >= n // 2).long() for n in lengths]
    positions = [torch.arange(n) for n in lengths]
    labels = [torch.where(p % 3 == 0, row, -100) for p, row in zip(positions, rows, strict=True)]

    def pad(parts, value=0):
        return torch.nn.utils.rnn.pad_sequence(parts, batch_first=True, padding_value=value)

    padded = {
        "input_ids": pad(rows),
        "token_type_ids": pad(types),
        "attention_mask": pad([torch.ones_like(p) for p in positions]),
        "labels": pad(labels, -100),
        "next_sentence_label": torch.arange(len(rows)) % 2,
    }
    flat = torch.cat(labels)
    predicted = (flat != -100).nonzero().squeeze(1)
    batch = Batch(
        input_ids=torch.cat(rows),
        token_type_ids=torch.cat(types),
        position_ids=torch.cat(positions),
        cu_seqlens=torch.tensor([0, *lengths]).cumsum(0).int(),
        max_seqlen=max(lengths),
        predict_positions=predicted,
        labels=flat[predicted],
        pair_labels=padded["next_sentence_label"],
    )
    return padded, batch


def same(ours, theirs, what=""):
    torch.testing.assert_close(
        ours, theirs, atol=1e-5, rtol=1e-5, msg=lambda text: f"{what}: {text}"
    )


def compare_gradients(theirs, ours, config):
    grads = {
        name: torch.zeros_like(p) if p.grad is None else p.grad
        for name, p in theirs.named_parameters()
    }
    for name, parameter in theirs.named_parameters(remove_duplicate=False):
        if name not in grads:  # a tied weight under its second name
            grads[name] = next(grads[n] for n, p in theirs.named_parameters() if p is parameter)
    for name, expected in bert.state_dict_from_hf(grads, config).items():
        same(ours.get_parameter(name).grad, expected, name)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("lengths", LENGTHS)
def test_masked_lm_equals_hf(backend, lengths):
    theirs, ours = theirs_and_ours(BertForMaskedLM, backend)
    padded, batch = ragged(lengths)
    padded.pop("next_sentence_label")
    expected = theirs(**padded, output_hidden_states=True)
    out = ours(batch)
    real = padded["attention_mask"].bool()
    same(out.hidden, expected.hidden_states[-1][real], "hidden")
    same(out.mlm_logits, expected.logits[padded["labels"] != -100], "logits")
    loss = F.cross_entropy(out.mlm_logits, batch.labels)
    same(loss, expected.loss, "loss")
    expected.loss.backward()
    loss.backward()
    compare_gradients(theirs, ours, ours.config)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("lengths", LENGTHS)
def test_pretraining_equals_hf(backend, lengths):
    theirs, ours = theirs_and_ours(BertForPreTraining, backend)
    padded, batch = ragged(lengths)
    expected = theirs(**padded)
    out = ours(batch)
    same(out.pair_logits, expected.seq_relationship_logits, "pair logits")
    loss = F.cross_entropy(out.mlm_logits, batch.labels)
    loss = loss + F.cross_entropy(out.pair_logits, batch.pair_labels)
    same(loss, expected.loss, "loss")
    expected.loss.backward()
    loss.backward()
    compare_gradients(theirs, ours, ours.config)


def test_untied_decoder_equals_hf():
    theirs, ours = theirs_and_ours(BertForMaskedLM, "sdpa", tie_word_embeddings=False)
    padded, batch = ragged((7, 4))
    padded.pop("next_sentence_label")
    same(ours(batch).mlm_logits, theirs(**padded).logits[padded["labels"] != -100])
    assert not torch.equal(ours.mlm_head.decoder_weight, ours.encoder.embeddings.token.weight)


@pytest.mark.parametrize("cls", [BertForMaskedLM, BertForPreTraining])
@pytest.mark.parametrize("tied", [True, False])
def test_names_go_there_and_back(cls, tied):
    theirs, ours = theirs_and_ours(cls, "eager", tie_word_embeddings=tied)
    state = bert.state_dict_to_hf(ours.state_dict(), ours.config)
    assert set(state) == set(theirs.state_dict())
    for name, value in theirs.state_dict().items():
        unused = name == "cls.predictions.bias" and not tied
        assert unused or torch.equal(state[name], value), name
    theirs.load_state_dict(state, strict=True)


def test_old_names_and_buffers_are_read():
    theirs, ours = theirs_and_ours(BertForMaskedLM, "eager")
    old = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
            "LayerNorm.bias", "LayerNorm.beta"
        ): value
        for name, value in theirs.state_dict().items()
        if "decoder" not in name
    }
    old["bert.embeddings.position_ids"] = torch.arange(40)[None]
    state = bert.state_dict_from_hf(old, ours.config)
    assert all(torch.equal(state[name], value) for name, value in ours.state_dict().items())


def test_wrapped_names_are_stripped_and_foreign_ones_listed():
    theirs, ours = theirs_and_ours(BertForMaskedLM, "eager")
    wrapped = {f"model._orig_mod.{name}": v for name, v in theirs.state_dict().items()}
    state = bert.state_dict_from_hf(wrapped, ours.config)
    assert all(torch.equal(state[name], value) for name, value in ours.state_dict().items())
    foreign = {f"foo.{name}": v for name, v in theirs.state_dict().items()}
    with pytest.raises(ValueError, match=r"foo\.bert\.embeddings\.word_embeddings\.weight"):
        bert.state_dict_from_hf(foreign, ours.config)


def test_a_decoder_that_is_not_tied_is_refused_where_it_should_be():
    theirs, ours = theirs_and_ours(BertForMaskedLM, "eager")
    state = dict(theirs.state_dict())
    state["cls.predictions.decoder.weight"] = state["cls.predictions.decoder.weight"] + 1
    with pytest.raises(ValueError, match="tie_word_embeddings=false"):
        bert.state_dict_from_hf(state, ours.config)


def test_points_that_bert_cannot_express_name_their_axes():
    config = EncoderConfig(**SIZES, norm_position="pre", mlp="glu")
    with pytest.raises(ValueError, match=r"norm_position=pre.*mlp=glu"):
        bert.state_dict_to_hf({}, config)


def test_options_that_ours_lacks_are_refused():
    hf_config = BertConfig(**SIZES, hidden_act="tanh")
    with pytest.raises(ValueError, match="activation tanh"):
        bert.config_from_hf(hf_config)
    with pytest.raises(ValueError, match="is_decoder"):
        bert.config_from_hf(BertConfig(**SIZES, is_decoder=True))
