"""A sweep's records -> `reports/sweep-<name>/`: README.md, report.html, results.csv, figures.

Made from records alone, of `ablate.sweep` or of W&B agents: the same records give the same bytes.
It describes and gives no verdict.
"""

from __future__ import annotations

import csv
import dataclasses
import io
import shlex
from collections import Counter
from pathlib import Path
from typing import Protocol

from ablate.report.content import (
    Block,
    Bullets,
    Cell,
    Code,
    Figure,
    Paragraph,
    Report,
    Section,
    Table,
)
from ablate.report.markdown import markdown
from ablate.sweep import analysis
from ablate.sweep.analysis import SEED, shown
from ablate.sweep.collect import SweepResult, collect
from ablate.sweep.files import load
from ablate.sweep.folder import SweepFolder
from ablate.sweep.options import find_file
from ablate.sweep.points import words_of
from ablate.tracking.record import write_atomically

_MOST_ROWS, _MOST_CURVES = 60, 4


class Asked(Protocol):
    """What is read of `ablate.report`'s options."""

    @property
    def runs_dir(self) -> Path | None: ...
    @property
    def reports_dir(self) -> Path | None: ...
    @property
    def metric(self) -> str | None: ...
    @property
    def overrides(self) -> list[str]: ...


def report_sweep(name: str, options: Asked) -> Path:
    """Write the report of a sweep: the name it was run under, or a sweep file; returns its folder.

    Raises:
        ValueError: no such sweep, or none of its points has a run.
    """
    folder = SweepFolder(options.runs_dir or Path("runs"), Path(name).stem)
    kept = folder.identity
    if kept is None:  # never run by `ablate.sweep`: runs of agents are looked for
        sweep = load(find_file(name))
    else:
        sweep = dataclasses.replace(load(folder.path / "file.yaml"), path=Path(kept["file"]))
    return write(
        collect(sweep, folder, options.overrides, options.metric),
        options.reports_dir or Path("reports"),
    )


def write(result: SweepResult, reports_dir: Path) -> Path:
    """Write all files; returns the folder."""
    from ablate.report.page import page

    folder = reports_dir / f"sweep-{result.name}"
    figures, drawings = _figures(result)
    report = report_of(result, figures)
    for old in (folder / "figures").glob("*.svg"):
        if old.stem not in drawings:
            old.unlink()
    for name, drawing in drawings.items():
        write_atomically(folder / "figures" / f"{name}.svg", drawing)
    write_atomically(folder / "README.md", markdown(report, beside=("results.csv",)))
    write_atomically(folder / "report.html", page(report, drawings))
    write_atomically(folder / "results.csv", results_csv(result))
    return folder


def report_of(result: SweepResult, figures: list[Figure]) -> Report:
    """All sections."""
    sections = [
        Section("What was swept", _facts(result)),
        Section("Best", _best(result)),
        Section("Figures", figures),
        Section("Paired by seed", _pairs(result)),
        Section("What each parameter accounts for", _importance(result)),
        Section("All points", [_points(result)]),
    ]
    return Report(f"Sweep: {result.name}", [s for s in sections if s.blocks])


def _facts(result: SweepResult) -> list[Block]:
    sweep = result.sweep
    counts = Counter(one.state.status for one in result.found)
    states = ", ".join(f"{number} {status}" for status, number in counts.most_common())
    goal = "higher is better" if result.maximize else "lower is better"
    parameters = [
        f"{p.name}: {p.kind}, " + ", ".join(f"{k} {shown(v)}" for k, v in p.given.items())
        for p in sweep.parameters
    ]
    facts = f"Method {sweep.method}; metric {result.metric} ({goal}); points: {states}."
    command = f"python -m ablate.sweep {shlex.join([sweep.path.name, *result.overrides])}"
    blocks: list[Block] = [Paragraph(facts), Bullets(parameters), Code(command)]
    if result.guessed:
        blocks.append(
            Paragraph(
                "The points are runs that differ from the file's settings in the swept ones alone: "
                f"{_asked_for(result)}. The file of a sweep is in no record.",
                strong=True,
            )
        )
    elif result.by_settings:
        blocks.append(
            Paragraph(
                f"{result.by_settings} runs were found by their settings: {_asked_for(result)}. "
                "A finished run serves every sweep that asks for its settings.",
                strong=len(result.agents) > 1,
            )
        )
    return blocks


def _asked_for(result: SweepResult) -> str:
    """Whose runs the found ones are."""
    named = sorted(result.agents.items(), key=lambda pair: (not pair[0], pair[0]))
    return ", ".join(f"{n} of {f'the W&B sweep {x}' if x else 'no W&B sweep'}" for x, n in named)


def _best(result: SweepResult) -> list[Block]:
    ranked = analysis.ranked(result)
    rows = []
    for group in ranked[:10]:
        spread = group.deviation
        rows.append(
            [
                Cell(group.words),
                Cell(f"{group.mean:.4f}", group.mean),
                Cell("–" if spread is None else f"{spread:.4f}", spread),
                Cell(str(len(group.scores)), float(len(group.scores))),
            ]
        )
    one = analysis.best_point(result)
    command = f"python -m ablate {shlex.join([*result.overrides, *words_of(one.point)])}"
    return [
        Paragraph(
            f"Settings: {len(ranked)}; the best mean is {ranked[0].mean:.4f}, at "
            f"{ranked[0].words}. The best of many is better than it would be again: it was chosen "
            "by the number that is shown. To find out whether it helps, make it an arm of a study, "
            "with seeds that were not seen here."
        ),
        Table(
            ("settings", "mean", "sd over seeds", "seeds"),
            rows,
            frozenset({"settings"}),
            f"{result.metric}, mean over seeds; the best {len(rows)} of {len(ranked)}.",
        ),
        Code(command),
    ]


