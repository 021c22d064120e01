"""A tokenizer.json file -> ids and word starts, with special tokens under one set of names.

Word starts come from the pre-tokenizer (each token knows which pre-token it was cut from), never
from a `##` or `Ġ` in its name; a file whose pre-tokenizer does not cut between words has
`knows_words` False. Texts are plain: "[MASK]" in a text is text, nothing is cut to a length the
file may set, and no special tokens are added - rows are built elsewhere.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import operator
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers

from ablate.tokens.words import ChunkCache, EncodedTexts

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")  # ids 0-4 in what we train

_NAMES = {  # role -> names in the order of preference
    "pad": ("[PAD]", "<pad>"),
    "unk": ("[UNK]", "<unk>"),
    "cls": ("[CLS]", "<s>", "<cls>"),
    "sep": ("[SEP]", "</s>", "<sep>", "<eos>"),
    "mask": ("[MASK]", "<mask>"),
}
_PLACEHOLDER = re.compile(r"\[unused\d+\]")


@dataclass(frozen=True)
class Encoded:
    """One text: token ids, and whether each token begins a word."""

    ids: list[int]
    word_starts: list[bool]


@dataclass(frozen=True)
class Located:
    """One text: ids (n,), and offsets (n, 2): token i stands for `text[left:right]`.

    Blanks at the ends of that are not counted in (byte-level and sentencepiece tokens have them);
    left == right where nothing else is left.
    """

    ids: np.ndarray
    offsets: np.ndarray


class Tokenizer:
    """A fast tokenizer, read from `file`; `hash` names its bytes and its special ids.

    `ordinary_ids` are the candidates of a random replacement: no special token, no [unusedN].
    `unk_token_id` is -1 where a tokenizer has no unknown token (it never meets an unknown text).

    Raises:
        ValueError: the file cannot be read, or lacks a pad, cls, sep or mask token.
    """

    def __init__(self, file: str | Path, names: dict[str, str] | None = None) -> None:
        self.file, self.names = Path(file), dict(names or {})
        data = self.file.read_bytes()
        try:
            self._rust = tokenizers.Tokenizer.from_str(data.decode())
        except Exception as error:  # the library raises plain Exception
            raise ValueError(
                f"tokenizer.path={file} is not a file of the library tokenizers: {error}"
            ) from None
        self._rust.no_truncation()
        self._rust.no_padding()
        self._rust.encode_special_tokens = True
        vocabulary = self._rust.get_vocab(with_added_tokens=True)
        self.vocab_size = max(vocabulary.values()) + 1
        found = _special_ids(vocabulary, self.names, self.file)
        self.pad_token_id = found["pad"]
        self.unk_token_id = found["unk"]
        self.cls_token_id = found["cls"]
        self.sep_token_id = found["sep"]
        self.mask_token_id = found["mask"]
        self.special_ids, self.ordinary_ids = self._partition(vocabulary, found)
        self.hash = hashlib.blake2b(
            data + json.dumps(found, sort_keys=True).encode(), digest_size=8
        ).hexdigest()
        self._is_special = np.zeros(self.vocab_size, dtype=bool)
        self._is_special[self.special_ids] = True
        if self.unk_token_id >= 0:
            self._is_special[self.unk_token_id] = False

    def _partition(
        self, vocabulary: dict[str, int], found: dict[str, int]
    ) -> tuple[np.ndarray, np.ndarray]:
        added = self._rust.get_added_tokens_decoder()
        special = {i for i in found.values() if i >= 0}
        special |= {i for i, token in added.items() if token.special}
        unused = {i for token, i in vocabulary.items() if _PLACEHOLDER.fullmatch(token)}
        ordinary = set(vocabulary.values()) - special - unused
        return np.array(sorted(special)), np.array(sorted(ordinary))

    @cached_property
    def knows_words(self) -> bool:
        """Whether two words with a blank between them are two pre-tokens."""
        if self._rust.pre_tokenizer is None:
            return False
        normalizer = self._rust.normalizer
        probe = "one two" if normalizer is None else normalizer.normalize_str("one two")
        return len(self._rust.pre_tokenizer.pre_tokenize_str(probe)) > 1

    def parts(self) -> dict[str, Any]:
        """What turns a text into ids, part by part, as the library of today writes it."""
        data = json.loads(self._rust.to_str())
        return {name: data[name] for name in ("normalizer", "pre_tokenizer", "model")}

    def id_to_token(self, token_id: int) -> str | None:
        return self._rust.id_to_token(int(token_id))

    def token_to_id(self, token: str) -> int | None:
        return self._rust.token_to_id(token)

    def decode(self, ids: Any) -> str:
        """Text of the ids, special tokens shown."""
        return self._rust.decode([int(i) for i in ids], skip_special_tokens=False)

    def encode_batch(self, texts: list[str]) -> list[Encoded]:
        """Each text on its own, no special tokens added."""
        flat = self.encode_texts(texts)
        ends = np.cumsum(flat.lengths)
        return [
            Encoded(flat.ids[end - n : end].tolist(), flat.word_starts[end - n : end].tolist())
            for n, end in zip(flat.lengths.tolist(), ends.tolist(), strict=True)
        ]

    def encode_with_offsets(self, texts: list[str]) -> list[Located]:
        """The ids of `encode_batch`, and which characters of the text each stands for."""
        found = []
        encodings = self._rust.encode_batch(texts, add_special_tokens=False)
        for text, encoding in zip(texts, encodings, strict=True):
            ids = np.array(encoding.ids, dtype=np.int64)
            if self.unk_token_id >= 0:
                ids[self._is_special[ids]] = self.unk_token_id
            found.append(Located(ids, _without_blanks(text, encoding.offsets)))
        return found

    def encode_texts(self, texts: list[str]) -> EncodedTexts:
        """All texts as flat arrays; the cheap way for many tokens."""
        return self._encode(texts) if self._chunks is None else self._chunks.encode_texts(texts)

    @cached_property
    def _chunks(self) -> ChunkCache | None:
        """For BERT's pipeline, which cuts at every blank and drops it; see `words.py`."""
        parts = (self._rust.model, self._rust.pre_tokenizer, self._rust.normalizer)
        names = tuple(type(part).__name__ for part in parts)
        plain = names[2] in ("BertNormalizer", "NoneType")
        added = self._rust.get_added_tokens_decoder().values()
        if names[:2] != ("WordPiece", "BertPreTokenizer") or not plain:
            return None
        return ChunkCache(self._encode) if all(token.special for token in added) else None

    def _encode(self, texts: list[str]) -> EncodedTexts:
        encodings = self._rust.encode_batch(texts, add_special_tokens=False)
        lengths = np.fromiter(map(len, encodings), dtype=np.int64, count=len(encodings))
        total = int(lengths.sum())
        ids = np.fromiter(
            itertools.chain.from_iterable(e.ids for e in encodings), dtype=np.int32, count=total
        )
        text_of = np.repeat(np.arange(len(texts)), lengths)
        spelled = self._is_special[ids]
        if self.unk_token_id >= 0:
            ids[spelled] = self.unk_token_id
        unknown = np.flatnonzero(ids == self.unk_token_id)
        return EncodedTexts(
            ids,
            _word_starts(encodings, lengths, total),
            lengths,
            np.bincount(text_of[unknown], minlength=len(texts)),
            _lost_characters(texts, encodings, lengths, unknown),
            np.bincount(text_of[spelled], minlength=len(texts)),
        )


