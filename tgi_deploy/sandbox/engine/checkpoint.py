"""Which weights `--model-id` and `--quantize` mean, from the catalogue instead of the hub."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from tgi_deploy.engines.tgi.schemes import schemes
from tgi_deploy.errors import InputError
from tgi_deploy.values.engine import UNQUANTIZED, Scheme
from tgi_deploy.values.model import CheckpointQuantization
from tgi_deploy.values.sizes import download_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tgi_deploy.engines.tgi.release import TgiRelease
    from tgi_deploy.values.engine import Release
    from tgi_deploy.values.hardware import Accelerator
    from tgi_deploy.values.model import ModelSpec, Profile

_FILE_BYTES: Final = 5_000_000_000


class Models(Protocol):
    """The part of the catalogue the stand-in reads models from."""

    def resolve(self, model: str) -> Profile: ...
    def profile_names(self) -> tuple[str, ...]: ...


class EngineCatalog(Models, Protocol):
    """The part of the catalogue the stand-in reads."""

    def release(self, version: str) -> Release: ...
    def accelerator(self, name: str) -> Accelerator: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Checkpoint:
    """What `--model-id` names. `scheme` is how its weights are stored, before the launcher's own wishes."""

    model_id: str
    profile: Profile
    model: ModelSpec
    scheme: Scheme

    @property
    def stored_bytes(self) -> int:
        return download_bytes(self.model, self.scheme)

    @property
    def is_local(self) -> bool:
        return self.model.local_path is not None

    @property
    def commit(self) -> str:
        """The commit hash the hub would name; made up, but always the same, where the catalogue has none."""
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
    return Checkpoint(model_id=model_id, profile=profile, model=profile.model, scheme=_stored_scheme(profile, release))


def _stored_scheme(profile: Profile, release: TgiRelease) -> Scheme:
    """As it is on the hub: the checkpoint's own method comes first, or 16 bits do."""
    return schemes(profile, release, "auto")[0]


def _published_copy(models: Models, release: TgiRelease, model_id: str) -> Checkpoint | None:
    for profile in _profiles(models):
        for repository in profile.quantized:
            if repository.hub_id == model_id:
                quantization = CheckpointQuantization(
                    method=repository.method, bits=repository.bits, group_size=repository.group_size
                )
                model = replace(
                    profile.model,
                    hub_id=model_id, quantization=quantization, stored_bytes=None, revision=None, gated=False,
                )  # fmt: skip
                copy = replace(profile, model=model, quantized=())
                scheme = _stored_scheme(copy, release)
                return Checkpoint(model_id=model_id, profile=copy, model=model, scheme=scheme)
    return None


def _profiles(models: Models) -> Iterator[Profile]:
    for name in models.profile_names():
        yield models.resolve(name)


def served_scheme(checkpoint: Checkpoint, release: TgiRelease, quantize: str | None) -> Scheme:
    """How the weights end up in memory. Problems with the pair are the shard's to report."""
    if quantize is None or checkpoint.scheme.name != UNQUANTIZED:
        return checkpoint.scheme
    rule = release.quantizations.get(quantize)
    return Scheme(
        name=quantize, hub_id=checkpoint.model_id, bits=16.0 if rule is None else rule.bits, lost_bits=0.0,
        prequantized=False, method=rule.method if rule else None, known=rule is not None and rule.on_the_fly,
        cuda_graphs=rule is None or rule.cuda_graphs,
    )  # fmt: skip


def hub_token(environ: Mapping[str, str]) -> str | None:
    names = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_API_TOKEN")
    return next((environ[name] for name in names if environ.get(name)), None)
