"""World seed -> the words of the built-in language, what they mean, and the pieces they consist of.

The lexicon is a function of `world_seed` alone, never of a run's seed: all seeds of a study speak
the same language, so a difference between seeds is noise and not another vocabulary. Stems have one
syllable and inflect by affixes; `morphemes` lists stems and affixes, so that WordPiece's greedy
longest match cuts every word at its morpheme borders (a trained WordPiece stores frequent forms
whole and spells rare ones in letters, so that affixes are never shared).
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from ablate import rng

T = TypeVar("T")


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


CLASSES = ("animal", "food", "garment", "plant", "tool", "utensil")
AFFIXES = ("##s", "##ed", "##ing", "##er")
FUNCTION_WORDS = _words(
    """. , ? a an the this that these those some many every un is are was were has have does do did
    not he she him her his it they them himself herself themselves who what and or so by at near
    kind of yes no maybe liked hated happy sad will keep sell saw good bad"""
)
_ONSETS = _words("b br d dr f fl g gl gr h j k kl kr l m n p pl pr r s sk sl st t tr v w z")
_VOWELS = _words("a e i o u ai ou")
_CODAS = _words("b d f g k l m n p r t v z lk lm mp nd nt rk rm")


class Person(NamedTuple):
    """A name with its gender, which the word itself does not show: only usage does."""

    name: str
    subject: str  # he or she
    object: str
    reflexive: str
    possessive: str


class Noun(NamedTuple):
    """The stem of a thing and the class (hypernym) it belongs to."""

    stem: str
    kind: str


class Verb(NamedTuple):
    """Two stems of one meaning, and which third of the classes they are done to."""

    stems: tuple[str, str]
    third: int


class Attribute(NamedTuple):
    """A colour or the like, and which half of the classes can have it."""

    word: str
    half: int


class Quality(NamedTuple):
    """An evaluative adjective; with `prefixed`, un- turns its polarity round."""

    stem: str
    positive: bool
    prefixed: bool


@dataclass(frozen=True)
class Lexicon:
    """Every open class. Earlier entries are more frequent in the corpus (`Draw.exponent`).

    Verbs and attributes select the classes they go with, a third and a half of them: together they
    show a noun's class in the words beside it. In versions of the language without that, nouns
    stayed at their unigram accuracy for 6,000 steps.
    """

    people: tuple[Person, ...]
    nouns: tuple[Noun, ...]
    verbs: tuple[Verb, ...]
    qualities: tuple[Quality, ...]
    attributes: tuple[Attribute, ...]
    jobs: tuple[str, ...]  # stems of nouns in -er
    places: tuple[str, ...]
    intransitives: tuple[str, ...]

    @functools.cached_property
    def verbs_for(self) -> dict[str, list[Verb]]:
        """Class -> the verbs whose object it can be."""
        return {k: [v for v in self.verbs if v.third == i // 2] for i, k in enumerate(CLASSES)}

    @functools.cached_property
    def attributes_for(self) -> dict[str, list[Attribute]]:
        """Class -> the attributes it can have."""
        return {k: [a for a in self.attributes if a.half == i % 2] for i, k in enumerate(CLASSES)}

    def training_half(self) -> Lexicon:
        """Every second entry of each class, so frequent and rare words stay in proportion.

        Tasks train on it and are judged on the whole: a word never met in training is known from
        pretraining or not at all. Classes are ordered so that this keeps all their kinds.
        """
        return Lexicon(*(getattr(self, name)[::2] for name in self.__dataclass_fields__))

    def stems(self) -> list[str]:
        """Every stem once, in the order of the fields."""
        return [
            *(person.name for person in self.people),
            *(noun.stem for noun in self.nouns),
            *itertools.chain.from_iterable(verb.stems for verb in self.verbs),
            *(quality.stem for quality in self.qualities),
            *(attribute.word for attribute in self.attributes),
            *self.jobs,
            *self.places,
            *self.intransitives,
        ]


class Draw:
    """A stream of choices. `exponent` above 1 prefers the front of a list (1.7 is Zipf-like)."""

    def __init__(self, seed: int, *names: rng.Name, exponent: float = 1.0) -> None:
        generator = rng.generator(seed, *names)
        blocks = (generator.random(8192).tolist() for _ in itertools.count())
        self.uniform: Callable[[], float] = itertools.chain.from_iterable(blocks).__next__
        self.exponent = exponent

    def flip(self, probability: float = 0.5) -> bool:
        return self.uniform() < probability

    def pick(self, items: Sequence[T]) -> T:
        """One entry, by the stream's preference for early ones."""
        return items[int(len(items) * self.uniform() ** self.exponent)]

    def among(self, items: Sequence[T]) -> T:
        """One entry, all equally likely."""
        return items[int(len(items) * self.uniform())]

    def other(self, items: Sequence[T], taken: T) -> T:
        """One entry that is not `taken`."""
        while (chosen := self.pick(items)) == taken:
            pass
        return chosen


@functools.cache
def lexicon(world_seed: int = 0) -> Lexicon:
    """The language's words, the same for every run seed."""
    stems = _new_stems(world_seed)

    def take(count: int) -> tuple[str, ...]:
        return tuple(itertools.islice(stems, count))

    genders = (("she", "her", "herself", "her"), ("he", "him", "himself", "his"))
    # The kinds alternate in blocks of two, because a training half is every second entry.
    return Lexicon(
        people=tuple(Person(name, *genders[i // 2 % 2]) for i, name in enumerate(take(16))),
        nouns=tuple(Noun(stem, CLASSES[i // 2 % 6]) for i, stem in enumerate(take(36))),
        verbs=tuple(
            Verb(stems, i // 2 % 3) for i, stems in enumerate(zip(take(12), take(12), strict=True))
        ),
        qualities=tuple(
            Quality(stem, i // 2 % 2 == 0, i // 4 % 2 == 0) for i, stem in enumerate(take(20))
        ),
        attributes=tuple(Attribute(word, i // 2 % 2) for i, word in enumerate(take(12))),
        jobs=take(8),
        places=take(8),
        intransitives=take(6),
    )


def _new_stems(world_seed: int) -> Iterator[str]:
    """Distinct one-syllable stems, none of which begins another word of the language.

    One in five begins with a vowel, so that a / an is a fact about the next word.
    """
    draw = rng.generator(world_seed, "lexicon")
    taken = [*FUNCTION_WORDS, *CLASSES]

    def sound(options: Sequence[str]) -> str:
        return options[int(draw.integers(len(options)))]

    while True:
        onset = "" if draw.random() < 0.2 else sound(_ONSETS)
        stem = onset + sound(_VOWELS) + sound(_CODAS)
        clash = any(w.startswith(stem) or (len(w) > 2 and stem.startswith(w)) for w in taken)
        if len(stem) < 3 or stem.startswith("un") or clash:
            continue
        taken.append(stem)
        yield stem


def morphemes(*, world_seed: int = 0) -> list[str]:
    """WordPiece entries without special tokens: function words, stems, and `##` pieces."""
    words = lexicon(world_seed)
    after_un = [f"##{quality.stem}" for quality in words.qualities if quality.prefixed]
    return [*FUNCTION_WORDS, *CLASSES, *words.stems(), *AFFIXES, *after_un]


def article(next_word: str) -> str:
    """a or an, by the first letter of the word that follows."""
    return "an" if next_word[0] in "aeiou" else "a"
