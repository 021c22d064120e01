"""How each arm was tuned: which setting it kept, what all others scored, what to doubt of it."""

from __future__ import annotations

from ablate.report import wording
from ablate.report.content import Block, Bullets, Cell, Paragraph, Table
from ablate.study.collect import StudyResult
from ablate.study.design import Tune
from ablate.study.tuning import Point, Tuned

_WORDS = ("arm", "setting", "by seed", "kept")


def blocks(result: StudyResult) -> list[Block]:
    """Choices, scores of all points and warnings; empty for a study without tuning."""
    rule = result.study.tune
    if rule is None:
        return []
    found = {arm: result.tuning[arm] for arm in result.arms if arm in result.tuning}
    shown: list[Block] = [Paragraph(_how(rule))]
    lacking = [arm for arm in result.arms if arm not in found]
    if lacking:
        shown.append(Paragraph(f"Not tuned yet: {wording.listed(lacking)}."))
    if not found:
        return shown
    shown.append(Bullets([_choice(arm, tuned) for arm, tuned in found.items()]))
    shown.append(_scores(rule, found))
    return shown


def _how(rule: Tune) -> str:
    seeds = wording.listed([str(seed) for seed in rule.seeds], most=20)
    way = "highest" if rule.higher_is_better else "lowest"
    return (
        f"Before the study's own runs, every arm, the baseline too, was run at all "
        f"{len(rule.points)} points of the grid of {wording.listed(list(rule.grid))} and keeps the "
        f"one with the {way} mean {rule.metric} (of equal ones the first). Tuning seeds: {seeds}. "
        "They are in no other table, no figure and no verdict."
    )


def _choice(arm: str, tuned: Tuned) -> str:
    if tuned.failure:
        return f"{arm}: {tuned.failure}"
    edge = ""
    if tuned.edges:
        edge = (
            f"; {' '.join(tuned.edges)} is best at the edge of the grid: a wider grid may change "
            "this"
        )
    return f"{arm}: {' '.join(tuned.overrides)}{edge}"


def _scores(rule: Tune, found: dict[str, Tuned]) -> Table:
    means = [p.mean for tuned in found.values() for p in tuned.points if p.mean is not None]
    spread = [max(means) - min(means)] if means else []
    digits = wording.digits([value / 10 for value in spread])
    rows = []
    for arm, tuned in found.items():
        for number, point in enumerate(tuned.points):
            rows.append(
                [
                    Cell(arm),
                    Cell(" ".join(point.overrides)),
                    Cell(digits.plain(point.mean), point.mean),
                    Cell(_by_seed(point, digits)),
                    Cell("kept" if number == tuned.chosen else wording.NONE),
                ]
            )
    caption = (
        f"{rule.metric} on the tuning seeds: mean, then each seed. A point that failed on a seed "
        "cannot be kept. A kept score was chosen as the best of several, so it promises too much."
    )
    columns = ("arm", "setting", "mean", "by seed", "kept")
    return Table(columns, rows, frozenset(_WORDS), caption)


def _by_seed(point: Point, digits: wording.Digits) -> str:
    shown = {seed: digits.plain(score) for seed, score in point.scores.items()}
    shown |= {seed: f"failed ({why})" for seed, why in point.errors.items()}
    return "; ".join(f"{seed}: {shown[seed]}" for seed in sorted(shown))
