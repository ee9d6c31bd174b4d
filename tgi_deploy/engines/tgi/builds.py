"""TGI's images for accelerators without CUDA, from `backends.json`: the same release with other kernels.

Plans support a build if the file has its differences; for all other chips the file has the reason why not. The file
describes one version of TGI; plans don't support these images of other versions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from tgi_deploy.values.base import Value, Where, decode, replaced
from tgi_deploy.values.container import HostAccess

if TYPE_CHECKING:
    from tgi_deploy.engines.tgi.release import ModelClass, TgiRelease

BACKENDS: Final = "backends.json"


class Build(Value, frozen=True, kw_only=True):
    """Differences from the CUDA image.

    `release` overrides fields of the release; `quantizations` are the remaining methods with their changes; `lacks` are
    the unsupported model types (`*`: all not in `serves`) with reasons.
    """

    release: Mapping[str, Any]
    quantizations: Mapping[str, Mapping[str, Any]] = {}
    serves: tuple[str, ...] = ()
    lacks: Mapping[str, str] = {}
    host: HostAccess


class Backend(Value, frozen=True, kw_only=True):
    """One of TGI's images."""

    title: str
    image: str | None
    needs: str
    source: str
    planned: bool
    build: Build | None = None


class Support(Value, frozen=True, kw_only=True):
    """The image of a chip. `unproven`: there is no evidence that it works."""

    backend: str | None
    reason: str = ""
    unproven: bool = False
    source: str = ""


class Backends(Value, frozen=True, kw_only=True):
    """The file, for one `version`."""

    collected_at: str = ""
    source: str = ""
    version: str = ""
    backends: Mapping[str, Backend] = {}
    accelerators: Mapping[str, Support] = {}


def read_backends(documents: Mapping[str, Any], folder: str) -> Backends:
    return decode(documents[BACKENDS], Backends, Where(f"{folder}/{BACKENDS}")) if BACKENDS in documents else Backends()


def build_for(release: TgiRelease, chip: str) -> TgiRelease | None:
    """Return the release with the chip's image; None if plans use only the CUDA image."""
    known, version = release.backends.accelerators.get(chip), release.backends.version
    backend = release.backends.backends.get(known.backend or "") if known else None
    if known is None or backend is None or backend.build is None or known.unproven or version != release.version:
        return None
    build = backend.build
    methods = {name: replaced(release.quantizations[name], **change) for name, change in build.quantizations.items()}
    return replaced(
        release, image=backend.image, title=backend.title, host=build.host, quantizations=methods,
        model_classes={name: _class(known, build) for name, known in release.model_classes.items()},
        **build.release,
    )  # fmt: skip


def _class(known: ModelClass, build: Build) -> ModelClass:
    why = build.lacks.get(known.model_type)
    if why is None and known.model_type not in build.serves:
        why = build.lacks.get("*")
    return known if why is None or known.backend == "refused" else replaced(known, backend="refused", reason=why)


def why_not(release: TgiRelease, chip: str) -> str:
    """Return why plans don't support a chip without CUDA."""
    known, version = release.backends.accelerators.get(chip), release.backends.version
    if known is None:
        return f"TGI {release.version} has no image for it"
    backend = release.backends.backends[known.backend] if known.backend else None
    if backend is None:
        return known.reason.removesuffix(".")
    if backend.build is not None and version != release.version:
        return f"plans support TGI's {backend.title} only in release {version}"
    image = f" ({backend.image})" if backend.image else ""
    return f"not planned on the {backend.title}{image}: {known.reason} It needs {backend.needs}"
