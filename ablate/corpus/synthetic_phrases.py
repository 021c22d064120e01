"""Words of the built-in language -> its phrases: things, events, judgements.

The corpus and the tasks put their sentences together from these same functions, so that a task asks
about forms that pretraining has shown.
"""

from __future__ import annotations

from typing import NamedTuple

from ablate.corpus.synthetic_lexicon import Draw, Lexicon, Noun, Person, Quality, Verb, article

DETERMINERS = (("this", "that", "every"), ("these", "those", "some", "many"))


class Thing(NamedTuple):
    """What a noun phrase refers to."""

    noun: Noun
    plural: bool
    attribute: str

    @property
    def word(self) -> str:
        return self.noun.stem + "s" if self.plural else self.noun.stem

    @property
    def pronoun(self) -> str:
        return "them" if self.plural else "it"

    @property
    def kinds(self) -> str:
        """Its hypernym in its own number, without a determiner."""
        return f"{self.noun.kind}s" if self.plural else self.noun.kind

    @property
    def kind(self) -> str:
        """Its hypernym as an indefinite phrase: a tool, tools."""
        return self.kinds if self.plural else f"{article(self.noun.kind)} {self.noun.kind}"


class Event(NamedTuple):
    """Who did (or did not do) what to which thing."""

    person: Person
    verb: Verb
    thing: Thing
    negated: bool = False


def clause(
    event: Event,
    *,
    synonym: int = 0,
    passive: bool = False,
    pronoun: bool = False,
    patient: str | None = None,
) -> str:
    """The event in the past tense, by either of its verbs, in either voice, without a full stop."""
    person, stem = event.person, event.verb.stems[synonym]
    patient = patient or f"the {event.thing.word}"
    if passive:
        verb = "were" if event.thing.plural else "was"
        agent = person.object if pronoun else person.name
        return f"{patient} {verb} {'not ' if event.negated else ''}{stem}ed by {agent}"
    subject = person.subject if pronoun else person.name
    if event.negated:
        return f"{subject} did not {stem} {patient}"
    return f"{subject} {stem}ed {patient}"


def judgement(quality: Quality, positive: bool, *, negated: bool | None = None) -> str | None:
    """Words that praise or blame by this adjective: not and un- each turn its polarity round.

    Returns None where the wish cannot be met: a turn is needed and `negated` forbids the only one.
    """
    turn = quality.positive != positive
    if negated is None:
        negated = turn and not quality.prefixed
    prefix = turn != negated
    if prefix and not quality.prefixed:
        return None
    return f"{'not ' if negated else ''}{'un' if prefix else ''}{quality.stem}"


def noun_phrase(draw: Draw, thing: Thing, *, owner: Person | None = None) -> str:
    """The thing with a determiner: the, its owner's, or one that shows its number."""
    word = f"{thing.attribute} {thing.word}" if draw.flip(0.35) else thing.word
    which = draw.uniform()
    if which < 0.5:
        return f"the {word}"
    if which < 0.7 and owner:
        return f"{owner.possessive} {word}"
    if not thing.plural and draw.flip(0.4):
        return f"{article(word)} {word}"
    return f"{draw.among(DETERMINERS[thing.plural])} {word}"


def new_thing(draw: Draw, words: Lexicon, *, besides: Thing | None = None) -> Thing:
    """A thing with a number and an attribute of its own, and another noun than `besides`."""
    noun = draw.other(words.nouns, besides.noun) if besides else draw.pick(words.nouns)
    return Thing(noun, draw.flip(0.45), draw.pick(words.attributes_for[noun.kind]).word)


def new_verb(draw: Draw, words: Lexicon, thing: Thing, *, besides: Verb | None = None) -> Verb:
    """A verb whose object the thing can be."""
    verbs = words.verbs_for[thing.noun.kind]
    return draw.other(verbs, besides) if besides else draw.pick(verbs)
