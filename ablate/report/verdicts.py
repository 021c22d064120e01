"""Decisions -> the paragraph that answers the question, the table of arms, published agreement."""

from __future__ import annotations

from collections.abc import Sequence

from ablate.report import wording
from ablate.report.content import Cell, Table
from ablate.study.collect import StudyResult
from ablate.study.design import NULL_PREFIX
from ablate.study.verdict import Decision

_TOLD = 5  # arms of one verdict that are told with their numbers
COLUMNS = (
    "arm", "verdict", "n pairs", "arm mean", "baseline mean", "difference", "95% interval",
    "p difference (Holm)", "p equivalence (Holm)", "more seeds", "published",
)  # fmt: skip
_ORDER = ("better", "worse", "equivalent", "undecided", "not_trained_enough", wording.DESCRIPTIVE)


def verdict_lines(result: StudyResult) -> list[str]:
    """What is shown and what is not, in sentences: one paragraph."""
    study, decisions = result.study, result.decisions
    if not result.arms or not any(arm.records for arm in result.arms.values()):
        return ["No run is complete, so there is nothing to compare yet."]
    baseline = result.arms.get(study.baseline)
    if baseline is None or not baseline.records:
        return [
            f"The baseline {study.baseline} has no complete run, so no arm can be compared with it "
            "and no verdict is drawn."
        ]
    if not wording.ordered(result):
        return [f"There is no arm beside the baseline {study.baseline}: nothing to compare."]
    lines = [_frame(result)]
    for verdict in _ORDER:
        names = [n for n in wording.ordered(result) if _verdict(decisions.get(n)) == verdict]
        if names:
            lines += _told(result, verdict, names)
    false = [
        n
        for n in decisions
        if n.startswith(NULL_PREFIX) and decisions[n].verdict in ("better", "worse")
    ]
    if false:
        lines.append(
            f"The null arm {wording.listed(false)}, in which nothing was changed, was called too: "
            "a false alarm, and a reason to distrust differences of this size."
        )
    return lines


def _verdict(decision: Decision | None) -> str:
    return "undecided" if decision is None else decision.verdict


def _frame(result: StudyResult) -> str:
    study, digits = result.study, wording.digits_of(result)
    pairs = sorted({result.decisions[n].n for n in result.decisions})
    span = f"{pairs[0]} to {pairs[-1]}" if len(pairs) > 1 else str(pairs[0] if pairs else 0)
    frame = (
        f"Against the baseline {study.baseline} on {study.primary}, with {span} "
        f"pair{'s' * (span != '1')} of pretraining seeds an arm"
    )
    if wording.is_descriptive(result):
        return f"{frame}; no margin and no rule were declared, so this only describes."
    return f"{frame} and a margin of {digits.plain(study.margin)}."


def _told(result: StudyResult, verdict: str, names: list[str]) -> list[str]:
    """One sentence an arm, largest difference first; of many arms the rest by name."""
    size = {n: abs(_difference(result, n) or 0.0) for n in names}
    by_size = sorted(names, key=lambda n: -size[n])
    lines = [_sentence(result, name, verdict) for name in by_size[:_TOLD]]
    rest = by_size[_TOLD:]
    if rest:
        lines.append(
            f"{wording.counted(len(rest), 'more arm is', 'more arms are')} "
            f"{wording.WORDS[verdict]} too: {wording.listed(rest, most=12)} (numbers in the table)."
        )
    return lines


def _difference(result: StudyResult, name: str) -> float | None:
    decision = result.decisions.get(name)
    return None if decision is None else decision.difference


