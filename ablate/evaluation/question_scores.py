"""Predicted and given answers -> exact match and F1 of each question, as SQuAD's script has them.

Both compare after lower-casing, removing ASCII punctuation, the words a, an, the, and surplus
blanks, in this order; F1 is that of the bags of words, and where either side has none it is 1 if
both have none; the best of the given answers counts. A question without an answer has the empty one
(the 2.0 script). Equal to torchmetrics' SQuAD, which gives no values by question:
tests/evaluation/test_question_answering.py.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence

import numpy as np

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")


def normalized(answer: str) -> str:
    """What two answers are compared by."""
    return " ".join(_ARTICLES.sub(" ", answer.lower().translate(_PUNCTUATION)).split())


def exact_match(predicted: str, answers: Sequence[str]) -> float:
    """1 where the prediction is one of the answers, else 0."""
    return max(float(normalized(predicted) == normalized(a)) for a in answers or [""])


def f1(predicted: str, answers: Sequence[str]) -> float:
    """F1 of words with the answer that is nearest."""
    return max(_f1(normalized(predicted).split(), normalized(a).split()) for a in answers or [""])


def _f1(predicted: list[str], wanted: list[str]) -> float:
    if not predicted or not wanted:
        return float(predicted == wanted)
    common = sum((Counter(predicted) & Counter(wanted)).values())
    return 2 * common / (len(predicted) + len(wanted))


SCORES = {"exact_match": exact_match, "f1": f1}


def by_question(
    metric: str, predicted: Sequence[str], answers: Sequence[Sequence[str]], *, unanswerable: bool
) -> np.ndarray:
    """(questions,) values of one metric.

    With `unanswerable`, given answers of which normalisation leaves nothing do not count, as in the
    2.0 script.
    """
    if unanswerable:
        answers = [[a for a in given if normalized(a)] for given in answers]
    pairs = zip(predicted, answers, strict=True)
    return np.array([SCORES[metric](text, given) for text, given in pairs])
