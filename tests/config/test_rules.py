import pytest

from ablate.config.compose import settings_from, unknown_key
from ablate.config.fingerprint import fingerprint, pretraining_identity, run_identity
from ablate.config.rules import check, encoder_arguments, resolve
from ablate.config.schema import Settings


def changed(**paths):
    settings = Settings()
    for path, value in paths.items():
        *groups, name = path.split("__")
        node = settings
        for group in groups:
            node = getattr(node, group)
        assert hasattr(node, name)
        setattr(node, name, value)
    return settings


CLM = {"objective__name": "clm", "encoder__causal": True}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"nsp": True, "input_format__name": "full_sentences"}, "input_format=segment_pair"),
        ({"nsp": True, "input_format__name": "packed_documents"}, "input_format=sentence_pair"),
        ({"sop": True, "input_format__name": "doc_sentences"}, "sop=false"),
        ({"nsp": True, "input_format__pairing": "ordered_or_swapped"}, "pairing=next_or_random"),
        ({"sop": True, "input_format__pairing": "next_or_random"}, "pairing=ordered_or_swapped"),
        ({"input_format__pairing": "random"}, "next_random_or_swapped"),
        ({"input_format__pair_sampling": "even"}, "bert, exact"),
        ({"input_format__document_boundary": "wall"}, "none, block"),
        ({"input_format__document_boundary": "block"}, "would hide B from A"),
        (
            {"input_format__document_boundary": "block", "input_format__name": "doc_sentences"},
            "input_format=full_sentences or packed_documents",
        ),
        (
            {"input_format__pair_sampling": "exact", "input_format__name": "single_document"},
            "input_format=segment_pair or sentence_pair",
        ),
        ({"input_format__copies": 0}, "input_format.copies=10"),
        ({"corpus__kind": "files", "evaluation__kind": "none"}, "corpus.path"),
        ({"corpus__kind": "hub", "evaluation__kind": "none"}, "corpus.name"),
        ({"tokenizer__kind": "pretrained"}, "tokenizer.path"),
        ({"tokenizer__vocabulary": "morphemes", "tokenizer__vocab_size": 300}, "trained"),
        ({"masking__mask_rate": 2.0}, "masking.mask_rate"),
        ({"masking__mask_replace_prob": 0.95}, "at most 1"),
        ({"optimizer__learning_rate": -1.0}, "optimizer.learning_rate"),
        ({"optimizer__betas": [0.9]}, "optimizer.betas"),
        ({"schedule__name": "step"}, "linear, cosine, constant"),
        ({"schedule__warmup_fraction": 1.0}, "schedule.warmup_fraction"),
        ({"budget__clock": "epochs"}, "tokens, steps"),
        ({"budget__amount": -5}, "budget.amount"),
        ({"trainer__global_batch_size": 0}, "trainer.global_batch_size"),
        ({"trainer__devices": 3}, "trainer.global_batch_size=18"),
        ({"trainer__devices": 0}, "trainer.devices=2"),
        ({"trainer__devices": 2, "trainer__strategy": "dp"}, "ddp_fork"),
        ({"trainer__strategy": "ddp"}, "no effect with trainer.devices=1"),
        (
            {"trainer__devices": 2, "trainer__strategy": "fsdp", "encoder__shared_layers": "all"},
            "type trainer.strategy=auto",
        ),
        (
            {"trainer__devices": 2, "trainer__strategy": "fsdp", "encoder__kind": "hf"},
            "type trainer.strategy=auto",
        ),
        ({"encoder__norm_position": "middle"}, "norm_position"),
        ({"encoder__causal": True}, "encoder.causal=false"),
        ({"encoder__causal": True}, "objective=clm encoder.causal=true"),
        ({"objective__name": "rtd_of_nobody"}, "mlm, clm"),
        ({"objective__name": "clm"}, "objective=clm encoder.causal=true"),
        ({**CLM, "nsp": True}, "type nsp=false"),
        ({**CLM, "sop": True}, "type sop=false"),
        ({**CLM, "masking__mask_rate": 0.4}, "masking.mask_rate=0.4 has no effect"),
        ({**CLM, "masking__selection": "whole_word"}, "masking.selection=whole_word has no effect"),
        ({**CLM, "replicate__masks": 1}, "replicate.masks=0"),
        ({**CLM, "encoder__body": "lstm"}, "encoder.body=transformer"),
        ({**CLM, "encoder__kind": "hf"}, "encoder.kind=native"),
        ({**CLM, "evaluation__finetune__pooling": "cls"}, "pooling=last_mean"),
        ({**CLM, "evaluation__finetune__pooling": "cls_mean"}, "pooling=last_mean"),
        ({"size__hidden_size": 66}, "hidden_size"),
        ({"attention_backend": "fast"}, "auto, eager, sdpa, flash"),
        ({"evaluation__kind": "superglue"}, "synthetic, tasks, none"),
        ({"corpus__kind": "files", "corpus__path": "x.txt"}, "evaluation=glue"),
        ({"evaluation__tasks": ["qa", "qa"]}, "twice"),
        ({"seed": -1}, "seed"),
        ({"size__hidden_size": 0}, "size.hidden_size"),
        ({"corpus__max_documents": 9}, "corpus.max_documents"),
        ({"tokenizer__lowercase": False}, "tokenizer.lowercase"),
        ({"evaluation__pairs_per_paradigm": 3}, "evaluation.pairs_per_paradigm"),
        (
            {"encoder__position_embedding": "learned", "evaluation__finetune__max_length": 512},
            "encoder.max_position_embeddings=512",
        ),
    ],
)
def test_bad_settings_name_the_setting_and_what_to_type(change, says):
    with pytest.raises(ValueError, match="=") as caught:
        check(changed(**change))
    assert says in str(caught.value)


