"""`python -m ablate` in this process, at the smallest sizes that still pass through everything."""

import gzip
import json
import sys

import pytest

from ablate.__main__ import main

TINY = [  # the first one is for the built-in language alone
    "corpus.num_documents=200", "corpus.validation_fraction=0.1", "budget.clock=steps",
    "budget.amount=6", "trainer.log_every=2", "trainer.validation_rows=16",
    "trainer.num_validations=2", "trainer.threads=1", "trainer.progress_bar=false",
    "evaluation.tasks=[acceptability,similarity]", "evaluation.num_train_examples=32",
    "evaluation.num_validation_examples=16", "evaluation.pairs_per_paradigm=2", "evaluation.jobs=1",
    "evaluation.finetune.min_steps=2", "evaluation.finetune.num_epochs=1", "tracking=none",
]  # fmt: skip


@pytest.fixture
def ablate(tmp_path, monkeypatch):
    """Run the command line; returns its exit code and the records found afterwards."""
    monkeypatch.chdir(tmp_path)

    def run(*overrides):
        flags = [word for word in overrides if word.startswith("-")]
        tiny = TINY[any(word.startswith("corpus=") for word in overrides) :]
        words = [*flags, *tiny, *(word for word in overrides if word not in flags)]
        monkeypatch.setattr(sys, "argv", ["ablate", *words])
        code = main()
        records = sorted(tmp_path.glob("runs/single/*/record.json"))
        return code, {path.parent: json.loads(path.read_text()) for path in records}

    return run


def only(found):
    code, records = found
    assert code == 0
    assert len(records) == 1
    return next(iter(records.items()))


def test_one_run_leaves_a_whole_record(ablate, capsys):
    folder, record = only(ablate())
    assert record["status"] == "complete"
    assert {path.name for path in folder.iterdir()} >= {
        "record.json", "config.yaml", "metrics.jsonl", "predictions",
    }  # fmt: skip
    assert {path.stem for path in (folder / "predictions").glob("*.parquet")} == {
        "acceptability", "similarity", "minimal_pairs",
    }  # fmt: skip
    scores = record["scores"]
    assert {
        "val/token_mask/loss", "val/whole_word_mask/loss", "val/token_mask/trigram_accuracy",
        "synthetic/acceptability/mcc", "synthetic/similarity/pearson",
        "synthetic/similarity/spearman", "synthetic/minimal_pairs/accuracy",
    } <= set(scores)  # fmt: skip
    assert record["clocks"]["steps"] == 6
    assert record["machine"]["kernel"]
    assert record["machine"]["precision"] in ("fp32", "bf16")
    assert record["derived"]["parameters"] > 50_000
    assert record["derived"]["random_pair_share"] > 0.3
    assert record["provenance"]["versions"]["torch"]
    shown = capsys.readouterr().out
    assert "synthetic/acceptability/mcc" in shown
    assert str(folder.name) in shown.replace("\n", "")


def test_the_same_command_prints_the_result_and_force_runs_it_again(ablate, capsys, tmp_path):
    folder, record = only(ablate())
    before = (folder / "record.json").stat().st_mtime_ns
    again, second = only(ablate())
    assert (again, second) == (folder, record)
    assert (folder / "record.json").stat().st_mtime_ns == before
    assert "This run is complete" in capsys.readouterr().out
    _, forced = only(ablate("force=true"))
    assert forced["scores"] == record["scores"]
    assert forced["attempt"] == 1


def test_record_shows_what_the_masking_did(ablate):
    code, records = ablate("masking=all_mask", "nsp=true")
    record = next(iter(records.values()))
    achieved = record["derived"]["achieved"]
    assert code == 0
    assert 0.10 < achieved["mask_rate"] < 0.20
    assert achieved["mask_replace_share"] == 1.0
    assert achieved["random_replace_share"] == achieved["keep_share"] == 0.0
    rows = [json.loads(line) for line in (next(iter(records)) / "metrics.jsonl").open()]
    assert any("train/nsp_loss" in row for row in rows)


