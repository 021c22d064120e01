"""Token ids -> text that a person reads: pieces attached, bytes decoded, no control signs.

A tokenizer marks in its entries how pieces join: WordPiece writes `##` before what goes on, byte
BPE `Ġ` and Unigram `▁` for a blank before. What has no mark of its own joins by word starts.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np

WORDPIECE, BYTES, METASPACE = "##", "Ġ", "▁"


class Piece(NamedTuple):
    """Text of a token, and whether it goes on without a blank from the one before."""

    text: str
    attached: bool


class Pieces:
    """Makes readable text of a tokenizer's ids."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        entries = [tokenizer.id_to_token(i) or "" for i in tokenizer.ordinary_ids]
        marks = (WORDPIECE, BYTES, METASPACE)
        self.mark = max(marks, key=lambda mark: sum(entry.startswith(mark) for entry in entries))

    def entry(self, token_id: int) -> str:
        """The vocabulary's own writing, as for [CLS]; control signs escaped."""
        return printable(self.tokenizer.id_to_token(token_id) or f"<{token_id}>")

    def lone(self, token_id: int) -> str:
        """A token in the place of another one: WordPiece keeps its mark, others lose the blank."""
        return self.entry(token_id) if self.mark == WORDPIECE else self._piece(token_id, True).text

    def row(self, ids: np.ndarray, word_starts: np.ndarray, special: np.ndarray) -> list[Piece]:
        """The pieces of rows laid end to end; (N,) each. None goes on over a special token."""
        edges = special | np.concatenate([[True], special[:-1]])
        pieces = []
        for token_id, start, edge in zip(ids.tolist(), word_starts, edges, strict=True):
            piece = self._piece(token_id, bool(start or edge))
            pieces.append(piece._replace(attached=piece.attached and not edge))
        return pieces

    def _piece(self, token_id: int, fresh: bool) -> Piece:
        """`fresh`: what has no mark of its own for a blank before it has one."""
        entry = self.tokenizer.id_to_token(token_id) or f"<{token_id}>"
        if self.mark == WORDPIECE:
            return Piece(printable(entry if fresh else entry.removeprefix(WORDPIECE)), not fresh)
        text = from_bytes(entry) if self.mark == BYTES else entry.replace(METASPACE, " ")
        blank = text.startswith(" ") and len(text) > 1
        return Piece(printable(text[1:] if blank else text), not blank)


def printable(text: str) -> str:
    """No sign that would move the cursor, or hide: a corpus may hold any. A lone blank is shown."""
    if text == " ":
        return "␣"
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


@functools.cache
def byte_of() -> dict[str, int]:
    """The byte behind each letter of byte-level BPE: printable ones stand for themselves."""
    plain = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = (byte for byte in range(256) if byte not in plain)
    return {
        **{chr(byte): byte for byte in plain},
        **{chr(256 + i): byte for i, byte in enumerate(others)},
    }


def from_bytes(entry: str) -> str:
    """Text of a byte-level entry; what is no whole UTF-8 character is written as \\xNN."""
    if not all(letter in byte_of() for letter in entry):
        return entry  # an added token
    return bytes(byte_of()[letter] for letter in entry).decode("utf-8", "backslashreplace")
