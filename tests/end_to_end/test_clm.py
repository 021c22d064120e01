"""The causal decoder twin: sees nothing later, pairs with its masked arm, learns, is scored."""

import json
import math
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from ablate import rng
from ablate.__main__ import main
from ablate.config.compose import compose_settings
from ablate.encoder.backends import Backend
from ablate.encoder.config import EncoderConfig
from ablate.encoder.heads import MaskedLanguageModel
from ablate.encoder.initialization import initialize, num_parameters
from ablate.inputs.batches import collate
from ablate.inputs.causal_rows import NextTokenRows
from ablate.inputs.formats import plan_epoch
from ablate.objectives.mlm import masked_lm_loss
from ablate.pretraining.optimizers import adamw

CLM = ["objective=clm", "encoder.causal=true"]
TINY = [
    "corpus.num_documents=100", "corpus.validation_fraction=0.1", "budget.amount=30000",
    "trainer.validation_rows=16", "trainer.num_validations=2", "trainer.threads=1",
    "trainer.log_every=5", "trainer.checkpoint_every=4", "trainer.progress_bar=false",
    "evaluation.tasks=[sentiment]", "evaluation.num_train_examples=32",
    "evaluation.num_validation_examples=16", "evaluation.pairs_per_paradigm=2", "evaluation.jobs=1",
    "evaluation.finetune.min_steps=2", "evaluation.finetune.num_epochs=1", "tracking=none",
]  # fmt: skip
HERE = [  # backend, kernel
    ("eager", "eager"), ("sdpa", "flash"), ("sdpa", "matmul"),
]  # fmt: skip


def model_of(corner, backend="sdpa", kernel="flash", **options):
    bodies = {
        "bert": {},
        "modernbert": {
            "norm_position": "pre", "position_embedding": "rope", "mlp": "glu",
            "global_attention_every_n": 2, "local_attention": 8, "final_norm": True,
        },
    }  # fmt: skip
    config = EncoderConfig(
        vocab_size=20, hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=32, max_position_embeddings=512, causal=True,
        **{"init_std": 0.2, **bodies[corner], **options},
    )  # fmt: skip
    model = MaskedLanguageModel(config, Backend(backend, kernel, "test"))
    initialize(model, config, lambda name: rng.torch_seed(0, "init", name))
    return model.eval()


def rows_of(*rows):
    """Every place but the last of each row asked for its successor, by hand."""
    ends = np.cumsum([len(row) for row in rows])
    places = np.array(sorted(set(range(ends[-1])) - set(ends - 1)))
    ids = np.concatenate(rows)
    return collate(
        ids, np.array([len(row) for row in rows]), predict_positions=places, labels=ids[places + 1]
    )


