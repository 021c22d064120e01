"""Masking measured against transformers: what is printed, and that the sides are comparable."""

import dataclasses
import json
import sys

import numpy as np
import pytest
import torch
import yaml

from ablate.bench import inputs, made_up_text, material, theirs
from ablate.config.compose import conf_dir
from ablate.inputs.masking import MaskingPolicy
from ablate.inputs.rows import assemble


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    cache = tmp_path_factory.mktemp("cache")
    return material.load(None, num_tokens=64 * 128, text_field="text", cache_dir=cache)


def test_inputs_prints_one_json_object_with_named_rows(bench):
    names = "token_64x128,span_64x128,exact_64x128"
    code, out, _ = bench("inputs", "--json", "--repeats", "1", "--turn", "1", "--only", names)
    found = json.loads(out)
    assert code == 0
    token, span, exact = found["rows"]
    assert [row["name"] for row in found["rows"]] == names.split(",")
    assert token["ratio"] == token["theirs"] / token["ours"]
    assert (token["bar"], token["pass"]) == (6.0, token["ratio"] >= 6.0)
    assert span["theirs"] == token["theirs"]
    assert span["relative_to_token"] == token["ours"] / span["ours"]
    assert (exact["theirs"], exact["ratio"]) == (None, None)
    assert found["unit"].startswith("milliseconds")
    assert (found["torch_threads"], found["warm_up_excluded"]) == (1, True)
    assert len(inputs.table(found)) == 4 + 3 + 1


def test_both_sides_get_the_same_ids(text):
    hf_tokenizer = theirs.wrap(text.tokenizer)
    rows = material.full_rows(text, hf_tokenizer, max_length=128, count=8)
    flat = assemble(text.store, text.tokenizer, rows.plan, rows.numbers)
    ours = flat.input_ids.reshape(8, 128)
    assert np.array_equal(ours, [example["input_ids"] for example in rows.examples])
    assert len({tuple(row) for row in ours.tolist()}) == 8


def test_rows_of_other_text_are_refused(text):
    other = dataclasses.replace(text, documents=["a ."])
    with pytest.raises(ValueError, match="not among transformers' rows"):
        material.full_rows(other, theirs.wrap(text.tokenizer), max_length=128, count=8)
    with pytest.raises(ValueError, match="give --corpus a larger file"):
        material.full_rows(text, theirs.wrap(text.tokenizer), max_length=512, count=10_000)


def test_their_whole_words_are_whole_and_their_tokens_are_not(text):
    hf_tokenizer = theirs.wrap(text.tokenizer)
    rows = material.full_rows(text, hf_tokenizer, max_length=128, count=64)
    flat = assemble(text.store, text.tokenizer, rows.plan, rows.numbers)
    begins = flat.word_starts.reshape(64, 128)
    begins[:, [0, 1, -1]] = True
    torch.manual_seed(0)
    for kind in ("whole_word", "token"):
        batch = theirs.collator(kind, hf_tokenizer)(theirs.examples_for(kind, rows.examples))
        share = (batch["labels"] != -100).float().mean()
        assert 0.1 < share < 0.25
        if kind == "whole_word":
            theirs.check_whole_words(batch, begins)
        else:
            with pytest.raises(ValueError, match="does not select whole words"):
                theirs.check_whole_words(batch, begins)


def test_a_corpus_file_is_read(tmp_path):
    made_up_text.write(tmp_path / "text.txt", 0.1)
    found = material.load(
        str(tmp_path / "text.txt"),
        num_tokens=1000,
        text_field="text",
        cache_dir=tmp_path / "cache",
    )
    assert 1000 < len(found.store.tokens) < 20_000
    assert found.name == str(tmp_path / "text.txt")
    assert found.tokenizer.vocab_size > material.BUILT_IN_VOCAB_SIZE


def test_policies_are_the_presets_of_conf():
    presets = {"token": "bert_80_10_10", "whole_word": "whole_word", "span": "span",
               "ngram": "albert_ngram", "pmi": "pmi", "exact": "bert_original"}  # fmt: skip
    assert presets.keys() == inputs.POLICIES.keys()
    for name, preset in presets.items():
        fields = yaml.safe_load((conf_dir() / "masking" / f"{preset}.yaml").read_text())
        fields = {key: tuple(value) if isinstance(value, list) else value
                  for key, value in fields.items()}  # fmt: skip
        assert inputs.POLICIES[name] == MaskingPolicy(**fields)


def test_transformers_missing_is_said(bench, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    code, out, err = bench("inputs", "--only", "token_64x128")
    assert (code, out) == (2, "")
    assert "type python -m pip install transformers" in err
