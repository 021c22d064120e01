"""Training documents of a token store -> how well counting alone fills masked positions.

The gate that a pretrained encoder has to pass: a two-sided trigram names the token x with the
largest count of (left, x, right) in the training text; where that pair of neighbours was never seen
around a token, the better of the two bigrams (the one whose best continuation was seen more often);
where neither was seen, or both neighbours are masked, special or missing, the most frequent token.
Counts run inside documents; special tokens are never neighbours. Ties go to the smallest id.
For a causal arm the counts are of the two tokens before (`count_before`), and of the one before
where those two were never seen together.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from ablate.inputs.batches import ragged_arange
from ablate.tokens.store import TokenStore

_NOTHING = -1


@dataclass(frozen=True)
class _Best:
    """Sorted contexts (C,) -> the token seen most often there (C,), and how often (C,)."""

    contexts: np.ndarray
    tokens: np.ndarray
    counts: np.ndarray

    def __call__(self, contexts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(token or -1, count or 0) for each context; context -1 is unknown."""
        if not len(self.contexts):
            return np.full(len(contexts), _NOTHING), np.zeros(len(contexts), dtype=np.int64)
        place = np.searchsorted(self.contexts, contexts).clip(max=len(self.contexts) - 1)
        hit = self.contexts[place] == contexts
        return np.where(hit, self.tokens[place], _NOTHING), np.where(hit, self.counts[place], 0)


