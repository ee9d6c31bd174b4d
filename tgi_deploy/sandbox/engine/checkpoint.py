"""Which weights `--model-id` and `--quantize` mean, from the catalog instead of the hub."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from tgi_deploy.errors import InputError
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


class Models(Protocol):
    """The part of the catalog the stand-in reads models from."""

    def resolve(self, model: str) -> Profile: ...
    def profile_names(self) -> tuple[str, ...]: ...


class EngineCatalog(Models, Protocol):
    """The part of the catalog the stand-in reads."""

    def release(self, version: str) -> Release: ...
    def accelerator(self, name: str) -> Accelerator: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Checkpoint:
    """What `--model-id` names. `weights` is how they are stored, whatever `--quantize` makes of them."""

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
    def commit(self) -> str:
        """The commit hash the hub would name; made up, but always the same, where the catalog has none."""
        return self.model.revision or made_up_hash(self.model_id)

    def files(self) -> tuple[str, ...]:
        count = max(1, math.ceil(self.stored_bytes / _FILE_BYTES))
        if count == 1:
            return ("model.safetensors",)
        return tuple(f"model-{index:05d}-of-{count:05d}.safetensors" for index in range(1, count + 1))


def made_up_hash(text: str) -> str:
    return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


def find_checkpoint(models: Models, release: TgiRelease, model_id: str) -> Checkpoint | None:
    """The checkpoint, None where the hub would have no such repository."""
    if "/" not in model_id and not Path(model_id).is_dir():
        return None
    try:
        profile = models.resolve(model_id)
    except InputError:
        return _published_copy(models, release, model_id)
    return Checkpoint(model_id=model_id, profile=profile, model=profile.model, weights=stored_weights(profile, release))


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
    """The model as wide as a copy's own config says."""
    if width is None:
        return model
    wider = width - model.intermediate_size
    more = 3 * model.layers * model.hidden_size * wider
    return replaced(model, intermediate_size=width, parameters=model.parameters + more)


def _profiles(models: Models) -> Iterator[Profile]:
    for name in models.profile_names():
        yield models.resolve(name)


def served_weights(checkpoint: Checkpoint, release: TgiRelease, quantize: str | None) -> Weights:
    """How the weights end up in memory. Problems with the pair are the shard's to report."""
    if quantize is None or checkpoint.weights.name != UNQUANTIZED:
        return checkpoint.weights
    return quantized_on_load(quantize, release)


def hub_token(environ: Mapping[str, str]) -> str | None:
    names = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_API_TOKEN")
    return next((environ[name] for name in names if environ.get(name)), None)
