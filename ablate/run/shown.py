"""A run -> the tables that a tracker shows beside its curves: masked rows, scores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ablate.run.arm import Arm
from ablate.tracking import scores
from ablate.tracking.tracker import Table

_ROWS = 8


def score_table(record: Mapping[str, Any]) -> Table:
    """The table that the command prints."""
    found = scores.rows(record["scores"], record.get("evaluation", {}), record.get("averages", {}))
    return scores.COLUMNS, [list(row) for row in found]


def masked_rows(arm: Arm, count: int = _ROWS) -> Table:
    """The first rows that the run was trained on: what the encoder saw, and what it had to say."""
    data, name = arm.data, arm.tokenizer.id_to_token
    columns = ("row", "shown to the encoder", "to predict")
    if not len(data.steps):
        return columns, []
    plan, rows_a_step = data.steps.plan(0), data.steps.global_batch_size
    trained_on = min(count, plan.num_rows, rows_a_step * len(data.steps))
    table = []
    for number in range(trained_on):
        due = data.steps.progress(number // rows_a_step)
        batch, _ = data.rows.batch(plan, np.array([number]), epoch=0, progress=due)
        ids, labels = batch.input_ids.tolist(), batch.labels.tolist()
        wanted = [
            f"{position}: {name(label)}"
            for position, label in zip(batch.predict_positions.tolist(), labels, strict=True)
        ]
        table.append([number, " ".join(map(str, map(name, ids))), ", ".join(wanted)])
    return columns, table
