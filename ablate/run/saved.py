"""A run's folder, or a folder of weights -> its model and tokenizer, ready to be asked or exported.

No corpus is opened and nothing is trained. A run's record names its pretraining, whose weights are
taken: fine-tuned weights are not kept. The tokenizer is the one whose hash the record has - beside
the weights, in the cache, at the path of the settings - or made again as the run made it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ablate.config.schema import Settings
from ablate.inputs.pairs import LOSSES, loss_name
from ablate.interop.checkpoint import WEIGHTS, check_written, open_source, read_state
from ablate.tracking.record import read_record

_HINT = (
    "give a run (runs/single/NAME or runs/pretrained/FINGERPRINT), or a folder that "
    "`python -m ablate.interop` or transformers wrote"
)


@dataclass
class Saved:
    """A model with its masked-LM head, in evaluation mode on the CPU, float32."""

    model: Any
    encoder: Any  # EncoderConfig, or what stands for it where the class is transformers'
    kind: str  # native or hf
    objective: str
    pair_loss: str | None
    tokenizer: Any
    seen_max_length: int | None  # of the rows that it was trained on, None where nobody knows


def open_saved(path: str | Path) -> Saved:
    """Load what is in `path`.

    Raises:
        ValueError: nothing of ours is there, or it is not finished.
    """
    place = Path(path).expanduser()
    if not place.is_dir():
        raise ValueError(f"{path} is no folder; {_HINT}")
    record = read_record(place)
    if record is None:
        if not (place / "config.json").is_file():
            raise ValueError(f"{path} holds no run and no config.json; {_HINT}")
        return _open_folder(place)
    return _open_run(place, record)


def _open_folder(place: Path) -> Saved:
    from ablate.tokens import tokenizer

    source = open_source(place)
    if source.tokenizer_file is None:
        raise ValueError(f"{place} has no tokenizer.json; put the one of its weights there")
    found = tokenizer.load(source.tokenizer_file)
    model = _native(source.encoder, source.pair_loss)
    _fill(model, source.load(), place)
    return Saved(model, source.encoder, "native", "mlm", source.pair_loss, found, None)


def _open_run(place: Path, record: dict[str, Any]) -> Saved:
    pretrained, single = place, place
    if "pretraining" in record:
        pretrained = place.parent.parent / "pretrained" / record["pretraining"]
        record = read_record(pretrained) or {}
    else:
        single = _a_run_of(place)
    weights = pretrained / WEIGHTS
    if record.get("status") != "complete" or not weights.is_file():
        state = record.get("status") or "missing"
        raise ValueError(
            f"the pretraining of {place} is {state} ({pretrained}); the command that began it "
            "continues it"
        )
    check_written(pretrained, record.get("weights"))
    identity = record["identity"]
    settings = _settings(single / "config.yaml")
    tokenizer = _tokenizer(identity["data"]["tokenizer"], pretrained, settings)
    loss = loss_name(nsp=identity["nsp"], sop=identity["sop"])
    kind = identity["encoder"].get("kind", "native")
    model, encoder = _model_of(identity, loss)
    _fill(model, read_state(pretrained), pretrained)
    return Saved(
        model, encoder, kind, identity["objective"]["name"], loss, tokenizer,
        identity["input_format"]["max_length"],
    )  # fmt: skip


def _a_run_of(pretrained: Path) -> Path:
    """A run that used this pretraining: it has the settings. The folder itself if there is none."""
    for file in sorted((pretrained.parent.parent / "single").glob("*/record.json")):
        if (read_record(file.parent) or {}).get("pretraining") == pretrained.name:
            return file.parent
    return pretrained


def _settings(file: Path) -> Settings | None:
    """A run's settings as they were resolved: not judged again by rules of a later day."""
    if not file.is_file():
        return None
    from omegaconf import OmegaConf

    found: Any = OmegaConf.to_object(
        OmegaConf.merge(OmegaConf.structured(Settings), OmegaConf.load(file))
    )
    return found


def _model_of(identity: dict[str, Any], loss: str | None) -> tuple[Any, Any]:
    """The model that the record describes, whatever the files of its settings say by now."""
    from ablate.encoder.config import EncoderConfig

    if identity["encoder"].get("kind", "native") == "hf":
        return _of_transformers(identity, loss)
    try:
        encoder = EncoderConfig(**identity["encoder"])
    except TypeError as error:
        raise ValueError(f"the record is of another version of the encoder: {error}") from None
    return _native(encoder, loss), encoder


def _of_transformers(identity: dict[str, Any], loss: str | None) -> tuple[Any, Any]:
    from ablate.interop import hf_config, hf_encoder

    name = identity["machine"]["attention_backend"]
    encoder = hf_config.from_identity(identity["encoder"], name)
    backend = hf_config.HFBackend(name, name, "the one of the record")
    classes = len(LOSSES[loss]) if loss else 0
    return hf_encoder.build(encoder, backend, pair_classes=classes, seed_of=len), encoder


def _native(encoder: Any, loss: str | None) -> Any:
    from ablate.encoder.heads import MaskedLanguageModel

    return MaskedLanguageModel(encoder, _backend(), len(LOSSES[loss]) if loss else 0)


def _backend() -> Any:
    import torch

    from ablate.encoder.backends import resolve

    return resolve("sdpa", device="cpu", dtype=torch.float32, max_length=512)


def _fill(model: Any, state: dict[str, Any], place: Path) -> None:
    from ablate.encoder.initialization import load_weights

    try:
        load_weights(model, state)
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from None
    model.eval()


def _tokenizer(wanted: str, pretrained: Path, settings: Settings | None) -> Any:
    """The tokenizer with this hash."""
    from ablate.tokens import tokenizer

    for file in _tokenizer_files(pretrained, settings):
        try:
            found = tokenizer.load(file)
        except ValueError:
            continue
        if found.hash == wanted:
            return found
    if settings is not None:
        from ablate.run import arm

        cache = Path(settings.paths.cache_dir).expanduser()
        found = arm.open_tokenizer(settings, arm.open_corpus(settings, cache), cache)
        if found.hash == wanted:
            return found
    raise ValueError(
        f"the tokenizer of {pretrained} (hash {wanted}) is not beside the weights and not in the "
        f"cache; put it there as {pretrained / 'tokenizer.json'}"
    )


def _tokenizer_files(pretrained: Path, settings: Settings | None) -> Iterator[Path]:
    yield pretrained / "tokenizer.json"
    if settings is not None:
        if settings.tokenizer.path:
            yield Path(settings.tokenizer.path)
        cache = Path(settings.paths.cache_dir).expanduser()
        yield from sorted(cache.glob("tokenizers/*/tokenizer.json"))
