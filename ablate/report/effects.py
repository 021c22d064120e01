"""A factorial study's scores -> the table of its factors' effects, with what it rests on."""

from __future__ import annotations

from ablate.report import wording
from ablate.report.content import Block, Bullets, Cell, Paragraph, Table
from ablate.study import stats
from ablate.study.collect import StudyResult
from ablate.study.effects import Effect, Effects, effects

COLUMNS = ("effect", "order", "estimate", "95% interval", "p", "p (Holm)")


def factor_effects(result: StudyResult) -> list[Block]:
    """Main effects and interactions on the primary metric; nothing for other designs."""
    study = result.study
    if study.design != "factorial" or not study.levels:
        return []
    sign = 1.0 if study.higher_is_better else -1.0
    scores = {
        name: {seed: sign * value for seed, value in arm.scores.get(study.primary, {}).items()}
        for name, arm in result.arms.items()
    }
    found = effects(study.levels, scores)
    blocks: list[Block] = []
    if found.effects:
        blocks.append(_table(result, found))
    else:
        blocks.append(Paragraph(f"No effect of a factor can be estimated: {found.note}."))
    lines = _notes(result, found)
    return [*blocks, *([Bullets(lines)] if lines else [])]


def _table(result: StudyResult, found: Effects) -> Table:
    digits = wording.digits_of(result)
    rows = [
        [
            Cell(_name(effect)),
            Cell(_ORDERS.get(len(effect.factors), f"{len(effect.factors)} factors")),
            Cell(digits.signed(effect.found.mean) + "*" * effect.floored, effect.found.mean),
            Cell(digits.interval(effect.found.low, effect.found.high), effect.found.low),
            Cell(wording.probability(effect.found.p), effect.found.p),
            Cell(wording.probability(effect.p_adjusted), effect.p_adjusted),
        ]
        for effect in found.effects
    ]
    better = "" if result.study.higher_is_better else " Lower is better: signs are turned so that"
    better += " positive = the level named first is better." if better else ""
    caption = (
        f"Effects on {result.study.primary}, over {wording.counted(len(found.seeds), 'seed')} that "
        "every arm has. Main effect: mean over the other factors' levels of the level minus the "
        "factor's first level. Interaction: the difference of differences, 0 where the factors "
        f"act on their own.{better} Each is one contrast a seed, with its paired t interval; p is "
        f"corrected for the {wording.counted(len(found.effects), 'effect')} of this table and for "
        "no other table. Description: verdicts are those of the arms."
    )
    if any(effect.floored for effect in found.effects):
        caption += (
            f" * The spread over seeds was below the floor, {stats.FLOOR_SHARE:g} of what the "
            "residual of the linear model (arm + seed) lets expect."
        )
    return Table(COLUMNS, rows, frozenset({"effect", "order"}), caption)


_ORDERS = {1: "main", 2: "interaction"}


def _name(effect: Effect) -> str:
    """`rate: r40 − r15`, `replacement (mask − bert) × rate (r40 − r15)`."""
    parts = list(zip(effect.factors, effect.levels, effect.first, strict=True))
    if len(parts) == 1:
        factor, level, first = parts[0]
        return f"{factor}: {level} − {first}"
    return " × ".join(f"{factor} ({level} − {first})" for factor, level, first in parts)


def _notes(result: StudyResult, found: Effects) -> list[str]:
    """Seeds that were left out, gates that failed, and a single seed."""
    lines = [
        f"Seed {seed} is left out: {wording.listed(arms)} {'have' if len(arms) > 1 else 'has'} no "
        "score at it"
        for seed, arms in found.left_out.items()
    ]
    failed = [name for name, arm in result.arms.items() if arm.failed_gates]
    if failed and found.effects:
        lines.append(
            f"These effects include {wording.counted(len(failed), 'arm')} not trained enough "
            f"({wording.listed(failed)}: a gate failed), so they cannot speak about the question"
        )
    if found.effects and len(found.seeds) == 1:
        lines.append("One seed: no interval and no test can be given")
    return lines
