"""Pseudo-log-likelihood against one forward pass a token; ties, mirrors, truncation."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from ablate import rng
from ablate.encoder.backends import resolve
from ablate.encoder.config import EncoderConfig
from ablate.encoder.heads import MaskedLanguageModel
from ablate.encoder.initialization import initialize
from ablate.evaluation.encoding import encode
from ablate.evaluation.minimal_pairs import _first_with_equal_ids, score_pairs
from ablate.evaluation.pair_likelihood import log_likelihood, pseudo_log_likelihood, questions
from ablate.inputs.batches import collate

WORDS = [*"abcdef"]


class WordTokenizer:
    """One id a word, case ignored; stands for a trained tokenizer."""

    pad_token_id, unk_token_id, cls_token_id, sep_token_id, mask_token_id = range(5)
    knows_words = True

    def encode_batch(self, texts):
        return [SimpleNamespace(ids=[5 + WORDS.index(w) for w in t.lower().split()]) for t in texts]


class LetterTokenizer(WordTokenizer):
    """One id a letter: words have as many pieces as letters."""

    def encode_batch(self, texts):
        found = []
        for text in texts:
            words = text.split()
            ids = [5 + WORDS.index(letter) for word in words for letter in word]
            starts = [place == 0 for word in words for place in range(len(word))]
            found.append(SimpleNamespace(ids=ids, word_starts=starts))
        return found


def make_model(**options):
    config = EncoderConfig(
        vocab_size=5 + len(WORDS),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=16,
        init_std=0.3,
        **options,
    )
    backend = resolve("auto", device="cpu", dtype=torch.float32, max_length=16)
    model = MaskedLanguageModel(config, backend)
    initialize(model, config, lambda name: rng.torch_seed(0, "init", name))
    return model


def pair(good, bad, paradigm="p"):
    return {"sentence_good": good, "sentence_bad": bad, "paradigm": paradigm}


def one_at_a_time(model, ids):
    """The definition: mask each token alone, add up log p of the true one."""
    total = 0.0
    model.eval()
    for place in range(1, len(ids) - 1):
        shown = np.array(ids)
        shown[place] = 4
        batch = collate(
            shown, np.array([len(ids)]), predict_positions=np.array([place]), labels=ids[[place]]
        )
        with torch.no_grad():
            total += float(model(batch).mlm_logits.log_softmax(-1)[0, ids[place]])
    return total


@pytest.mark.parametrize("tokens_per_batch", [1, 40, 10_000])
def test_likelihood_equals_masking_one_token_at_a_time(tokens_per_batch):
    model = make_model()
    rows = encode(WordTokenizer(), [("a b c",), ("d",), ("c a f e b",), ("b b",)], max_length=16)
    found = pseudo_log_likelihood(model, rows, mask_token_id=4, tokens_per_batch=tokens_per_batch)
    bounds = zip(rows.starts[:-1], rows.starts[1:], strict=True)
    wanted = [one_at_a_time(model, rows.input_ids[begin:end]) for begin, end in bounds]
    np.testing.assert_allclose(found, wanted, atol=1e-4)


def test_a_model_that_likes_a_word_prefers_the_sentence_with_it():
    model = make_model()
    with torch.no_grad():
        model.mlm_head.decoder_bias[5] = 50.0  # the word a
    pairs = [pair("a b", "c b", "one"), pair("c b", "a b", "two"), pair("d a", "d e", "one")]
    found = score_pairs(model, WordTokenizer(), pairs)
    none = {"ties": 0, "not_finite": 0, "standard_error": 0.0}
    assert found.by_paradigm() == {
        "one": {**none, "accuracy": 1.0, "n": 2},
        "two": {**none, "accuracy": 0.0, "n": 1},
    }
    assert found.accuracy == 0.5  # the mean over paradigms, not over pairs (2 / 3)
    assert found.ids == [0, 1, 2]


def test_sentences_with_the_same_ids_tie_and_count_one_half():
    found = score_pairs(make_model(), WordTokenizer(), [pair("a b c", "A b C"), pair("a", "a")])
    assert found.wins.tolist() == [0.5, 0.5]
    assert found.num_ties == 2
    assert found.accuracy == 0.5


def test_rows_with_the_same_ids_share_one_value():
    """Rounding differs between batches: two equal rows must not be compared by their own sums."""
    rows = encode(WordTokenizer(), [("a b",), ("c",), ("A B",), ("b a",)], max_length=8)
    assert _first_with_equal_ids(rows).tolist() == [0, 1, 0, 3]


def test_an_untrained_model_and_an_empty_sentence_give_numbers():
    pairs = [pair("a b", ""), pair("f e d c", "c d e f")]
    found = score_pairs(make_model(), WordTokenizer(), pairs)
    assert np.isfinite([*found.good, *found.bad]).all()
    assert found.bad[0] == 0.0


def test_mirrored_pairs_score_one_half_whatever_the_preference():
    pairs = [pair("a b", "c b"), pair("c b", "a b")]
    assert score_pairs(make_model(), WordTokenizer(), pairs).accuracy == 0.5


def test_cut_tokens_are_counted():
    found = score_pairs(make_model(), WordTokenizer(), [pair("a " * 9, "b " * 8)], max_length=8)
    assert found.truncated_tokens == 3 + 2


def test_mode_backend_and_random_state_are_as_before():
    model = make_model().train()
    state, backend = torch.random.get_rng_state(), model.encoder.backend
    calls = []
    pairs = [pair("a b", "b a")]
    score_pairs(model, WordTokenizer(), pairs, on_progress=lambda *done: calls.append(done))
    assert model.training
    assert model.encoder.backend is backend
    assert torch.equal(state, torch.random.get_rng_state())
    assert calls[-1] == (4, 4)  # masked rows


def test_a_pair_without_a_sentence_is_refused():
    with pytest.raises(ValueError, match=r"minimal pair 0 has no \['sentence_bad'\]"):
        score_pairs(make_model(), WordTokenizer(), [{"sentence_good": "a", "paradigm": "p"}])
    with pytest.raises(ValueError, match="no minimal pairs"):
        score_pairs(make_model(), WordTokenizer(), [])


def one_row(model, shown, place, label):
    batch = collate(
        np.array(shown), np.array([len(shown)]), predict_positions=[place], labels=[label]
    )
    with torch.no_grad():
        return float(model(batch).mlm_logits.log_softmax(-1)[0, label])


@pytest.mark.parametrize("tokens_per_batch", [1, 10_000])
def test_within_word_correction_by_hand(tokens_per_batch):
    """`ab c`: a is asked with b hidden too, b with a shown, c as before; nothing crosses words."""
    model = make_model().eval()
    cls, sep, mask, a, b, c = 2, 3, 4, 5, 6, 7
    wanted = (
        one_row(model, [cls, mask, mask, c, sep], 1, a)
        + one_row(model, [cls, a, mask, c, sep], 2, b)
        + one_row(model, [cls, a, b, mask, sep], 3, c)
    )
    pairs = [pair("ab c", "a b c")]
    how = {"tokens_per_batch": tokens_per_batch}
    corrected = score_pairs(model, LetterTokenizer(), pairs, likelihood="within_word_l2r", **how)
    plain = score_pairs(model, LetterTokenizer(), pairs, **how)
    assert corrected.good[0] == pytest.approx(wanted, abs=1e-5)
    assert corrected.good[0] != pytest.approx(plain.good[0], abs=1e-3)


def test_within_word_correction_changes_nothing_where_words_have_one_piece():
    model, pairs = make_model(), [pair("a b c", "c b a"), pair("d", "e f")]
    corrected = score_pairs(model, LetterTokenizer(), pairs, likelihood="within_word_l2r")
    plain = score_pairs(model, LetterTokenizer(), pairs)
    np.testing.assert_allclose(corrected.good, plain.good, atol=1e-6)
    np.testing.assert_allclose(corrected.bad, plain.bad, atol=1e-6)


def test_within_word_correction_of_a_cut_word_stops_where_the_row_does():
    pairs = [pair("abcdefabc", "ab")]
    found = score_pairs(
        make_model(), LetterTokenizer(), pairs, likelihood="within_word_l2r", max_length=8
    )
    assert np.isfinite(found.good).all()
    assert found.truncated_tokens == 3


def test_within_word_correction_needs_words():
    blind = LetterTokenizer()
    blind.knows_words, blind.file = False, "tokenizer.json"
    with pytest.raises(ValueError, match="write likelihood: original"):
        score_pairs(make_model(), blind, [pair("a", "b")], likelihood="within_word_l2r")


def test_equal_masked_rows_are_run_once():
    """The sentences `a b c` and `a d c` differ in one token: hidden, they are one row."""
    rows = encode(WordTokenizer(), [("a b c",), ("a d c",)], max_length=8)
    asked = questions(rows, mask_token_id=4)
    assert len(asked) == 5
    assert len(asked.label) == 6
    shared = [u for u in range(5) if (asked.row == u).sum() == 2]
    assert len(shared) == 1
    here = asked.row == shared[0]
    assert sorted(asked.label[here]) == [6, 8]
    assert sorted(asked.owner[here]) == [0, 1]
    assert asked.first[shared[0]] == 2


def test_order_and_batches_of_the_pairs_do_not_matter():
    model = make_model()
    pairs = [pair("a b c", "a d c"), pair("f e", "e f"), pair("b b a d", "b b"), pair("c", "a")]
    found = score_pairs(model, WordTokenizer(), pairs)
    for tokens_per_batch in (1, 7, 10_000):
        other = score_pairs(model, WordTokenizer(), pairs[::-1], tokens_per_batch=tokens_per_batch)
        np.testing.assert_allclose(other.good[::-1], found.good, atol=1e-5)
        np.testing.assert_allclose(other.bad[::-1], found.bad, atol=1e-5)


def sum_by_hand(model, ids):
    """log p of each word given the words before it, each asked for in a row that ends there."""
    total = 0.0
    model.eval()
    for place in range(1, len(ids) - 1):
        batch = collate(
            ids[:place], np.array([place]), predict_positions=[place - 1], labels=ids[[place]]
        )
        with torch.no_grad():
            total += float(model(batch).mlm_logits.log_softmax(-1)[0, ids[place]])
    return total


@pytest.mark.parametrize("tokens_per_batch", [1, 12, 10_000])
def test_causal_likelihood_equals_a_sum_by_hand(tokens_per_batch):
    model = make_model(causal=True)
    texts = [("a b c",), ("d",), ("c a f e b",), ("",), ("b b",)]
    rows = encode(WordTokenizer(), texts, max_length=16)
    found = log_likelihood(model, rows, tokens_per_batch=tokens_per_batch)
    bounds = zip(rows.starts[:-1], rows.starts[1:], strict=True)
    wanted = [sum_by_hand(model, rows.input_ids[begin:end]) for begin, end in bounds]
    np.testing.assert_allclose(found, wanted, atol=1e-4)
    assert found[3] == 0.0


def test_pairs_of_a_causal_model_are_scored_by_its_likelihood():
    model = make_model(causal=True)
    found = score_pairs(model, WordTokenizer(), [pair("a b c", "c b a"), pair("d e", "e d")])
    texts = [("a b c",), ("d e",), ("c b a",), ("e d",)]
    wanted = log_likelihood(model, encode(WordTokenizer(), texts, max_length=128))
    np.testing.assert_allclose([*found.good, *found.bad], wanted, atol=1e-5)
