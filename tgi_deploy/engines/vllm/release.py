"""Releases of vLLM, from `profiles/engines/vllm/`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tgi_deploy.engines.release_files import ReleaseFile
from tgi_deploy.values.base import decode
from tgi_deploy.values.engine import Release

NAME: Final = "vllm"
KEY_VARIABLE: Final = "VLLM_API_KEY"


class VllmRelease(Release, frozen=True, kw_only=True):
    """A release of vLLM.

    `model_by_flag`: its entry point takes the model by flag, not as first argument. `env` are the container's
    variables. `guarded_routes` are the path prefixes that an API key protects.
    """

    model_by_flag: bool
    env: Mapping[str, str]
    metrics_path: str
    request_counters: tuple[str, ...]
    queued: str
    running: str
    kv_used: str
    guarded_routes: tuple[str, ...]
    open_inference_routes: tuple[str, ...]

    @property
    def reserved_env(self) -> frozenset[str]:
        return frozenset({*self.env, KEY_VARIABLE})


def read_release(version: str, documents: Mapping[str, Any]) -> VllmRelease:
    """Return one release with everything it inherits. Raises InputError `bad_profile` or `missing_profile`."""
    file = ReleaseFile(NAME, version, documents)
    return decode(file.fields(), VllmRelease, file.where)