def _pairs(result: SweepResult) -> list[Block]:
    pairs = analysis.paired_differences(result)
    if not pairs:
        return []
    rows = []
    for group, found in pairs:
        interval = "–" if found.low is None else f"[{found.low:+.4f}, {found.high:+.4f}]"
        rows.append(
            [
                Cell(group.words),
                Cell(f"{found.mean:+.4f}", found.mean),
                Cell(interval, found.low),
                Cell(str(found.n), float(found.n)),
            ]
        )
    first = analysis.groups(result)[0].words
    return [
        Table(
            ("settings", "difference", "95% interval", "pairs"),
            rows,
            frozenset({"settings"}),
            f"{result.metric} minus that of {first} at the same seed; paired t intervals, each by "
            "itself. Description: not corrected for the number of settings, no verdict.",
        )
    ]


def _importance(result: SweepResult) -> list[Block]:
    found = analysis.importance(result)
    if not found:
        return []
    methods = sorted({one.method for one in found})
    rows = [[Cell(o.name), Cell(f"{o.share:.3f}", o.share), Cell(o.method)] for o in found]
    return [
        Table(
            ("parameter", "share", "method"),
            rows,
            frozenset({"parameter", "method"}),
            f"n = {len(result.complete)} points. "
            + "; ".join(
                {
                    "eta squared": "eta squared: variance between the means of a parameter's "
                    "values, over all variance; by chance alone it is not 0 but about (values - 1) "
                    "/ (points - 1)",
                    "Spearman squared": "Spearman squared: of the rank correlation, blind to an "
                    "optimum in the middle",
                }[method]
                for method in methods
            )
            + ". Of each parameter alone: what two do together is in neither.",
        )
    ]


def _points(result: SweepResult) -> Table:
    rows = [
        [
            Cell(str(one.number + 1), float(one.number + 1)),
            Cell(" ".join(words_of(one.point))),
            Cell("–" if one.score is None else f"{one.score:.4f}", one.score),
            Cell(one.state.status),
            Cell(one.state.run or one.state.error or ""),
        ]
        for one in result.found[:_MOST_ROWS]
    ]
    words = frozenset({"point", "state", "run, or why not"})
    more = len(result.found) - len(rows)
    return Table(
        ("#", "point", result.metric, "state", "run, or why not"),
        rows,
        words,
        f"{more} more are in results.csv." if more > 0 else "",
    )


def _figures(result: SweepResult) -> tuple[list[Figure], dict[str, str]]:
    from ablate.report import sweep_figures
    from ablate.report.drawing import svg

    figures: list[Figure] = []
    drawings: dict[str, str] = {}
    points, metric = result.complete, result.metric
    names = [name for name in result.swept if name != SEED]
    numeric = [name for name in names if analysis.is_numeric(result, name)][:_MOST_CURVES]
    for name in numeric:
        others = [other for other in names if other != name]
        lines: dict[str, list[tuple[float, float]]] = {}
        for one in points:
            label = " ".join(f"{o.split('.')[-1]}={shown(one.point[o])}" for o in others)
            pair = (float(one.point[name]), float(one.score or 0.0))
            lines.setdefault(label, []).append(pair)
        if len(lines) > sweep_figures.MOST_LINES:
            lines = {"": [pair for found in lines.values() for pair in found]}
            how, joined = "A mark is a point, whatever its other values.", False
        else:
            how, joined = "Lines are means; the band spans the points (seeds).", True
        key = f"curve-{name}"
        drawings[key] = svg(sweep_figures.curve(name, metric, lines, joined=joined))
        caption = f"{metric} over {name}; n = {len(points)} points. {how}"
        figures.append(Figure(key, f"Score over {name}", caption))
    if len(points) > 1 and names:
        rows = [[one.point[name] for name in names] for one in points]
        scores = [float(one.score or 0.0) for one in points]
        drawn = sweep_figures.parallel(names, rows, scores, metric, maximize=result.maximize)
        drawings["parallel"] = svg(drawn)
        caption = f"A line a point (n = {len(points)}), darker is better, the best in orange."
        figures.append(Figure("parallel", "Parallel coordinates", caption))
    found = analysis.importance(result)
    if found:
        drawn = sweep_figures.bars([one.name for one in found], [one.share for one in found])
        drawings["importance"] = svg(drawn)
        caption = f"n = {len(points)} points; by the methods named in the table below."
        figures.append(Figure("importance", "What each parameter accounts for", caption))
    return figures, drawings


def results_csv(result: SweepResult) -> str:
    """A row a point: its values, its state, its run and every score."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names = [parameter.name for parameter in result.sweep.parameters]
    scores = sorted({name for one in result.found for name in one.scores})
    writer.writerow(["number", *names, "state", "run", *scores])
    for one in result.found:
        values = [shown(one.point[n]) if not isinstance(one.point[n], float) else repr(one.point[n])
                  for n in names]  # fmt: skip
        found = [repr(one.scores[s]) if s in one.scores else "" for s in scores]
        writer.writerow([one.number + 1, *values, one.state.status, one.state.run or "", *found])
    return text.getvalue()
