"""The hardware of a machine, from the catalog, for nvidia-smi, docker and the stub engine."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Final

from tgi_deploy.catalog.catalog import Catalog
from tgi_deploy.catalog.store import Store
from tgi_deploy.engines.tgi import Tgi
from tgi_deploy.errors import InputError

_MIB: Final = 1024 * 1024
_PROXY_BYTES: Final = 110_000_000  # unpacked


@dataclass(frozen=True, kw_only=True, slots=True)
class Hardware:
    """`memory_bytes` is per GPU, `card_name` the name in nvidia-smi.

    Empty for types without GPUs, or unknown to the catalog.
    """

    accelerator: str = ""
    card_name: str = ""
    gpu_count: int = 0
    memory_bytes: int = 0
    compute_capability: str = ""
    nvme: bool = False

    @property
    def memory_mib(self) -> int:
        return self.memory_bytes // _MIB


def hardware_of(instance_type: str) -> Hardware:
    try:
        found = Catalog.open().instance_type(instance_type)
    except InputError:
        return Hardware()
    capability = found.accelerator.compute_capability
    if capability is None:
        return Hardware(nvme=found.nvme_bytes > 0)
    return Hardware(
        accelerator=found.accelerator.name,
        card_name=found.accelerator.driver_name or found.accelerator.name,
        gpu_count=found.accelerator_count,
        memory_bytes=found.memory_bytes_per_accelerator,
        compute_capability=f"{capability[0]}.{capability[1]}",
        nvme=found.nvme_bytes > 0,
    )


def image_bytes_of(image: str) -> int | None:
    """Return the size of an engine's image, or of the proxy's; None for an unknown image or tag."""
    return _PROXY_BYTES if image == proxy_image() else _image_sizes().get(image)


@cache
def proxy_image() -> str:
    """Return the image that answers over TLS before an engine."""
    image: str = Store.behind().json("aws/tls.json")["image"]
    return image


def repositories() -> frozenset[str]:
    return frozenset(image.rpartition(":")[0] for image in _image_sizes())


@cache
def _image_sizes() -> dict[str, int]:
    catalog = Catalog.open(engines=(Tgi(),))
    releases = [catalog.release(version) for version in catalog.release_versions()]
    return {release.image: release.image_bytes for release in releases}
