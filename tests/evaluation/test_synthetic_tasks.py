"""Generated tasks and minimal pairs: balanced, held out by lexeme, mirrored, of equal length."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest

from ablate.corpus.synthetic_lexicon import lexicon
from ablate.corpus.synthetic_phrases import Event, Thing
from ablate.evaluation import synthetic_pairs
from ablate.evaluation.synthetic_tasks import (
    DEFAULT_SIZES,
    SPECS,
    TASKS,
    generate,
    minimal_pairs,
    similarity_score,
)

PARADIGMS = [p.__name__ for p in synthetic_pairs.GRAMMAR + synthetic_pairs.MEANING]


@pytest.fixture(scope="module")
def pairs() -> list[dict]:
    return minimal_pairs(seed=100, num_per_paradigm=60)


@pytest.mark.parametrize("task", TASKS)
def test_examples_have_the_declared_fields_and_default_numbers(task):
    assert list(SPECS) == list(TASKS)
    for split, count in DEFAULT_SIZES.items():
        rows = generate(task, split, seed=100)
        assert [row["idx"] for row in rows] == list(range(count))
        assert {tuple(row) for row in rows} == {(*SPECS[task]["fields"], "label", "idx")}
        texts = [tuple(row[field] for field in SPECS[task]["fields"]) for row in rows]
        assert len(set(texts)) == count


@pytest.mark.parametrize("task", TASKS)
def test_same_seed_same_examples(task):
    assert (
        generate(task, "train", seed=3, num_examples=20)
        == generate(task, "train", seed=3, num_examples=30)[:20]
    )
    assert generate(task, "train", seed=3, num_examples=20) != generate(
        task, "train", seed=4, num_examples=20
    )


@pytest.mark.parametrize("task", [task for task in TASKS if SPECS[task]["labels"]])
def test_classes_are_balanced(task):
    rows = generate(task, "validation", seed=100, num_examples=3000)
    classes = len(SPECS[task]["labels"])
    counts = Counter(row["label"] for row in rows)
    assert set(counts) == set(range(classes))
    assert all(abs(n / len(rows) - 1 / classes) < 0.06 for n in counts.values())


def test_training_uses_half_of_the_lexemes_and_validation_all():
    held_out = set(lexicon().stems()) - set(lexicon().training_half().stems())
    pieces = held_out | {f"{stem}{end}" for stem in held_out for end in ("s", "ed", "ing", "ers")}
    pieces |= {f"un{stem}" for stem in held_out}

    def words(split: str) -> set[str]:
        rows = itertools.chain.from_iterable(generate(t, split, seed=100) for t in TASKS)
        return set(" ".join(f"{r['sentence1']} {r.get('sentence2', '')}" for r in rows).split())

    assert not words("train") & pieces
    assert len(words("validation") & pieces) > 50


def test_the_hypothesis_alone_does_not_tell_entailment():
    """A hypothesis is negated equally often whatever the label."""
    rows = generate("entailment", "validation", seed=100, num_examples=6000)
    rows = [row for row in rows if " good " not in row["sentence2"]]
    rows = [row for row in rows if " bad " not in row["sentence2"]]
    share = {
        label: sum(" not " in r["sentence2"] for r in rows if r["label"] == label)
        / sum(r["label"] == label for r in rows)
        for label in range(3)
    }
    assert max(share.values()) - min(share.values()) < 0.06


def test_entailment_turns_on_sign_alone_between_its_outer_classes():
    rows = generate("entailment", "validation", seed=100)
    told = [r for r in rows if "ed " in r["sentence1"] and r["label"] == 2]
    assert told
    for row in told:
        assert (" not " in row["sentence1"]) != (" not " in row["sentence2"]), row


def test_similarity_counts_what_two_events_share():
    words = lexicon()
    noun, alike = (n for n in words.nouns if n.kind == "tool" and n in words.nouns[:10])
    first, second = words.verbs_for["tool"][:2]
    event = Event(words.people[0], first, Thing(noun, False, "red"))
    assert similarity_score(event, event) == 5.0
    assert similarity_score(event, event._replace(person=words.people[1])) == 3.75
    assert similarity_score(event, event._replace(verb=second)) == 3.75
    assert similarity_score(event, event._replace(thing=Thing(alike, False, "red"))) == 4.375
    assert similarity_score(event, event._replace(negated=True)) == 3.75


def test_unknown_tasks_splits_and_impossible_numbers_are_refused():
    with pytest.raises(ValueError, match="acceptability"):
        generate("grammar", "train", seed=1)
    with pytest.raises(ValueError, match="validation"):
        generate("qa", "test", seed=1)
    with pytest.raises(ValueError, match="ask for fewer"):
        generate("sentiment", "train", seed=1, num_examples=10**5)
    with pytest.raises(ValueError, match="even number"):
        minimal_pairs(seed=1, num_per_paradigm=3)


def test_every_paradigm_has_its_number_of_pairs(pairs):
    assert Counter(row["paradigm"] for row in pairs) == dict.fromkeys(PARADIGMS, 60)
    assert [row["idx"] for row in pairs] == list(range(len(pairs)))


def test_both_sentences_of_a_pair_differ_and_have_as_many_pieces(pairs, tokenizer):
    for row in pairs:
        good = tokenizer.encode(row["sentence_good"]).ids
        bad = tokenizer.encode(row["sentence_bad"]).ids
        assert good != bad
        assert len(good) == len(bad), row
        assert tokenizer.token_to_id("[UNK]") not in good + bad


def test_a_constant_preference_scores_one_half_in_every_paradigm(pairs, tokenizer):
    """Each piece has a fixed random score wherever it stands: mirrors keep that at one half."""
    for multiplier in (1, 7, 31):
        wins: Counter[str] = Counter()
        for row in pairs:
            good, bad = (
                sum((i * multiplier * 2654435761) % 1009 for i in tokenizer.encode(text).ids)
                for text in (row["sentence_good"], row["sentence_bad"])
            )
            wins[row["paradigm"]] += 0.5 * ((good > bad) + (good >= bad))
        assert set(wins.values()) == {30.0}


def test_an_agreement_pair_and_its_mirror(pairs):
    first, mirror = pairs[:2]
    good, bad = first["sentence_good"].split(), first["sentence_bad"].split()
    place = next(i for i, (a, b) in enumerate(zip(good, bad, strict=True)) if a != b)
    assert good[1] + "s" == mirror["sentence_good"].split()[1]
    assert mirror["sentence_good"].split()[place] == bad[place]
    assert mirror["sentence_bad"].split()[place] == good[place]


@pytest.mark.parametrize("task", TASKS)
def test_excluded_texts_do_not_come_again(task):
    train = generate(task, "train", seed=100, num_examples=300)
    scored = generate(task, "validation", seed=100, num_examples=300, exclude=train)
    texts = [{(row["sentence1"], row.get("sentence2")) for row in rows} for rows in (train, scored)]
    assert not texts[0] & texts[1]
    assert len(scored) == 300