def load(path: str | Path | None) -> Tokenizer:
    """A tokenizer.json, or a folder that holds one (names of special tokens as in its config).

    Raises:
        ValueError: no such file, not a fast tokenizer, or a special token is missing.
    """
    hint = "tokenizer.path is a tokenizer.json or a folder that holds one"
    if path is None or not str(path):
        raise ValueError(f"tokenizer=pretrained needs tokenizer.path; {hint}")
    place = Path(path).expanduser()
    file = place / "tokenizer.json" if place.is_dir() else place
    if not file.is_file():
        raise ValueError(f"tokenizer.path={path}: there is no file {file}; {hint}")
    return Tokenizer(file, _configured_names(file.parent))


def _configured_names(folder: Path) -> dict[str, str]:
    names = {}
    for file in ("special_tokens_map.json", "tokenizer_config.json"):
        if not (folder / file).is_file():
            continue
        settings = json.loads((folder / file).read_text())
        for role in _NAMES:
            token = settings.get(f"{role}_token")
            token = token.get("content") if isinstance(token, dict) else token
            if isinstance(token, str):
                names[role] = token
    return names


def _special_ids(vocabulary: dict[str, int], names: dict[str, str], file: Path) -> dict[str, int]:
    found = {}
    for role, known in _NAMES.items():
        candidates = [names[role]] if role in names else list(known)
        present = [vocabulary[name] for name in candidates if name in vocabulary]
        if not present and role != "unk":
            raise ValueError(
                f"tokenizer.path={file} has no {role} token (looked for {', '.join(candidates)}); "
                "a masked language model needs pad, cls, sep and mask tokens: "
                "choose another tokenizer.path, or tokenizer=wordpiece | byte_bpe | unigram"
            )
        found[role] = present[0] if present else -1
    return found


def _without_blanks(text: str, offsets: list[tuple[int, int]]) -> np.ndarray:
    found = np.array(offsets, dtype=np.int64).reshape(-1, 2)
    blank = np.array([character.isspace() for character in text] + [False])
    for row in np.flatnonzero(blank[found[:, 0]] | blank[np.maximum(found[:, 1] - 1, 0)]):
        left, right = found[row]
        piece = text[left:right]
        left += len(piece) - len(piece.lstrip())
        found[row] = left, max(left, right - (len(piece) - len(piece.rstrip())))
    return found


def _word_starts(encodings: list[Any], lengths: np.ndarray, total: int) -> np.ndarray:
    """(T,) bool: the pre-token changes, or the text begins."""
    try:
        words = np.fromiter(
            itertools.chain.from_iterable(e.word_ids for e in encodings),
            dtype=np.int32,
            count=total,
        )
    except TypeError:  # None: a token that no pre-token stands behind is a word of its own
        numbers = (w for e in encodings for w in e.word_ids)
        words = np.array([-1 - i if w is None else w for i, w in enumerate(numbers)])
    starts = np.ones(total, dtype=bool)
    starts[1:] = words[1:] != words[:-1]
    firsts = np.cumsum(lengths) - lengths
    starts[firsts[lengths > 0]] = True
    return starts


def _lost_characters(
    texts: list[str], encodings: list[Any], lengths: np.ndarray, unknown: np.ndarray
) -> np.ndarray:
    """(S,) characters of each original text, blanks not counted, under the `unknown` positions."""
    lost = np.zeros(len(texts), dtype=np.int64)
    ends = np.cumsum(lengths)
    which = np.searchsorted(ends, unknown, side="right")
    within = unknown - (ends - lengths)[which]
    pairs = zip(which.tolist(), within.tolist(), strict=True)
    for number, group in itertools.groupby(pairs, key=operator.itemgetter(0)):
        text, offsets = texts[number], encodings[number].offsets
        for _, place in group:
            left, right = offsets[place]
            lost[number] += sum(not character.isspace() for character in text[left:right])
    return lost
