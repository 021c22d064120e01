"""A result by another rule of averages than the declared one, where the records hold it.

Exploratory by nature: the rule was chosen after the runs. It gets a folder of its own, and the
looks of the declared metric say nothing about it.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from ablate.report.conduct import records_of
from ablate.study.collect import StudyResult, decided
from ablate.study.states import StudyFolder


class _WithoutLooks(StudyFolder):
    """The folder of a study whose looks were taken at another metric."""

    @property
    def looks(self) -> list[dict[str, Any]]:
        return []


def by_rule(result: StudyResult, folder: StudyFolder, rule: str) -> StudyResult:
    """The primary metric by this rule where it is an average, else the average beside it.

    Raises:
        ValueError: no record has an average by it; the message lists those there are.
    """
    names = {
        name
        for _, _, record in records_of(result)
        for name in record.get("averages") or {}
        if name in record["scores"]
    }
    found = sorted(name for name in names if name.rsplit("/", 1)[-1] == rule)
    if not found:
        rules = ", ".join(sorted({name.rsplit("/", 1)[-1] for name in names})) or "(none)"
        raise ValueError(
            f"--rule {rule}: no complete run of {result.study.name} has an average by it; allowed: "
            f"{rules}. A rule needs every score of its formula"
        )
    study = result.study
    suite = study.primary.rsplit("/", 1)[0]
    if study.primary in names and f"{suite}/{rule}" in found:
        change = f"rule.primary: {study.primary} was declared, {suite}/{rule} is shown"
        study = dataclasses.replace(study, primary=f"{suite}/{rule}")
    else:
        change = f"shown beside the primary metric: {', '.join(found)}"
        others = [*study.secondary, *(name for name in found if name not in study.secondary)]
        study = dataclasses.replace(study, secondary=tuple(others))
    is_other = study.primary != result.study.primary
    source = _WithoutLooks(folder.runs_dir, study) if is_other else folder
    again = decided(study, result.arms, source)
    return dataclasses.replace(again, changes=[*result.changes, *([change] if is_other else [])])