def test_nsp_moves_the_loss_and_leaves_the_rows(ablate):
    ablate()
    _, records = ablate("nsp=true")
    without, with_nsp = sorted(records.values(), key=lambda r: "nsp" in r["arm"])
    for name in ("rows", "row_fill", "random_pair_share", "tokens_dropped", "total_steps"):
        assert without["derived"][name] == with_nsp["derived"][name], name
    assert without["clocks"]["tokens"] == with_nsp["clocks"]["tokens"]
    assert without["derived"]["achieved"] == with_nsp["derived"]["achieved"]


def test_runs_that_differ_in_evaluation_share_the_pretraining(ablate, tmp_path):
    ablate()
    _, records = ablate("evaluation.finetune.num_epochs=2")
    assert len(records) == 2
    assert len({record["pretraining"] for record in records.values()}) == 1
    assert len(list((tmp_path / "runs/pretrained").iterdir())) == 1


def test_the_stored_config_rebuilds_the_same_arm(ablate):
    import yaml

    from ablate.config.compose import compose_settings
    from ablate.config.rules import resolve

    folder, _ = only(ablate())
    stored = yaml.safe_load((folder / "config.yaml").read_text())
    assert "${" not in (folder / "config.yaml").read_text()
    resolved = resolve(compose_settings(TINY))
    assert stored["optimizer"] == vars(resolved.optimizer)
    assert stored["masking"] == vars(resolved.masking)


def test_both_corners_and_all_formats_run(ablate):
    for words in (
        ["encoder=bert", "masking=whole_word"],
        ["encoder=modernbert", "input_format=full_sentences"],
        ["encoder=bert", "encoder.position_embedding=rope", "attention_backend=eager"],
        ["input_format=doc_sentences", "tokenizer=byte_bpe"],
    ):
        code, _ = ablate(*words, "evaluation=none")
        assert code == 0, words


def test_the_same_arm_under_another_spelling_is_the_same_run(ablate):
    ablate("nsp=true", "masking=all_mask")
    code, records = ablate("masking=all_mask", "nsp=True", "arm=another_name")
    assert code == 0
    assert len(records) == 1


def test_counting_baselines_belong_to_the_run_that_asked(ablate):
    ablate("evaluation=none", "evaluation.ngram_baseline=false")
    _, records = ablate()
    by_kind = {"evaluation" in str(folder): record for folder, record in records.items()}
    assert len(records) == 2
    has = ["val/token_mask/trigram_accuracy" in record["scores"] for record in records.values()]
    assert sorted(has) == [False, True], by_kind


def test_two_processes_on_one_arm_do_not_mix(ablate, tmp_path, monkeypatch):
    import subprocess

    words = [sys.executable, "-m", "ablate", *TINY, "evaluation.tasks=[acceptability]"]
    both = [
        subprocess.Popen([*words, *more], cwd=tmp_path, stderr=subprocess.PIPE, text=True)
        for more in ([], ["evaluation.finetune.num_epochs=2"])
    ]
    assert [process.wait(timeout=300) for process in both] == [0, 0]
    for process in both:
        process.stderr.close()
    lines = next(tmp_path.glob("runs/pretrained/*/metrics.jsonl")).read_text().splitlines()
    steps = [json.loads(line)["step"] for line in lines]
    assert steps == [2, 3, 4, 6, 6]


def test_forcing_fits_the_tasks_again(ablate):
    folder, _ = only(ablate())
    file = folder / "predictions" / "acceptability.parquet"
    before = file.stat().st_mtime_ns
    only(ablate("force=true"))
    assert file.stat().st_mtime_ns > before


