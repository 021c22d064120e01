"""Rows that could not show what they are for are refused before the first step."""

from types import SimpleNamespace

import pytest

from ablate.config.schema import Settings
from ablate.run.checks import check_rows, warn_of_unknown


def check(statistics, *, epochs=1.5, masking_copies=None, row_copies=None, **losses):
    settings = Settings(**losses)
    settings.masking.copies, settings.input_format.copies = masking_copies, row_copies
    if statistics.pop("exact", False):
        settings.input_format.pair_sampling = "exact"
    found = {"rows": 100, "epochs": epochs, **statistics}
    data = SimpleNamespace(
        validation_names=(), validation_batches=[], statistics=lambda: dict(found)
    )
    check_rows(settings, data)


@pytest.mark.parametrize(
    ("losses", "statistics"),
    [
        ({"nsp": True}, {"random_pair_share": 1.0, "rows_without_pair": 0}),
        ({"nsp": True}, {"random_pair_share": 0.04, "rows_without_pair": 0}),
        ({"sop": True}, {"rows_without_pair": 100}),
        ({"sop": True}, {"rows_without_pair": 96, "swapped_pair_share": 0.5}),
        (
            {"sop": True},
            {"rows_without_pair": 0, "random_pair_share": 0.96, "swapped_pair_share": 0.02},
        ),
    ],
)
def test_rows_that_cannot_teach_a_pair_loss_are_refused(losses, statistics):
    """B08: a blank line after each sentence makes each one a document."""
    loss = next(iter(losses))
    with pytest.raises(ValueError, match=f"type {loss}=false") as caught:
        check(statistics, **losses)
    assert "two sentences" in str(caught.value)
    check(statistics)


def test_rows_that_can_teach_a_pair_loss_are_taken():
    check({"random_pair_share": 0.64, "rows_without_pair": 0}, nsp=True)
    check({"rows_without_pair": 50, "swapped_pair_share": 0.5}, sop=True)
    thirds = {"random_pair_share": 0.4, "swapped_pair_share": 0.3, "rows_without_pair": 0}
    check(thirds, nsp=True, sop=True)


@pytest.mark.parametrize(
    ("share", "rows", "refused"),
    [(0.864, 1000, True), (0.5, 1000, False), (0.53, 1000, False), (0.53, 100_000, True)],
)
def test_exact_shares_that_single_sentences_make_impossible_are_refused(share, rows, refused):
    statistics = {"exact": True, "rows": rows, "random_pair_share": share, "rows_without_pair": 0}
    if refused:
        with pytest.raises(ValueError, match="pair_sampling=bert"):
            check(statistics, nsp=True)
    else:
        check(statistics, nsp=True)


def test_copies_that_repeat_nothing_are_refused():
    """The same run as without copies, under another name."""
    for group in ("masking", "input_format"):
        copies = {"row_copies": 1, "masking_copies": None}
        copies |= {"masking_copies" if group == "masking" else "row_copies": 10}
        with pytest.raises(
            ValueError, match=f"{group}.copies=10 repeats nothing in the 1.41 epoch"
        ):
            check({}, epochs=1.41, **copies)
        with pytest.raises(ValueError, match="repeats nothing"):
            check({}, epochs=10.0, **copies)
        check({}, epochs=10.01, **copies)
        check({}, epochs=0.0, **copies)  # no pretraining: the scratch baseline


def test_b43_characters_that_the_tokenizer_does_not_know_are_said(capsys):
    """Three of six characters of `cat 😀😀😀`; one in a hundred is borne in silence."""
    warn_of_unknown({"unk_characters": 1, "characters": 100})
    assert capsys.readouterr().err == ""
    warn_of_unknown({"unk_characters": 3, "characters": 6})
    assert "50.0%" in capsys.readouterr().err
    warn_of_unknown({"unk_characters": 0, "characters": 0})
    assert capsys.readouterr().err == ""
