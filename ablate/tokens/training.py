"""Documents -> a trained tokenizer in the cache; same documents in, same file out.

The trainers of `tokenizers` walk hash maps in random order, so they are not deterministic by
themselves. What is done about it, for each kind:
- WordPiece: ids of `##x` are given in the order in which words are met, and ids decide ties between
  equally frequent pairs. Here every character, plain and with `##`, is named to the trainer in
  sorted order before it starts; the model is then rebuilt from the vocabulary alone.
- byte-level BPE: the 256 bytes are all given, nothing is left to order.
- Unigram: the order of sums changes scores in the last digits. Scores are rounded to 4 decimals,
  equal ones are ordered by their text, characters the trainer put back in by their code.
Checked over many processes in tests/tokens/test_tokenizer.py (FAULTS of this kind are public:
huggingface/tokenizers issues 668, 1794, 2066).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

from ablate.corpus.cache import key_of, must_build, seal, stage
from ablate.corpus.sentences import split_sentences
from ablate.tokens.tokenizer import SPECIAL_TOKENS, Tokenizer

KINDS = ("wordpiece", "byte_bpe", "unigram")
TRAINING_VERSION = 1
MAX_ALPHABET = 1000


def train(
    kind: str,
    documents: Iterable[str],
    *,
    vocab_size: int,
    lowercase: bool,
    cache_dir: str | Path,
    documents_key: str | None = None,
) -> Tokenizer:
    """Train on `documents`, or take from the cache what the same inputs gave before.

    `documents` is read up to three times; a one-shot iterator is first gathered in memory.
    `documents_key` names their content (corpus fingerprint and split): with it, a cached tokenizer
    is found without reading them. Special tokens are ids 0-4.

    Raises:
        ValueError: unknown kind, a vocabulary too small for the characters, no text.
    """
    if kind not in KINDS:
        raise ValueError(f"tokenizer.kind={kind}; allowed: {' | '.join(KINDS)}")
    least = len(SPECIAL_TOKENS) + (257 if kind == "byte_bpe" else 2)
    if vocab_size < least:
        raise ValueError(f"tokenizer.vocab_size={vocab_size}; {kind} needs at least {least}")
    if iter(documents) is documents and documents_key is None:
        documents = list(documents)
    contents = documents_key or _content_key(documents)
    key = key_of(TRAINING_VERSION, kind, vocab_size, lowercase, contents)
    folder = Path(cache_dir) / "tokenizers" / key
    if must_build(folder, ["tokenizer.json"]):
        if iter(documents) is documents:
            documents = list(documents)
        if next(_sentences(documents), None) is None:
            raise ValueError("there is no text to train a tokenizer on; check corpus.*")
        trainer = {"wordpiece": _wordpiece, "byte_bpe": _byte_bpe, "unigram": _unigram}[kind]
        trained, facts = trainer(documents, vocab_size, lowercase)
        _store(folder, trained, {"kind": kind, "vocab_size_asked": vocab_size, **facts})
    return Tokenizer(folder / "tokenizer.json")


def from_morphemes(morphemes: list[str], *, cache_dir: str | Path) -> Tokenizer:
    """WordPiece with exactly this vocabulary after the special tokens (lower case)."""
    entries = [*SPECIAL_TOKENS, *morphemes]
    assert len(set(entries)) == len(entries), "a morpheme is listed twice"
    folder = Path(cache_dir) / "tokenizers" / key_of(TRAINING_VERSION, "morphemes", entries)
    if must_build(folder, ["tokenizer.json"]):
        built = _wordpiece_of({entry: i for i, entry in enumerate(entries)}, lowercase=True)
        _store(folder, built, {"kind": "morphemes"})
    return Tokenizer(folder / "tokenizer.json")


def _content_key(documents: Iterable[str]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for document in documents:
        encoded = document.encode()
        digest.update(len(encoded).to_bytes(8, "little"))
        digest.update(encoded)
    return digest.hexdigest()


def _sentences(documents: Iterable[str]) -> Iterator[str]:
    for document in documents:
        yield from split_sentences(document)


def _store(folder: Path, trained: tokenizers.Tokenizer, facts: dict) -> None:
    trained.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    with stage(folder) as temporary:
        temporary.mkdir()
        trained.save(str(temporary / "tokenizer.json"))
        seal(temporary, {**facts, "vocab_size": trained.get_vocab_size()})


def _alphabet(
    documents: Iterable[str], normalize: Callable[[str], str], vocab_size: int
) -> tuple[list[str], list[str]]:
    """Characters after normalisation (kept, dropped), each in code order.

    The most frequent are kept: no more than 1/16 of the vocabulary and 1,000, though 64 where the
    vocabulary allows. Counting raw characters and normalising each distinct one is exact for
    per-character normalisers and takes one pass of numpy.
    """
    counts = np.zeros(0x110000, dtype=np.int64)
    for text in _chunks(documents):
        counts += np.bincount(
            np.frombuffer(text.encode("utf-32-le"), np.uint32), minlength=0x110000
        )
    normal: dict[str, int] = {}
    for code in np.flatnonzero(counts).tolist():
        for character in normalize(chr(code)):
            if not character.isspace():
                normal[character] = normal.get(character, 0) + int(counts[code])
    room = min(64, (vocab_size - len(SPECIAL_TOKENS)) // 2)
    limit = min(MAX_ALPHABET, max(vocab_size // 16, room))
    order = sorted(normal, key=lambda character: (-normal[character], character))
    return sorted(order[:limit]), sorted(order[limit:])


def _chunks(documents: Iterable[str], size: int = 1 << 22) -> Iterator[str]:
    chunk: list[str] = []
    length = 0
    for document in documents:
        chunk.append(document)
        length += len(document)
        if length >= size:
            yield "".join(chunk)
            chunk, length = [], 0
    yield "".join(chunk)


def _wordpiece_of(vocabulary: dict[str, int], *, lowercase: bool) -> tokenizers.Tokenizer:
    """BERT's pipeline around a vocabulary: words over 100 characters are unknown."""
    model = models.WordPiece(vocabulary, unk_token="[UNK]", max_input_chars_per_word=100)
    built = tokenizers.Tokenizer(model)
    built.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    built.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    built.decoder = decoders.WordPiece()
    built.add_special_tokens(list(SPECIAL_TOKENS))
    return built


