"""The machine as the container sees it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from tgi_deploy.values.hardware import Accelerator

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tgi_deploy.engines.tgi.release import TgiRelease


class Fault(StrEnum):
    OOM_LOAD = "oom-load"
    OOM_WARMUP = "oom-warmup"
    BAD_FLAG = "bad-flag"
    GATED = "gated"
    DISK_FULL = "disk-full"
    NETWORK = "network"
    SHM_TOO_SMALL = "shm-too-small"
    NCCL_HANG = "nccl-hang"
    HANG_SHARD = "hang-shard"
    OOM_SERVING = "oom-serving"
    CRASH_AFTER_READY = "crash-after-ready"
    SLOW_DOWNLOAD = "slow-download"
    WRONG_MODEL = "wrong-model"
    NO_CHAT_TEMPLATE = "no-chat-template"
    OVERLOADED = "overloaded"


_DEVICE_VARIABLES: Final = ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "ZE_AFFINITY_MASK")
_EVERY_DEVICE: Final = frozenset({"all", "void"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Host:
    """The machine. `memory_bytes` is per accelerator; `data` is the folder mounted at `/data`, or None."""

    accelerator: Accelerator
    gpus: int
    memory_bytes: int
    data: Path | None = None

    @property
    def on_cpu(self) -> bool:
        """Whether no GPU is visible; the engine starts anyway."""
        return self.gpus == 0 or self.accelerator.compute_capability is None


# A machine without a GPU.
NO_ACCELERATOR: Final = Accelerator(
    name="none", vendor="none", architecture="none", compute_capability=None, memory_bytes=0, bandwidth_gb_s=0.0,
    fp16_tflops=None, fp8_tflops=None, int8_tops=None, bf16=False, interconnect="none",
)  # fmt: skip


def image_environment(release: TgiRelease) -> dict[str, str]:
    """Return the image's variables and those that `--gpus` adds."""
    return {"PORT": "80", "NVIDIA_VISIBLE_DEVICES": "all", **release.cache_env}


def devices_found(environ: Mapping[str, str], host: Host, release: TgiRelease) -> int | None:
    """Return its count; None if no variable names devices (TGI `launcher/src/main.rs`, pull request 3346)."""
    for variable in _DEVICE_VARIABLES:
        named = environ.get(variable)
        if named is None:
            continue
        if named in _EVERY_DEVICE and variable == "NVIDIA_VISIBLE_DEVICES":
            return host.gpus if release.counts_all_devices else 1
        return len(named.split(","))
    return None
