"""Rows of pieces that lose no word, and words that a tokenizer cannot be asked, counted."""

from pathlib import Path

import numpy as np
import torch

from ablate import rng
from ablate.encoder.backends import resolve
from ablate.encoder.config import EncoderConfig
from ablate.encoder.heads import MaskedLanguageModel
from ablate.encoder.initialization import initialize
from ablate.evaluation import mlm_predictions
from ablate.evaluation.held_out_text import from_sentences
from ablate.evaluation.measurement import EvaluationResult, Setup, Subject
from ablate.evaluation.mlm_predictions import chosen_words, cut_in_pieces
from ablate.evaluation.mlm_quality import MLMQuality
from ablate.evaluation.settings import FinetuneSettings


class Letters:
    """A piece a letter; `?` is unknown."""

    cls_token_id, sep_token_id, unk_token_id, mask_token_id = 2, 3, 1, 4
    special_ids = np.arange(5)
    vocab_size = 31

    def encode_with_offsets(self, texts):
        found = []
        for text in texts:
            places = [i for i, letter in enumerate(text) if letter != " "]
            ids = np.array([1 if text[i] == "?" else 5 + ord(text[i]) - 97 for i in places])
            offsets = np.array([(i, i + 1) for i in places])
            found.append(type("Located", (), {"ids": ids, "offsets": offsets}))
        return found


ROW = from_sentences([["ab", "?", "cde", "f"]], [["x", "y", "z", "x"]], {}, facts={})


def test_a_row_that_is_too_long_goes_on_in_another():
    """7 pieces, 4 places beside [CLS] and [SEP]: no word is cut or lost."""
    pieces = cut_in_pieces(Letters(), ROW, max_length=6)
    assert pieces.rows.input_ids.tolist() == [2, 5, 6, 1, 3, 2, 7, 8, 9, 10, 3]
    assert pieces.word.tolist() == [-1, 0, 0, 1, -1, -1, 2, 2, 2, 3, -1]
    facts = pieces.facts
    assert (facts["rows"], facts["rows_split"], facts["truncated_tokens"]) == (2, 1, 0)
    assert facts["words_without_pieces"] == 0
    whole = cut_in_pieces(Letters(), ROW, max_length=9)
    assert (whole.facts["rows"], whole.facts["rows_split"]) == (1, 0)


def test_words_that_fit_no_row_and_unknown_pieces_are_counted():
    pieces = cut_in_pieces(Letters(), ROW, max_length=4)
    assert pieces.rows.input_ids.tolist() == [2, 5, 6, 3, 2, 1, 3, 2, 10, 3]
    assert pieces.asked.sum() == 3
    assert pieces.facts["truncated_tokens"] == 3
    assert pieces.facts["unknown_pieces"] == 1
    assert pieces.facts["words_without_pieces"] == 1
    places = mlm_predictions.pieces_of_words(pieces, np.array([True, True, True, False]))
    assert places.tolist() == [1, 2]
    assert pieces.facts["chosen_words_with_unknown_pieces"] == 1
    assert pieces.facts["chosen_words_without_pieces"] == 1
    assert (pieces.facts["unanswered_words"], pieces.facts["chosen_words"]) == (2, 3)
    none = cut_in_pieces(Letters(), from_sentences([["abc"]], [["x"]], {}, facts={}), max_length=4)
    assert none.rows.input_ids.tolist() == [2, 3]


def test_unanswered_words_are_flagged_and_n_counts_words():
    words = [*"abcdefgh", "abc", "?x"] * 40
    text = from_sentences([words[i : i + 10] for i in range(0, 400, 10)], [[""] * 10] * 40, {},
                          facts={})  # fmt: skip
    config = EncoderConfig(
        vocab_size=Letters.vocab_size, hidden_size=16, num_hidden_layers=1,
        num_attention_heads=2, intermediate_size=32, max_position_embeddings=32,
    )  # fmt: skip
    backend = resolve("auto", device="cpu", dtype=torch.float32, max_length=32)
    model = MaskedLanguageModel(config, backend)
    initialize(model, config, lambda name: rng.torch_seed(0, "init", name))
    setup, result = Setup(0, FinetuneSettings(max_length=32), 1, Path()), EvaluationResult()
    measurement = MLMQuality(text)
    part = measurement.measure(Subject(model, Letters(), "w"), setup, 0, lambda *done: None)
    measurement.add_to(result, [part], setup)
    details = result.details["mlm_quality"]
    chosen = np.flatnonzero(chosen_words(text))
    unknown = sum(words[i] == "?x" for i in chosen)
    assert 0 < unknown == details["unanswered_words"]
    entry = details["metrics"]["mlm_quality/whole_word_mask/loss"]
    assert entry["flags"] == [f"{unknown} of {len(chosen)} words unanswered"]
    assert entry["n"] == len(chosen) - unknown < entry["pieces"]
    assert details["metrics"]["mlm_quality/token_mask/loss"]["flags"] == [None]
    assert "same words for every arm" not in details["notes"]["whole_word_mask"]
