"""Resolves `--model-id` to a checkpoint, from the catalog instead of the hub."""

from __future__ import annotations

import hashlib
import json
import math
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tgi_deploy.errors import InputError
from tgi_deploy.sandbox.engine.generator import Tokenizer
from tgi_deploy.sandbox.engine.memory import Weights, checkpoint_bytes, stored_weights
from tgi_deploy.sandbox.engine.tracebacks import reason
from tgi_deploy.values.base import Frozen, replaced
from tgi_deploy.values.model import CheckpointQuantization

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tgi_deploy.catalog.catalog import Catalog
    from tgi_deploy.engines.tgi.release import TgiRelease
    from tgi_deploy.values.model import ModelSpec, Profile

_FILE_BYTES: Final = 5_000_000_000
# A placeholder for a model without a usable config: it is never loaded.
_SOME_SHAPE: Final = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 256, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 128, "vocab_size": 600,
    "max_position_embeddings": 4096, "torch_dtype": "float32", "tie_word_embeddings": False,
}  # fmt: skip
_TOKENIZERS: Final = ("tokenizer.json", "tokenizer.model", "tokenizer_config.json")


class Checkpoint(Frozen, frozen=True, kw_only=True):
    """The checkpoint of `--model-id`. `weights`: the stored format; `exists`: the hub, or this computer, has it."""

    model_id: str
    profile: Profile
    weights: Weights
    exists: bool = True

    @property
    def model(self) -> ModelSpec:
        return self.profile.model

    @property
    def stored_bytes(self) -> int:
        return checkpoint_bytes(self.model, self.weights)

    @property
    def is_local(self) -> bool:
        return self.model.local_path is not None

    @property
    def tokenizer(self) -> Tokenizer:
        """Return the tokenizer. Whether prompts begin with a special token is unknown for hub models."""
        own = Path(self.model_id) / "tokenizer_config.json"
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
            return reason("no_config", folder=folder)
        if not any((folder / name).exists() for name in _TOKENIZERS):
            return reason("no_tokenizer", folder=folder)
        return None if all(map(_is_whole, folder.glob("*.safetensors"))) else reason("cut_off")

    @property
    def commit(self) -> str:
        """Return the commit hash; if the catalog has none, a made-up but stable one."""
        return self.model.revision or made_up_hash(self.model_id)

    def files(self) -> tuple[str, ...]:
        count = max(1, math.ceil(self.stored_bytes / _FILE_BYTES))
        if count == 1:
            return ("model.safetensors",)
        return tuple(f"model-{index:05d}-of-{count:05d}.safetensors" for index in range(1, count + 1))


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


def find_checkpoint(models: Catalog, release: TgiRelease, model_id: str) -> Checkpoint:
    profile = _local(models, Path(model_id)) if Path(model_id).is_dir() else _published(models, model_id)
    found = profile or _placeholder(models, json.dumps(_SOME_SHAPE))
    weights = stored_weights(found.model, release)
    return Checkpoint(model_id=model_id, profile=found, weights=weights, exists=profile is not None)


def _placeholder(models: Catalog, config: str) -> Profile:
    """Return the profile of a folder with nothing but this config."""
    with tempfile.TemporaryDirectory() as scratch:
        (Path(scratch) / "config.json").write_text(config, "utf-8")
        profile = models.resolve(scratch)
    return replaced(profile, model=replaced(profile.model, local_path=None))


def _local(models: Catalog, folder: Path) -> Profile:
    """Return the profile of a folder, even a broken one: only shards read its weights."""
    try:
        return models.resolve(str(folder))
    except InputError:
        config = folder / "config.json"
        profile = _placeholder(models, config.read_text("utf-8") if config.exists() else json.dumps(_SOME_SHAPE))
        return replaced(profile, model=replaced(profile.model, local_path=str(folder)))


def _published(models: Catalog, model_id: str) -> Profile | None:
    """Return the profile of a repository, or of a quantized copy of one; None if the hub would not have it."""
    if "/" not in model_id or model_id.startswith("/"):
        return None
    try:
        return models.resolve(model_id)
    except InputError:
        every = map(models.resolve, models.profile_names())
        copies = ((profile, copy) for profile in every for copy in profile.quantized if copy.hub_id == model_id)
        found = next(copies, None)
    if found is None:
        return None
    profile, copy = found
    model = profile.model
    wider = (copy.intermediate_size or model.intermediate_size) - model.intermediate_size
    model = replaced(
        model, intermediate_size=model.intermediate_size + wider,
        parameters=model.parameters + 3 * model.layers * model.hidden_size * wider,
        hub_id=model_id, stored_bytes=None, revision=None, gated=False,
        quantization=CheckpointQuantization(method=copy.method, bits=copy.bits, group_size=copy.group_size),
    )  # fmt: skip
    return replaced(profile, model=model, quantized=())


def hub_token(environ: Mapping[str, str]) -> str | None:
    names = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_API_TOKEN")
    return next((environ[name] for name in names if environ.get(name)), None)
