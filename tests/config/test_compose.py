"""Every option composes; bad words on the command line get one message that says what to type."""

from pathlib import Path

import pytest
import yaml

from ablate.config.compose import all_keys, compose_settings, conf_dir
from ablate.config.schema import Settings
from ablate.config.task_files import task_definition

ROOT = Path(__file__).resolve().parent.parent
OPTIONS = [
    f"{path.parent.relative_to(conf_dir()).as_posix()}={path.stem}"
    for path in sorted(conf_dir().rglob("*.yaml"))
    if path.parent != conf_dir() and path.parent.name not in ("task", "study", "compute")
]
NEEDS = {
    "corpus=files": ["corpus.path=x.txt", "evaluation=none"],
    "corpus=hub": ["corpus.name=a/b", "evaluation=none"],
    "tokenizer=pretrained": ["tokenizer.path=x"],
    "input_format=full_sentences": ["nsp=false"],
    "masking=roberta_static": ["input_format=full_sentences", "input_format.copies=10"],
    "objective=clm": ["encoder.causal=true"],
    "encoder=hf": [f"encoder.hf_config={ROOT}/interop/tiny_deberta_v3.json"],
    "encoder=pretrained": ["encoder.path=x"],
    "evaluation=glue": ["corpus=files", "corpus.path=x.txt"],
}


@pytest.mark.parametrize("option", OPTIONS)
def test_every_option_composes(option):
    more = NEEDS.get(option, ["evaluation=none"] if option.startswith("corpus=") else [])
    if option == "corpus=synthetic":
        more = []
    compose_settings([option, *more])


@pytest.mark.parametrize("option", OPTIONS)
def test_every_option_file_opens_with_a_comment_and_has_a_safe_name(option):
    group, name = option.split("=")
    text = (conf_dir() / group / f"{name}.yaml").read_text(encoding="utf-8")
    assert text.startswith("# ")
    assert isinstance(yaml.safe_load(name), str)


def test_groups_carry_the_fields_of_the_schema():
    assert {"masking.mask_rate", "nsp", "evaluation.finetune.num_seeds"} <= set(all_keys())
    defaults = compose_settings()
    assert vars(defaults.replicate) == vars(Settings().replicate)


@pytest.mark.parametrize(
    ("overrides", "parts"),
    [
        (["masking=all_msk"], ["masking=all_msk", "all_mask", "whole_word"]),
        (["nps=true"], ["no setting nps", "nsp"]),
        (["compute=joblib"], ["study=NAME", "ablate.sweep"]),
        (["compute.jobs=2"], ["study=NAME", "ablate.sweep"]),
        (["masking.mask_rat=0.2"], ["masking.mask_rate"]),
        (["nsp=maybe"], ["nsp", "maybe"]),
        (["seed=1.5"], ["seed", "1.5"]),
        (["budget.amount=many"], ["budget.amount", "many"]),
        (["nsp"], ["key=value"]),
        (["masking.mask_rate=0.1,0.2"], ["-m"]),
        (["+masking.foo=1"], ["masking.foo"]),
        (["masking.mask_rate=1.5"], ["masking.mask_rate=1.5", "(0, 1]"]),
        (["nsp=true", "input_format=full_sentences"], ["input_format=segment_pair"]),
        (["encoder=[bert,modernbert]"], ["encoder", "one option", "bert, ", ", modernbert"]),
        (["masking={mask_rate:0.3}"], ["masking", "one option"]),
        (["~masking"], ["masking", "one option"]),
        (["tokenizer.path=x.json"], ["tokenizer.path", "tokenizer=pretrained"]),
        (["evaluation.path=glue"], ["evaluation.path", "evaluation=glue"]),
        (["evaluation.tasks=sentiment"], ["evaluation.tasks", "[a,b]"]),
        (["evaluation.tasks=[sst2]"], ["sst2", "acceptability"]),
        (["corpus=files", "corpus.path=a=b.txt"], ["quotes"]),
        (["replicate=1"], ["replicate", "group"]),
        (["budget.amount=-1"], ["budget.amount=3000000"]),
        (["arm=../x"], ["folder's name"]),
        (["trainer.precision=fp8"], ["auto, fp32, bf16"]),
        (["encoder=bert", "encoder.max_position_embeddings=8"], ["max_position_embeddings=64"]),
    ],
)
def test_bad_words_get_one_message(overrides, parts):
    with pytest.raises(ValueError, match=".") as caught:
        compose_settings(overrides)
    message = str(caught.value)
    assert all(part in message for part in parts), message
    assert "Traceback" not in message
    assert message.count("\n") == 0


@pytest.mark.parametrize(
    ("word", "value"), [("off", False), ("no", False), ("0", False), ("False", False), ("on", True)]
)
def test_flags_are_booleans_however_they_are_written(word, value):
    assert compose_settings([f"nsp={word}"]).nsp is value


def test_lists_and_numbers_arrive_as_themselves():
    settings = compose_settings(
        ["optimizer.learning_rate=1e-3", "optimizer.betas=[0.9, 0.95]", "evaluation.tasks=[qa]"]
    )
    assert settings.optimizer.learning_rate == 1e-3
    assert settings.optimizer.betas == [0.9, 0.95]
    assert settings.evaluation.tasks == ["qa"]


@pytest.mark.parametrize("path", ["runs/step-00000009.ckpt", "'a b, c=1.txt'", "'模.txt'"])
def test_a_path_arrives_unchanged(path):
    settings = compose_settings(["corpus=files", f'corpus.path="{path}"', "evaluation=none"])
    assert settings.corpus.path == path


def test_a_task_without_a_definition_is_refused():
    with pytest.raises(ValueError, match="cola"):
        task_definition("no_such_task")
    assert task_definition("cola")["metrics"] == ["mcc"]


def test_conf_is_found_beside_the_package():
    assert conf_dir() == Path(__file__).resolve().parent.parent.parent / "conf"


def test_allowed_options_are_the_options_and_nothing_else():
    with pytest.raises(ValueError, match=r"allowed: constant, cosine, linear\. For"):
        compose_settings(["schedule=linar"])


def test_a_runs_stored_config_makes_the_same_settings():
    import dataclasses

    from omegaconf import OmegaConf

    from ablate.config.compose import settings_from

    settings = compose_settings(["seed=3", "masking=all_mask"])
    again = settings_from(OmegaConf.create(dataclasses.asdict(settings)))
    assert again == settings
