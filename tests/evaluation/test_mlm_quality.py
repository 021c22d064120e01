"""Masked-LM quality: chance, breakdowns that add up, words and bands that no tokenizer decides."""

import json
import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch

from ablate import rng
from ablate.encoder.backends import resolve
from ablate.encoder.config import EncoderConfig
from ablate.encoder.heads import MaskedLanguageModel
from ablate.encoder.initialization import initialize
from ablate.evaluation import kinds
from ablate.evaluation.fitting import FinetuneSettings
from ablate.evaluation.held_out_text import from_corpus, synthetic_tags
from ablate.evaluation.measurement import EvaluationResult, Setup, Subject
from ablate.evaluation.mlm_predictions import chosen_words, cut_in_pieces
from ablate.evaluation.mlm_quality import MLMQuality
from ablate.evaluation.mlm_scores import METRICS
from ablate.evaluation.protocol import evaluate
from ablate.inputs.batches import collate
from ablate.tokens import training

SETUP = Setup(0, FinetuneSettings(max_length=128), 1, Path())


def make_subject(tokenizer, **options):
    config = EncoderConfig(
        vocab_size=tokenizer.vocab_size, hidden_size=16, num_hidden_layers=1,
        num_attention_heads=2, intermediate_size=32, max_position_embeddings=128,
        **{"init_std": 0.02, **options},
    )  # fmt: skip
    backend = resolve("auto", device="cpu", dtype=torch.float32, max_length=64)
    model = MaskedLanguageModel(config, backend)
    initialize(model, config, lambda name: rng.torch_seed(0, "init", name))
    return Subject(model, tokenizer, "weights")


@pytest.fixture(scope="module")
def text(built_in):
    return from_corpus(
        built_in[0], num_words=1_500, words_per_row=24, seed=0, tags=synthetic_tags()
    )


@pytest.fixture(scope="module")
def tokenizers(built_in, tmp_path_factory):
    """One that knows morphemes, one of letters mostly."""
    documents = list(built_in[0].open())
    letters = training.train(
        "byte_bpe", documents, vocab_size=300, lowercase=False,
        cache_dir=tmp_path_factory.mktemp("tokenizers"), documents_key="test",
    )  # fmt: skip
    return [built_in[1], letters]


def measured(subject, text):
    part = MLMQuality(text).measure(subject, SETUP, 0, lambda *done: None)
    result = EvaluationResult()
    MLMQuality(text).add_to(result, [part], SETUP)
    return part, result


def test_an_untrained_model_is_at_chance(built_in, text):
    _, result = measured(make_subject(built_in[1]), text)
    for split in ("token_mask", "whole_word_mask"):
        loss = result.scores[f"mlm_quality/{split}/loss"]
        assert loss == pytest.approx(math.log(built_in[1].vocab_size), abs=0.05)
        assert result.scores[f"mlm_quality/{split}/accuracy"] < 0.1


def test_breakdowns_add_up_to_the_whole(built_in, text):
    _, result = measured(make_subject(built_in[1], init_std=0.3), text)
    details = result.details["mlm_quality"]
    for split, tables in details["breakdown"].items():
        whole = {metric: details["metrics"][f"mlm_quality/{split}/{metric}"] for metric in METRICS}
        assert set(tables) == {
            "frequency_band", "position_decile", "pieces_of_word", "part_of_speech",
        }  # fmt: skip
        for lines in tables.values():
            n = np.array([line["n"] for line in lines.values()])
            num_bytes = np.array([line["bytes"] for line in lines.values()])
            assert n.sum() == whole["loss"]["pieces"]
            for metric in ("loss", "accuracy"):
                mean = n @ [line[metric] for line in lines.values()] / n.sum()
                assert mean == pytest.approx(whole[metric]["by_seed"][0], rel=1e-9)
            bits = num_bytes @ [line["bits_per_byte"] for line in lines.values()]
            wanted = whole["bits_per_byte"]["by_seed"][0]
            assert bits / num_bytes.sum() == pytest.approx(wanted, rel=1e-4)


