"""(task, split, seed, number) -> labelled examples of the built-in language, as GLUE has them.

Training uses half of the lexemes and validation all of them (lexical hold-out): what an unknown
word means must come from pretraining. Without it a small encoder learns the tasks from their own
800 examples and pretraining shows nothing. Labels are drawn first and texts for them, so that
classes are balanced and neither sentence of a pair tells the label alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ablate.corpus.synthetic_lexicon import Draw, Lexicon, lexicon
from ablate.corpus.synthetic_phrases import Event, clause, new_thing, new_verb
from ablate.evaluation.synthetic_pairs import GRAMMAR, minimal_pairs, random_judgement

__all__ = ["DEFAULT_SIZES", "SPECS", "TASKS", "generate", "minimal_pairs"]

Text = tuple[str, ...]  # one sentence or two
DEFAULT_SIZES = {"train": 800, "validation": 600}


def _acceptability(draw: Draw, words: Lexicon) -> tuple[Text, int]:
    """A sentence of a grammatical minimal pair: the good one (1) or the bad one (0)."""
    pair = draw.among(draw.among(GRAMMAR)(draw, words))
    label = int(draw.flip())
    return (pair[1 - label],), label


def _sentiment(draw: Draw, words: Lexicon) -> tuple[Text, int]:
    """Praise (1) or blame (0) of a thing."""
    label = int(draw.flip())
    thing, person = new_thing(draw, words), draw.pick(words.people)
    said = random_judgement(draw, words, bool(label))
    if said.startswith("not ") or draw.flip():
        place = f"near the {draw.pick(words.places)} " if draw.flip(0.3) else ""
        verb = "are" if thing.plural else "is"
        return (f"the {thing.word} {place}{verb} {said} .",), label
    verb = draw.among(new_verb(draw, words, thing).stems)
    return (f"{person.name} {verb}ed the {said} {thing.word} .",), label


def _event(draw: Draw, words: Lexicon, *, negated: float = 0.4) -> Event:
    thing = new_thing(draw, words)
    verb = new_verb(draw, words, thing)
    return Event(draw.pick(words.people), verb, thing, draw.flip(negated))


def _altered(draw: Draw, words: Lexicon, event: Event) -> Event:
    """The event with another person, verb or thing (of its class), each in one case of three."""
    which = draw.among(("person", "verb", "thing"))
    if which == "person":
        return event._replace(person=draw.other(words.people, event.person))
    if which == "verb":
        return event._replace(verb=new_verb(draw, words, event.thing, besides=event.verb))
    alike = [noun for noun in words.nouns if event.verb in words.verbs_for[noun.kind]]
    other = event.thing._replace(noun=draw.other(alike, event.thing.noun))
    return event._replace(thing=other)


def _told(draw: Draw, event: Event, **options: Any) -> str:
    """The event by a verb and a voice of chance."""
    return clause(event, synonym=int(draw.flip()), passive=draw.flip(0.3), **options) + " ."


def _entailment(draw: Draw, words: Lexicon) -> tuple[Text, int]:
    """Same content and sign 0, other content 1, same content and opposite sign 2."""
    label = draw.among((0, 1, 2))
    if draw.flip(0.4):
        return _judged(draw, words, label), label
    hypothesis = _event(draw, words)
    premise = hypothesis._replace(negated=hypothesis.negated != (label == 2))
    if label == 1:
        premise = _altered(draw, words, hypothesis._replace(negated=draw.flip(0.4)))
    return (_told(draw, premise), _told(draw, hypothesis)), label


def _judged(draw: Draw, words: Lexicon, label: int) -> Text:
    """Praise or blame, and the thing (neutral: another thing) is called good or bad."""
    positive, thing = draw.flip(), new_thing(draw, words)
    about = new_thing(draw, words, besides=thing) if label == 1 else thing
    about = about._replace(plural=thing.plural)
    verb = "are" if thing.plural else "is"
    verdict = "good" if positive != (label == 2) else "bad"
    said = random_judgement(draw, words, positive)
    return f"the {thing.word} {verb} {said} .", f"the {about.word} {verb} {verdict} ."


def _paraphrase(draw: Draw, words: Lexicon) -> tuple[Text, int]:
    """The same event (1) or one with another person, verb, thing or sign (0)."""
    label, first = int(draw.flip()), _event(draw, words)
    second = first
    if not label:
        opposite = first._replace(negated=not first.negated)
        second = opposite if draw.flip(0.25) else _altered(draw, words, first)
    return (_told(draw, first), _told(draw, second)), label


def _qa(draw: Draw, words: Lexicon) -> tuple[Text, int]:
    """A question, and a sentence that answers it (0, entailment) or does not (1)."""
    label, asked = int(draw.flip()), _event(draw, words, negated=0.0)
    told, stem = asked, draw.among(asked.verb.stems)
    if draw.flip():
        question = f"who {stem}ed the {asked.thing.word} ?"
        alterable = ("verb", "thing")
    else:
        question = f"what did {asked.person.name} {stem} ?"
        alterable = ("verb", "person")
    if label:
        while all(getattr(told, part) == getattr(asked, part) for part in alterable):
            told = _altered(draw, words, asked)
    return (question, _told(draw, told)), label


def _similarity(draw: Draw, words: Lexicon) -> tuple[Text, float]:
    """Two events that share some of person, verb, thing and sign, with their score."""
    first = _event(draw, words)
    second = _event(draw, words)
    if draw.flip(0.7):
        second = second._replace(person=first.person)
    if draw.flip(0.4):
        second = second._replace(verb=first.verb, thing=first.thing)
    elif draw.flip():
        verb = new_verb(draw, words, first.thing, besides=first.verb)
        second = second._replace(verb=verb, thing=first.thing)
    return (_told(draw, first), _told(draw, second)), similarity_score(first, second)


def similarity_score(first: Event, second: Event) -> float:
    """1.25 for each of person, verb (by meaning), thing (half for its kind) and sign."""
    same = [a == b for a, b in zip(first, second, strict=True)]
    thing = 1.0 if first.thing.noun == second.thing.noun else 0.0
    if not thing and first.thing.noun.kind == second.thing.noun.kind:
        thing = 0.5
    return 1.25 * (same[0] + same[1] + thing + same[3])


_MAKERS: dict[str, Callable[[Draw, Lexicon], tuple[Text, float]]] = {
    "acceptability": _acceptability,
    "sentiment": _sentiment,
    "entailment": _entailment,
    "paraphrase": _paraphrase,
    "qa": _qa,
    "similarity": _similarity,
}
TASKS = tuple(_MAKERS)
_ONE, _TWO = ("sentence1",), ("sentence1", "sentence2")
SPECS: dict[str, dict[str, Any]] = {
    "acceptability": {
        "fields": _ONE,
        "labels": ("unacceptable", "acceptable"),
        "metrics": ("mcc",),
    },
    "sentiment": {"fields": _ONE, "labels": ("negative", "positive"), "metrics": ("accuracy",)},
    "entailment": {
        "fields": _TWO,
        "labels": ("entailment", "neutral", "contradiction"),
        "metrics": ("accuracy",),
    },
    "paraphrase": {
        "fields": _TWO,
        "labels": ("not_paraphrase", "paraphrase"),
        "metrics": ("accuracy",),
    },
    "qa": {"fields": _TWO, "labels": ("entailment", "not_entailment"), "metrics": ("accuracy",)},
    "similarity": {"fields": _TWO, "labels": None, "metrics": ("pearson", "spearman")},
}


def generate(
    task: str,
    split: str,
    *,
    seed: int,
    num_examples: int | None = None,
    exclude: Iterable[Mapping[str, Any]] = (),
    world_seed: int = 0,
) -> list[dict[str, Any]]:
    """Distinct examples `sentence1[, sentence2], label, idx`; labels are class numbers, or 0 to 5.

    Texts of the rows in `exclude` (the training examples) do not come again.

    Raises:
        ValueError: an unknown task or split, or more examples than the language has.
    """
    if task not in _MAKERS:
        raise ValueError(f"synthetic task {task!r} is unknown; evaluation.tasks takes {TASKS}")
    if split not in DEFAULT_SIZES:
        raise ValueError(f"split {split!r} is unknown; synthetic tasks have train and validation")
    count = DEFAULT_SIZES[split] if num_examples is None else num_examples
    draw, words = Draw(seed, "synthetic", task, split), lexicon(world_seed)
    if split == "train":
        words = words.training_half()
    found: dict[Text, float] = {}
    seen = {tuple(row[key] for key in _TWO if key in row) for row in exclude}
    for _ in range(20 * count + 1000):
        if len(found) == count:
            break
        texts, label = _MAKERS[task](draw, words)
        if texts not in seen:
            found.setdefault(texts, label)
    if len(found) < count:
        raise ValueError(
            f"{count} examples of {task} ({split}): the built-in language gave only {len(found)} "
            f"different ones; ask for fewer, such as evaluation.num_{split}_examples={len(found)}"
        )
    return [
        {**dict(zip(_TWO, texts, strict=False)), "label": label, "idx": idx}
        for idx, (texts, label) in enumerate(found.items())
    ]
