"""`StudyResult` -> `reports/<study>/`: README.md, report.html, results.csv, verdicts.json, ...

Made from the records alone: the same records give the same bytes. Every file is written to a
temporary name and renamed.
"""

from __future__ import annotations

from pathlib import Path

from ablate.report import files, wording
from ablate.report.content import Figure
from ablate.report.index import write_index
from ablate.report.markdown import markdown
from ablate.report.sections import report_of
from ablate.report.verdicts import main_table
from ablate.study.collect import StudyResult
from ablate.study.examples import intervals
from ablate.tracking.record import forget_temporaries, write_atomically


def folder_name(result: StudyResult) -> str:
    """`<name>[-<scale>]`."""
    study = result.study
    return study.name + (f"-{study.scale}" if study.scale else "")


def write(
    result: StudyResult, reports_dir: Path, runs_dir: Path | None = None, *, rule: str | None = None
) -> Path:
    """Write the report and the index of all; returns the report's folder.

    Args:
        runs_dir: holds the folders `single/<run>`; without it no learning curves are drawn and no
            examples are resampled.
        rule: of averages, where it is not the declared one; part of the folder's name.

    Raises:
        ValueError: the folder cannot be made.
    """
    from ablate.report.page import page

    folder = reports_dir / (folder_name(result) + (f"-by_{rule}" if rule else ""))
    try:
        (folder / "figures").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(
            f"the reports' folder {folder} cannot be made ({error.strerror}); "
            "type --reports-dir DIR"
        ) from None
    for place in (reports_dir, folder, folder / "figures"):
        forget_temporaries(place)
    figures, drawings, absent = _figures(result, runs_dir)
    bootstraps = None if runs_dir is None else intervals(result, runs_dir)
    report = report_of(result, figures, absent, rule, bootstraps)
    for old in (folder / "figures").glob("*.svg"):
        if old.stem not in drawings:
            old.unlink()
    for name, drawing in drawings.items():
        write_atomically(folder / "figures" / f"{name}.svg", drawing)
    texts = {
        "README.md": markdown(report),
        "report.html": page(report, drawings),
        "results.csv": files.results_csv(result),
        "verdicts.json": files.verdicts_json(result, bootstraps),
        "metadata.json": files.metadata_json(result, rule),
        "table.tex": files.table_tex(result, main_table(result)),
    }
    for name, text in texts.items():
        write_atomically(folder / name, text)
    write_index(reports_dir)
    return folder


def _figures(
    result: StudyResult, runs_dir: Path | None
) -> tuple[list[Figure], dict[str, str], list[str]]:
    """Figures with their captions, their drawings, and what could not be drawn and why."""
    from ablate.report import forest, panels
    from ablate.report.drawing import svg
    from ablate.report.learning import METRIC, clock_of, learning_curves

    study = result.study
    pairs = sorted({d.n for d in result.decisions.values() if d.n})
    n = f"n = {pairs[0]}" + (f" to {pairs[-1]}" if len(pairs) > 1 else "") if pairs else "n = 0"
    figures: list[Figure] = []
    drawings: dict[str, str] = {}
    absent: list[str] = []

    def add(name: str, title: str, caption: str, drawn: object) -> None:
        figures.append(Figure(name, title, caption))
        drawings[name] = svg(drawn)  # type: ignore[arg-type]

    drawn = forest.forest(result)
    if drawn is None:
        absent.append("No forest plot: no arm has a seed in common with the baseline.")
    else:
        order = f" Sorted, as there are more than {forest.SORTED_ABOVE} arms."
        caption = (
            f"{study.primary} against {study.baseline} ({n}, paired by seed), 95% paired t "
            f"intervals (uncorrected). {wording.difference_words(result)} An arrow marks an "
            "interval that goes on; in brackets n where it differs."
        )
        caption += order if len(wording.ordered(result)) > forest.SORTED_ABOVE else ""
        add("forest", "Paired differences", caption, drawn)
    drawn = panels.heat_map(result)
    if drawn is not None:
        left_out = max(len(panels.shared_scores(result)) - panels.MOST_SCORES, 0)
        add(
            "scores",
            "Differences by score",
            f"Mean paired difference from {study.baseline} ({n}); the colour counts deviations of "
            "the score's paired differences (median over arms; thirds of the largest one where "
            "no arm has two pairs), turned so that better has one "
            "colour for losses too; a number is arm minus baseline. Description: not corrected for "
            "the number of scores."
            + (f" {left_out} more scores are in results.csv." if left_out else ""),
            drawn,
        )
    _add_curves(result, runs_dir, add, absent, (METRIC, clock_of(result), learning_curves))
    costs = panels.cost(result)
    if costs is None:
        absent.append("No figure of score against cost: all arms cost the same, or none is known.")
    else:
        caption = f"Mean {study.primary} against {costs[1]}; the line spans the arm's seeds ({n})."
        add("cost", "Score against cost", caption, costs[0])
    drawn = forest.ranks(result)
    if drawn is not None:
        caption = (
            f"Rank on {study.primary} within each seed that all arms have. Grey, from the best: "
            "Nemenyi's critical distance at 5% where it is defined (3 seeds, at most 100 arms); "
            "description."
        )
        add("ranks", "Ranks", caption, drawn)
    return figures, drawings, absent


def _add_curves(result, runs_dir, add, absent, how) -> None:  # type: ignore[no-untyped-def]
    from ablate.report import panels

    metric, clock, read = how
    if runs_dir is None:
        absent.append("No learning curves: the folder of the runs was not given.")
        return
    found = read(result, runs_dir, metric=metric, clock=clock)
    drawn = panels.curves(result, found, metric, clock)
    if drawn is None:
        absent.append(f"No learning curves: no run logged {metric} while it trained.")
        return
    lacking = [name for name in result.arms if name not in found]
    seeds = sorted({curve.n for curve in found.values()})
    n = f"{seeds[0]}" + (f" to {seeds[-1]}" if len(seeds) > 1 else "")
    caption = (
        f"{metric} (the same masks for all arms) against {clock}; mean over seeds (n = {n}), "
        "band from the lowest to the highest seed."
    )
    if lacking:
        caption += f" Not measured: {wording.listed(lacking)}."
    add("curves", "Learning curves", caption, drawn)