def test_every_number_follows_from_the_stored_part(built_in, text, tmp_path):
    subject = make_subject(built_in[1])
    how = {"measurements": [MLMQuality(text)], "seed": 0, "out_dir": tmp_path, "max_length": 64}
    first = evaluate(subject.model, subject.tokenizer, **how)
    subject.model.forward = None  # asked of the files
    again = evaluate(subject.model, subject.tokenizer, **how)
    assert again.scores == first.scores
    assert again.details == first.details
    assert again.details["mlm_quality"]["notes"]["whole_word_mask"].count("bits per byte") == 1


def test_answers_equal_a_forward_pass_of_the_masked_row(built_in, text):
    """Every stored log-probability, recomputed from the row with its masks, alone in its batch."""
    subject = make_subject(built_in[1], init_std=0.3)
    part, _ = measured(subject, text)
    pieces = cut_in_pieces(subject.tokenizer, text, max_length=128)
    table = {name: np.array(values) for name, values in part.table.items()}
    subject.model.eval()
    for split in ("token_mask", "whole_word_mask"):
        here = np.flatnonzero(table["split"] == split)
        rows = np.array([int(table["example_id"][i].split(":")[0]) for i in here])
        places = np.array([int(table["example_id"][i].split(":")[1]) + 1 for i in here])
        for row in np.unique(rows)[:6]:
            ids = pieces.rows.input_ids[
                pieces.rows.starts[row] : pieces.rows.starts[row + 1]
            ].copy()
            asked, lines = places[rows == row], here[rows == row]
            assert (ids[asked] == table["label"][lines]).all()
            ids[asked] = subject.tokenizer.mask_token_id
            batch = collate(
                ids, np.array([len(ids)]), predict_positions=asked, labels=table["label"][lines]
            )
            with torch.no_grad():
                found = subject.model(batch).mlm_logits.log_softmax(-1).numpy()
            own = found[np.arange(len(asked)), table["label"][lines]]
            np.testing.assert_allclose(table["log_probability"][lines], own, atol=1e-4)
            assert (found.argmax(1) == table["prediction"][lines]).all()


def test_masked_words_are_the_same_for_every_tokenizer(tokenizers, text):
    chosen = np.flatnonzero(chosen_words(text))
    assert 0.12 < len(chosen) / text.num_words < 0.18
    seen = []
    for tokenizer in tokenizers:
        part, result = measured(make_subject(tokenizer), text)
        words = {
            number: (word, band, tag)
            for number, word, band, tag, split in zip(
                *(part.table[name] for name in ("word_number", "word", "band", "tag", "split")),
                strict=True,
            )
            if split == "whole_word_mask"
        }
        assert sorted(words) == chosen.tolist()
        details = result.details["mlm_quality"]
        assert details["truncated_tokens"] == details["unknown_pieces"] == 0
        seen.append((words, details["breakdown"]["whole_word_mask"]))
    assert seen[0][0] == seen[1][0]
    by_band = [breakdown["frequency_band"] for _, breakdown in seen]
    assert {b: line["bytes"] for b, line in by_band[0].items()} == pytest.approx(
        {b: line["bytes"] for b, line in by_band[1].items()}
    )
    letters = seen[1][1]["pieces_of_word"]
    assert letters["4+"]["n"] > seen[0][1]["pieces_of_word"].get("4+", {"n": 0})["n"]


def test_whole_words_are_hidden_whole_and_bytes_are_those_of_the_words(tokenizers, text):
    part, _ = measured(make_subject(tokenizers[1]), text)
    table = part.table
    lines = [i for i, split in enumerate(table["split"]) if split == "whole_word_mask"]
    counts = Counter(table["word_number"][i] for i in lines)
    assert all(table["pieces"][i] == counts[table["word_number"][i]] for i in lines)
    total = sum(table["bytes"][i] for i in lines)
    words = {table["word_number"][i]: table["word"][i] for i in lines}
    assert total == pytest.approx(sum(len(word.encode()) for word in words.values()))


def test_rows_of_other_lengths_hide_the_same_words(built_in, text):
    other = from_corpus(built_in[0], num_words=1_500, words_per_row=12, seed=0)
    assert other.num_words == text.num_words
    assert (chosen_words(other) == chosen_words(text)).all()
    assert len(other.rows) > len(text.rows)
    assert other.hash() != text.hash()


