"""A folder of weights, transformers' or our own -> `Source`: what it is, and its weights as ours.

Read are: a transformers folder of BERT, RoBERTa or ModernBERT; what `ablate.interop import` wrote;
and a finished pretraining, `runs/pretrained/<fingerprint>`, or a run that names one. Opening one
reads its config and the names of its weights, no weight, and imports no torch where the folder is
ours.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ablate.encoder.config import EncoderConfig

if TYPE_CHECKING:
    from torch import Tensor

OURS = "ablate"  # model_type of what `import` writes
HF_TYPES = ("bert", "modernbert", "roberta", "xlm-roberta", "camembert")
WEIGHTS = "model.safetensors"
_SHARDS = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
_PAIR_LOSSES = {(True, False): "nsp", (False, True): "sop", (True, True): "nsp_sop"}
_LM_HEADS = {"bert": "cls.predictions.", "modernbert": "head."}  # lm_head. in the others
_PAIR_CLASSIFIER, _POOLER = "cls.seq_relationship.", "bert.pooler."


@dataclass(frozen=True)
class Source:
    """An encoder with a masked-LM head in a folder.

    `pair_loss` names the loss that trained its pair head (`nsp` for BERT's), None without one.
    """

    folder: Path
    family: str  # ablate, or the model_type of transformers
    encoder: EncoderConfig
    pair_loss: str | None
    details: Mapping[str, Any] = field(default_factory=dict, compare=False)

    @property
    def tokenizer_file(self) -> Path | None:
        file = self.folder / "tokenizer.json"
        return file if file.is_file() else None

    @functools.cached_property
    def weights_hash(self) -> str:
        """16 hexadecimal digits of the bytes of the weights' files."""
        return hash_of_weights(self.folder)

    def load(self) -> dict[str, Tensor]:
        """The weights under our names, float32, on the CPU.

        Raises:
            ValueError: missing or unexpected names, all of them listed.
        """
        check_written(self.folder, self.details.get("weights"))
        state = {name: value.float() for name, value in read_state(self.folder).items()}
        if self.family == OURS:
            return state
        if self.pair_loss is None:  # a pooler that no classifier belongs to was not trained
            state = {name: v for name, v in state.items() if _POOLER not in name}
        if self.family != "bert":
            state = {name: v for name, v in state.items() if ".pooler." not in name}
        return _module(self.family).state_dict_from_hf(state, self.encoder)


def hash_of_weights(folder: Path) -> str:
    """16 hexadecimal digits of the bytes of the weights' files in a folder."""
    digest = hashlib.blake2b(digest_size=8)
    for file in weight_files(folder):
        with open(file, "rb") as opened:
            while chunk := opened.read(1 << 24):
                digest.update(chunk)
    return digest.hexdigest()


def check_written(folder: Path, wanted: str | None) -> None:
    """Hold weights against the hash in their record; None where it has none (older ones).

    Raises:
        ValueError: they are not those that were written.
    """
    if wanted is not None and hash_of_weights(folder) != wanted:
        raise ValueError(
            f"the weights in {folder} are damaged, their bytes are not those that were written: "
            "put the file back, or type the command that trained them, which trains again"
        )


def open_source(path: str | Path) -> Source:
    """What is in the folder.

    Raises:
        ValueError: no such folder, no weights, or a model that is none of ours.
    """
    folder = Path(path).expanduser()
    if not folder.is_dir():
        raise ValueError(
            f"{path} is no folder; give one that holds config.json and {WEIGHTS}: a transformers "
            "folder, what `python -m ablate.interop import` wrote, or runs/pretrained/FINGERPRINT"
        )
    record = _json(folder / "record.json")
    if record is not None and "pretraining" in record:  # a run: its weights are its pretraining's
        folder = folder.parent.parent / "pretrained" / str(record["pretraining"])
        record = _json(folder / "record.json")
        if record is None:
            raise ValueError(f"{path} is of the pretraining {folder}, which is not there")
    if record is not None and "identity" in record:
        return _from_record(folder, record)
    weight_files(folder)
    config = _json(folder / "config.json")
    if config is None:
        raise ValueError(f"{folder} has no config.json that says what its weights are")
    kind = config.get("model_type")
    if kind == OURS:
        encoder = _encoder(folder, config.get("encoder"))
        return Source(folder, OURS, encoder, config.get("pair_loss"), config)
    if kind not in HF_TYPES:
        raise ValueError(
            f"{folder} holds a model of type {kind}; allowed: {', '.join(HF_TYPES)}. Its class can "
            f"be trained from its config with encoder=hf encoder.hf_config={folder}/config.json"
        )
    hf_config = _hf_config(folder)
    names = weight_names(folder)
    head = _LM_HEADS.get(kind, "lm_head.")
    if not any(f".{head}" in f".{name}" for name in names):
        raise ValueError(
            f"{folder} holds a {kind} without its masked-LM head (no weight is named {head}*); "
            "give one that was saved by a class ...ForMaskedLM or ...ForPreTraining"
        )
    has_pair = kind == "bert" and any(_PAIR_CLASSIFIER in name for name in names)
    try:
        encoder = _module(kind).config_from_hf(hf_config)
    except ValueError as error:
        raise ValueError(
            f"{folder} holds a {kind} that this project's encoder does not express ({error}); its "
            f"class can be trained with encoder=hf encoder.hf_config={folder}/config.json"
        ) from None
    return Source(folder, kind, encoder, "nsp" if has_pair else None, hf_config.to_dict())


def _hf_config(folder: Path) -> Any:
    from transformers import AutoConfig

    try:
        return AutoConfig.from_pretrained(folder)
    except Exception as error:  # a class of its own for each kind of bad value
        first = str(error).strip().split("\n")[0]
        raise ValueError(
            f"{folder / 'config.json'} is no config of transformers: {first}"
        ) from None


def _from_record(folder: Path, record: Mapping[str, Any]) -> Source:
    identity = record["identity"]
    if record.get("status") != "complete":
        raise ValueError(
            f"the pretraining in {folder} is {record.get('status')}; the command that began it "
            "continues it"
        )
    if identity["encoder"].get("kind", "native") != "native":
        name = identity["encoder"].get("class")
        raise ValueError(
            f"{folder} is of encoder.kind=hf, and weights of {name} are not read as this project's "
            "encoder. python -m ablate.predict asks it as it is; train its class again with "
            "encoder=hf encoder.hf_config=FILE"
        )
    weight_files(folder)
    loss = _PAIR_LOSSES.get((identity["nsp"], identity["sop"]))
    details = {**identity, "weights": record.get("weights")}
    return Source(folder, OURS, _encoder(folder, identity["encoder"]), loss, details)


def _encoder(folder: Path, arguments: Any) -> EncoderConfig:
    try:
        encoder = EncoderConfig(**arguments)
    except TypeError as error:
        raise ValueError(f"{folder} describes no encoder of this version: {error}") from None
    if encoder.causal:
        raise ValueError(
            f"{folder} was trained left to right (objective=clm), and what starts from a folder is "
            "a masked-LM encoder; give one of objective=mlm, or train the decoder from scratch: "
            "encoder=modernbert objective=clm encoder.causal=true"
        )
    return encoder


def _module(kind: str) -> Any:
    if kind == "bert":
        from ablate.interop import bert as module
    elif kind == "modernbert":
        from ablate.interop import modernbert as module  # type: ignore[no-redef]
    else:
        from ablate.interop import roberta as module  # type: ignore[no-redef]
    return module


def weight_files(folder: Path) -> list[Path]:
    """The files of the weights, safetensors before pickles.

    Raises:
        ValueError: there are none, or a shard is missing.
    """
    for single, index in zip((WEIGHTS, "pytorch_model.bin"), _SHARDS, strict=True):
        if (folder / single).is_file():
            return [folder / single]
        shards = _json(folder / index)
        if shards is not None:
            files = [folder / name for name in sorted(_shard_names(folder / index, shards))]
            missing = [file.name for file in files if not file.is_file()]
            if missing:
                raise ValueError(f"{folder} lacks {', '.join(missing)} of its weights")
            return files
    raise ValueError(f"{folder} has no weights; looked for {WEIGHTS} and pytorch_model.bin")


def _shard_names(index: Path, shards: Mapping[str, Any]) -> set[str]:
    names = shards.get("weight_map")
    if not isinstance(names, dict) or not all(isinstance(name, str) for name in names.values()):
        raise ValueError(f"{index} has no weight_map of names to files")
    return set(names.values())


def weight_names(folder: Path) -> list[str]:
    """Names of the saved weights; values are read only where the format needs it."""
    from safetensors import SafetensorError, safe_open

    names: list[str] = []
    for file in weight_files(folder):
        if file.suffix != ".safetensors":
            names += list(_read(file))
            continue
        try:
            with safe_open(file, framework="numpy") as opened:
                names += list(opened.keys())
        except SafetensorError as error:
            raise ValueError(f"{file} cannot be read: {error}") from None
    return names


def read_state(folder: Path) -> dict[str, Tensor]:
    """All weights of the folder under the names they were saved with.

    Raises:
        ValueError: a file that cannot be read, or a weight with NaN or infinity in it.
    """
    state: dict[str, Tensor] = {}
    for file in weight_files(folder):
        state.update(_read(file))
    broken = [name for name, value in state.items() if not bool(value.isfinite().all())]
    if broken:
        more = f" and {len(broken) - 5} more" if len(broken) > 5 else ""
        raise ValueError(
            f"weights of {folder} are NaN or infinite: {', '.join(broken[:5])}{more}; give a "
            "folder from before its training diverged"
        )
    return state


def _read(file: Path) -> dict[str, Tensor]:
    import pickle

    import torch
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        if file.suffix == ".safetensors":
            return load_file(file)
        state = torch.load(file, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:  # torch's words advise to run what is in the file
        raise ValueError(
            f"{file} cannot be read: it is damaged, or holds more than weights; save "
            f"model.state_dict() as {WEIGHTS}"
        ) from None
    except (SafetensorError, RuntimeError, EOFError, ValueError) as error:
        first = str(error).strip().split("\n")[0]
        raise ValueError(f"{file} cannot be read: {first or type(error).__name__}") from None
    if not isinstance(state, dict) or not all(map(torch.is_tensor, state.values())):
        raise ValueError(f"{file} is no table of names and weights; save model.state_dict() there")
    return state


def _json(file: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise ValueError(f"{file} is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise ValueError(f"{file} is no JSON object but a {type(found).__name__}; it has names")
    return found
