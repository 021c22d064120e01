"""The built-in language: deterministic, consistent in itself, split at its morpheme borders."""

from __future__ import annotations

import itertools
import re

import pytest

from ablate.corpus.synthetic import documents, morphemes
from ablate.corpus.synthetic_lexicon import CLASSES, FUNCTION_WORDS, article, lexicon
from ablate.corpus.synthetic_phrases import Event, Thing, clause, judgement


@pytest.fixture(scope="module")
def stories() -> list[str]:
    return list(documents(100, 1500))


def test_same_seed_same_documents_and_a_prefix_for_every_size():
    assert list(documents(7, 20)) == list(documents(7, 30))[:20]


def test_another_seed_gives_other_documents_over_the_same_words():
    one, two = list(documents(7, 300)), list(documents(8, 300))
    assert not set(one) & set(two)
    assert set(" ".join(one).split()) & {p.name for p in lexicon().people}
    assert lexicon(0) is lexicon(0)


def test_another_world_seed_gives_other_stems_in_the_same_numbers():
    here, there = lexicon(0), lexicon(1)
    assert len(here.stems()) == len(there.stems())
    assert len(set(here.stems()) & set(there.stems())) < 20
    assert next(documents(7, 1, world_seed=1)) != next(documents(7, 1))


def test_documents_are_lower_case_sentences_with_spaced_tokens(stories):
    for line in itertools.chain.from_iterable(story.split("\n") for story in stories):
        assert re.fullmatch(r"[a-z]+( [a-z]+| ,)* [.?]", line), line


def test_morphemes_are_unique_and_all_used(tokenizer, stories):
    entries = morphemes()
    assert len(set(entries)) == len(entries)
    used = set(itertools.chain.from_iterable(e.tokens for e in tokenizer.encode_batch(stories)))
    assert set(entries) - used == set()


def test_no_word_is_unknown_and_words_split_at_morpheme_borders(tokenizer, stories):
    stems, verbs = lexicon().nouns, lexicon().verbs
    quality = next(q for q in lexicon().qualities if q.prefixed)
    assert tokenizer.encode(f"{stems[0].stem}s").tokens == [stems[0].stem, "##s"]
    for stem in itertools.chain.from_iterable(verb.stems for verb in verbs):
        assert tokenizer.encode(f"{stem}ed").tokens == [stem, "##ed"]
        assert tokenizer.encode(f"{stem}ing").tokens == [stem, "##ing"]
    assert tokenizer.encode(f"un{quality.stem}").tokens == ["un", f"##{quality.stem}"]
    assert not any("[UNK]" in e.tokens for e in tokenizer.encode_batch(stories))


def test_a_sixth_or_more_of_the_words_have_several_pieces(tokenizer, stories):
    words = [w for story in stories for w in story.split() if w.isalpha()]
    pieces = [len(e.ids) for e in tokenizer.encode_batch(words[:5000])]
    assert 0.15 < sum(n > 1 for n in pieces) / len(pieces) < 0.45


def test_a_and_an_follow_the_next_word(stories):
    words = " ".join(stories).split()
    for word, following in itertools.pairwise(words):
        if word in ("a", "an"):
            assert word == article(following)


def test_determiners_and_verbs_agree_in_number(stories):
    text = " ".join(stories)
    nouns = {noun.stem for noun in lexicon().nouns}
    plurals = {f"{stem}s" for stem in nouns}
    for determiner, noun in re.findall(r"\b(this|every|these|many) (\w+)", text):
        if noun in nouns | plurals:
            assert (determiner in ("these", "many")) == (noun in plurals)
    for noun, verb in re.findall(r"^the (\w+) (is|are|was|were)\b", "\n".join(stories), re.M):
        if noun in nouns | plurals:
            assert (verb in ("are", "were")) == (noun in plurals)


def test_reflexives_agree_with_the_gender_of_the_name(stories):
    people = {person.name: person for person in lexicon().people}
    lines = [line.split() for story in stories for line in story.split("\n")]
    found = [(line[0], w) for line in lines for w in line if w in ("herself", "himself")]
    assert len(found) > 100
    assert all(people[name].reflexive == word for name, word in found if name in people)


def test_a_story_keeps_to_two_people_and_answers_what_it_told(stories):
    names = {person.name for person in lexicon().people}
    for story in stories:
        assert len(names & set(story.split())) <= 2
    text = "\n".join(stories)
    asked = re.findall(r"^(\w+) (\w+)ed the (\w+) \.\ndid \1 \2 the \3 \?\n(\w+) \.", text, re.M)
    assert len(asked) > 10
    assert {answer for *_, answer in asked} == {"yes"}


def test_verbs_go_with_a_third_of_the_classes_and_attributes_with_half():
    words = lexicon()
    for kind in CLASSES:
        assert len(words.verbs_for[kind]) == len(words.verbs) // 3
        assert len(words.attributes_for[kind]) == len(words.attributes) // 2


def test_the_training_half_keeps_every_kind_and_two_of_each_choice():
    half = lexicon().training_half()
    assert {noun.kind for noun in half.nouns} == set(CLASSES)
    assert all(len(verbs) >= 2 for verbs in half.verbs_for.values())
    assert {(q.positive, q.prefixed) for q in half.qualities} == {
        (p, u) for p in (True, False) for u in (True, False)
    }
    assert {person.subject for person in half.people} == {"she", "he"}


def test_not_and_un_each_turn_a_judgement_round():
    good = next(q for q in lexicon().qualities if q.positive and q.prefixed)
    plain = next(q for q in lexicon().qualities if q.positive and not q.prefixed)
    assert judgement(good, True, negated=False) == good.stem
    assert judgement(good, True, negated=True) == f"not un{good.stem}"
    assert judgement(good, False, negated=False) == f"un{good.stem}"
    assert judgement(plain, False, negated=True) == f"not {plain.stem}"
    assert judgement(plain, False, negated=False) is None
    assert judgement(plain, False) == f"not {plain.stem}"


def test_clause_in_both_voices():
    words = lexicon()
    person, noun = words.people[0], words.nouns[0]
    verb = words.verbs_for[noun.kind][0]
    thing = Thing(noun, plural=True, attribute="red")
    event = Event(person, verb, thing, negated=True)
    first, second = verb.stems
    assert clause(event) == f"{person.name} did not {first} the {noun.stem}s"
    assert (
        clause(event, synonym=1, passive=True, pronoun=True)
        == f"the {noun.stem}s were not {second}ed by {person.object}"
    )


def test_no_stem_begins_another_word():
    words = [*FUNCTION_WORDS, *CLASSES, *lexicon().stems()]
    for stem in lexicon().stems():
        assert sum(word.startswith(stem) for word in words) == 1, stem
