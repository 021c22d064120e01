"""What is exported is what transformers loads: same ids, same rows, same logits, no name astray."""

import itertools
import json

import pytest
import torch
from safetensors.numpy import load_file
from transformers import (
    AutoModelForMaskedLM,
    AutoTokenizer,
    BertForMaskedLM,
    BertForPreTraining,
    BertForSequenceClassification,
    ModernBertForMaskedLM,
)

from ablate.encoder.backends import Backend
from ablate.encoder.config import EncoderConfig
from ablate.evaluation.encoding import encode
from ablate.interop.exporting import export, family_of
from ablate.run.saved import open_saved
from ablate.tokens import tokenizer as tokenizers_of_ours

CORNERS = [
    "bert", "bert_nsp", "bert_sop", "bert_untied_no_types", "bert_unigram", "modernbert",
    "modernbert_nsp_untied", "modernbert_byte_bpe",
]  # fmt: skip
CLASSES = {"bert": BertForMaskedLM, "modernbert": ModernBertForMaskedLM}


def sentences():
    """Words of the built-in language, whole morphemes and not."""
    from ablate.corpus import synthetic

    return [" ".join(synthetic.morphemes()[i : i + 6]).replace("##", "") for i in range(0, 30, 6)]


def names_in(folder):
    return list(load_file(folder / "model.safetensors"))


def logits_of_ours(saved, rows):
    """(tokens, vocabulary) of every position, row by row."""
    batch = rows.batch(torch.arange(len(rows)).numpy())
    everywhere = torch.arange(batch.num_tokens)
    batch.predict_positions, batch.labels = everywhere, batch.input_ids
    with torch.inference_mode():
        return saved.model(batch)