def _wordpiece(documents: Iterable[str], vocab_size: int, lowercase: bool) -> tuple:
    draft = _wordpiece_of({"[UNK]": 0}, lowercase=lowercase)
    kept, dropped = _alphabet(documents, draft.normalizer.normalize_str, vocab_size)
    cut = draft.pre_tokenizer.pre_tokenize_str
    inner = ["##" + c for c in kept if len(cut("a" + c)) == 1]  # the others are always alone
    learner = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    learner.normalizer, learner.pre_tokenizer = draft.normalizer, draft.pre_tokenizer
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocab_size,
        special_tokens=[*SPECIAL_TOKENS, *kept, *inner],
        initial_alphabet=kept,
        limit_alphabet=len(kept),
        show_progress=False,
    )
    learner.train_from_iterator(_sentences(documents), trainer)
    vocabulary = json.loads(learner.to_str())["model"]["vocab"]
    facts = {"alphabet": len(kept), "alphabet_dropped": len(dropped)}
    return _wordpiece_of(vocabulary, lowercase=lowercase), facts


def _byte_bpe(documents: Iterable[str], vocab_size: int, lowercase: bool) -> tuple:
    built = tokenizers.Tokenizer(models.BPE())
    steps = [normalizers.NFC(), *([normalizers.Lowercase()] if lowercase else [])]
    built.normalizer = normalizers.Sequence(steps)
    built.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    built.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    built.train_from_iterator(_sentences(documents), trainer)
    return built, {"alphabet": 256, "alphabet_dropped": 0}


def _unigram(documents: Iterable[str], vocab_size: int, lowercase: bool) -> tuple:
    steps = [normalizers.NFKC(), *([normalizers.Lowercase()] if lowercase else [])]
    steps.append(normalizers.Replace(tokenizers.Regex(r"\s+"), " "))
    normalizer = normalizers.Sequence(steps)
    kept, dropped = _alphabet(documents, normalizer.normalize_str, vocab_size)
    learner = tokenizers.Tokenizer(models.Unigram())
    learner.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Metaspace(), pre_tokenizers.Punctuation()]
    )
    rare = "".join(f"\\x{{{ord(character):X}}}" for character in dropped)
    without = [normalizers.Replace(tokenizers.Regex(f"[{rare}]"), " ")] if dropped else []
    learner.normalizer = normalizers.Sequence([*steps, *without])
    trainer = trainers.UnigramTrainer(
        vocab_size=vocab_size - len(SPECIAL_TOKENS) + 1,  # the trainer counts [UNK] as a piece
        unk_token="[UNK]",
        special_tokens=[],
        show_progress=False,
    )
    learner.train_from_iterator(_sentences(documents), trainer)
    pieces = _canonical(json.loads(learner.to_str())["model"]["vocab"])
    built = tokenizers.Tokenizer(models.Unigram(pieces, unk_id=1))
    built.normalizer, built.pre_tokenizer = normalizer, learner.pre_tokenizer
    built.decoder = decoders.Metaspace()
    built.add_special_tokens(list(SPECIAL_TOKENS))
    return built, {"alphabet": len(kept), "alphabet_dropped": len(dropped)}


def _canonical(pieces: list[tuple[str, float]]) -> list[tuple[str, float]]:
    """Special tokens, then pieces in an order that the order of summation cannot change."""
    scores = {piece: score for piece, score in pieces if piece not in SPECIAL_TOKENS}
    lowest = min(scores.values())
    singles = [piece for piece in scores if len(piece) == 1]
    band = lowest + 1e-4 * len(singles) + 1e-6  # where the trainer puts back lost characters
    restored = sorted(piece for piece in singles if scores[piece] < band)
    values = sorted((scores[piece] for piece in restored), reverse=True)
    scores.update(zip(restored, values, strict=True))
    rounded = {piece: round(score, 4) for piece, score in scores.items()}
    order = sorted(rounded, key=lambda piece: (-rounded[piece], piece))
    return [(name, 0.0) for name in SPECIAL_TOKENS] + [(piece, rounded[piece]) for piece in order]