@dataclass(frozen=True)
class NgramBaseline:
    """Counts of `num_tokens` training tokens; see `count`."""

    vocab_size: int
    num_tokens: int
    most_frequent: int
    two_sided: _Best
    from_left: _Best
    from_right: _Best

    def predict(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """Token ids (M,) from the neighbours (M,); -1 where a neighbour is not to be seen."""
        left, right = (np.asarray(side, dtype=np.int64) for side in (left, right))
        both = np.where((left >= 0) & (right >= 0), left * self.vocab_size + right, _NOTHING)
        by_both, _ = self.two_sided(both)
        by_left, times_left = self.from_left(left)
        by_right, times_right = self.from_right(right)
        by_one = np.where(times_left >= times_right, by_left, by_right)
        by_one = np.where(by_one < 0, self.most_frequent, by_one)
        return np.where(by_both >= 0, by_both, by_one)

    def accuracies(
        self,
        input_ids: np.ndarray,
        row_starts: np.ndarray,
        positions: np.ndarray,
        labels: np.ndarray,
        hidden_ids: Iterable[int],
    ) -> dict[str, float]:
        """Share of right answers at masked positions, {} if there are none.

        `input_ids` (N,) are rows end to end as the encoder sees them, `row_starts` (R + 1,) where
        they begin (`cu_seqlens`); `positions` (M,) are predicted, `labels` (M,) the true ids. A
        neighbour is not seen when it is predicted too, lies in another row or is one of
        `hidden_ids` (the special tokens).
        """
        positions, labels = np.asarray(positions), np.asarray(labels)
        if not len(positions):
            return {}
        seen = np.array(input_ids, dtype=np.int64)
        seen[np.isin(seen, np.fromiter(hidden_ids, dtype=np.int64))] = _NOTHING
        seen[positions] = _NOTHING
        before, after = _neighbours(seen, np.asarray(row_starts), positions)
        return {
            "trigram_accuracy": float((self.predict(before, after) == labels).mean()),
            "unigram_accuracy": float((labels == self.most_frequent).mean()),
        }


@dataclass(frozen=True)
class NextTokenBaseline:
    """The same gate for next-token prediction: it sees the tokens before; see `count_before`."""

    vocab_size: int
    num_tokens: int
    most_frequent: int
    from_two: _Best
    from_one: _Best

    def predict(self, earlier: np.ndarray, last: np.ndarray) -> np.ndarray:
        """Token ids (M,) from the two tokens before (M,); -1 where one is not to be seen."""
        earlier, last = (np.asarray(side, dtype=np.int64) for side in (earlier, last))
        both = np.where((earlier >= 0) & (last >= 0), earlier * self.vocab_size + last, _NOTHING)
        by_two, _ = self.from_two(both)
        by_one, _ = self.from_one(last)
        by_one = np.where(by_one < 0, self.most_frequent, by_one)
        return np.where(by_two >= 0, by_two, by_one)

    def accuracies(
        self,
        input_ids: np.ndarray,
        row_starts: np.ndarray,
        positions: np.ndarray,
        labels: np.ndarray,
        hidden_ids: Iterable[int],
    ) -> dict[str, float]:
        """Share of right answers, {} if there are none; arguments as in `NgramBaseline`.

        Here position i is asked for the token after it, and sees itself and position i - 1.
        """
        positions, labels = np.asarray(positions), np.asarray(labels)
        if not len(positions):
            return {}
        seen = np.array(input_ids, dtype=np.int64)
        seen[np.isin(seen, np.fromiter(hidden_ids, dtype=np.int64))] = _NOTHING
        earlier, _ = _neighbours(seen, np.asarray(row_starts), positions)
        return {
            "trigram_accuracy": float((self.predict(earlier, seen[positions]) == labels).mean()),
            "unigram_accuracy": float((labels == self.most_frequent).mean()),
        }


def _neighbours(
    seen: np.ndarray, row_starts: np.ndarray, positions: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    row = np.searchsorted(row_starts, positions, side="right") - 1
    first, last = row_starts[row], row_starts[row + 1] - 1
    before = np.where(positions > first, seen[np.maximum(positions - 1, 0)], _NOTHING)
    after = np.where(positions < last, seen[np.minimum(positions + 1, len(seen) - 1)], _NOTHING)
    return before, after


def count(
    store: TokenStore,
    documents: np.ndarray,
    *,
    vocab_size: int,
    max_tokens: int | None = None,
) -> NgramBaseline:
    """Count uni-, bi- and trigrams of the given documents (their numbers, in order).

    With `max_tokens`, only as many documents from the front as hold that many tokens together.

    Raises:
        ValueError: three tokens no longer fit into 63 bits (a vocabulary over two million).
    """
    return _count(*_text(store, documents, vocab_size, max_tokens), vocab_size)


def count_before(
    store: TokenStore,
    documents: np.ndarray,
    *,
    vocab_size: int,
    max_tokens: int | None = None,
) -> NextTokenBaseline:
    """Count which token follows each pair of tokens and each token; arguments as in `count`.

    Raises:
        ValueError: three tokens no longer fit into 63 bits.
    """
    tokens, inside = _text(store, documents, vocab_size, max_tokens)
    wide = tokens.astype(np.int64)
    pair = wide[:-1] * vocab_size + wide[1:]
    triple = pair[:-1] * vocab_size + wide[2:]
    return NextTokenBaseline(
        vocab_size=vocab_size,
        num_tokens=len(tokens),
        most_frequent=int(np.bincount(tokens, minlength=vocab_size).argmax()),
        from_two=_best(triple[inside[1:-1] & inside[2:]], vocab_size),
        from_one=_best(pair[inside[1:]], vocab_size),
    )


def _text(
    store: TokenStore, documents: np.ndarray, vocab_size: int, max_tokens: int | None
) -> tuple[np.ndarray, np.ndarray]:
    """(tokens (T,), whether each has a left neighbour in its document (T,))."""
    if vocab_size**3 >= 2**63:
        raise ValueError(f"vocab_size={vocab_size}: trigrams are counted up to 2,000,000 entries")
    starts = np.asarray(store.document_starts)
    begins, ends = starts[documents], starts[np.asarray(documents) + 1]
    if max_tokens is not None:
        num = int(np.searchsorted(np.cumsum(ends - begins), max_tokens, side="right"))
        begins, ends = begins[: max(num, 1)], ends[: max(num, 1)]
    lengths = ends - begins
    tokens = _gather(store.tokens, begins, lengths)
    inside = np.ones(len(tokens), dtype=bool)  # the token has a left neighbour in its document
    inside[(np.cumsum(lengths) - lengths)[lengths > 0]] = False
    return tokens, inside


def _gather(tokens: np.ndarray, begins: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    return tokens[np.repeat(begins, lengths) + ragged_arange(lengths)]


def _count(tokens: np.ndarray, inside: np.ndarray, vocab_size: int) -> NgramBaseline:
    """`inside` (T,) is False at the first token of each document."""
    narrow = np.uint32 if vocab_size**2 <= 1 << 32 else np.int64  # sorts twice as fast

    def keys(kind: type, usable: np.ndarray, *columns: np.ndarray) -> np.ndarray:
        packed = columns[0][usable].astype(kind)
        for column in columns[1:]:
            packed *= vocab_size
            packed += column[usable]
        return packed

    left, right, pair = tokens[:-1], tokens[1:], inside[1:]
    triple = inside[1:-1] & inside[2:]
    return NgramBaseline(
        vocab_size=vocab_size,
        num_tokens=len(tokens),
        most_frequent=int(np.bincount(tokens, minlength=vocab_size).argmax()),
        two_sided=_best(keys(np.int64, triple, tokens[:-2], tokens[2:], tokens[1:-1]), vocab_size),
        from_left=_best(keys(narrow, pair, left, right), vocab_size),
        from_right=_best(keys(narrow, pair, right, left), vocab_size),
    )


def _best(keys: np.ndarray, vocab_size: int) -> _Best:
    """context * vocab_size + token, once an occurrence, in any order (it is sorted in place)."""
    if not len(keys):
        nothing = np.empty(0, dtype=np.int64)
        return _Best(nothing, nothing, nothing)
    keys.sort()
    at = np.flatnonzero(np.append(True, keys[1:] != keys[:-1]))
    counts = np.diff(at, append=len(keys))
    context, token = np.divmod(keys[at].astype(np.int64), vocab_size)
    begins = np.flatnonzero(np.append(True, context[1:] != context[:-1]))
    most = np.maximum.reduceat(counts, begins)
    tops = np.flatnonzero(counts == np.repeat(most, np.diff(begins, append=len(counts))))
    chosen = tops[np.append(True, context[tops][1:] != context[tops][:-1])]  # smallest id of a tie
    return _Best(context[chosen], token[chosen], most)
