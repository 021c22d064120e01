"""`python -m ablate.predict`: the numbers are the model's, and every mistake gets one message."""

import io
import json
import subprocess
import sys

import pytest
import torch

from ablate.corpus import synthetic
from ablate.inputs.batches import from_segments
from ablate.interop.__main__ import main as interop
from ablate.predict.__main__ import main
from ablate.predict.filling import encode_with_masks
from ablate.run.saved import open_saved

WORDS = [word for word in synthetic.morphemes() if not word.startswith("##")][:6]
KINDS = {
    "modernbert": (),
    "bert with nsp": ("encoder=bert", "nsp=true"),
    "rotary bert": ("encoder=bert", "encoder.position_embedding=rope"),
    "untied": ("encoder.tie_word_embeddings=false",),
}


def shown(capsys, *words):
    assert main([str(word) for word in words]) == 0
    return capsys.readouterr().out


def refused(capsys, *words):
    assert main([str(word) for word in words]) == 2
    err = capsys.readouterr().err
    assert err.startswith("ablate: ")
    assert err.count("\n") == 1
    return err


def by_hand(run, sides):
    """(tokens, vocabulary) probabilities of a row given as lists of ids."""
    saved = open_saved(run)
    tokenizer = saved.tokenizer
    batch, _ = from_segments(
        [sides], cls_token_id=tokenizer.cls_token_id, sep_token_id=tokenizer.sep_token_id,
        max_length=64,
    )  # fmt: skip
    batch.predict_positions, batch.labels = torch.arange(batch.num_tokens), batch.input_ids
    with torch.inference_mode():
        return batch.input_ids, torch.softmax(saved.model(batch).mlm_logits, -1), tokenizer


@pytest.mark.parametrize("kind", KINDS)
def test_masks_get_the_models_most_probable_tokens(trained, capsys, kind):
    run = trained(*KINDS[kind])
    text = f"{WORDS[0]} [MASK] {WORDS[1]} [MASK]"
    row = json.loads(shown(capsys, run, text, "--top", "3", "--json"))["rows"][0]
    tokenizer = open_saved(run).tokenizer
    ids, values, _ = by_hand(run, [encode_with_masks(tokenizer, text)])
    masks = (ids == tokenizer.mask_token_id).nonzero().flatten().tolist()
    assert [place["position"] for place in row["places"]] == masks
    assert row["masked"]
    assert len(masks) == 2
    for place in row["places"]:
        best, which = values[place["position"]].topk(3)
        assert [choice["id"] for choice in place["top"]] == which.tolist()
        assert [choice["probability"] for choice in place["top"]] == pytest.approx(best.tolist())
        assert [choice["token"] for choice in place["top"]] == [
            tokenizer.id_to_token(i) for i in which.tolist()
        ]


def test_text_without_a_mask_is_judged_as_it_is_seen(trained, capsys):
    run, text = trained(), " ".join(WORDS)
    row = json.loads(shown(capsys, run, text, "--json"))["rows"][0]
    tokenizer = open_saved(run).tokenizer
    ids, values, _ = by_hand(run, [encode_with_masks(tokenizer, text)])
    assert [place["position"] for place in row["places"]] == list(range(1, len(ids) - 1))
    for place in row["places"]:
        own = values[place["position"], ids[place["position"]]]
        assert place["probability"] == pytest.approx(float(own))
        assert place["rank"] == 1 + int((values[place["position"]] > own).sum())
        assert place["differs"] == (place["top"][0]["token"] != place["token"])
    lines = shown(capsys, run, text).splitlines()
    starred = [line.split()[1] for line in lines if line.startswith("  * ")]
    assert starred == [place["token"] for place in row["places"] if place["differs"]]


def test_pair_is_one_row_of_two_segments(trained, capsys):
    run = trained(*KINDS["bert with nsp"])
    sides = [f"{WORDS[0]} {WORDS[1]}", f"[MASK] {WORDS[2]}"]
    found = json.loads(shown(capsys, run, "--pair", *sides, "--json"))["rows"]
    assert len(found) == 1
    ids, values, tokenizer = by_hand(
        run, [encode_with_masks(open_saved(run).tokenizer, s) for s in sides]
    )
    assert found[0]["tokens"] == [tokenizer.id_to_token(int(i)) for i in ids]
    assert found[0]["tokens"].count("[SEP]") == 2
    place = found[0]["places"][0]
    assert place["top"][0]["id"] == int(values[place["position"]].argmax())