def test_a_failing_run_is_recorded_as_failed(ablate, monkeypatch, capsys):
    def broken(*_, **__):
        raise RuntimeError("no luck")

    monkeypatch.setattr("ablate.pretraining.pretrain.pretrain", broken)
    code, records = ablate()
    folder, record = next(iter(records.items()))
    assert code == 1
    assert record["status"] == "failed"
    assert "no luck" in record["failure"]
    assert "no luck" in (folder / "traceback.txt").read_text()
    assert "no luck" in capsys.readouterr().err
    monkeypatch.undo()


def test_multirun_goes_on_after_a_bad_point(ablate, capsys):
    code, records = ablate("-m", "masking.mask_rate=0.15,7,0.3", "evaluation=none")
    assert code == 2
    assert len(records) == 2
    assert "masking.mask_rate=7" in capsys.readouterr().err


def test_a_signal_ends_all_points_of_a_multirun(ablate, monkeypatch, capsys):
    from ablate.pretraining.interrupted import Interrupted

    begun = []

    def stopped(*_, **__):
        begun.append(1)
        raise Interrupted(15, "after step 3")

    monkeypatch.setattr("ablate.pretraining.pretrain.pretrain", stopped)
    with pytest.raises(SystemExit) as caught:
        ablate("-m", "seed=0,1")
    assert caught.value.code == 143
    assert len(begun) == 1
    assert "the same command continues" in capsys.readouterr().err
    monkeypatch.undo()


def bad(ablate, capsys, *overrides):
    code, records = ablate("evaluation=none", *overrides)
    message = capsys.readouterr().err
    assert code == 2, message
    assert records == {}
    assert "Traceback" not in message
    assert message.startswith("ablate: ")
    assert len(message.splitlines()) == 1
    return message


def test_bad_input_has_one_message_and_exit_code_2(ablate, capsys, tmp_path):
    assert "all_mask" in bad(ablate, capsys, "masking=all_msk")
    assert "nsp" in bad(ablate, capsys, "nps=true")
    assert "maybe" in bad(ablate, capsys, "nsp=maybe")
    assert "masking.mask_rate" in bad(ablate, capsys, "masking.mask_rate=1.5")
    assert "pooling" in bad(ablate, capsys, "evaluation.finetune.pooling=x")
    assert "hidden_size" in bad(ablate, capsys, "size.hidden_size=0")
    assert "corpus.path" in bad(ablate, capsys, "corpus.path=x.txt")
    assert "attention_backend=sdpa" in bad(ablate, capsys, "attention_backend=flash")
    missing = bad(ablate, capsys, "corpus=files", "corpus.path=nowhere.txt")
    assert "nowhere.txt" in missing
    (tmp_path / "empty.txt").write_text("\n\n")
    assert "empty.txt" in bad(ablate, capsys, "corpus=files", "corpus.path=empty.txt")
    whole = gzip.compress(b'{"text": "one two"}\n' * 500)
    (tmp_path / "torn.jsonl.gz").write_bytes(whole[: len(whole) // 2])
    assert "torn.jsonl.gz" in bad(ablate, capsys, "corpus=files", "corpus.path=torn.jsonl.gz")
    (tmp_path / "other.jsonl").write_text('{"body": "one two"}\n{"body": "three"}\n')
    assert "body" in bad(ablate, capsys, "corpus=files", "corpus.path=other.jsonl")
    assert "tokenizer.json" in bad(ablate, capsys, "tokenizer=pretrained", "tokenizer.path=nowhere")


def test_bad_evaluation_data_is_refused_before_training(ablate, capsys, tmp_path):
    lines = "\n\n".join(f"the cat number {i} sat .\nit ran ." for i in range(40))
    (tmp_path / "text.txt").write_text(lines)
    words = ["corpus=files", "corpus.path=text.txt", "evaluation=glue", "evaluation.path=glue"]
    code, records = ablate(*words, "evaluation.tasks=[sst2]")
    message = capsys.readouterr().err
    assert (code, records) == (2, {})
    assert "sst2" in message
    assert not list(tmp_path.glob("runs/pretrained/*"))
