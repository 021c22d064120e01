"""`python -m ablate encoder=hf`: tiny runs from the command line to the record."""

import json
import sys

import pytest
import torch
from safetensors.torch import load_file

from ablate.__main__ import main
from ablate.config.compose import compose_settings
from ablate.config.rules import resolve
from ablate.pretraining import pretrain as fits

TINY = [
    "corpus.num_documents=200", "corpus.validation_fraction=0.1", "budget.clock=steps",
    "budget.amount=6", "trainer.log_every=2", "trainer.validation_rows=16",
    "trainer.num_validations=2", "trainer.threads=1", "trainer.progress_bar=false",
    "evaluation.tasks=[acceptability,similarity]", "evaluation.num_train_examples=32",
    "evaluation.num_validation_examples=16", "evaluation.pairs_per_paradigm=2", "evaluation.jobs=1",
    "evaluation.finetune.min_steps=2", "evaluation.finetune.num_epochs=1", "tracking=none",
]  # fmt: skip
SIZES = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48,
}  # fmt: skip
FILES = {
    "bert": {"model_type": "bert", **SIZES, "vocab_size": 30_522},
    "roberta": {"model_type": "roberta", **SIZES, "type_vocab_size": 1},
    "albert": {"model_type": "albert", **SIZES, "embedding_size": 16},
    "electra": {"model_type": "electra", **SIZES, "embedding_size": 16},
    "deberta": {
        "model_type": "deberta-v2", **SIZES, "relative_attention": True, "position_buckets": 8,
        "pos_att_type": ["p2c", "c2p"], "share_att_key": True, "norm_rel_ebd": "layer_norm",
        "position_biased_input": False,
    },
    "mobilebert": {
        "model_type": "mobilebert", **SIZES, "embedding_size": 16, "intra_bottleneck_size": 16,
    },
    "distilbert": {
        "model_type": "distilbert", "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48,
    },
}  # fmt: skip


@pytest.fixture
def ablate(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, values in FILES.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(values))

    def run(name, *overrides):
        words = [*TINY, "encoder=hf", f"encoder.hf_config={name}.json", *overrides]
        monkeypatch.setattr(sys, "argv", ["ablate", *words])
        code = main()
        records = tmp_path.glob("runs/single/*/record.json")
        return code, {path.parent.name: json.loads(path.read_text()) for path in records}

    return run


@pytest.mark.parametrize(
    ("name", "precision"),
    [(name, "bf16" if name in ("bert", "electra", "mobilebert") else "fp32") for name in FILES],
)
def test_a_run_trains_evaluates_and_records(ablate, name, precision, capsys):
    options = ["nsp=true", f"trainer.precision={precision}"]
    code, records = ablate(name, *options)
    assert code == 0, capsys.readouterr().err
    (record,) = records.values()
    assert record["status"] == "complete"
    assert {
        "val/token_mask/loss", "synthetic/acceptability/mcc", "synthetic/minimal_pairs/accuracy",
    } <= set(record["scores"])  # fmt: skip
    encoder = record["derived"]["encoder"]
    assert encoder["class"].lower().startswith(name)
    assert encoder["overridden"]["vocab_size"][1] == record["data"]["vocab_size"]
    assert record["derived"]["parameters"] > 10_000
    assert record["machine"]["kernel"] == record["machine"]["attention_backend"]
    assert record["machine"]["kernel"] == f"hf:{encoder['attention']}"
    assert record["derived"]["forward_flops_per_token"] > 10_000
    capsys.readouterr()
    assert ablate(name, *options)[1] == records
    assert "This run is complete" in capsys.readouterr().out


class KilledError(Exception):
    """Stands for a kill."""


def test_a_killed_run_continues_bit_for_bit(ablate, monkeypatch, tmp_path):
    options = ["evaluation=none", "trainer.checkpoint_every=2", "trainer.micro_batch_size=8"]

    def weights():
        (path,) = tmp_path.glob("runs/pretrained/*/model.safetensors")
        return load_file(path)

    class Spy(fits.Throughput):
        def on_train_batch_start(self, trainer, module, item, index):
            if trainer.global_step == 5:
                raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr(fits, "Throughput", Spy)
        assert ablate("deberta", *options)[0] == 1
    code, records = ablate("deberta", *options)
    (record,) = records.values()
    assert (code, record["timings"]["pretraining"]["resumed_from_step"]) == (0, 4)
    resumed = weights()
    code, records = ablate("deberta", *options, "force=true")
    assert next(iter(records.values()))["timings"]["pretraining"]["resumed_from_step"] in (0, None)
    assert all(torch.equal(value, resumed[name]) for name, value in weights().items())


def test_the_file_decides_the_run_and_not_its_name(ablate, tmp_path):
    ablate("bert", "evaluation=none")
    (tmp_path / "copy.json").write_text(
        json.dumps({**FILES["bert"], "architectures": ["BertForMaskedLM"], "pad_token_id": 0})
    )
    assert len(ablate("copy", "evaluation=none")[1]) == 1
    (tmp_path / "copy.json").write_text(json.dumps({**FILES["bert"], "hidden_act": "relu"}))
    assert len(ablate("copy", "evaluation=none")[1]) == 2


def test_sizes_and_rate_follow_the_file(ablate, tmp_path):
    words = ["encoder=hf", "encoder.hf_config=distilbert.json"]
    resolved = resolve(compose_settings(words))
    assert vars(resolved.size) == SIZES
    assert resolved.optimizer.learning_rate == round(0.19 / 32, 8)
    assert resolved.encoder.init_std == 0.02
    again = [f"size.{name}={value}" for name, value in vars(resolved.size).items()]
    assert vars(resolve(compose_settings([*words, *again, "encoder.init_std=0.02"])).size) == SIZES


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        (["encoder.norm_position=post"], "encoder.norm_position=post"),
        (["encoder.position_embedding=learned"], "encoder.position_embedding=learned"),
        (["encoder.dropout=0.1"], "encoder.dropout=0.1"),
        (["encoder.type_vocab_size=2"], "encoder.type_vocab_size=2"),
        (["encoder.init_std=0.3"], "encoder.init_std=0.3"),
        (["size=tiny"], "size.hidden_size=128"),
        (["encoder.max_position_embeddings=32"], "encoder.max_position_embeddings=64"),
        (["evaluation.finetune.max_length=128"], "encoder.max_position_embeddings=128"),
        (["attention_backend=flash"], "attention_backend=auto"),
        (["encoder.hf_config=null"], "config.json"),
        (["encoder.hf_config=nowhere.json"], "nowhere.json"),
        (["encoder=bert"], "no effect"),
    ],
)
def test_settings_without_effect_or_sense_are_refused(ablate, overrides, says, capsys):
    code, records = ablate("bert", *overrides)
    message = capsys.readouterr().err
    assert (code, records) == (2, {}), message
    assert says in message
    assert len(message.splitlines()) == 1
