"""Shown rows hold the tokens of the store, whatever the tokenizer and the signs in a corpus."""

import itertools
import re

import numpy as np
import pytest

from ablate.inspect.__main__ import prepare
from ablate.inspect.options import parse
from ablate.inspect.rows import shown_rows

MARKS = {  # each mark -> the token behind it
    r"[\[(]MASK:([^\s\])]+)[\])]": r"\1",
    r"[\[(]([^\s\[(]+)→[^\s\])]+[\])]": r"\1",
    r"\[=([^\s\]]+)\]": r"\1",
}


def arm_of(*words):
    return prepare(parse([*words, "trainer.threads=1", "trainer.progress_bar=false"]))


def original_text(line):
    """A shown line with every mark taken off, as a reader would take it off."""
    return "".join(("" if t.attached else " ") + t.parts[1] for t in line).strip()


@pytest.mark.parametrize("preset", ["bert_80_10_10", "span", "whole_word", "wettig_40_same5"])
def test_rows_show_the_tokens_of_the_store(preset):
    arm = arm_of("corpus.num_documents=60", f"masking={preset}")
    plan = arm.data.steps.plan(0)
    for row in shown_rows(arm.data, plan, 20, epoch=0, progress=0.0):
        slices = range(plan.row_starts[row.number], plan.row_starts[row.number + 1])
        expected = [arm.tokenizer.cls_token_id]
        for s in slices:
            expected += arm.store.tokens[plan.slice_starts[s] : plan.slice_stops[s]].tolist()
            expected.append(arm.tokenizer.sep_token_id)
        assert [token.original_id for token in row.tokens] == expected


@pytest.mark.parametrize("kind", ["wordpiece", "byte_bpe", "unigram"])
def test_the_original_behind_the_marks_reads_as_the_tokenizer_decodes_it(kind, strange_corpus):
    arm = arm_of(*strange_corpus, f"tokenizer={kind}", "tokenizer.vocab_size=400")
    plan = arm.data.steps.plan(0)
    rows = shown_rows(arm.data, plan, 5, epoch=0, progress=0.0)
    assert rows
    for row in rows:
        for line in row.lines:
            ids = [t.original_id for t in line if t.kind != "special"]
            shown = original_text([t for t in line if t.kind != "special"])
            decoded = arm.tokenizer.decode(ids)
            if "\ufffd" in decoded:  # a row that begins inside a character
                continue
            escaped = decoded.replace("\x1b", "\\x1b").replace("##", "")
            assert re.sub(r"[\s␣]|##", "", shown) == re.sub(r"\s", "", escaped)


@pytest.mark.parametrize("preset", ["bert_80_10_10", "span", "wettig_corrupt40_predict20"])
def test_a_terminal_reader_gets_the_text_back_by_taking_off_the_marks(inspect, monkeypatch, preset):
    monkeypatch.setenv("COLUMNS", "2000")
    _, out, _ = inspect(f"masking={preset}", "--rows", "8", "--color", "never")
    shown = [text[3:] for text in out.splitlines() if text[:3] in ("A: ", "B: ")]
    arm = arm_of("corpus.num_documents=60", "corpus.validation_fraction=0.1", f"masking={preset}")
    plan = arm.data.steps.plan(0)
    assert len(shown) == 16
    for s, text in enumerate(shown):
        for mark, original in MARKS.items():
            text = re.sub(mark, original, text)
        ids = arm.store.tokens[plan.slice_starts[s] : plan.slice_stops[s]].tolist()
        entries = [arm.tokenizer.id_to_token(i) for i in ids]
        words = " ".join(entries).replace(" ##", "")
        assert text == ("[CLS] " if s % 2 == 0 else "") + words + " [SEP]"


def test_marks_say_what_the_batch_says():
    arm = arm_of("corpus.num_documents=60", "masking=bert_80_10_10")
    plan = arm.data.steps.plan(0)
    rows = shown_rows(arm.data, plan, 60, epoch=0, progress=0.0)
    batch, counts = arm.data.rows.batch(plan, np.arange(len(rows)), epoch=0)
    tokens = [token for row in rows for token in row.tokens]
    assert [t.shown_id for t in tokens] == batch.input_ids.tolist()
    assert (
        np.flatnonzero([t.predicted for t in tokens]).tolist() == batch.predict_positions.tolist()
    )
    kinds = [t.kind for t in tokens]
    assert kinds.count("masked") == counts.masked
    assert kinds.count("replaced") == counts.random - counts.random_same
    assert kinds.count("visible") == counts.kept + counts.random_same
    for token in tokens:
        before, original, after = token.parts
        assert original == token.original
        assert (before, after) == {
            "masked": ("[MASK:", "]"),
            "replaced": ("[", f"→{token.shown}]"),
            "visible": ("[=", "]"),
        }.get(token.kind, ("", ""))


def test_what_is_hidden_without_a_loss_has_round_brackets():
    halves = ["masking.mask_replace_prob=0.5", "masking.random_replace_prob=0.5"]
    arm = arm_of("corpus.num_documents=60", "masking=wettig_corrupt40_predict20", *halves)
    plan = arm.data.steps.plan(0)
    tokens = [
        t for row in shown_rows(arm.data, plan, 40, epoch=0, progress=0.0) for t in row.tokens
    ]
    hidden = [t for t in tokens if t.shown_id != t.original_id and not t.predicted]
    assert {t.style for t in hidden} == {"unpredicted"}
    assert {t.parts[0] for t in hidden} == {"(MASK:", "("}
    assert all(t.parts[2] == (f"→{t.shown})" if t.parts[0] == "(" else ")") for t in hidden)


def test_pieces_of_a_word_stand_together():
    arm = arm_of("corpus.num_documents=60", "masking=all_mask")
    plan = arm.data.steps.plan(0)
    for row in shown_rows(arm.data, plan, 40, epoch=0, progress=0.0):
        for line in row.lines:
            for before, token in itertools.pairwise(line):
                entry = arm.tokenizer.id_to_token(token.original_id)
                follows = before.kind != "special" and entry.startswith("##")
                assert token.attached == follows
                assert token.original == (entry[2:] if follows else entry)


def test_packed_documents_have_a_line_each(findings):
    found = findings("input_format=packed_documents", "input_format.max_length=512", "--rows", "3")
    for row in found["rows"]:
        for line in row["lines"]:
            assert line[0]["original"] == "[CLS]"
            assert [t["original"] for t in line].count("[CLS]") == 1


def test_control_signs_of_a_corpus_do_not_reach_the_terminal(inspect, strange_corpus):
    words = [*strange_corpus, "tokenizer=byte_bpe", "tokenizer.vocab_size=400"]
    code, out, err = inspect(*words, "--rows", "8")
    assert code == 0, err
    assert "\x1b" not in out
    assert "\\x1b" in out
