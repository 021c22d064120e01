"""A study's result -> its `Report`: answer first, then what it rests on, then what to doubt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ablate.report import conduct, tuning, wording
from ablate.report.bootstrap import HEADING, bootstrap
from ablate.report.content import Block, Bullets, Cell, Figure, Paragraph, Report, Section, Table
from ablate.report.effects import factor_effects
from ablate.report.verdicts import alpha, main_table, verdict_lines
from ablate.study import stats
from ablate.study.collect import StudyResult
from ablate.study.design import NULL_PREFIX
from ablate.study.examples import Interval


def report_of(
    result: StudyResult,
    figures: Sequence[Figure],
    absent: Sequence[str],
    rule: str | None = None,
    bootstraps: Mapping[str, Interval | str] | None = None,
) -> Report:
    """All sections in order; `absent` says why a figure could not be drawn."""
    sections = [
        Section("Question", [Paragraph(result.study.question or "(none was written down)")]),
        Section("Verdict", _verdict(result)),
        Section("Arms", _arms(result)),
        Section("Effects of the factors", factor_effects(result)),
        Section("Figures", [*figures, *([Bullets(absent)] if absent else [])]),
        Section("Gates that failed", _gates(result)),
        Section("Noise floor", _noise(result)),
        Section("What pairing bought", _pairing(result)),
        Section(HEADING, bootstrap(result, bootstraps)),
        Section("Looks and corrections", _looks(result)),
        Section("What each arm moved, and what followed from it", conduct.moved(result)),
        Section("What was held fixed", conduct.held_fixed(result)),
        Section("How settings were tuned", tuning.blocks(result)),
        Section("Secondary metrics", _secondary(result)),
        Section("Caveats", conduct.caveats(result)),
        Section("Failures and missing runs", conduct.failures(result)),
        Section("How to reproduce", conduct.reproduce(result, rule)),
    ]
    return Report(wording.title_of(result, rule), [s for s in sections if s.blocks])


def _verdict(result: StudyResult) -> list[Block]:
    blocks: list[Block] = []
    if wording.is_descriptive(result):
        blocks.append(
            Paragraph(
                "Exploratory: these are plain runs. No question, margin or rule was declared "
                "before they ran, so the intervals describe and no verdict is drawn.",
                strong=True,
            )
        )
    elif result.changes:
        blocks.append(
            Paragraph(
                "Exploratory: the study says otherwise than when it was locked"
                + (f" ({result.locked})" if result.locked else "")
                + ", so its verdicts suggest and do not confirm. What changed:",
                strong=True,
            )
        )
        blocks.append(Bullets(list(result.changes)))
    elif result.locked:
        blocks.append(
            Paragraph(f"Arms and decision rule were locked on {result.locked}, as below.")
        )
    else:
        blocks.append(
            Paragraph("This study has no lock: nothing shows that the rule came before the runs.")
        )
    blocks.append(Paragraph(" ".join(verdict_lines(result)), strong=True))
    return blocks


def _arms(result: StudyResult) -> list[Block]:
    if not wording.ordered(result):
        return []
    blocks: list[Block] = [main_table(result)]
    there = {decision.verdict for decision in result.decisions.values()}
    blocks.append(
        Bullets(
            [f"{wording.WORDS[v]}: {text}" for v, text in wording.MEANINGS.items() if v in there]
        )
    )
    if any(decision.floored for decision in result.decisions.values()):
        blocks.append(Paragraph(f"* The arm's own spread was below the floor. {_floor(result)}"))
    lacking = [
        f"{name}: seeds {', '.join(map(str, decision.missing_seeds))} have no partner and are left "
        "out"
        for name, decision in result.decisions.items()
        if decision.missing_seeds
    ]
    return [*blocks, *([Bullets(lacking)] if lacking else [])]


def _gates(result: StudyResult) -> list[Block]:
    lines = [f"{arm.name}: {text}" for arm in result.arms.values() for text in arm.failed_gates]
    if lines:
        return [Bullets(lines)]
    if not result.study.gates:
        return [
            Paragraph("No gate was declared: nothing checks that the arms were trained enough.")
        ]
    passed = "; ".join(gate.why for gate in result.study.gates)
    return [Paragraph(f"None. Gates: {passed}.")]


def _noise(result: StudyResult) -> list[Block]:
    nulls = [n for n in wording.ordered(result) if n.startswith(NULL_PREFIX)]
    if not nulls:
        return [
            Paragraph(
                f"No A/A arm ({NULL_PREFIX}*: the baseline's settings, other draws) was run, so "
                "how far two equal arms fall apart was not measured here. " + _floor(result)
            )
        ]
    digits, lines = wording.digits_of(result), []
    for name in nulls:
        here, gain = result.decisions.get(name), result.pairing.get(name)
        if here is None or here.n == 0:
            lines.append(f"{name}: no pair of seeds")
            continue
        spread = "" if gain is None else f", sd of its differences {digits.plain(gain.paired)}"
        lines.append(
            f"{name}: {digits.signed(here.difference)} (95% interval "
            f"{digits.interval(here.low, here.high)}, n = {here.n}{spread}), "
            f"{wording.WORDS[here.verdict]}"
        )
    return [
        Paragraph(
            "Null arms change nothing but the draws (A/A), or how the same is computed: their "
            "differences from "
            f"{result.study.baseline} on {result.study.primary} are noise."
        ),
        Bullets(lines),
        Paragraph(_floor(result)),
    ]


def _floor(result: StudyResult) -> str:
    digits = wording.digits_of(result)
    if not result.floor:
        return "No floor of the sd was used: fewer than two arms have a spread."
    return (
        f"Floor of the sd of differences: {digits.plain(result.floor)} ({stats.FLOOR_SHARE:g} of "
        f"the median over arms or, if that is more, {stats.APART_SHARE:g} of the median that they "
        "would have unpaired), so that a few differences that agree by luck pass for no certainty."
    )


def _pairing(result: StudyResult) -> list[Block]:
    digits, rows = wording.digits_of(result), []
    gains = []
    for name in wording.ordered(result):
        gain, here = result.pairing.get(name), result.decisions.get(name)
        if gain is None:
            continue
        gains += [gain.gain] if gain.gain is not None else []
        detectable = None if here is None else here.detectable
        rows.append(
            [
                Cell(name),
                Cell(str(here.n if here else 0), here.n if here else 0),
                Cell(digits.plain(gain.paired), gain.paired),
                Cell(digits.plain(gain.unpaired), gain.unpaired),
                _two(gain.correlation),
                _two(gain.gain),
                Cell(digits.plain(detectable), detectable),
            ]
        )
    if not rows:
        return []
    columns = ("arm", "n pairs", "sd paired", "sd unpaired", "correlation", "factor", "detectable")
    found: list[Block] = []
    if gains:
        middle = sorted(gains)[len(gains) // 2] if len(gains) % 2 else (
            sum(sorted(gains)[len(gains) // 2 - 1 : len(gains) // 2 + 1]) / 2
        )  # fmt: skip
        found.append(
            Paragraph(
                f"The median factor over {wording.counted(len(gains), 'arm')} is {middle:.2f}: as "
                "many times more seeds would be needed without pairing (below 1, pairing cost)."
            )
        )
    caption = (
        f"Of differences on {result.study.primary} from {result.study.baseline}. Factor: unpaired "
        "over paired variance. Detectable: the smallest difference that n pairs show with 80% "
        "power at this look's alpha, before the correction for several arms."
    )
    return [*found, Table(columns, rows, frozenset({"arm"}), caption)]


def _two(value: float | None) -> Cell:
    return Cell(wording.NONE if value is None else f"{value:.2f}", value)


def _looks(result: StudyResult) -> list[Block]:
    if wording.is_descriptive(result) or not result.decisions:
        return []
    looks = [
        f"look {number}: alpha {stats.alpha_of_look(number):g}"
        for number in range(1, result.looks + 1)
    ]
    arms = wording.counted(len(result.decisions), "arm")
    taken = wording.counted(result.looks, "look was", "looks were")
    text = (
        f"{taken} taken ({'; '.join(looks)}; all possible looks together spend less than 0.05). "
        f"Within a look Holm's correction goes over {arms}; what a look decided is kept. Verdicts "
        f"here are judged at alpha {alpha(result):g}."
    )
    return [Paragraph(text)]


def _secondary(result: StudyResult) -> list[Block]:
    rows = []
    for name, metrics in result.secondary.items():
        for metric, found in metrics.items():
            digits = wording.digits([found.own_deviation, found.mean])
            rows.append(
                [
                    Cell(name),
                    Cell(metric),
                    Cell(str(found.n), found.n),
                    Cell(digits.signed(found.mean), found.mean),
                    Cell(digits.interval(found.low, found.high), found.low),
                ]
            )
    if not rows:
        return []
    columns = ("arm", "metric", "n pairs", "difference", "95% interval")
    caption = (
        f"Paired differences, arm minus {result.study.baseline}, whatever the direction of the "
        "metric; not corrected for their number. Description: no verdict rests on them."
    )
    return [Table(columns, rows, frozenset({"arm", "metric"}), caption)]