def _sentence(result: StudyResult, name: str, verdict: str) -> str:
    digits, here = wording.digits_of(result), result.decisions.get(name)
    if here is None or here.n == 0:
        return f"{name} has no seed in common with the baseline: nothing is known of it."
    numbers = f"{digits.signed(here.difference)}"
    if here.low is not None:
        numbers += f", 95% interval {digits.interval(here.low, here.high)}"
    numbers += f", n = {here.n}"
    holm = f", adjusted p {_p(here.p_adjusted)}" if here.p_adjusted is not None else ""
    if verdict in ("better", "worse"):
        return f"{name} is {verdict} ({numbers}{holm})."
    if verdict == "equivalent":
        return (
            f"{name} makes no difference as large as the margin, which was shown ({numbers}, "
            f"adjusted p of equivalence {_p(here.p_equivalence_adjusted)})."
        )
    if verdict == "not_trained_enough":
        why = "; ".join(here.failed_gates)
        return (
            f"{name} was not trained enough to say anything, which is not 'no effect': {why} "
            f"(measured all the same: {numbers})."
        )
    if verdict == wording.DESCRIPTIVE:
        return f"{name} differs by {numbers}; no verdict is drawn."
    if here.note:
        return f"{name} is undecided: {here.note} (so far {numbers})."
    seeds = wording.more_seeds(here)
    needed = "further seeds"
    if seeds.isdecimal():
        needed = wording.counted(int(seeds), "more seed")
    needed = f"at least {needed} would be needed to decide, if difference and spread stay so"
    if not seeds.isdecimal():
        needed = "no number of seeds that anyone runs would decide, if this stays so"
    return (
        f"Of {name} neither a difference nor its absence is shown ({numbers}{holm}): undecided; "
        f"{needed}."
    )


def _p(value: float | None) -> str:
    text = wording.probability(value)
    return text if text.startswith("<") else f"= {text}"


def published(result: StudyResult, name: str) -> str:
    """`published + (source): agrees`; empty where nothing is known."""
    expected = result.study.expected.get(name)
    if expected is None:
        return ""
    seen = {"better": "+", "worse": "-", "equivalent": "0"}.get(
        _verdict(result.decisions.get(name))
    )
    state = "undecided" if seen is None else "agrees" if seen == expected.sign else "disagrees"
    sign = {"+": "better", "-": "worse", "0": "no difference"}[expected.sign]
    return f"{sign} ({expected.source}): {state} at this scale"


def main_table(result: StudyResult) -> Table:
    """One row an arm, every number the decision's own."""
    rows = [table_row(result, name) for name in wording.ordered(result)]
    digits, study = wording.digits_of(result), result.study
    baseline = result.arms.get(study.baseline)
    values = [] if baseline is None else list(baseline.scores.get(study.primary, {}).values())
    known = (
        f"{digits.plain(sum(values) / len(values))} over {wording.counted(len(values), 'seed')}"
        if values
        else "no complete run"
    )
    caption = (
        f"{study.primary}; baseline {study.baseline}: {known}. "
        f"{wording.difference_words(result)} Means are over the n pairs. The interval is a paired "
        "t interval for one arm alone"
    )
    caption += "; nothing is tested." if wording.is_descriptive(result) else (
        "; the p values are corrected for all arms and judged at alpha "
        f"{alpha(result):g}, so that an interval without 0 may be undecided. More seeds: the least "
        "that would decide an arm tested alone, if its difference and spread stay what they are; "
        "the correction and the next look's smaller alpha come on top."
    )  # fmt: skip
    return Table(COLUMNS, rows, frozenset({"arm", "verdict", "published"}), caption)


def alpha(result: StudyResult) -> float:
    """Of the last look."""
    return min((d.alpha for d in result.decisions.values()), default=0.05)


def table_row(result: StudyResult, name: str) -> Sequence[Cell]:
    """The cells of `COLUMNS`."""
    digits, study = wording.digits_of(result), result.study
    here = result.decisions.get(name) or Decision("undecided", 0, (), ())
    means = [wording.mean_at(result, arm, here.seeds) for arm in (name, study.baseline)]
    verdict = wording.WORDS[here.verdict] + (
        f" (look {here.look})" if here.look < result.looks else ""
    )
    difference = digits.signed(here.difference) + ("*" if here.floored else "")
    seeds = wording.more_seeds(here)
    return [
        Cell(name),
        Cell(verdict, kind=here.verdict),
        Cell(str(here.n), here.n),
        *(Cell(digits.plain(mean), mean) for mean in means),
        Cell(difference, here.difference),
        Cell(digits.interval(here.low, here.high), here.low),
        Cell(wording.probability(here.p_adjusted), here.p_adjusted),
        Cell(wording.probability(here.p_equivalence_adjusted), here.p_equivalence_adjusted),
        Cell(seeds, float(seeds) if seeds.isdecimal() else None),
        Cell(published(result, name) or wording.NONE),
    ]
