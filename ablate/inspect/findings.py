"""An arm + what was asked -> everything that is shown, as one object for each way to show it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from ablate.config.schema import Settings
from ablate.inputs.masking import MaskingPolicy
from ablate.inspect.histograms import Histogram, histograms
from ablate.inspect.lines import Line
from ablate.inspect.options import Options
from ablate.inspect.pieces import printable
from ablate.inspect.rows import Row, shown_rows
from ablate.inspect.statistics import table
from ablate.inspect.walk import Walk, walk

SHOWN_SETTINGS = (
    "seed", "nsp", "sop", "replicate", "corpus", "tokenizer", "input_format", "masking",
)  # fmt: skip
_COLLOCATIONS = 5  # of each length


@dataclass(frozen=True)
class Findings:
    """What is printed, written as JSON, or made a page."""

    options: Options
    settings: Settings
    policy: MaskingPolicy
    rows: list[Row]
    walk: Walk
    lines: list[Line]
    histograms: list[Histogram]
    collocations: list[dict[str, Any]]  # words, text, pmi, occurrences
    collocation_list: str  # its size; empty where the policy has no list

    @property
    def scope(self) -> str:
        """What the table stands on."""
        counts, first = self.walk.counts, self.options.epoch
        epochs = f"epoch {first}"
        if self.walk.epochs > 1:
            epochs = f"epochs {first} to {first + self.walk.epochs - 1}"
        text = (
            f"{counts.eligible:,} eligible tokens in {counts.rows:,} rows of {epochs}"
            f" ({self.walk.row_tokens:,} tokens with special ones)"
        )
        if self.policy.mask_rate_schedule != "constant":
            text += (
                f"; mask rate {self.walk.rate:.4g}, due at progress {self.walk.progress or 0.0:g}"
                f" of the {self.policy.mask_rate_schedule} schedule"
            )
        return text + (f"; {self.walk.ended_by}" if self.walk.ended_by else "")

    @property
    def summary(self) -> str:
        """The policy in whole numbers: what happens to 1,000 eligible tokens."""
        counts = self.walk.counts
        per = 1000 / max(counts.eligible, 1)
        text = (
            f"Of 1,000 eligible tokens {counts.predicted * per:.0f} are predicted. "
            f"{counts.masked * per:.0f} show [MASK], {counts.random * per:.0f} a random token, "
            f"{counts.kept * per:.0f} are selected and kept as they are."
        )
        if counts.unpredicted:
            text += f" {counts.unpredicted * per:.0f} are selected without a prediction."
        if counts.visible_predicted:
            text += f" {counts.visible_predicted * per:.0f} are predicted in plain sight."
        return text

    @property
    def reason(self) -> str:
        """Why not always [MASK], in the numbers at hand."""
        counts = self.walk.counts
        predicted = max(counts.predicted, 1)
        others = (counts.predicted - counts.masked) / predicted
        if self.policy.prediction_rate is not None:
            return ""
        if not others:
            return (
                "Every predicted token shows [MASK], and fine-tuning shows none: nothing in the "
                "loss asks about a visible token. Compare masking=bert_80_10_10."
            )
        if not counts.random:
            return (
                f"Fine-tuning shows no [MASK]. Here {others:.1%} of the predicted tokens are in "
                "sight, and always right: copying answers them. Compare masking=bert_80_10_10."
            )
        return (
            f"Fine-tuning shows no [MASK]. Here {others:.1%} of the predicted tokens show a word "
            "that may or may not be right, so a visible token has to be checked against its "
            "context too. Compare masking=all_mask."
        )

    @property
    def intervals_note(self) -> str:
        """How to read the column of intervals."""
        judged = [line.inside for line in self.lines if line.inside is not None]
        if not judged:
            return "No count here is a sum of independent draws, so no line has an interval."
        outside = judged.count(False)
        return (
            "Intervals are exact (Clopper-Pearson, 95%) and stand only where draws are "
            f"independent. {outside} of {len(judged)} have the nominal value outside; by chance "
            "it is one in twenty."
        )

    def to_dict(self) -> dict[str, Any]:
        """The object of --json."""
        shown = asdict(self.settings)
        walk = self.walk
        return {
            "command": self.options.command,
            "settings": {name: shown[name] for name in SHOWN_SETTINGS},
            "scope": {
                "epoch": self.options.epoch,
                "epochs": walk.epochs,
                "rows": walk.counts.rows,
                "tokens": walk.row_tokens,
                "eligible": walk.counts.eligible,
                "asked": walk.asked,
                "ended_by": walk.ended_by or None,
                "progress": walk.progress,
                "mask_rate": walk.rate,
            },
            "counts": vars(walk.counts),
            "table": [line.to_dict() for line in self.lines],
            "histograms": {
                h.key: {"title": h.title, "note": h.note, "bins": [bar.to_dict() for bar in h.bars]}
                for h in self.histograms
            },
            "collocations": self.collocations,
            "collocation_list": self.collocation_list or None,
            "rows": [
                {
                    "row": row.number,
                    "pair": row.pair or None,
                    "lines": [[asdict(token) for token in line] for line in row.lines],
                }
                for row in self.rows
            ],
        }


def find(arm: Any, options: Options) -> Findings:
    """Draw the rows and count."""
    settings, data = arm.settings, arm.data
    policy = data.rows.policy
    plan = data.steps.plan(options.epoch)
    rows = shown_rows(
        data, plan, options.rows, epoch=options.epoch, progress=options.progress or 0.0
    )
    found = walk(
        data,
        tokens=options.tokens,
        epoch=options.epoch,
        progress=options.progress,
        row_copies=settings.input_format.copies,
    )
    knows_words = arm.tokenizer.knows_words
    return Findings(
        options,
        settings,
        policy,
        rows,
        found,
        table(found, policy, settings.input_format, knows_words=knows_words),
        histograms(found, policy),
        _collocations(data),
        _collocation_list(data.rows.ngrams),
    )


def _collocation_list(ngrams: Any) -> str:
    if ngrams is None:
        return ""
    covered = ngrams.meta["covered_share"]
    return f"The list has {len(ngrams):,} n-grams, which cover {covered:.1%} of the tokens."


def _collocations(data: Any) -> list[dict[str, Any]]:
    """The n-grams that go together most, of each length; none where the policy has no list."""
    ngrams = data.rows.ngrams
    if ngrams is None:
        return []
    return [
        {
            "words": n,
            "text": printable(example.text),
            "pmi": example.pmi,
            "occurrences": example.num_occurrences,
        }
        for n in range(2, ngrams.max_words + 1)
        for example in ngrams.examples(data.store, data.tokenizer.decode, n, _COLLOCATIONS)
    ]
