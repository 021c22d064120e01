"""`evaluation`: presets as published, bad words refused before anything runs, what is in a name."""

import re
import shlex
import subprocess
import sys

import pytest

from ablate.config.compose import compose_settings, conf_dir
from ablate.config.evaluation_rules import finetune_settings, plan_fields
from ablate.config.fingerprint import fingerprint, run_identity
from ablate.config.rules import check, resolve
from ablate.config.schema import FinetuneSettings as Schema
from ablate.evaluation.grids import points
from ablate.evaluation.settings import FinetuneSettings

GLUE = ["evaluation=glue", "corpus=files", "corpus.path=x.txt", "evaluation.path=glue"]
TASKS = ("cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte")
PRESETS = sorted(path.stem for path in (conf_dir() / "evaluation" / "protocol").glob("*.yaml"))


def compose(*overrides):
    return resolve(compose_settings([*GLUE, *overrides])).evaluation


def test_schema_and_engine_have_the_same_settings():
    ours, theirs = set(vars(Schema())), set(vars(FinetuneSettings()))
    assert ours - theirs == {"num_seeds"}
    assert theirs - ours == {"precision", "sample_seed"}


@pytest.mark.parametrize("name", PRESETS)
def test_presets_say_what_they_are_and_their_commands_compose(name):
    text = (conf_dir() / "evaluation" / "protocol" / f"{name}.yaml").read_text(encoding="utf-8")
    assert text.startswith("# @package evaluation\n# ")
    commands = re.findall(r"#\s+python -m ablate (.*)", text)
    assert commands
    for command in commands:
        words = shlex.split(command)
        check(compose_settings([*words, "corpus=files", "corpus.path=x.txt"]))
        assert f"evaluation/protocol={name}" in words or name == "default"


def test_the_default_protocol_is_one_setting():
    plan = plan_fields(compose())
    assert plan == {
        "per_task": {}, "grid": {}, "grid_per_task": {}, "start_from": None,
        "start_from_tasks": [],
    }  # fmt: skip


# literature.md, section 10: grid, epochs, warm-up, decay, seeds of each paper
@pytest.mark.parametrize(
    ("name", "num_points", "values"),
    [
        ("bert", 4, {"batch_size": 32, "num_epochs": 3, "warmup_fraction": 0.1}),
        (
            "roberta",
            6,
            {"num_epochs": 10, "warmup_fraction": 0.06, "weight_decay": 0.1, "early_stopping": 3},
        ),
        (
            "electra",
            0,
            {"learning_rate": 1e-4, "layerwise_decay": 0.8, "batch_size": 32, "num_epochs": 3},
        ),
        (
            "cramming_sane",
            0,
            {"learning_rate": 4e-5, "schedule": "cosine", "batch_size": 16, "num_epochs": 5},
        ),
        ("mosaicbert", 0, {"warmup_fraction": 0.06}),
        ("modernbert", 48, {"early_stopping": 3}),
        ("quick", 0, {"max_train_examples": 4000, "max_scored_examples": 2000}),
        ("frozen", 0, {"frozen": True}),
    ],
)
def test_presets_as_published(name, num_points, values):
    evaluation = compose(f"evaluation/protocol={name}")
    assert len(points(evaluation.grid)) == num_points
    found = vars(finetune_settings(evaluation))
    assert {key: found[key] for key in values} == values


def test_grids_as_published():
    assert compose("evaluation/protocol=bert").grid == {"learning_rate": [2e-5, 3e-5, 4e-5, 5e-5]}
    assert compose("evaluation/protocol=roberta").grid == {
        "learning_rate": [1e-5, 2e-5, 3e-5],
        "batch_size": [16, 32],
    }
    modern = compose("evaluation/protocol=modernbert")
    assert modern.grid["learning_rate"] == [1e-5, 3e-5, 5e-5, 8e-5]
    assert modern.grid["weight_decay"] == [1e-6, 5e-6, 8e-6, 1e-5]
    epochs = {t: {**modern.grid, **modern.grid_per_task.get(t, {})}["num_epochs"] for t in TASKS}
    assert {t for t in TASKS if epochs[t] == [1, 2, 3]} == {"sst2", "mnli", "rte"}
    assert {t for t in TASKS if epochs[t] == [2, 5, 10]} == set(TASKS) - {"sst2", "mnli", "rte"}


