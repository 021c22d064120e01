"""A `Source` -> the weights of an arm that starts from it, and which of them it had to make.

The pair head is taken only where the same loss trained it: two classes of `nsp` and two of `sop`
have one shape and two meanings. What the folder lacks keeps the values drawn by name, and what it
has beyond the arm's model is left out; both are listed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ablate.interop.checkpoint import Source
from ablate.tokens.tokenizer import Tokenizer

if TYPE_CHECKING:
    from torch import Tensor, nn

PAIR_HEAD = "pair_head."
PAIR_HEAD_WEIGHTS = tuple(
    f"{PAIR_HEAD}{layer}.{part}" for layer in ("dense", "classifier") for part in ("weight", "bias")
)


def start_from(module: nn.Module, source: Source, pair_loss: str | None) -> list[str]:
    """Copy the folder's weights into `module`; returns the names that are new, sorted.

    Raises:
        ValueError: the weights are not those of this model.
    """
    from ablate.encoder.initialization import load_weights

    state: Mapping[str, Tensor] = source.load()
    if source.pair_loss != pair_loss:
        state = {name: value for name, value in state.items() if not name.startswith(PAIR_HEAD)}
    missing = load_weights(module, state, allow_missing=(PAIR_HEAD,))
    assert missing == new_weights(source, pair_loss), "the record says what was new"
    return missing


def new_weights(source: Source, pair_loss: str | None) -> list[str]:
    """Names that an arm with `pair_loss` has and the folder does not, sorted."""
    return sorted(PAIR_HEAD_WEIGHTS) if pair_loss not in (None, source.pair_loss) else []


def identity(source: Source, pair_loss: str | None) -> dict[str, Any]:
    """What the folder contributes to a pretraining's fingerprint and record."""
    return {"weights": source.weights_hash, "new_weights": new_weights(source, pair_loss)}


def check_tokenizer(source: Source, tokenizer: Tokenizer) -> None:
    """Refuse a tokenizer whose ids mean something else to these weights.

    Raises:
        ValueError: more ids than the embedding has rows, another vocabulary than the folder's, or
            the same one after another cut of the text (lower case, words, merges).
    """
    rows = source.encoder.vocab_size
    if tokenizer.vocab_size > rows:
        raise ValueError(
            f"tokenizer.path={tokenizer.file} has {tokenizer.vocab_size} ids and the weights of "
            f"encoder.path={source.folder} {rows}; leave the tokenizer out to take the folder's"
        )
    if source.tokenizer_file is None or source.tokenizer_file == tokenizer.file:
        return
    theirs = Tokenizer(source.tokenizer_file)
    names = [[t.id_to_token(i) for i in range(t.vocab_size)] for t in (tokenizer, theirs)]
    if names[0] != names[1]:
        raise ValueError(
            f"tokenizer.path={tokenizer.file} is not the vocabulary that encoder.path="
            f"{source.folder} was trained with; leave the tokenizer out to take the folder's"
        )
    ours, others = tokenizer.parts(), theirs.parts()
    unlike = [name for name, part in ours.items() if part != others[name]]
    if unlike:
        raise ValueError(
            f"tokenizer.path={tokenizer.file} has the vocabulary of encoder.path={source.folder} "
            f"and reads texts otherwise: its {' and '.join(unlike)} differ from the folder's, so "
            "one text has other ids; leave the tokenizer out to take the folder's"
        )
