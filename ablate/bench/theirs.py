"""Rows as lists of ids -> masked tensors by the collators of transformers: the other side.

The versions differ in how whole words are asked for. From 5 on `DataCollatorForLanguageModeling`
has `whole_word_mask`: words are runs of tokens without a gap in the text ("ran." is one word), all
of them become [MASK], and offsets are required. Before, `DataCollatorForWholeWordMask` looked for
the `##` of BERT. There is no collator for spans; token masking stands in for it.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from ablate.tokens.tokenizer import Tokenizer

Collator = Callable[[list[dict[str, Any]]], dict[str, Any]]
KEYS = {  # what of an example each collator is given
    "token": ("input_ids",),
    "token_with_special_tokens_mask": ("input_ids", "special_tokens_mask"),
    "whole_word": ("input_ids", "offset_mapping", "special_tokens_mask"),
}


def transformers_module() -> Any:
    """The library, or a message that says how to get it.

    Raises:
        ValueError: it is not installed.
    """
    try:
        import transformers
    except ImportError as error:
        raise ValueError(
            "the library transformers, the other side of this comparison, cannot be imported "
            f"({error}); it is a dependency of ablate: type python -m pip install transformers"
        ) from None
    return transformers


def wrap(tokenizer: Tokenizer) -> Any:
    """Our tokenizer.json as a `PreTrainedTokenizerFast`."""
    names = {
        f"{role}_token": tokenizer.id_to_token(getattr(tokenizer, f"{role}_token_id"))
        for role in ("pad", "unk", "cls", "sep", "mask")
    }
    library = transformers_module()
    return library.PreTrainedTokenizerFast(tokenizer_file=str(tokenizer.file), **names)


def collator(kind: str, hf_tokenizer: Any) -> Collator:
    """The torch collator of a kind of `KEYS`, at 15%."""
    library = transformers_module()
    plain = library.DataCollatorForLanguageModeling
    options: dict[str, Any] = {"mlm_probability": 0.15, "return_tensors": "pt"}
    if kind != "whole_word":
        return plain(hf_tokenizer, mlm=True, **options)
    if "whole_word_mask" not in {field.name for field in dataclasses.fields(plain)}:
        return library.DataCollatorForWholeWordMask(hf_tokenizer, **options)
    with warnings.catch_warnings():  # it says that it sets these two, which they are already
        warnings.simplefilter("ignore")
        return plain(
            hf_tokenizer,
            mlm=True,
            whole_word_mask=True,
            mask_replace_prob=1.0,
            random_replace_prob=0.0,
            **options,
        )


def examples_for(kind: str, examples: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The examples with no more than the collator of this kind reads."""
    return [{key: example[key] for key in KEYS[kind]} for example in examples]


def check_whole_words(batch: dict[str, Any], word_starts: np.ndarray) -> None:
    """That a batch predicts whole words and nothing else, some of several tokens.

    Args:
        batch: of the whole-word collator.
        word_starts: (R, L) bool by our store, whose words are parts of theirs.

    Raises:
        ValueError: a word is predicted in part, or no word of two tokens is predicted.
    """
    predicted = (batch["labels"] != -100).numpy().reshape(-1)
    heads = np.maximum.accumulate(np.where(word_starts.reshape(-1), np.arange(predicted.size), 0))
    inner = heads != np.arange(predicted.size)
    whole = predicted[inner] == predicted[heads[inner]]
    if not whole.all() or not predicted[inner].any():
        raise ValueError(
            "the whole-word collator of this version of transformers does not select whole words "
            "here; there is nothing to compare ours with. Type --only token_64x128"
        )
