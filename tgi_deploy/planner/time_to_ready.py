"""How long a deployment takes to answer, phase by phase, from bytes and rates.

Rates are decimal MB/s. Typical figures from public start-up logs and the instance's own limits; deadlines are three
times what is expected, never below a floor, so that a slow day is no failure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tgi_deploy.planner.types import Candidate, InstanceType

_LAUNCH_S: Final = 40.0
_BOOT_S: Final = 90.0
_REGISTRY_MB_S: Final = 150.0
_UNPACK_FACTOR: Final = 0.5  # the packed image is about half of what lies on disk
_HUB_MB_S: Final = 400.0
_NVME_MB_S: Final = 1500.0
_DEFAULT_EBS_MB_S: Final = 125.0
_NETWORK_SHARE: Final = 0.6
_SHARD_START_S: Final = 15.0
_WARM_UP_S: Final = 45.0
_TOKENIZER_S: Final = 5.0
_SLACK: Final = 3.0

_FLOOR_S: Final = {
    "launching": 300.0,
    "booting": 420.0,
    "pulling": 600.0,
    "downloading": 600.0,
    "loading": 300.0,
    "warming_up": 300.0,
    "ready": 60.0,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class PhaseEstimate:
    """Seconds a phase should take, and after which it counts as failed."""

    phase: str
    expected_s: float
    deadline_s: float


def estimate(candidate: Candidate) -> tuple[PhaseEstimate, ...]:
    """Every phase from the launch to the first answer, in order."""
    hardware, storage = candidate.offer.instance_type, candidate.storage
    network_mb_s = (hardware.network_gbps or 1.0) * 125 * _NETWORK_SHARE
    root_mb_s = hardware.ebs_burst_mb_s or hardware.ebs_baseline_mb_s or _DEFAULT_EBS_MB_S
    image_mb, weights_mb = storage.image_bytes / 1e6, storage.weights_bytes / 1e6
    weights_disk_mb_s = _NVME_MB_S if storage.weights_on_nvme else min(root_mb_s, _DEFAULT_EBS_MB_S)
    expected = {
        "launching": _LAUNCH_S,
        "booting": _BOOT_S,
        "pulling": image_mb * _UNPACK_FACTOR / min(_REGISTRY_MB_S, network_mb_s)
        + image_mb / min(root_mb_s, _DEFAULT_EBS_MB_S),
        "downloading": weights_mb / min(_HUB_MB_S, network_mb_s, weights_disk_mb_s),
        "loading": _SHARD_START_S + _load_s(hardware, weights_mb, weights_disk_mb_s),
        "warming_up": _WARM_UP_S,
        "ready": _TOKENIZER_S,
    }
    return tuple(
        PhaseEstimate(phase=phase, expected_s=seconds, deadline_s=max(_FLOOR_S[phase], _SLACK * seconds))
        for phase, seconds in expected.items()
    )


def _load_s(hardware: InstanceType, weights_mb: float, disk_mb_s: float) -> float:
    """Just downloaded weights are read from the page cache when they fit in half of the memory."""
    cached = weights_mb * 1e6 < hardware.ram_bytes / 2
    return weights_mb / (_NVME_MB_S if cached else disk_mb_s)