def test_several_texts_are_several_rows(trained, capsys):
    out = shown(capsys, trained(), f"{WORDS[0]} [MASK]", WORDS[1])
    assert [part.splitlines()[0] for part in out.split("\n\n")] == [f"{WORDS[0]} [MASK]", WORDS[1]]


def test_run_its_pretraining_and_its_export_say_the_same(trained, capsys, tmp_path):
    run = trained(*KINDS["bert with nsp"])
    record = json.loads((run / "record.json").read_text())
    pretrained = run.parent.parent / "pretrained" / record["pretraining"]
    assert interop(["export", str(run), str(tmp_path / "hf")]) == 0
    assert interop(["import", str(tmp_path / "hf"), str(tmp_path / "ours")]) == 0
    capsys.readouterr()
    text = f"{WORDS[0]} [MASK] {WORDS[1]}"
    answers = {
        shown(capsys, place, text)
        for place in (run, pretrained, tmp_path / "hf", tmp_path / "ours")
    }
    assert len(answers) == 1


def test_unknown_pieces_are_said(trained, capsys):
    assert "read as unknown" in shown(capsys, trained(), f"{WORDS[0]} Ω [MASK]")


def test_mask_token_of_the_tokenizer_is_a_mask_too(trained):
    tokenizer = open_saved(trained()).tokenizer
    assert encode_with_masks(tokenizer, f"{WORDS[0]}[MASK]") == [
        *tokenizer.encode_batch([WORDS[0]])[0].ids,
        tokenizer.mask_token_id,
    ]


def test_lines_of_standard_input_are_texts(trained, capsys, monkeypatch):
    run, lines = trained(), [f"{WORDS[0]} [MASK]", "", f"  {WORDS[1]} [MASK] "]
    expected = shown(capsys, run, lines[0], lines[2].strip(), WORDS[2])
    monkeypatch.setattr("sys.stdin", io.StringIO("\n".join(lines)))
    assert shown(capsys, run, "-", WORDS[2]) == expected
    monkeypatch.setattr("sys.stdin", io.StringIO("\n \n"))
    assert "standard input has no text" in refused(capsys, run, "-")
    assert "more than once" in refused(capsys, run, "-", "-")
    assert "read lines from standard input" in refused(capsys, run)


def test_mask_in_lower_case_is_said_to_be_text(trained, capsys):
    out = shown(capsys, trained(), f"{WORDS[0]} [mask] {WORDS[1]} [Mask]")
    assert "note: [Mask], [mask] is read as text; a mask is written [MASK]" in out
    assert "read as text" not in shown(capsys, trained(), f"{WORDS[0]} [MASK]")


def test_mistakes_get_one_message(trained, capsys, tmp_path):
    run = trained()
    assert "is no folder" in refused(capsys, "nowhere", "a")
    assert "no run" in refused(capsys, tmp_path, "a")
    assert "no text was given" in refused(capsys, run)
    assert "empty" in refused(capsys, run, " ")
    assert "--pair takes two" in refused(capsys, run, "a", "--pair")
    assert "type for example 5" in refused(capsys, run, "a", "--top", "0")
    assert "type for example 5" in refused(capsys, run, "a", "--top", "²")
    assert "--help" in refused(capsys, run, "a", "--topp", "3")
    long = " ".join(WORDS * 40)
    assert "has 64 positions" in refused(capsys, trained(*KINDS["bert with nsp"]), long)
    assert "trained on rows of 64" in shown(capsys, run, long)


def test_unfinished_run_is_refused(trained, capsys, tmp_path):
    import shutil

    shutil.copytree(trained().parent.parent, tmp_path / "runs")
    for file in tmp_path.glob("runs/pretrained/*/record.json"):
        record = json.loads(file.read_text())
        file.write_text(json.dumps({**record, "status": "interrupted"}))
    copy = tmp_path / "runs" / "single" / trained().name
    assert "interrupted" in refused(capsys, copy, "a")


def test_help_answers_without_torch():
    code = (
        "import sys; from ablate.predict.__main__ import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "assert not {'torch', 'hydra', 'transformers'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "RUN" in done.stdout


@pytest.mark.parametrize("position", ["learned", "sinusoidal", "alibi", "none"])
def test_every_position_embedding_can_be_asked(trained, capsys, position):
    run = trained("encoder=bert", f"encoder.position_embedding={position}")
    assert "mask" in shown(capsys, run, f"{WORDS[0]} [MASK]")


def test_left_to_right_encoder_fills_no_mask(trained, capsys):
    run = trained("objective=clm", "encoder.causal=true", "input_format=single_document")
    assert "left side only" in refused(capsys, run, f"{WORDS[0]} [MASK]")
