"""(seed, number) -> minimal pairs: a good and a bad sentence, one word apart.

Every pair comes with its mirror, in which the word that was wrong is right: a model that always
prefers one word, whatever stands around it, scores exactly one half. Both sentences of a pair have
the same number of pieces, because a sum of log probabilities would otherwise measure length.
"""

from __future__ import annotations

from collections.abc import Callable

from ablate.corpus.synthetic_lexicon import Draw, Lexicon, Person, article, lexicon
from ablate.corpus.synthetic_phrases import (
    DETERMINERS,
    Event,
    clause,
    judgement,
    new_thing,
    new_verb,
    noun_phrase,
)

Pair = tuple[str, str]  # good, bad
Item = tuple[Pair, Pair]  # a pair and its mirror


def _filled(frame: Callable[[int, str], str], first: str, second: str) -> Item:
    """A frame in two versions: `first` is right in version 0, `second` in version 1."""
    return (frame(0, first), frame(0, second)), (frame(1, second), frame(1, first))


def _head(draw: Draw, words: Lexicon) -> tuple[str, str]:
    stem = f"{draw.pick(words.jobs)}er" if draw.flip() else draw.pick(words.nouns).stem
    return stem, f"{stem}s"


def _agreement(draw: Draw, words: Lexicon, heads: tuple[str, str], between: str = "") -> Item:
    """Heads and what stands between, then a verb of either number."""
    verbs, rest = draw.among(
        (
            (("is", "are"), draw.pick(words.attributes).word),
            (("was", "were"), f"at the {draw.pick(words.places)}"),
            (("has", "have"), noun_phrase(draw, new_thing(draw, words))),
            (("does", "do"), f"not {draw.pick(words.intransitives)}"),
        )
    )
    return _filled(lambda i, verb: f"the {heads[i]} {between}{verb} {rest} .", *verbs)


def agreement(draw: Draw, words: Lexicon) -> Item:
    return _agreement(draw, words, _head(draw, words))


def agreement_phrase(draw: Draw, words: Lexicon) -> Item:
    """A noun of either number stands between subject and verb."""
    between = f"near the {new_thing(draw, words).word} "
    return _agreement(draw, words, _head(draw, words), between)


def agreement_relative(draw: Draw, words: Lexicon) -> Item:
    """A relative clause stands between; its own verb agrees with the head as well."""
    thing = new_thing(draw, words)
    stem = draw.among(new_verb(draw, words, thing).stems)
    one, many = _head(draw, words)
    heads = f"{one} that {stem}s the {thing.word}", f"{many} that {stem} the {thing.word}"
    return _agreement(draw, words, heads)


def determiner(draw: Draw, words: Lexicon) -> Item:
    """A determiner has the number of its noun."""
    thing, person = new_thing(draw, words), draw.pick(words.people)
    verb = draw.among(new_verb(draw, words, thing).stems)
    forms = thing._replace(plural=False).word, thing._replace(plural=True).word
    one, many = (draw.among(of_number) for of_number in DETERMINERS)
    return _filled(lambda i, det: f"{person.name} {verb}ed {det} {forms[i]} .", one, many)


def indefinite(draw: Draw, words: Lexicon) -> Item:
    """a before a consonant, an before a vowel."""
    stems = [noun.stem for noun in words.nouns]
    nouns = [draw.pick([s for s in stems if article(s) == art]) for art in ("a", "an")]
    person = draw.pick(words.people)
    return _filled(lambda i, art: f"{person.name} has {art} {nouns[i]} .", "a", "an")


def _she_and_he(draw: Draw, words: Lexicon) -> tuple[Person, Person]:
    she, he = ([p for p in words.people if p.subject == word] for word in ("she", "he"))
    return draw.pick(she), draw.pick(he)


def reflexive(draw: Draw, words: Lexicon) -> Item:
    """Gender of a name, or number: herself / himself, or either against themselves."""
    people = _she_and_he(draw, words)
    verb = draw.among(["saw", f"{draw.among(draw.pick(words.verbs).stems)}ed"])
    if draw.flip(0.6):
        return _filled(lambda i, w: f"{people[i].name} {verb} {w} .", "herself", "himself")
    person = draw.among(people)
    subjects = person.name, f"the {draw.pick(words.jobs)}ers"
    return _filled(lambda i, w: f"{subjects[i]} saw {w} .", person.reflexive, "themselves")


def auxiliary(draw: Draw, words: Lexicon) -> Item:
    """did takes the bare verb, is takes -ing."""
    person, thing = draw.pick(words.people), new_thing(draw, words)
    verb = draw.among(new_verb(draw, words, thing).stems)
    verbs, phrase = (verb, f"{verb}ing"), noun_phrase(draw, thing)
    return _filled(lambda i, aux: f"{person.name} {aux} not {verbs[i]} {phrase} .", "did", "is")


def order(draw: Draw, words: Lexicon) -> Item:
    """Attribute before noun in a phrase, noun before attribute in a statement."""
    thing = new_thing(draw, words)._replace(plural=False)
    attribute, noun = thing.attribute, thing.noun.stem
    start = f"{draw.pick(words.people).name} has the"
    phrase = f"{start} {attribute} {noun} .", f"{start} {noun} {attribute} ."
    return phrase, (f"the {noun} is {attribute} .", f"the {attribute} is {noun} .")


