"""FAULTS B01 to B04, with their own numbers: empty rows, words, repeated masks, conditional shares.

B05 to B08 (boundaries, remainders, pairs) are in test_rows, test_packing and test_pairs.
"""

import numpy as np
import pytest
import tokenizers
import torch
from scipy.stats import binom
from tokenizers import decoders, models, pre_tokenizers

from ablate.inputs.formats import plan_epoch
from ablate.inputs.masked_rows import MaskedRows
from ablate.inputs.masking import MaskingPolicy
from ablate.inputs.steps import StepDataset, StepLoader, StepSequence
from ablate.objectives.mlm import masked_lm_loss
from ablate.tokens.tokenizer import load


def plan_documents(store, length, epoch=0):
    return plan_epoch(
        store, np.arange(len(store.document_starts) - 1), input_format="doc_sentences",
        max_length=length, seed=0, epoch=epoch, short_seq_prob=0.0,
    )  # fmt: skip


def test_b01_a_row_without_a_prediction_weighs_nothing():
    """Rows with losses [1, 3] and [] average 2.0; the empty one alone is 0 with zero gradients."""
    costs = torch.tensor([1.0, 3.0])
    logits = torch.stack([torch.zeros(2), torch.log(torch.expm1(costs))], 1)
    weight = torch.ones(2, requires_grad=True)
    full = masked_lm_loss(logits * weight, torch.zeros(2, dtype=torch.int64))
    empty = masked_lm_loss(torch.zeros(0, 2) * weight, torch.zeros(0, dtype=torch.int64))
    assert (float(empty.loss_sum.detach()), empty.count) == (0.0, 0)
    total = float((full.loss_sum + empty.loss_sum).detach())
    assert total / (full.count + empty.count) == pytest.approx(2.0)
    empty.loss_sum.backward()
    assert torch.equal(weight.grad, torch.zeros(2))


def test_b01_share_of_empty_rows_under_both_rules(make_store, toy_tokenizer):
    store = make_store([[[5, 6, 7, 8]]] * 20_000)
    plan = plan_documents(store, 8)
    for rule, share in (("bernoulli", 0.85**4), ("exact", 0.0)):
        source = MaskedRows(
            store, toy_tokenizer, MaskingPolicy(budget_rule=rule), max_length=8, seed=0
        )
        counts = source.batch(plan, np.arange(20_000), epoch=0)[1]
        low, high = binom.ppf([5e-7, 1 - 5e-7], 20_000, share) if share else (0, 0)
        assert low <= counts.rows_without_prediction <= high


def save(built, folder):
    built.save(str(folder / "tokenizer.json"))
    return load(folder / "tokenizer.json")


def wordpiece_style(folder):
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "un", "##believ", "##able", "cat", "##s"]
    built = tokenizers.Tokenizer(
        models.WordPiece({w: i for i, w in enumerate(words)}, unk_token="[UNK]")
    )
    built.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    built.add_special_tokens(words[:5])
    return save(built, folder)


def byte_level_style(folder):
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    merges = ["u n", "b e", "l i", "be li", "e v", "beli ev", "a b", "l e", "ab le", "c a", "ca t"]
    merges.append("Ġ cat")
    entries = [*special, *"unbelivacts", "Ġ", *(m.replace(" ", "") for m in merges)]
    vocabulary = {w: i for i, w in enumerate(dict.fromkeys(entries))}
    built = tokenizers.Tokenizer(models.BPE(vocabulary, [tuple(m.split()) for m in merges]))
    built.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    built.decoder = decoders.ByteLevel()
    built.add_special_tokens(special)
    return save(built, folder)


def metaspace_style(folder):
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    pieces = ["▁un", "believ", "able", "▁cat", "s", "▁", *"unbeliavct"]
    scores = [(piece, 0.0) for piece in special] + [(piece, -1.0) for piece in pieces[:5]]
    scores += [(piece, -10.0) for piece in dict.fromkeys(pieces[5:])]
    built = tokenizers.Tokenizer(models.Unigram(scores, unk_id=3))
    built.pre_tokenizer = pre_tokenizers.Metaspace()
    built.add_special_tokens(special)
    return save(built, folder)


@pytest.mark.parametrize("style", [wordpiece_style, byte_level_style, metaspace_style])
def test_b02_words_are_whole_in_every_style_of_tokenizer(style, make_store, tmp_path):
    tokenizer = style(tmp_path)
    encoded = tokenizer.encode_texts(["unbelievable cats"])
    assert np.flatnonzero(encoded.word_starts).tolist() == [0, 3], encoded.ids
    assert len(encoded.ids) == 5
    store = make_store([[encoded.ids.tolist()]], word_starts=encoded.word_starts)
    plan = plan_documents(store, 8)
    policy = MaskingPolicy("whole_word", mask_rate=0.5)
    source = MaskedRows(store, tokenizer, policy, max_length=8, seed=0)
    seen = set()
    for epoch in range(1000):
        batch, counts = source.batch(plan, np.array([0]), epoch=epoch)
        seen.add(tuple(batch.predict_positions.tolist()))
        assert counts.words_whole == counts.words_touched
    assert seen == {(), (1, 2, 3), (4, 5), (1, 2, 3, 4, 5)}


def test_b03_masks_never_repeat_over_batches_epochs_and_workers(make_store, toy_tokenizer):
    store = make_store([[[5, 6, 7, 8, 9, 5, 6, 7, 8, 9]]] * 8)

    def patterns(workers):
        steps = StepSequence(
            lambda epoch: plan_documents(store, 12, epoch),
            clock="steps",
            amount=8,
            global_batch_size=2,
        )
        source = MaskedRows(
            store, toy_tokenizer, MaskingPolicy(mask_rate=0.5), max_length=12, seed=7
        )
        data = StepDataset(steps, source, micro_batch_size=2, rank=0, world=1)
        items = StepLoader(data, num_workers=workers)
        return [tuple(item.micro_batches[0].predict_positions.tolist()) for item in items]

    found = patterns(0)
    assert len(set(found)) == 8  # 4 batches x 2 epochs, all different
    assert patterns(1) == patterns(2) == patterns(0) == found
    assert not np.isin(store.tokens, [4]).any()


def test_b04_conditional_shares_and_ids_of_random_draws(make_store, toy_tokenizer):
    store = make_store([[[5] * 10]] * 10_000)
    plan = plan_documents(store, 12)
    source = MaskedRows(store, toy_tokenizer, MaskingPolicy(), max_length=12, seed=1)
    batch, counts = source.batch(plan, np.arange(10_000), epoch=0)
    assert counts.selected == pytest.approx(15_000, abs=452)
    assert counts.masked / counts.selected == pytest.approx(0.8, abs=0.0131)
    assert counts.random / counts.selected == pytest.approx(0.1, abs=0.0098)
    assert counts.kept / counts.selected == pytest.approx(0.1, abs=0.0098)
    assert counts.random / (counts.random + counts.kept) == pytest.approx(0.5, abs=0.04)
    seen = batch.input_ids[batch.predict_positions].numpy()
    assert (seen == 5).sum() == counts.kept + counts.random_same
    drawn = np.bincount(seen[seen != 4], minlength=20)
    assert drawn[:5].sum() == 0
    for draws in drawn[6:]:
        low, high = binom.ppf([5e-7, 1 - 5e-7], counts.random, 1 / 15)
        assert low <= draws <= high
