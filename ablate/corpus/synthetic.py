"""(seed, number of documents) -> documents of the built-in language, one sentence a line.

A document is a small story: two people, two things and a place that stay the same from the first
sentence to the last, so that which sentences belong together and in which order can be learned.
Every phenomenon the tasks ask about occurs about once a document or more; rarer ones were not
learned within a minute of training. The grammar is made for this project.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import TypeVar

from ablate.corpus.synthetic_lexicon import Draw, Lexicon, Person, Verb, article, lexicon, morphemes
from ablate.corpus.synthetic_phrases import (
    Event,
    Thing,
    clause,
    judgement,
    new_thing,
    new_verb,
    noun_phrase,
)

__all__ = ["documents", "morphemes"]

_ZIPF = 1.4
_MAIN = 0.85  # share of sentences about the first person, the first thing, its first verb
T = TypeVar("T")


class _Story:
    """One document in the making: its entities, and one method a kind of passage.

    The first of two people and of two things takes most sentences, and its verbs and place
    stay the same too: words keep coming back, and a masked one can be looked up. In versions where
    every sentence drew its own, that was not learned within the budget.
    """

    def __init__(self, draw: Draw, words: Lexicon) -> None:
        self.draw, self.words = draw, words
        first = draw.pick(words.people)
        self.people = (first, draw.other(words.people, first))
        thing = new_thing(draw, words)
        self.things = (thing, new_thing(draw, words, besides=thing))
        self.verbs = {thing: self.two_verbs(thing) for thing in self.things}
        self.said = (self.judged(False), self.judged(True))
        self.job, self.place = draw.pick(words.jobs), draw.pick(words.places)
        self.intransitive = draw.pick(words.intransitives)
        self.told: dict[tuple[Person, Verb, Thing], bool] = {}  # event -> negated

    def two_verbs(self, thing: Thing) -> tuple[Verb, Verb]:
        verb = new_verb(self.draw, self.words, thing)
        return verb, new_verb(self.draw, self.words, thing, besides=verb)

    def judged(self, positive: bool) -> str:
        """Praise or blame, in words that may negate."""
        draw, said = self.draw, None
        plainly = draw.flip(0.8)  # by an adjective of this polarity, else by turning another
        while said is None:
            quality = draw.pick(self.words.qualities)
            if (quality.positive == positive) == plainly:
                said = judgement(quality, positive, negated=not plainly and draw.flip(0.3))
        return said

    def main(self, pair: tuple[T, T]) -> T:
        return pair[self.draw.uniform() >= _MAIN]

    def verb(self, thing: Thing) -> Verb:
        return self.main(self.verbs[thing])

    def event(self) -> list[str]:
        """Something happens; then it is said again, asked about, or generalised."""
        draw = self.draw
        thing = self.main(self.things)
        event = Event(self.main(self.people), self.verb(thing), thing, draw.flip(0.15))
        self.told[event[:3]] = event.negated
        synonym, passive = int(draw.uniform() * 2), draw.flip(0.1)
        told = [self.first_telling(event, synonym, passive)]
        if draw.flip(0.6):
            told.append(self.restatement(event, 1 - synonym, passive))
        if draw.flip(0.1) and not event.negated:
            told.append(
                f"so {event.person.subject} {event.verb.stems[synonym]}ed {event.thing.kind} ."
            )
        follow = draw.uniform()
        if follow < 0.25:
            told += self.yes_no(event, synonym)
        elif follow < 0.45 and not event.negated:
            told += self.question(event, synonym)
        return told

    def first_telling(self, event: Event, synonym: int, passive: bool) -> str:
        """With asides that tie a word to its meaning from close by: a gender, a synonym, a kind.

        Without them the lexicon was not learned within 6,000 steps: all its pairs scored one half.
        """
        draw, which = self.draw, self.draw.uniform()
        patient = noun_phrase(draw, event.thing, owner=event.person)
        if which < 0.25:
            patient += f" , {event.thing.kind} ,"
        place = f" at the {self.place}" if draw.flip(0.1) else ""
        text = clause(event, synonym=synonym, passive=passive, patient=patient) + place
        if 0.25 < which < 0.4 and not passive:
            name = event.person.name
            text = text.replace(name, f"{name} {event.person.reflexive}", 1)
        elif which > 0.75 and not event.negated:
            stem, other = event.verb.stems[synonym], event.verb.stems[1 - synonym]
            text = text.replace(f" {stem}ed ", f" {stem}ed or {other}ed ", 1)
        return f"{text.removesuffix(' ,')} ."

    def restatement(self, event: Event, synonym: int, passive: bool) -> str:
        draw = self.draw
        text = clause(
            event,
            synonym=synonym if draw.flip(0.8) else 1 - synonym,
            passive=passive != draw.flip(0.2),
            pronoun=draw.flip(0.5),
            patient=f"the {event.thing.kinds}" if draw.flip(0.2) else None,
        )
        return f"that is , {text} ."

    def yes_no(self, event: Event, synonym: int) -> list[str]:
        """yes if the story says so, no if it says the contrary, maybe if it says something else."""
        draw = self.draw
        asked = self.altered(event) if draw.flip(0.45) else event
        negated = self.told.get(asked[:3])
        truth = "maybe" if negated is None else "no" if negated else "yes"
        stem = asked.verb.stems[synonym if draw.flip(0.5) else 1 - synonym]
        return [f"did {asked.person.name} {stem} the {asked.thing.word} ?", f"{truth} ."]

    def altered(self, event: Event) -> Event:
        """The event with another person, verb or thing."""
        which = self.draw.uniform()
        if which < 0.33:
            return event._replace(person=self.draw.other(self.people, event.person))
        if which < 0.66:
            one, two = self.verbs[event.thing]
            return event._replace(verb=two if event.verb is one else one)
        other = self.things[event.thing is self.things[0]]
        return event._replace(thing=other)

    def question(self, event: Event, synonym: int) -> list[str]:
        stem = event.verb.stems[synonym]
        if self.draw.flip(0.65):
            return [f"who {stem}ed the {event.thing.word} ?", f"{event.person.name} did ."]
        return [f"what did {event.person.name} {stem} ?", f"the {event.thing.word} ."]

    def opinion(self) -> list[str]:
        """A judgement with what follows from it, often beside another of the same polarity.

        Polarity is learned from neighbours: "liked X things", "X and Y", "X and good".
        Its polarity is new each time: were it a property of the story, liked and hated could be
        copied from elsewhere and no adjective would come to mean anything.
        """
        draw, person, positive = self.draw, self.main(self.people), self.draw.flip()
        thing, said = self.main(self.things), self.said[positive]
        after = self.consequence(person, thing, positive)
        if not said.startswith("not ") and draw.flip(0.6):
            things = thing._replace(plural=True).word
            return [f"{person.name} {self.attitude(positive)} {said} {things} ."]
        if draw.flip(0.5):
            verdict = "good" if positive else "bad"
            said += f" and {verdict if draw.flip(0.4) else self.judged(positive)}"
        where = f" near the {self.main(self.things).word}" if draw.flip(0.1) else ""
        return [f"the {thing.word}{where} {'are' if thing.plural else 'is'} {said} {after}"]

    def attitude(self, positive: bool) -> str:
        if self.draw.flip():
            return "liked" if positive else "hated"
        return "will keep" if positive else "will sell"

    def consequence(self, person: Person, thing: Thing, positive: bool) -> str:
        which = self.draw.uniform()
        if which < 0.5:
            return f"so {person.name} {self.attitude(positive)} {thing.pronoun} ."
        if which < 0.7:
            return f"so {person.name} is {'happy' if positive else 'sad'} ."
        they = "they are" if thing.plural else "it is"
        return f"so {they} {'good' if positive else 'bad'} ."

    def agreement(self) -> list[str]:
        """The verb agrees with the head of its subject over a phrase of either number."""
        draw = self.draw
        plural, other = draw.flip(), self.main(self.things)
        head, attribute = other.noun.stem, other.attribute
        if draw.flip():
            head, attribute = f"{self.job}er", draw.pick(self.words.attributes).word
        else:
            other = self.things[other is self.things[0]]
        subject = f"the {head}{'s' if plural else ''}"
        far = f"{other.noun.stem}{'s' if draw.flip() else ''}"
        which = draw.uniform()
        if which < 0.4:
            subject += f" near the {far}"
        elif which < 0.75:
            stem = draw.among(self.verb(other).stems)
            subject += f" that {stem if plural else stem + 's'} the {far}"
        return [f"{subject} {self.predicate(plural, attribute)} ."]

    def predicate(self, plural: bool, attribute: str) -> str:
        draw, which = self.draw, self.draw.uniform()
        if which < 0.35:
            return f"{'are' if plural else 'is'} {attribute}"
        if which < 0.55:
            return f"{'were' if plural else 'was'} at the {self.place}"
        if which < 0.75:
            return f"{'have' if plural else 'has'} {noun_phrase(draw, self.main(self.things))}"
        stem = self.intransitive
        if which < 0.9:
            return f"{'do' if plural else 'does'} not {stem}"
        return stem if plural else f"{stem}s"

    def reflexive(self) -> list[str]:
        draw = self.draw
        if draw.flip(0.3):
            plural = draw.flip(0.7)
            person = self.main(self.people)
            subject = f"the {self.job}ers" if plural else person.name
            return [f"{subject} saw {'themselves' if plural else person.reflexive} ."]
        person, stem = self.main(self.people), draw.among(self.verb(self.things[0]).stems)
        if draw.flip():
            return [f"{person.name} {stem}ed {person.reflexive} ."]
        return [f"{person.name} is {stem}ing {person.reflexive} ."]

    def kind(self) -> list[str]:
        thing = self.main(self.things)
        stem, kind = thing.noun
        if self.draw.flip():
            return [f"every {stem} is {article(kind)} {kind} ."]
        return [f"{article(stem)} {stem} is a kind of {kind} ."]

    def possession(self) -> list[str]:
        draw, person = self.draw, self.main(self.people)
        return [f"{person.name} has {noun_phrase(draw, self.main(self.things), owner=person)} ."]

    def progressive(self) -> list[str]:
        draw, person, thing = self.draw, self.main(self.people), self.main(self.things)
        verb = draw.among(self.verb(thing).stems)
        negation = "not " if draw.flip(0.4) else ""
        phrase = noun_phrase(draw, thing, owner=person)
        return [f"{person.name} is {negation}{verb}ing {phrase} ."]

    def conjunction(self) -> list[str]:
        person, (thing, other) = self.main(self.people), self.things
        first, second = self.verb(thing).stems[0], self.verb(other).stems[0]
        both = f"{first}ed the {thing.word} and {second}ed the {other.word}"
        return [f"{person.name} {both} .", f"so {person.subject} {second}ed the {other.word} ."]


_PASSAGES: tuple[tuple[Callable[[_Story], list[str]], float], ...] = (
    (_Story.event, 0.38),
    (_Story.opinion, 0.38),
    (_Story.agreement, 0.12),
    (_Story.reflexive, 0.04),
    (_Story.kind, 0.02),
    (_Story.possession, 0.02),
    (_Story.progressive, 0.02),
    (_Story.conjunction, 0.02),
)
_TELL = [passage for passage, _ in _PASSAGES]
_BOUNDS = list(accumulate(weight for _, weight in _PASSAGES))


def documents(seed: int, num_documents: int, *, world_seed: int = 0) -> Iterator[str]:
    """Documents of 16 to 25 sentences: lower case, tokens separated by spaces, one sentence a line.

    The first k documents are the same for every `num_documents` >= k.
    """
    draw, words = Draw(seed, "synthetic", "documents", exponent=_ZIPF), lexicon(world_seed)
    for _ in range(num_documents):
        story = _Story(draw, words)
        length = 16 + int(draw.uniform() * 6)
        told: list[str] = []
        while len(told) < length:
            told += _TELL[bisect(_BOUNDS[:-1], draw.uniform())](story)
        yield "\n".join(told)
