"""Every command at the head of a masking or input-format file is one that works."""

import re
import shlex

import pytest

from ablate.config.compose import compose_settings, conf_dir
from ablate.config.rules import check

FILES = [p for group in ("masking", "input_format") for p in sorted((conf_dir() / group).glob("*"))]
COMMANDS = [
    (f"{path.parent.name}/{path.stem}", command)
    for path in FILES
    for command in re.findall(r"#\s+python -m ablate (.*)", path.read_text(encoding="utf-8"))
]
BERT_TABLE_8 = {  # MASK / SAME / RND, in the table's order
    "bert_80_10_10": (80, 10, 10),
    "all_mask": (100, 0, 0),
    "mask80_random20": (80, 0, 20),
    "mask80_keep20": (80, 20, 0),
    "keep20_random80": (0, 20, 80),
    "random100": (0, 0, 100),
}


@pytest.mark.parametrize(("name", "command"), COMMANDS, ids=[f"{n}: {c}" for n, c in COMMANDS])
def test_commands_at_the_head_of_a_file_compose(name, command):
    check(compose_settings(shlex.split(command, comments=True)))


def test_every_file_has_a_command():
    assert {name for name, _ in COMMANDS} == {f"{p.parent.name}/{p.stem}" for p in FILES}


@pytest.mark.parametrize(("name", "shares"), BERT_TABLE_8.items())
def test_rows_of_bert_table_8(name, shares):
    masking = compose_settings([f"masking={name}"]).masking
    mask, same, random = shares
    assert round(100 * masking.mask_replace_prob) == mask
    assert round(100 * masking.random_replace_prob) == random
    kept = 1 - masking.mask_replace_prob - masking.random_replace_prob
    assert round(100 * kept) == same
    assert masking.selection == "token"
    assert masking.mask_rate == 0.15


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        (["masking=roberta_static"], "input_format.copies=10"),
        (["masking.copies=3", "input_format.copies=2"], "input_format.copies=3"),
        (["masking.span_max_words=4"], "masking.selection=span"),
        (["masking.ngram_weights=[1,1]"], "masking.selection=ngram"),
        (["masking=span", "masking.pmi_min_count=3"], "masking.selection=pmi"),
        (["masking.overshoot=skip"], "masking.overshoot"),
        (["masking=whole_word", "masking.overshoot=skip"], "masking.budget_rule=exact"),
        (["masking.budget_base=row"], "masking.budget_rule=exact"),
        (["masking.mask_rate_step_at=0.2"], "masking.mask_rate_schedule=step"),
        (["masking.mask_rate_schedule=linear"], "final_mask_rate"),
        (["masking.corruption_unit=unit"], "masking.corruption_unit"),
    ],
)
def test_settings_without_effect_are_refused(overrides, says):
    with pytest.raises(ValueError, match="type|leave") as caught:
        compose_settings(overrides)
    assert says in str(caught.value)
