"""Our tokenizer -> the files that transformers' AutoTokenizer loads, giving the rows of our runs.

Ours adds no special tokens and reads "[MASK]" in a text as text; theirs does both. So the exported
file gets a template ([CLS] A [SEP], and B [SEP] with token type 1) and the special tokens marked as
such; the mask token swallows the blank before it, which a vocabulary of ` word` pieces needs.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from ablate.tokens.tokenizer import Tokenizer

_ROLES = ("pad", "unk", "cls", "sep", "mask")


def tokenizer_files(
    tokenizer: Tokenizer, *, max_length: int, token_types: bool
) -> dict[str, dict[str, Any]]:
    """File name -> its JSON.

    Args:
        tokenizer: ours.
        max_length: tokens of the longest row that the model takes.
        token_types: whether the model takes `token_type_ids`.
    """
    special = {role: getattr(tokenizer, f"{role}_token_id") for role in _ROLES}
    names = {role: tokenizer.id_to_token(i) or "" for role, i in special.items() if i >= 0}
    data = json.loads(tokenizer.file.read_text(encoding="utf-8"))
    data |= {"truncation": None, "padding": None}
    data["post_processor"] = _template(names, special)
    data["added_tokens"] = _added(data["added_tokens"], names, special)
    inputs = ["input_ids", *(["token_type_ids"] if token_types else []), "attention_mask"]
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": max_length,
        "model_input_names": inputs,
        "clean_up_tokenization_spaces": False,
        **{f"{role}_token": name for role, name in names.items()},
    }
    return {
        "tokenizer.json": data,
        "tokenizer_config.json": settings,
        "special_tokens_map.json": {f"{role}_token": name for role, name in names.items()},
    }


def keep_tokenizer(tokenizer: Tokenizer, folder: Path) -> None:
    """Put the tokenizer beside weights as it is: `tokenizers.load(folder)` has the same hash."""
    names = {
        f"{role}_token": tokenizer.id_to_token(getattr(tokenizer, f"{role}_token_id"))
        for role in _ROLES
        if getattr(tokenizer, f"{role}_token_id") >= 0
    }
    text = json.dumps(names, ensure_ascii=False, indent=2)
    (folder / "special_tokens_map.json").write_text(text + "\n", encoding="utf-8")
    copy = folder / "tokenizer.json"
    if not (copy.exists() and copy.samefile(tokenizer.file)):
        shutil.copyfile(tokenizer.file, copy)


def _template(names: dict[str, str], special: dict[str, int]) -> dict[str, Any]:
    def token(role: str, kind: int) -> dict[str, Any]:
        return {"SpecialToken": {"id": names[role], "type_id": kind}}

    def text(name: str, kind: int) -> dict[str, Any]:
        return {"Sequence": {"id": name, "type_id": kind}}

    single = [token("cls", 0), text("A", 0), token("sep", 0)]
    return {
        "type": "TemplateProcessing",
        "single": single,
        "pair": [*single, text("B", 1), token("sep", 1)],
        "special_tokens": {
            names[role]: {"id": names[role], "ids": [special[role]], "tokens": [names[role]]}
            for role in ("cls", "sep")
        },
    }


def _added(
    given: list[dict[str, Any]], names: dict[str, str], special: dict[str, int]
) -> list[dict[str, Any]]:
    """The added tokens with ours among them, in the order of their ids."""
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    by_id = {entry["id"]: entry for entry in given}
    for role, name in names.items():
        entry = {**plain, **by_id.get(special[role], {}), "special": True, "content": name}
        by_id[special[role]] = {**entry, "id": special[role]}
    by_id[special["mask"]]["lstrip"] = True
    return [by_id[i] for i in sorted(by_id)]
