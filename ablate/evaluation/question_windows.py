"""Questions on paragraphs -> rows [CLS] question [SEP] window [SEP], and spans <-> characters.

A paragraph that is too long becomes several windows, `doc_stride` tokens apart, or half a window
where that is less (short rows): neighbours always share at least half. Every window is a row of its
own in training; one that does not hold the answer has [CLS] as its target, as in BERT (Devlin et
al. 2019, sec. 4.2 and 4.3; so do questions without an answer). Answers are found by the characters
of the original text, and predictions are cut out of it.

Legend: n rows, T tokens of all rows, K tokens of a window.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ablate.evaluation.encoding import Rows
from ablate.evaluation.question_data import Question, QuestionSpec
from ablate.evaluation.token_fitting import AskedRows

if TYPE_CHECKING:
    from ablate.tokens.tokenizer import Located, Tokenizer


@dataclass(frozen=True)
class Windows:
    """All tokens of the rows are asked, for two numbers: how well they begin and end the answer.

    Row i shows the tokens `first[i] : first[i] + count[i]` of its question's paragraph, from the
    place `begin[i]` in the row; `spans[i]` is its target, two places in the row (0 = [CLS]).
    """

    asked: AskedRows
    question: np.ndarray  # (n,) number of the question
    begin: np.ndarray  # (n,)
    first: np.ndarray  # (n,)
    count: np.ndarray  # (n,)
    spans: np.ndarray  # (n, 2) int64
    offsets: list[np.ndarray]  # of the paragraph of each question, (tokens, 2)
    facts: dict[str, int]

    def __len__(self) -> int:
        return len(self.asked)


def encode_questions(
    tokenizer: Tokenizer, questions: Sequence[Question], spec: QuestionSpec, *, max_length: int,
    train: bool,
) -> Windows:  # fmt: skip
    """Tokenise paragraphs once each, and lay out the windows.

    With `train`, the first given answer is the target, and a question whose answer is not where the
    file says, or has no token, is left out and counted.
    """
    texts = dict.fromkeys(question.context for question in questions)
    paragraphs = dict(zip(texts, tokenizer.encode_with_offsets(list(texts)), strict=True))
    asked = tokenizer.encode_with_offsets([question.question for question in questions])
    limit = min(spec.max_question_length, (max_length - 3) // 2)
    counts = dict.fromkeys(
        ("questions", "windows", "windows_without_answer", "truncated_question_tokens",
         "answers_not_in_place", "answers_without_tokens", "answers_inside_tokens",
         "answers_in_no_window"), 0,
    )  # fmt: skip
    ids: list[np.ndarray] = []
    fields: list[tuple[int, int, int, int, int, int, int]] = []
    for number, (question, located) in enumerate(zip(questions, asked, strict=True)):
        paragraph = paragraphs[question.context]
        span = _answer(question, paragraph, counts) if train and question.answers else (-1, -1)
        if span is None:
            continue
        counts["questions"] += 1
        counts["truncated_question_tokens"] += max(len(located.ids) - limit, 0)
        kept = located.ids[:limit]
        head = np.array([tokenizer.cls_token_id, *kept, tokenizer.sep_token_id])
        room = max_length - len(head) - 1
        found = False
        for first in _window_starts(len(paragraph.ids), room, spec.doc_stride):
            shown = paragraph.ids[first : first + room]
            target = _inside(span, first, len(shown), len(head))
            found |= target != (0, 0)
            counts["windows_without_answer"] += train and target == (0, 0)
            ids.append(np.concatenate([head, shown, [tokenizer.sep_token_id]]))
            fields.append((number, len(head), first, len(shown), len(ids[-1]), *target))
        counts["answers_in_no_window"] += train and span[0] >= 0 and not found
    if not ids:
        raise ValueError(
            f"task {spec.name!r}: no training question has an answer with tokens; counted: {counts}"
        )
    counts["windows"] = len(ids)
    table = np.array(fields, dtype=np.int64)
    return Windows(
        _asked_rows(ids, table[:, 1], table[:, 4]),
        question=table[:, 0],
        begin=table[:, 1],
        first=table[:, 2],
        count=table[:, 3],
        spans=table[:, 5:],
        offsets=[paragraphs[question.context].offsets for question in questions],
        facts=counts,
    )


def _window_starts(tokens: int, room: int, doc_stride: int) -> list[int]:
    """First tokens of the windows; the last one reaches the end."""
    step = max(min(doc_stride, room // 2), 1)
    return [i * step for i in range(1 + max(-(-(tokens - room) // step), 0))]


def _answer(
    question: Question, paragraph: Located, counts: dict[str, int]
) -> tuple[int, int] | None:
    """First and last token with a character of the first answer; None where there is none."""
    begin, text = question.starts[0], question.answers[0]
    end = begin + len(text)
    if not text or question.context[begin:end] != text:
        counts["answers_not_in_place"] += 1
        return None
    left, right = paragraph.offsets.T
    tokens = np.flatnonzero((left < end) & (right > begin) & (right > left))
    if not len(tokens):
        counts["answers_without_tokens"] += 1
        return None
    counts["answers_inside_tokens"] += bool(left[tokens[0]] < begin or right[tokens[-1]] > end)
    return int(tokens[0]), int(tokens[-1])


def _inside(span: tuple[int, int], first: int, count: int, begin: int) -> tuple[int, int]:
    """The span as places in the row; [CLS] where the window does not hold it whole."""
    if span[0] < first or span[1] >= first + count:
        return 0, 0
    return span[0] - first + begin, span[1] - first + begin


def _asked_rows(ids: list[np.ndarray], begin: np.ndarray, lengths: np.ndarray) -> AskedRows:
    starts = np.concatenate([[0], np.cumsum(lengths)])
    place = np.arange(starts[-1]) - np.repeat(starts[:-1], lengths)
    types = (place >= np.repeat(begin, lengths)).astype(np.int64)
    rows = Rows(np.concatenate(ids).astype(np.int64), types, starts, 0)
    return AskedRows(rows, np.arange(starts[-1]), starts)


def best_answers(
    windows: Windows, outputs: np.ndarray, questions: Sequence[Question], *, max_answer_length: int
) -> dict[str, Any]:
    """Outputs (T, 2) -> for each question the text of its best span, and two scores.

    The best span is the one with the largest sum of its two outputs among those that begin and end
    in the paragraph part of one window, in this order, with at most `max_answer_length` tokens;
    all are looked at. Of equal ones the first counts. `none` is the least sum at [CLS] over the
    windows (BERT's score of "no answer", whose threshold here is 0, chosen on nothing).
    """
    number = len(questions)
    best, none = np.full(number, -np.inf), np.full(number, np.inf)
    texts = [""] * number
    starts = windows.asked.rows.starts
    for row, question in enumerate(windows.question.tolist()):
        here = outputs[starts[row] : starts[row + 1]]
        none[question] = min(none[question], float(here[0].sum()))
        begin, count, first = windows.begin[row], int(windows.count[row]), windows.first[row]
        offsets = windows.offsets[question][first : first + count]
        real = (offsets[:, 1] > offsets[:, 0])[:, None]
        inside = np.where(real, here[begin : begin + count], -np.inf)
        found = _best_span(inside[:, 0], inside[:, 1], max_answer_length)
        if found is not None and found[0] > best[question]:
            best[question] = found[0]
            left, right = offsets[found[1], 0], offsets[found[2], 1]
            texts[question] = questions[question].context[left:right]
    return {"text": texts, "best": best, "none": none}


def _best_span(
    begins: np.ndarray, ends: np.ndarray, max_answer_length: int
) -> tuple[float, int, int] | None:
    """Largest begins[i] + ends[j] with i <= j < i + max_answer_length, (K,) each; None if none."""
    found: tuple[float, int, int] | None = None
    for further in range(min(max_answer_length, len(begins))):
        sums = begins[: len(begins) - further] + ends[further:]
        place = int(sums.argmax())
        if np.isfinite(sums[place]) and (found is None or sums[place] > found[0]):
            found = float(sums[place]), place, place + further
    return found