def test_short_rows_answer_the_same_words_as_long_ones(tokenizers, text):
    for max_length in (24, 128):
        setup = Setup(0, FinetuneSettings(max_length=max_length), 1, Path())
        part = MLMQuality(text).measure(make_subject(tokenizers[1]), setup, 0, lambda *done: None)
        asked = zip(part.table["word_number"], part.table["split"], strict=True)
        words = {number for number, split in asked if split == "whole_word_mask"}
        assert words == set(np.flatnonzero(chosen_words(text)).tolist())
        assert part.facts["unanswered_words"] == 0
        assert (part.facts["rows_split"] > 0) == (max_length == 24)


def test_a_causal_model_is_asked_for_the_next_token_under_its_own_name(built_in, text):
    subject = make_subject(built_in[1], causal=True, init_std=0.3)
    part, result = measured(subject, text)
    assert set(result.scores) == {
        "mlm_quality/clm/loss", "mlm_quality/clm/accuracy", "mlm_quality/clm/bits_per_byte",
    }  # fmt: skip
    details = result.details["mlm_quality"]
    assert details["metrics"]["mlm_quality/clm/loss"]["n"] == details["pieces"]
    pieces = cut_in_pieces(subject.tokenizer, text, max_length=64)
    ids = pieces.rows.input_ids[: pieces.rows.starts[1]]
    for place in (1, 2, len(ids) - 2):
        batch = collate(ids[:place], np.array([place]), predict_positions=[place - 1],
                        labels=ids[[place]])  # fmt: skip
        with torch.no_grad():
            own = subject.model.eval()(batch).mlm_logits.log_softmax(-1)[0, ids[place]]
        assert part.table["log_probability"][place - 1] == pytest.approx(float(own), abs=1e-4)


def test_tagged_files_give_parts_of_speech(built_in, tmp_path):
    folder = tmp_path / "mine"
    folder.mkdir()
    sentence = ["the", "cat", "is", "un", "happy", "."]
    rows = [{"tokens": sentence, "upos": ["D", "N", "V", "P", "A", "."]}] * 40
    (folder / "validation.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (folder / "train.jsonl").write_text(json.dumps({"tokens": ["the", "the"], "upos": ["D", "D"]}))
    definition = {"kind": "mlm_quality", "name": "mine"}
    found = kinds.load(definition, path=tmp_path)
    assert found.text.rows[0][0].bands == ["rank 1-100", *["unseen"] * 5]
    result = evaluate(
        make_subject(built_in[1]).model, built_in[1], measurements=[found], seed=0,
        out_dir=tmp_path / "out", max_length=64,
    )  # fmt: skip
    assert "mine/whole_word_mask/bits_per_byte" in result.scores
    table = result.details["mine"]["breakdown"]["whole_word_mask"]["part_of_speech"]
    assert set(table) <= {"D", "N", "V", "P", "A", "."}
    with pytest.raises(ValueError, match="there is no test.jsonl"):
        kinds.load({**definition, "split": "test"}, path=tmp_path)
    with pytest.raises(ValueError, match="lists of equal length in words"):
        kinds.load({**definition, "token_column": "words"}, path=tmp_path)
    with pytest.raises(ValueError, match="give evaluation.path=FOLDER"):
        kinds.load(definition)
    with pytest.raises(ValueError, match="unknown keys"):
        kinds.load({**definition, "columns": "x"}, path=tmp_path)


def test_the_switch_adds_the_measurement_of_the_corpus(built_in, tmp_path):
    from ablate.config.compose import compose_settings
    from ablate.config.rules import resolve
    from ablate.run.measurements import measurements

    common = ["evaluation=none", "corpus.num_documents=300", "corpus.validation_fraction=0.1"]
    assert measurements(resolve(compose_settings(common)), tmp_path, built_in[0]) == []
    settings = resolve(compose_settings([*common, "evaluation.mlm_quality=true"]))
    (found,) = measurements(settings, tmp_path, built_in[0])
    assert found.name == "mlm_quality"
    assert found.text.facts["words_per_row"] == settings.input_format.max_length // 3
    assert {tag for row in found.text.rows for segment in row for tag in segment.tags} > {"noun"}
