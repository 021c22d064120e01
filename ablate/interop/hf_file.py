"""A `config.json` of transformers -> a config object, or an error that says what to change in it.

Only classes that have a masked-LM form and see both sides are taken, and only keys that the class
reads: transformers keeps any other key without a word, so a typo would train the default. Whether a
class reads a key is seen in its fields and in the source of its module, because some (DeBERTa-v2's
`share_att_key`) are no fields. Nothing is downloaded.
"""

from __future__ import annotations

import difflib
import inspect
import json
import re
import sys
from functools import lru_cache
from pathlib import Path
from typing import Any

EXAMPLE = "encoder.hf_config=configs/deberta.json"
OF_A_CHECKPOINT = (  # say nothing about the encoder
    "_name_or_path", "architectures", "transformers_version", "dtype", "torch_dtype", "id2label",
    "label2id", "problem_type", "_attn_implementation", "use_cache", "return_dict",
    "output_hidden_states", "output_attentions", "tie_word_embeddings", "finetuning_task",
    "classifier_dropout", "classifier_dropout_prob", "seq_classif_dropout", "qa_dropout",
    "classifier_pooling", "pooler_dropout", "quantization_config",
)  # fmt: skip
_LEFT_OVER = (  # in files of the hub, read by no class any more
    "attn_implementation", "auto_map", "directionality", "down_scale_factor", "gap_size",
    "gradient_checkpointing", "net_structure_type", "num_labels", "num_memory_blocks",
    "output_past", "pooler_fc_size", "pooler_num_attention_heads", "pooler_num_fc_layers",
    "pooler_size_per_head", "pooler_type", "task_specific_params", "tie_weights_", "xla_device",
)  # fmt: skip
_IMPORTED = "ablate"  # model_type of what `ablate.interop import` writes


def read(given: str | None) -> Any:
    """FILE or DIR/config.json -> a config object of transformers.

    Raises:
        ValueError: no such file, no such class, or one that is no encoder of text.
    """
    if not given:
        raise ValueError(
            "encoder.kind=hf needs a config.json of transformers with a model_type; type for "
            f"example {EXAMPLE}"
        )
    path = Path(given).expanduser()
    path = path / "config.json" if path.is_dir() else path
    if not path.is_file():
        raise ValueError(
            f"encoder.hf_config={given}: there is no file {path}; type {EXAMPLE}, a file or a "
            "folder with a config.json (nothing is downloaded)"
        )
    return _read(str(path), path.read_text(encoding="utf-8", errors="replace"))


@lru_cache(maxsize=16)
def _read(path: str, text: str) -> Any:
    try:
        values = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(
            f"encoder.hf_config={path} is not JSON ({error}); type {EXAMPLE}"
        ) from None
    if not isinstance(values, dict) or not isinstance(values.get("model_type"), str):
        raise ValueError(
            f'encoder.hf_config={path} names no model_type; add for example "model_type": "bert"'
        )
    found = config_class(values["model_type"], path)
    try:
        config = found.from_dict(values)
    except Exception as error:  # transformers checks values in many ways
        raise ValueError(
            f"encoder.hf_config={path}: {found.__name__} refuses it: "
            f"{said(error)}; change the file, or type {EXAMPLE}"
        ) from None
    _refuse_other_models(config, path)
    _refuse_unread(values, config, path)
    return config


def config_class(model_type: str, path: str = "") -> Any:
    """The config class of transformers of that name.

    Raises:
        ValueError: there is none; the message names near ones.
    """
    from transformers import CONFIG_MAPPING

    if model_type == _IMPORTED:
        folder = Path(path).parent
        raise ValueError(
            f"encoder.hf_config={path} is of a folder that `python -m ablate.interop import` "
            f"wrote, no file of transformers; type encoder=pretrained encoder.path={folder}"
        )

    if model_type not in CONFIG_MAPPING:
        near = difflib.get_close_matches(model_type, list(CONFIG_MAPPING), n=3, cutoff=0.5)
        raise ValueError(
            f"encoder.hf_config={path}: model_type={model_type} is unknown to transformers; "
            f"write for example {' or '.join(near) or 'bert'} in the file"
        )
    return CONFIG_MAPPING[model_type]


def _refuse_other_models(config: Any, path: str) -> None:
    from transformers import MODEL_FOR_MASKED_LM_MAPPING, MODEL_MAPPING

    what = None
    if getattr(config, "is_encoder_decoder", False):
        what = "an encoder-decoder"
    elif getattr(config, "is_decoder", False):
        what = "set up as a decoder (is_decoder=true)"
    elif type(config) not in MODEL_FOR_MASKED_LM_MAPPING:
        what = "without a masked-LM form: a decoder, or a model of something else than text"
    elif type(config) not in MODEL_MAPPING:
        what = "without a plain encoder class"
    if what:
        raise ValueError(
            f"encoder.hf_config={path}: model_type={config.model_type} is {what}; a masked-LM arm "
            "needs an encoder that sees both sides, such as bert, roberta, albert, electra, "
            "deberta-v2, mobilebert, distilbert or modernbert"
        )
    if not isinstance(getattr(config, "hidden_size", None), int):
        raise ValueError(
            f"encoder.hf_config={path}: {type(config).__name__} has no hidden_size; type {EXAMPLE}"
        )
    if getattr(config, "attention_type", None) == "block_sparse":
        raise ValueError(
            f"encoder.hf_config={path}: attention_type=block_sparse turns itself off for good at "
            'the first short row; write "attention_type": "original_full"'
        )


def _refuse_unread(values: dict[str, Any], config: Any, path: str) -> None:
    known = read_names(config)
    absolute = values.get("position_embedding_type") in (None, "absolute")
    accepted = {*known, *OF_A_CHECKPOINT, *_LEFT_OVER, *["position_embedding_type"] * absolute}
    ours = sorted(known.difference(OF_A_CHECKPOINT, _LEFT_OVER))
    unread = []
    for name in [name for name in values if name not in accepted]:
        near = difflib.get_close_matches(name, ours, n=3, cutoff=0.73)
        what = f"write {' or '.join(near)} for it" if near else "delete it"
        what = "absolute is all it has" if name == "position_embedding_type" else what
        unread.append(f"{name}={json.dumps(values[name])} ({what})")
    if unread:
        raise ValueError(
            f"encoder.hf_config={path}: nothing in {model_class(config).__name__} of this "
            f"transformers reads {', '.join(unread)}; change the file, what has no effect is no arm"
        )


def read_names(config: Any) -> frozenset[str]:
    """Names in a file that its class reads: fields, their other names, and what else it asks for.

    `getattr(config, "share_att_key", False)` in the class's module counts as reading.
    """
    config_type, model_type = type(config), model_class(config)
    fields = set(inspect.signature(config_type.__init__).parameters) | {"model_type"}
    fields |= set(getattr(config_type, "__dataclass_fields__", ()))
    fields |= set(getattr(config_type, "attribute_map", {}))
    source = inspect.getsource(sys.modules[model_type.__module__])
    asked = re.findall(r"""config\.([a-z]\w*)|getattr\(\s*[\w.]*config, ["'](\w+)["']""", source)
    return frozenset(fields | {name for pair in asked for name in pair if name}) - {"self"}


def model_class(config: Any) -> Any:
    """The class of the encoder without a head."""
    from transformers import MODEL_MAPPING

    found = MODEL_MAPPING[type(config)]
    return found[0] if isinstance(found, tuple) else found


def said(error: Exception) -> str:
    """An error of transformers on one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