@pytest.mark.parametrize("pairs", [False, True])
@pytest.mark.parametrize("corner", CORNERS)
def test_transformers_gives_the_same_logits_on_texts(exported, corner, pairs):
    run, folder, _ = exported(corner)
    model, loading = AutoModelForMaskedLM.from_pretrained(folder, output_loading_info=True)
    assert type(model) is CLASSES[corner.split("_")[0]]
    nothing = {"missing_keys": set(), "mismatched_keys": set(), "error_msgs": []}
    unexpected = loading.pop("unexpected_keys")
    assert {name: type(nothing[name])(loading[name]) for name in nothing} == nothing
    of_pairs = {"cls.seq_relationship.weight", "cls.seq_relationship.bias"}
    poolers = {"bert.pooler.dense.weight", "bert.pooler.dense.bias"}
    assert set(unexpected) <= (of_pairs | poolers if corner == "bert_nsp" else set())

    saved, theirs = open_saved(run), AutoTokenizer.from_pretrained(folder)
    words = [*sentences(), "the", "Zebra, the zebra!"]
    sides = list(itertools.pairwise(words)) if pairs else [(word,) for word in words]
    rows = encode(saved.tokenizer, sides, max_length=64)
    ours = logits_of_ours(saved, rows)
    for number, side in enumerate(sides):
        one = theirs(*side, return_tensors="pt")
        here = slice(int(rows.starts[number]), int(rows.starts[number + 1]))
        assert one["input_ids"][0].tolist() == rows.input_ids[here].tolist(), side
        if "token_type_ids" in one:
            assert one["token_type_ids"][0].tolist() == rows.token_type_ids[here].tolist()
        expected = model.eval()(**one).logits[0]
        torch.testing.assert_close(ours.mlm_logits[here], expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("kernel", ["eager", "matmul", "flash"])
@pytest.mark.parametrize("corner", ["bert", "modernbert"])
def test_half_precision_agrees_with_transformers_within_its_own_rounding(exported, corner, kernel):
    """Both under bf16 autocast are about as far from float32 as from each other."""
    run, folder, _ = exported(corner)
    saved, theirs = open_saved(run), AutoTokenizer.from_pretrained(folder)
    name = "eager" if kernel == "eager" else "sdpa"
    saved.model.encoder.backend = Backend(name, kernel, "")
    model = AutoModelForMaskedLM.from_pretrained(folder).eval()
    words = sentences()
    rows = encode(saved.tokenizer, [(word,) for word in words], max_length=64)
    single = logits_of_ours(saved, rows).mlm_logits
    with torch.autocast("cpu", torch.bfloat16):
        ours = logits_of_ours(saved, rows).mlm_logits.float()
        expected = [model(**theirs(word, return_tensors="pt")).logits[0] for word in words]
    expected = torch.cat(expected).detach().float()
    rounding = (expected - single).abs().max()
    assert 0 < rounding < 0.05 * single.abs().max()
    assert (ours - expected).abs().max() < 2 * rounding


@pytest.mark.parametrize("corner", CORNERS)
def test_mask_in_a_text_is_one_token_and_takes_its_blank(exported, corner):
    run, folder, _ = exported(corner)
    from ablate.predict.filling import encode_with_masks

    theirs, ours = AutoTokenizer.from_pretrained(folder), open_saved(run).tokenizer
    for text in ("the [MASK] .", "[MASK] the", "the [MASK] [MASK]"):
        ids = theirs(text, add_special_tokens=False)["input_ids"]
        assert ids == encode_with_masks(ours, text), text
        assert ids.count(ours.mask_token_id) == text.count("[MASK]")
    assert theirs.mask_token_id == ours.mask_token_id
    assert theirs.pad_token_id == ours.pad_token_id


def test_next_sentence_head_is_left_out_unless_asked_for(trained, tmp_path, capsys, refused):
    from ablate.interop.__main__ import main

    assert main(["export", str(trained("bert_nsp")), str(tmp_path / "out")]) == 0
    printed = capsys.readouterr().out
    assert "pair head is left out: --pair-head keeps it" in printed
    assert "transformers.AutoModelForMaskedLM" in printed
    _, loading = AutoModelForMaskedLM.from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not any(loading.values())
    capsys.readouterr()
    for corner in ("bert", "bert_sop", "modernbert_nsp_untied"):
        said = refused("export", trained(corner), tmp_path / "no", "--pair-head")
        assert "leave --pair-head out" in said


def test_next_sentence_head_is_kept_with_its_polarity(exported):
    run, folder, printed = exported("bert_nsp")
    assert "note" not in printed
    assert "transformers.AutoModelForPreTraining" in printed
    model, loading = BertForPreTraining.from_pretrained(folder, output_loading_info=True)
    assert not any(loading.values())
    saved, theirs = open_saved(run), AutoTokenizer.from_pretrained(folder)
    side = tuple(sentences()[:2])
    ours = logits_of_ours(saved, encode(saved.tokenizer, [side], max_length=64))
    expected = model.eval()(**theirs(*side, return_tensors="pt")).seq_relationship_logits
    torch.testing.assert_close(ours.pair_logits, expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("corner", "reason"), [("bert_sop", "of sop"), ("modernbert_nsp_untied", "none")]
)
def test_pair_head_without_a_place_is_left_out_and_said(exported, corner, reason):
    _, folder, printed = exported(corner)
    assert "pair head is left out" in printed
    assert reason in printed
    names = names_in(folder)
    assert not any("pooler" in name or "seq_relationship" in name for name in names)


def test_what_bert_has_and_the_encoder_has_not_is_zero_and_said(exported):
    _, _, printed = exported("bert_untied_no_types")
    assert "token_type" in printed
    assert "attention.qkv.bias" in printed


@pytest.mark.parametrize("corner", ["bert", "modernbert"])
def test_tied_weights_are_saved_once(exported, corner):
    """FAULTS.md B10: one copy in the file, tied again when it is loaded."""
    _, folder, _ = exported(corner)
    assert not any(name.endswith("decoder.weight") for name in names_in(folder))
    model = AutoModelForMaskedLM.from_pretrained(folder)
    embedding = model.get_input_embeddings().weight
    assert model.get_output_embeddings().weight.data_ptr() == embedding.data_ptr()


@pytest.mark.parametrize(
    ("corner", "new"),
    [
        ("bert", {"bert.pooler.dense.weight", "bert.pooler.dense.bias"}),
        ("bert_nsp", set()),
    ],
)
def test_only_heads_that_pretraining_never_trained_are_new(exported, corner, new):
    """FAULTS.md B11: without NSP the pooler is new, with it the classifier alone."""
    _, folder, _ = exported(corner)
    _, loading = BertForSequenceClassification.from_pretrained(folder, output_loading_info=True)
    assert set(loading["missing_keys"]) == new | {"classifier.weight", "classifier.bias"}


def test_pretrained_folder_exports_the_same(exported, pretrained_of, tmp_path):
    from ablate.interop.__main__ import main

    run, folder, _ = exported("bert")
    assert main(["export", str(pretrained_of(run)), str(tmp_path / "again")]) == 0
    for file in folder.iterdir():
        assert (tmp_path / "again" / file.name).read_bytes() == file.read_bytes()


@pytest.mark.parametrize(
    ("options", "axes"),
    [
        ({"norm_type": "rms"}, ["encoder.norm_type=rms"]),
        ({"position_embedding": "rope", "mlp": "glu"}, ["position_embedding=rope", "mlp=glu"]),
        ({"causal": True}, ["encoder.causal=True"]),
        ({"shared_layers": "all"}, ["encoder.shared_layers=all"]),
        ({"embedding_size": 8}, ["encoder.embedding_size=8"]),
        ({"final_norm": True}, ["encoder.final_norm=True"]),
    ],
)
def test_axes_in_the_way_are_named(options, axes):
    with pytest.raises(ValueError, match="no class of transformers expresses") as caught:
        family_of(EncoderConfig(vocab_size=37, hidden_size=16, num_attention_heads=4, **options))
    assert all(axis in str(caught.value) for axis in axes)


def test_failed_export_leaves_nothing(trained, tmp_path):
    saved = open_saved(trained("bert"))
    state = dict(saved.model.state_dict())
    state.pop("mlm_head.dense.weight")
    with pytest.raises(ValueError, match=r"Missing: mlm_head\.dense\.weight"):
        export(
            tmp_path / "out", config=saved.encoder, state=state, pair_loss=None,
            tokenizer=saved.tokenizer,
        )  # fmt: skip
    assert list(tmp_path.iterdir()) == []


def test_bad_words_get_one_message(tmp_path, trained, refused):
    assert "no folder" in refused("export", tmp_path / "nowhere", tmp_path / "out")
    assert "export" in refused("exprot", "a", "b")
    assert "--help" in refused("export", "a")
    (tmp_path / "file").write_text("x")
    assert "is a file" in refused("export", trained("bert"), tmp_path / "file")
    broken = tmp_path / "runs" / "pretrained" / "abc"
    broken.mkdir(parents=True)
    (broken / "record.json").write_text(json.dumps({"status": "interrupted", "identity": {}}))
    assert "interrupted" in refused("export", broken, tmp_path / "out")


def test_exported_tokenizer_is_read_by_ours(exported):
    run, folder, _ = exported("bert")
    ours, again = open_saved(run).tokenizer, tokenizers_of_ours.load(folder)
    for text in sentences():
        assert again.encode_batch([text]) == ours.encode_batch([text])