def _event(draw: Draw, words: Lexicon) -> Event:
    thing = new_thing(draw, words)
    return Event(draw.pick(words.people), new_verb(draw, words, thing), thing)


def synonym(draw: Draw, words: Lexicon) -> Item:
    """A restatement by the other verb of the same meaning, against a verb of another meaning."""
    event = _event(draw, words)
    other = new_verb(draw, words, event.thing, besides=event.verb)
    events = event, event._replace(verb=other)

    def frame(i: int, verb: str) -> str:
        again = f"{event.person.name} {verb}ed the {event.thing.word}"
        return f"{clause(events[i])} . that is , {again} ."

    return _filled(frame, events[0].verb.stems[1], events[1].verb.stems[1])


def hypernym(draw: Draw, words: Lexicon) -> Item:
    noun = draw.pick(words.nouns)
    other = draw.pick([n for n in words.nouns if n.kind != noun.kind])
    stems = noun.stem, other.stem
    return _filled(
        lambda i, kind: f"{article(stems[i])} {stems[i]} is a kind of {kind} .",
        noun.kind,
        other.kind,
    )


def pronoun(draw: Draw, words: Lexicon) -> Item:
    people, event = _she_and_he(draw, words), _event(draw, words)

    def frame(i: int, word: str) -> str:
        said = clause(event._replace(person=people[i]))
        return f"{said} . that is , {word} {event.verb.stems[1]}ed the {event.thing.word} ."

    return _filled(frame, "she", "he")


def consequence(draw: Draw, words: Lexicon) -> Item:
    """A good thing is liked and kept, a bad one hated and sold."""
    thing, person = new_thing(draw, words), draw.pick(words.people)
    said = [random_judgement(draw, words, positive) for positive in (True, False)]
    verb = "are" if thing.plural else "is"
    good, bad, after = draw.among(
        (
            ("liked", "hated", f" {thing.pronoun}"),
            ("is happy", "is sad", ""),
            ("will keep", "will sell", f" {thing.pronoun}"),
        )
    )
    return _filled(
        lambda i, then: f"the {thing.word} {verb} {said[i]} so {person.name} {then}{after} .",
        good,
        bad,
    )


def random_judgement(draw: Draw, words: Lexicon, positive: bool) -> str:
    """Praise or blame; some of it with not, and un- wherever the adjective takes it."""
    while True:
        said = judgement(draw.pick(words.qualities), positive, negated=draw.flip(0.15))
        if said is not None:
            return said


def answer(draw: Draw, words: Lexicon) -> Item:
    """yes to what was said, maybe to what was not: the question's verb decides."""
    event = _event(draw, words)
    other = new_verb(draw, words, event.thing, besides=event.verb)
    told = event, event._replace(verb=other)
    question = f"did {event.person.name} {event.verb.stems[1]} the {event.thing.word} ?"
    return _filled(lambda i, word: f"{clause(told[i])} . {question} {word} .", "yes", "maybe")


def retrieval(draw: Draw, words: Lexicon) -> Item:
    """Two did two things; who did one of them?"""
    first = _event(draw, words)
    other = new_thing(draw, words, besides=first.thing)
    verb = draw.other(words.verbs_for[other.noun.kind], first.verb)
    second = Event(draw.other(words.people, first.person), verb, other)
    events = first, second

    def frame(i: int, name: str) -> str:
        asked = f"who {events[i].verb.stems[0]}ed the {events[i].thing.word} ?"
        return f"{clause(first)} . {clause(second)} . {asked} {name} did ."

    return _filled(frame, first.person.name, second.person.name)


GRAMMAR: tuple[Callable[[Draw, Lexicon], Item], ...] = (
    agreement,
    agreement_phrase,
    agreement_relative,
    determiner,
    indefinite,
    reflexive,
    auxiliary,
    order,
)
MEANING: tuple[Callable[[Draw, Lexicon], Item], ...] = (
    synonym,
    hypernym,
    pronoun,
    consequence,
    answer,
    retrieval,
)


def minimal_pairs(
    *, seed: int, num_per_paradigm: int, world_seed: int = 0
) -> list[dict[str, str | int]]:
    """Pairs `sentence_good` / `sentence_bad` with `paradigm` and `idx`; a mirror follows its pair.

    Raises:
        ValueError: `num_per_paradigm` is odd or below 2, so that mirrors would be missing.
    """
    if num_per_paradigm < 2 or num_per_paradigm % 2:
        raise ValueError(
            f"{num_per_paradigm} minimal pairs a paradigm: pairs come with their mirrors, so give "
            "an even number of at least 2, such as evaluation.num_per_paradigm=40"
        )
    words, rows = lexicon(world_seed), []
    for paradigm in GRAMMAR + MEANING:
        draw = Draw(seed, "synthetic", "minimal_pairs", paradigm.__name__)
        for _ in range(num_per_paradigm // 2):
            rows += [(paradigm.__name__, *pair) for pair in paradigm(draw, words)]
    return [
        {"paradigm": name, "sentence_good": good, "sentence_bad": bad, "idx": idx}
        for idx, (name, good, bad) in enumerate(rows)
    ]
