"""Resolves `--model-id` and `--quantize` to weights, from the catalog instead of the hub."""

from __future__ import annotations

import hashlib
import json
import math
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from tgi_deploy.errors import InputError
from tgi_deploy.sandbox.engine.generator import Tokenizer
from tgi_deploy.sandbox.engine.weights import (
    UNQUANTIZED,
    Weights,
    checkpoint_bytes,
    quantized_on_load,
    stored_weights,
)
from tgi_deploy.values.base import replaced
from tgi_deploy.values.model import CheckpointQuantization

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tgi_deploy.engines.tgi.release import TgiRelease
    from tgi_deploy.values.engine import Release
    from tgi_deploy.values.hardware import Accelerator
    from tgi_deploy.values.model import ModelSpec, Profile

_FILE_BYTES: Final = 5_000_000_000
# A placeholder for the model in a folder without a usable config: it is never loaded.
_SOME_SHAPE: Final = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 128, "vocab_size": 600,
    "max_position_embeddings": 2048, "torch_dtype": "float32", "tie_word_embeddings": False,
}  # fmt: skip
_TOKENIZERS: Final = ("tokenizer.json", "tokenizer.model", "tokenizer_config.json")


class Models(Protocol):
    """The part of the catalog with models."""

    def resolve(self, model: str) -> Profile: ...
    def profile_names(self) -> tuple[str, ...]: ...


class EngineCatalog(Models, Protocol):
    """The part of the catalog that the stub server uses."""

    def release(self, version: str) -> Release: ...
    def accelerator(self, name: str) -> Accelerator: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Checkpoint:
    """The checkpoint of `--model-id`. `weights` is their stored format, before `--quantize`."""

    model_id: str
    profile: Profile
    model: ModelSpec
    weights: Weights

    @property
    def stored_bytes(self) -> int:
        return checkpoint_bytes(self.model, self.weights)

    @property
    def is_local(self) -> bool:
        return self.model.local_path is not None

    @property
    def tokenizer(self) -> Tokenizer:
        """Whether prompts begin with a special token; unknown for hub models."""
        own = Path(self.model.local_path or "") / "tokenizer_config.json"
        begins = self.is_local and own.exists() and json.loads(own.read_text("utf-8")).get("add_bos_token") is True
        return Tokenizer(vocab_size=self.model.vocab_size, begins=begins)

    @property
    def has_weights(self) -> bool:
        return any(any(Path(self.model_id).glob(f"*.{kind}")) for kind in ("safetensors", "bin", "pt"))

    @property
    def broken(self) -> str | None:
        """Return the error of a shard that loads this folder, as recorded from 3.3.7."""
        folder = Path(self.model_id)
        if not self.is_local:
            return None
        if not (folder / "config.json").exists():
            return f"RuntimeError: Could not determine model type for {folder} revision None"
        if not any((folder / name).exists() for name in _TOKENIZERS):
            return (
                f"OSError: Can't load tokenizer for '{folder}'. If you were trying to load it from "
                "'https://huggingface.co/models', make sure you don't already have a local directory with the same "
                f"name. Otherwise, make sure '{folder}' is the correct path to a directory containing all relevant "
                "files for a LlamaTokenizerFast tokenizer."
            )
        return None if all(map(_is_whole, folder.glob("*.safetensors"))) else _CUT_OFF

    @property
    def commit(self) -> str:
        """Return the commit hash; if the catalog has none, a made-up but stable one."""
        return self.model.revision or made_up_hash(self.model_id)

    def files(self) -> tuple[str, ...]:
        count = max(1, math.ceil(self.stored_bytes / _FILE_BYTES))
        if count == 1:
            return ("model.safetensors",)
        return tuple(f"model-{index:05d}-of-{count:05d}.safetensors" for index in range(1, count + 1))


_CUT_OFF: Final = (
    "safetensors._safetensors_rust.SafetensorError: Error while deserializing header: incomplete metadata, file not "
    "fully covered"
)


def _is_whole(file: Path) -> bool:
    """Return whether the file has the length given by its header."""
    size = file.stat().st_size
    with file.open("rb") as data:
        length = int.from_bytes(data.read(8), "little")
        header = data.read(min(length, size))
    try:
        ends = [entry["data_offsets"][1] for name, entry in json.loads(header).items() if name != "__metadata__"]
    except ValueError:
        return False
    return size == 8 + length + max(ends, default=0)


def made_up_hash(text: str) -> str:
    return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


def find_checkpoint(models: Models, release: TgiRelease, model_id: str) -> Checkpoint | None:
    """Return the checkpoint; None if the hub would not have the repository."""
    folder = Path(model_id)
    if folder.is_dir():
        return _local(models, release, folder)
    if "/" not in model_id or model_id.startswith("/"):
        return None
    try:
        profile = models.resolve(model_id)
    except InputError:
        return _published_copy(models, release, model_id)
    return Checkpoint(model_id=model_id, profile=profile, model=profile.model, weights=stored_weights(profile, release))


def _local(models: Models, release: TgiRelease, folder: Path) -> Checkpoint:
    """Return the checkpoint of a folder, even a broken one: only shards read its weights."""
    with tempfile.TemporaryDirectory() as scratch:
        config = folder / "config.json"
        text = config.read_text("utf-8") if config.exists() else json.dumps(_SOME_SHAPE)
        (Path(scratch) / "config.json").write_text(text, "utf-8")
        profile = models.resolve(scratch)
    try:
        profile = models.resolve(str(folder))
    except InputError:
        profile = replaced(profile, model=replaced(profile.model, local_path=str(folder)))
    weights = stored_weights(profile, release)
    return Checkpoint(model_id=str(folder), profile=profile, model=profile.model, weights=weights)


def _published_copy(models: Models, release: TgiRelease, model_id: str) -> Checkpoint | None:
    for profile in _profiles(models):
        for repository in profile.quantized:
            if repository.hub_id == model_id:
                quantization = CheckpointQuantization(
                    method=repository.method, bits=repository.bits, group_size=repository.group_size
                )
                model = replaced(
                    _with_width(profile.model, repository.intermediate_size),
                    hub_id=model_id, quantization=quantization, stored_bytes=None, revision=None, gated=False,
                )  # fmt: skip
                copy = replaced(profile, model=model, quantized=())
                return Checkpoint(model_id=model_id, profile=copy, model=model, weights=stored_weights(copy, release))
    return None


def _with_width(model: ModelSpec, width: int | None) -> ModelSpec:
    """Return the model with the width in the copy's own config."""
    if width is None:
        return model
    wider = width - model.intermediate_size
    more = 3 * model.layers * model.hidden_size * wider
    return replaced(model, intermediate_size=width, parameters=model.parameters + more)


def _profiles(models: Models) -> Iterator[Profile]:
    for name in models.profile_names():
        yield models.resolve(name)


def served_weights(checkpoint: Checkpoint, release: TgiRelease, quantize: str | None) -> Weights:
    """Return the format of the weights in memory. The shard reports problems with it."""
    if quantize is None or checkpoint.weights.name != UNQUANTIZED:
        return checkpoint.weights
    return quantized_on_load(quantize, release)


def hub_token(environ: Mapping[str, str]) -> str | None:
    names = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_API_TOKEN")
    return next((environ[name] for name in names if environ.get(name)), None)