@pytest.mark.parametrize("length", [12, 450])  # 450: the window goes by blocks
@pytest.mark.parametrize(("backend", "kernel"), HERE)
@pytest.mark.parametrize("corner", ["bert", "modernbert"])
def test_a_prediction_does_not_change_when_later_tokens_do(corner, backend, kernel, length):
    model = model_of(corner, backend, kernel)
    random = np.random.default_rng(0)
    row, other = random.integers(5, 20, (2, length))
    changed = row.copy()
    changed[length // 2 :] = 5 + (changed[length // 2 :] - 4) % 15
    with torch.no_grad():
        before = model(rows_of(other, row, other[:7])).mlm_logits
        after = model(rows_of(other, changed, other[:7])).mlm_logits
    moved = (before - after).abs().amax(1) > 1e-6
    begin = length - 1  # the first row has one question fewer than tokens
    assert not moved[: begin + length // 2].any()
    assert moved[begin + length // 2 : 2 * begin].all()
    assert not moved[2 * begin :].any()


def test_an_untrained_model_knows_nothing_of_the_next_token():
    """A label that could be seen would start below ln V."""
    model = model_of("modernbert", init_std=0.02)
    random = np.random.default_rng(0)
    batch = rows_of(*random.integers(5, 20, (20, 30)))
    with torch.no_grad():
        part = masked_lm_loss(model(batch).mlm_logits, batch.labels)
    assert float(part.loss_sum) / part.count == pytest.approx(math.log(20), abs=0.05)


def counting_rows():
    """15 rows of 10 numbers, each the one before plus 1, from every first number."""
    starts = np.arange(0, 151, 10)
    numbers = [5 + (first + i) % 15 for first in range(15) for i in range(10)]
    store = SimpleNamespace(
        tokens=np.array(numbers, dtype=np.uint16), word_starts=np.ones(150, bool),
        sentence_starts=starts, document_starts=starts,
    )  # fmt: skip
    tokenizer = SimpleNamespace(
        vocab_size=20, cls_token_id=2, sep_token_id=3, special_ids=np.arange(5)
    )
    plan = plan_epoch(
        store, np.arange(15), input_format="doc_sentences", max_length=12, seed=0, epoch=0
    )
    return NextTokenRows(store, tokenizer).batch(plan, np.arange(plan.num_rows))[0]


def test_counting_is_learned_and_the_answer_is_the_next_number():
    """D9: with labels shifted twice the loss falls as well, and after 5 6 7 comes 9."""
    batch, model = counting_rows(), model_of("modernbert").train()
    optimizer = adamw(model, learning_rate=0.02, weight_decay=0.0, betas=(0.9, 0.98), eps=1e-6)
    for _ in range(80):
        part = masked_lm_loss(model(batch).mlm_logits, batch.labels)
        optimizer.zero_grad()
        (part.loss_sum / part.count).backward()
        optimizer.step()
    known = batch.input_ids[batch.predict_positions] != 2  # of [CLS] follows any number
    assert known.sum() == 135
    with torch.no_grad():
        part = masked_lm_loss(model(batch).mlm_logits[known], batch.labels[known])
        question = collate(np.array([2, 5, 6, 7]), np.array([4]), predict_positions=[3], labels=[8])
        answer = model.eval()(question).mlm_logits.argmax()
    assert float(part.loss_sum) / part.count < 0.1
    assert answer == 8


@pytest.mark.parametrize("encoder", ["bert", "modernbert"])
def test_twins_have_equal_parameters_and_equal_initial_weights(encoder, tmp_path):
    from ablate.run.arm import prepare
    from ablate.run.models import build_model

    common = [*TINY, f"encoder={encoder}", f"paths.runs_dir={tmp_path}", "seed=3"]
    masked, causal = (prepare(compose_settings([*common, *more])) for more in ([], CLM))
    ours, theirs = build_model(causal), build_model(masked)
    assert num_parameters(ours) == num_parameters(theirs)
    assert ours.state_dict().keys() == theirs.state_dict().keys()
    for name, weight in theirs.state_dict().items():
        assert torch.equal(ours.state_dict()[name], weight), name
    assert causal.pretraining != masked.pretraining


@pytest.fixture
def ablate(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def run(*words, runs="runs"):
        monkeypatch.setattr(sys, "argv", ["ablate", *TINY, *words, f"paths.runs_dir={runs}"])
        code = main()
        found = sorted(tmp_path.glob(f"{runs}/single/*/record.json"))
        return code, [json.loads(path.read_text()) for path in found], found

    return run


class KilledError(Exception):
    pass


def test_a_causal_arm_runs_resumes_and_says_what_it_is(ablate, monkeypatch, capsys):
    import yaml

    from ablate.pretraining import pretrain as fits

    code, (record,), (path,) = ablate(*CLM)
    assert code == 0
    scores = record["scores"]
    assert [name for name in scores if name.startswith("val/")] == [
        "val/clm/loss", "val/clm/accuracy", "val/clm/bits_per_byte", "val/clm/trigram_accuracy",
        "val/clm/unigram_accuracy",
    ]  # fmt: skip
    assert scores["val/clm/trigram_accuracy"] > scores["val/clm/unigram_accuracy"]
    assert 0 < scores["val/clm/loss"] < math.log(record["data"]["vocab_size"])
    assert {"synthetic/sentiment/accuracy", "synthetic/minimal_pairs/accuracy"} <= set(scores)
    achieved = record["derived"]["achieved"]
    assert (achieved["mask_rate"], achieved["prediction_rate"]) == (0.0, 1.0)
    assert record["derived"]["last_window"]["train/clm_loss"] > 0
    stored = yaml.safe_load((path.parent / "config.yaml").read_text())
    assert stored["evaluation"]["finetune"]["pooling"] == "last_mean"
    shown = capsys.readouterr().out
    assert "the next token predicted for 100.0%" in shown
    assert "left-sided" in shown  # the table may wrap after it

    class Spy(fits.Throughput):
        def on_train_batch_start(self, trainer, module, item, index):
            if trainer.global_step == 10:
                raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr(fits, "Throughput", Spy)
        assert ablate(*CLM, runs="killed")[0] == 1
    code, (again,), _ = ablate(*CLM, runs="killed")
    assert code == 0
    assert again["timings"]["pretraining"]["resumed_from_step"] == 8
    assert again["scores"] == scores


def test_bad_combinations_give_one_message(ablate, capsys):
    for words, says in (
        (["objective=clm"], "objective=clm encoder.causal=true"),
        (["encoder.causal=true"], "objective=clm encoder.causal=true"),
        ([*CLM, "nsp=true"], "type nsp=false"),
        ([*CLM, "masking=all_mask"], "masking.mask_replace_prob=1.0 has no effect"),
        ([*CLM, "evaluation.finetune.pooling=cls"], "pooling=last_mean"),
    ):
        code, records, _ = ablate(*words)
        message = capsys.readouterr().err
        assert (code, records) == (2, []), message
        assert says in message
        assert len(message.splitlines()) == 1


def test_fine_tuning_a_causal_encoder_on_its_first_token_is_refused():
    from ablate.evaluation.classification import _check_pooling
    from ablate.evaluation.measurement import Subject
    from ablate.evaluation.settings import FinetuneSettings

    subject = Subject(model_of("bert"), None, "weights")
    with pytest.raises(ValueError, match="pooling=last_mean"):
        _check_pooling(subject, FinetuneSettings())