def test_mosaicbert_has_fixed_settings_for_each_task():
    evaluation = compose("evaluation/protocol=mosaicbert")
    rows = {
        task: (found["learning_rate"], found["num_epochs"], found["batch_size"])
        for task, found in evaluation.per_task.items()
    }
    assert rows == {
        "mnli": (5e-5, 3, 48), "qqp": (3e-5, 5, 16), "qnli": (1e-5, 10, 16),
        "sst2": (3e-5, 3, 16), "cola": (5e-5, 10, 32), "rte": (1e-5, 3, 16),
        "mrpc": (8e-5, 10, 32), "stsb": (3e-5, 10, 32),
    }  # fmt: skip
    seeds = {task: found.get("num_seeds", 1) for task, found in evaluation.per_task.items()}
    assert seeds == {
        "rte": 5, "mrpc": 5, "stsb": 5, "cola": 4, "sst2": 3, "mnli": 1, "qqp": 1, "qnli": 1,
    }  # fmt: skip
    assert (evaluation.start_from, evaluation.start_from_tasks) == ("mnli", ["rte", "mrpc", "stsb"])


def test_only_quick_and_the_default_follow_the_width():
    for name in PRESETS:
        small, large = (
            compose(f"evaluation/protocol={name}", f"size={size}").finetune.learning_rate
            for size in ("tiny", "base")
        )
        assert (small != large) == (name in ("quick", "default"))


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        (["evaluation.per_task={rt:{learning_rate:1e-5}}"], "names rt, which is no task.*rte"),
        (
            ["evaluation.per_task={pos:{num_epochs:1},ud_english_ewt:{num_epochs:2}}"],
            r"one task twice, as pos and as ud_english_ewt.*per_task=\{pos: ",
        ),
        (["evaluation.per_task={rte:{lr:1e-5}}"], "rte names lr.*learning_rate"),
        (["evaluation.per_task={rte:{num_seeds:0}}"], r"per_task\.rte\.num_seeds=0"),
        (["evaluation.per_task={rte:{num_epochs:1.5}}"], r"per_task\.rte: .*num_epochs=1\.5"),
        (["evaluation.grid={learning_rate:[abc]}"], r"evaluation\.grid: .*learning_rate='abc'"),
        (["evaluation.grid={learning_rate:[]}"], r"grid\.learning_rate=\[\] must hold"),
        (["evaluation.grid={max_length:[64]}"], "all points share max_length"),
        (["evaluation.grid_per_task={x:{learning_rate:[1]}}"], "grid_per_task names x"),
        (["evaluation.finetune.schedule=step"], "linear, cosine, constant"),
        (["evaluation.finetune.pooling=avg"], "cls, mean, max, attention"),
        (["evaluation.finetune.early_stopping=0"], "early_stopping=0"),
        (
            ["evaluation.start_from=mnli", "evaluation.tasks=[rte,cola]"],
            r"needs mnli in evaluation\.tasks.*rte start.*\[mnli,rte,cola\].*start_from=null",
        ),
        (
            ["evaluation.start_from=rte"],
            r"names rte itself; type 'evaluation\.start_from_tasks=\[mrpc,stsb\]'",
        ),
        (
            ["evaluation.start_from=mnli", "evaluation.finetune.frozen=true"],
            r"no effect on a frozen encoder",
        ),
        (
            ["evaluation.finetune.layerwise_decay=0.9", "encoder=albert"],
            r"layerwise_decay=0\.9 needs layers.*layerwise_decay=1",
        ),
        (
            ["evaluation.finetune.layerwise_decay=0.9", "evaluation.finetune.frozen=true"],
            "no effect on a frozen encoder",
        ),
        (
            ["evaluation.grid={pooling:[cls,mean]}", "objective=clm", "encoder.causal=true"],
            "pooling=cls reads a row's first token",
        ),
        (
            ["encoder=bert", "evaluation.per_task={rte:{max_length:1024}}"],
            r"per_task\.rte\.max_length=1024 is longer",
        ),
        (["evaluation/protocol=berd"], "allowed: bert, cramming_sane"),
    ],
)
def test_bad_words_are_refused_before_anything_runs(overrides, says):
    with pytest.raises(ValueError, match=f"(?s){says}"):
        compose(*overrides)


