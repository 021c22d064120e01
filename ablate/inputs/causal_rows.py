"""Plan + store -> unmasked `Batch`es whose labels are the next tokens, for causal language models.

The rows are those of `MaskedRows`, with nothing hidden: position i is asked for token i + 1 of the
same attention sequence, so no label crosses a row or, where attention stops at documents, a
document. As in masked language modelling, [CLS], [SEP] and the unknown piece are no targets: a
row's [SEP] stands where the row was full, which no text foretells, and bits per byte are bits of
text. Labels are shifted here, once, and nowhere else. Radford et al. 2018, sec. 3.1.
"""

from __future__ import annotations

import numpy as np

from ablate.inputs.batches import Batch, collate
from ablate.inputs.mask_counts import MaskCounts, count_predicted
from ablate.inputs.plan import Plan
from ablate.inputs.rows import assemble
from ablate.tokens.store import TokenStore
from ablate.tokens.tokenizer import Tokenizer


class NextTokenRows:
    """The rows of a plan as they are, each position asked for its successor.

    Nothing is drawn, so the rows depend on neither seed nor epoch nor progress; the interface is
    that of `MaskedRows`, without a masking policy.
    """

    policy = None
    ngrams = None

    def __init__(self, store: TokenStore, tokenizer: Tokenizer) -> None:
        self.store, self.tokenizer = store, tokenizer

    def batch(
        self, plan: Plan, rows: np.ndarray, *, epoch: int = 0, progress: float = 0.0
    ) -> tuple[Batch, MaskCounts]:
        """The rows numbered `rows` of the epoch's plan; `counts` say what is predicted."""
        flat = assemble(self.store, self.tokenizer, plan, rows)
        targets = flat.eligible.copy()
        begins = np.cumsum(flat.sequence_lengths) - flat.sequence_lengths
        targets[begins] = False  # no predecessor in its own sequence
        targets_at = np.flatnonzero(targets)
        predicted = targets_at - 1
        counts = MaskCounts(eligible=int(flat.eligible.sum()))
        row_starts = np.concatenate([[0], np.cumsum(flat.lengths)])
        count_predicted(counts, np.zeros(len(targets), dtype=bool), predicted, row_starts)
        batch = collate(
            flat.input_ids,
            flat.sequence_lengths,
            token_type_ids=flat.token_type_ids,
            predict_positions=predicted,
            labels=flat.input_ids[targets_at],
            pair_labels=None if plan.pair_labels is None else plan.pair_labels[np.asarray(rows)],
        )
        return batch, counts