def test_the_default_settings_are_good():
    check(Settings())


@pytest.mark.parametrize(
    "change",
    [
        {"sop": True},
        {"nsp": True, "sop": True},
        {"nsp": True, "input_format__pairing": "next_random_or_swapped"},
        {"sop": True, "input_format__pairing": "next_random_or_swapped"},
        {"sop": True, "input_format__name": "sentence_pair", "input_format__copies": 10},
        {"input_format__pairing": "ordered_or_swapped", "input_format__pair_sampling": "exact"},
        {"input_format__name": "full_sentences", "input_format__document_boundary": "block"},
        {"input_format__name": "packed_documents", "input_format__document_boundary": "block"},
        CLM,
        {**CLM, "evaluation__finetune__pooling": "mean"},
        {**CLM, "input_format__name": "packed_documents", "input_format__copies": 2},
    ],
)
def test_formats_pairs_and_losses_that_go_together(change):
    check(changed(**change))


def test_nulls_become_numbers_and_meet_the_published_values_at_the_published_width():
    toy = resolve(Settings())
    assert toy.optimizer.learning_rate == pytest.approx(0.005)
    assert toy.tokenizer.vocabulary == "morphemes"
    base = resolve(changed(size__hidden_size=768, size__num_attention_heads=12))
    assert base.encoder.init_std == pytest.approx(0.02)
    assert base.optimizer.learning_rate == pytest.approx(0.32 / 768, rel=1e-3)
    given = resolve(changed(optimizer__learning_rate=1e-3, tokenizer__vocab_size=300))
    assert given.optimizer.learning_rate == 1e-3
    assert given.tokenizer.vocabulary == "trained"


def test_parameter_matched_glu_has_the_weights_of_a_plain_mlp():
    sizes = {"size__hidden_size": 768, "size__intermediate_size": 3072}
    sizes["size__num_attention_heads"] = 12
    glu = encoder_arguments(resolve(changed(**sizes)), 100, 0)
    assert 3 * glu["intermediate_size"] == 2 * 3072
    raw = encoder_arguments(resolve(changed(**sizes, encoder__glu_width="raw")), 100, 0)
    assert raw["intermediate_size"] == 3072


def identity(settings, **machine):
    resolved = resolve(settings)
    return pretraining_identity(
        resolved, encoder=encoder_arguments(resolved, 236, 0), data={"corpus": "x"},
        machine={"device": "cpu", **machine},
    )  # fmt: skip


@pytest.mark.parametrize(
    "change",
    [
        {"seed": 1}, {"nsp": True}, {"masking__mask_rate": 0.3}, {"budget__amount": 5},
        {"encoder__norm_position": "post"}, {"optimizer__weight_decay": 0.1},
        {"trainer__global_batch_size": 32}, {"replicate__data": 1}, {"schedule__name": "cosine"},
        {"input_format__max_length": 128}, {"input_format__copies": 5}, {"sop": True},
    ],
)  # fmt: skip
def test_what_can_change_a_weight_changes_the_fingerprint(change):
    assert fingerprint(identity(changed(**change))) != fingerprint(identity(Settings()))


@pytest.mark.parametrize(
    "change",
    [
        {"paths__runs_dir": "elsewhere"}, {"tracking__mode": "offline"}, {"arm": "name"},
        {"trainer__log_every": 7}, {"trainer__num_workers": 2}, {"force": True},
        {"trainer__checkpoint_every": 9}, {"optimizer__learning_rate": 0.005},
    ],
)  # fmt: skip
def test_what_cannot_does_not(change):
    assert fingerprint(identity(changed(**change))) == fingerprint(identity(Settings()))


def test_machine_facts_are_part_of_identity():
    assert fingerprint(identity(Settings(), precision="bf16")) != fingerprint(identity(Settings()))


def test_evaluation_changes_the_run_and_not_the_pretraining():
    more = changed(evaluation__finetune__num_seeds=3)
    assert fingerprint(identity(more)) == fingerprint(identity(Settings()))
    ours = run_identity(more, pretraining="p", tasks={"a": "1"})
    assert ours != run_identity(Settings(), pretraining="p", tasks={"a": "1"})
    moved = run_identity(changed(evaluation__path="x"), pretraining="p", tasks={"a": "1"})
    assert moved == run_identity(Settings(), pretraining="p", tasks={"a": "1"})


def test_an_unknown_key_gets_the_nearest_ones():
    assert "masking.mask_rate" in unknown_key("masking.mask_rat")
    assert "nsp" in unknown_key("nps")
    assert "masking.mask_rate" in unknown_key("mask_rate")


def test_keys_added_with_a_plus_are_refused():
    from omegaconf import OmegaConf, open_dict

    config = OmegaConf.structured(Settings)
    with open_dict(config.masking):
        config.masking.foo = 1
    with pytest.raises(ValueError, match=r"masking\.foo"):
        settings_from(config)


def test_fine_tuning_reads_the_token_that_has_seen_the_row():
    assert resolve(Settings()).evaluation.finetune.pooling == "cls_mean"
    twin = resolve(changed(**CLM))
    assert twin.evaluation.finetune.pooling == "last_mean"
    check(twin)  # what was resolved is accepted as given
    given = resolve(changed(**CLM, evaluation__finetune__pooling="last"))
    assert given.evaluation.finetune.pooling == "last"