def test_a_plan_beside_no_evaluation_is_refused():
    with pytest.raises(ValueError, match=r"evaluation\.start_from=mnli has no effect"):
        compose_settings(["evaluation=none", "evaluation.start_from=mnli"])


def test_keys_of_a_preset_can_be_added_changed_and_dropped():
    more = compose("evaluation/protocol=mosaicbert", "evaluation.per_task.wnli.learning_rate=1e-5")
    assert more.per_task["wnli"] == {"learning_rate": 1e-5}
    other = compose("evaluation/protocol=bert", "evaluation.grid.learning_rate=[1e-3]")
    assert other.grid == {"learning_rate": [1e-3]}
    assert plan_fields(compose("evaluation/protocol=bert", "evaluation.grid=null"))["grid"] == {}


def identity(*overrides):
    settings = resolve(compose_settings([*GLUE, *overrides]))
    return fingerprint(run_identity(settings, pretraining="p", tasks={"a": "1"}))


@pytest.mark.parametrize(
    "change",
    [
        "evaluation.per_task={rte:{learning_rate:1e-5}}",
        "evaluation.grid={learning_rate:[1e-5,2e-5]}",
        "evaluation.start_from=mnli",
        "evaluation.finetune.schedule=cosine",
        "evaluation.finetune.layerwise_decay=0.9",
        "evaluation.finetune.head=linear",
        "evaluation.finetune.early_stopping=3",
        "evaluation.finetune.max_scored_examples=100",
        "evaluation.finetune.gradient_clip=null",
        "evaluation/protocol=quick",
    ],
)
def test_what_decides_a_score_is_in_the_name_of_the_result(change):
    assert identity(change) != identity()


def test_what_is_said_of_tasks_that_are_not_measured_is_not():
    tasks = "evaluation.tasks=[cola,sst2]"
    plain = identity(tasks)
    assert identity(tasks, "evaluation.per_task={rte:{learning_rate:1e-5}}") == plain
    assert identity(tasks, "evaluation.start_from=mnli") == plain
    assert identity(tasks, "evaluation.per_task={cola:{learning_rate:1e-5}}") != plain
    assert identity("evaluation.jobs=2") == identity()


def test_judging_a_protocol_needs_no_torch():
    code = (
        "import sys; from ablate.config.compose import compose_settings; "
        "compose_settings(['evaluation/protocol=modernbert']); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("task", "name"), [("pos", "ud_english_ewt"), ("ner", "wnut17"), ("xquad", "xquad_en")]
)
def test_a_task_goes_by_its_word_and_by_the_name_of_its_measurement(task, name):
    for key in (task, name):
        plan = plan_fields(
            compose(
                f"evaluation.tasks=[{task},rte]",
                f"evaluation.per_task={{{key}:{{learning_rate:1e-5}},cola:{{num_epochs:1}}}}",
                f"evaluation.grid_per_task={{{key}:{{batch_size:[8]}}}}",
            )
        )
        assert plan["per_task"] == {name: {"learning_rate": 1e-5}}
        assert plan["grid_per_task"] == {name: {"batch_size": [8]}}
    with pytest.raises(ValueError, match=rf"evaluation\.per_task\.{name}: .*num_epochs=1\.5"):
        compose(f"evaluation.tasks=[{task}]", f"evaluation.per_task={{{name}:{{num_epochs:1.5}}}}")


def test_a_file_of_the_users_goes_by_its_stem_and_by_its_name(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("name: own_name\nfields: [text]\nlabels: [a, b]\nmetrics: [accuracy]\n")
    for key in ("mine", "own_name"):
        evaluation = compose(
            f"evaluation.tasks=[mnli,{file}]", f"evaluation.per_task={{{key}:{{num_epochs:1}}}}",
            "evaluation.start_from=mnli", f"evaluation.start_from_tasks=[{key},rte]",
        )  # fmt: skip
        plan = plan_fields(evaluation)
        assert plan["per_task"] == {"own_name": {"num_epochs": 1}}
        assert (plan["start_from"], plan["start_from_tasks"]) == ("mnli", ["own_name"])
    with pytest.raises(ValueError, match=r"start_from_tasks=\['mine'\] names own_name itself"):
        compose(
            f"evaluation.tasks=[{file}]", "evaluation.start_from=own_name",
            "evaluation.start_from_tasks=[mine]",
        )  # fmt: skip
