"""What the catalog knows of a machine: its accelerators, and the images that it can pull."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

from tgi_deploy.catalog.catalog import Catalog
from tgi_deploy.catalog.store import Store
from tgi_deploy.engines.tgi import Tgi
from tgi_deploy.errors import InputError
from tgi_deploy.values.base import Frozen

if TYPE_CHECKING:
    from tgi_deploy.values.engine import Release

_PROXY_BYTES: Final = 110_000_000  # unpacked


class Hardware(Frozen, frozen=True, kw_only=True):
    """Empty without GPUs and for unknown types. `memory_bytes` is per GPU, `card_name` the name in nvidia-smi."""

    accelerator: str = ""
    card_name: str = ""
    gpu_count: int = 0
    memory_bytes: int = 0
    nvme: bool = False


@cache
def hardware_of(instance_type: str) -> Hardware:
    try:
        found = Catalog.open().instance_type(instance_type)
    except InputError:
        return Hardware()
    if found.accelerator.compute_capability is None:
        return Hardware(nvme=found.nvme_bytes > 0)
    return Hardware(
        accelerator=found.accelerator.name,
        card_name=found.accelerator.driver_name or found.accelerator.name,
        gpu_count=found.accelerator_count,
        memory_bytes=found.memory_bytes_per_accelerator,
        nvme=found.nvme_bytes > 0,
    )


@cache
def proxy_image() -> str:
    """Return the image that answers over TLS before an engine."""
    named = Store.behind().json("aws/tls.json")
    return f"{named['image']}@{named['digest']}"


@cache
def release_bytes(version: str) -> int:
    """Return the unpacked size of a release's image."""
    return Catalog.open(engines=(Tgi(),)).release(version).image_bytes


@cache
def image_sizes() -> dict[str, int]:
    """Return the unpacked sizes of the engine's images and of the proxy's."""
    return {proxy_image(): _PROXY_BYTES, **{release.image: release.image_bytes for release in _releases()}}


@cache
def images_of_root() -> frozenset[str]:
    """Return the engine's images that only root can start."""
    return frozenset(release.image for release in _releases() if release.needs_root)


@cache
def _releases() -> tuple[Release, ...]:
    catalog = Catalog.open(engines=(Tgi(),))
    return tuple(catalog.release(version) for version in catalog.release_versions())
