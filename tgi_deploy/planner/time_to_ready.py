"""How long a deployment takes to answer, phase by phase, from bytes and rates.

Rates are decimal MB/s. A root volume writes and reads at the lower of gp3's own 125 MB/s and what the instance
gives its volumes: the burst rate while its credit lasts, about 30 minutes of it, then the baseline (87.5 MB/s on a
g5.xlarge). Typical figures are from public start-up logs; deadlines are three times what is expected, never below a
floor, so that a slow day is no failure. `stall_s` is how long a phase may go without visible progress: three times
its largest single step, never below what the engine itself lets pass in silence. `limit_s` bounds what a phase gets
that is past its deadline and still makes progress: a slow link is no reason to throw away what has come.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tgi_deploy.planner.types import Candidate
    from tgi_deploy.values.hardware import InstanceType

_LAUNCH_S: Final = 40.0
_BOOT_S: Final = 90.0
_REGISTRY_MB_S: Final = 150.0
_UNPACK_FACTOR: Final = 0.5  # the packed image is about half of what lies on disk
_LARGEST_LAYER: Final = 0.5  # of the image: an image pull shows nothing while one layer is unpacked
_HUB_MB_S: Final = 400.0
_FILE_MB: Final = 5000.0  # checkpoints are split into files of 5 GB; a download reports whole files
_NVME_MB_S: Final = 1500.0
_GP3_MB_S: Final = 125.0  # a gp3 volume's throughput unless more is bought
_BURST_S: Final = 1800.0
_NETWORK_SHARE: Final = 0.6
_SHARD_START_S: Final = 15.0
_PREFILL_S: Final = 20.0
_GRAPH_S: Final = 4.0
_TOKENIZER_S: Final = 5.0
_SLACK: Final = 3.0
_STRETCH: Final = 3.0  # times the deadline, for a phase that makes progress

_ONLY_RENTED: Final = frozenset({"launching", "booting"})

_FLOOR_S: Final = {
    "launching": 300.0,
    "booting": 420.0,
    "pulling": 600.0,
    "downloading": 600.0,
    "loading": 300.0,
    "warming_up": 300.0,
    "ready": 60.0,
}
# Without progress for so long something hangs: the hub's client retries five times, ranks wait for one another.
_SILENT_S: Final = {
    "launching": 300.0,
    "booting": 300.0,
    "pulling": 300.0,
    "downloading": 600.0,
    "loading": 300.0,
    "warming_up": 300.0,
    "ready": 60.0,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class PhaseEstimate:
    """Seconds a phase should take, after which it counts as failed, and how many without progress are a stall.

    `limit_s` is the deadline of a phase that goes on making progress, `amount_mb` what comes over the network in it.
    """

    phase: str
    expected_s: float
    deadline_s: float
    stall_s: float = 0.0
    limit_s: float = 0.0
    amount_mb: float = 0.0


def estimate(candidate: Candidate) -> tuple[PhaseEstimate, ...]:
    """Every phase from the launch to the first answer, in order."""
    expected = _expected_s(candidate)
    steps = _largest_steps_s(candidate, expected)
    amounts_mb = {
        "pulling": packed_mb(candidate.storage.image_bytes),
        "downloading": candidate.storage.weights_bytes / 1e6,
    }
    found = []
    for phase, seconds in expected.items():
        deadline = max(_FLOOR_S[phase], _SLACK * seconds)
        silent = max(_SILENT_S[phase], _SLACK * steps.get(phase, 0.0))
        found.append(
            PhaseEstimate(
                phase=phase,
                expected_s=seconds,
                deadline_s=deadline,
                stall_s=min(deadline, silent),
                limit_s=_STRETCH * deadline,
                amount_mb=amounts_mb.get(phase, 0.0),
            )
        )
    return tuple(found)


def to_go_through(candidate: Candidate) -> tuple[PhaseEstimate, ...]:
    """The phases that happen: a machine of one's own is up already."""
    owned = candidate.offer.market == "owned"
    return tuple(item for item in estimate(candidate) if not (owned and item.phase in _ONLY_RENTED))


def ready_deadline_s(candidate: Candidate) -> int:
    """How long the engine may take until it answers: all phases at their latest, in whole seconds."""
    return math.ceil(sum(item.deadline_s for item in estimate(candidate)))


def packed_mb(image_bytes: int) -> float:
    """What the pull of an image brings over the network; `image_bytes` is its size on disk."""
    return image_bytes / 1e6 * _UNPACK_FACTOR


def _expected_s(candidate: Candidate) -> Mapping[str, float]:
    hardware, storage = candidate.offer.instance_type, candidate.storage
    network_mb_s = (hardware.network_gbps or 1.0) * 125 * _NETWORK_SHARE
    image_mb, weights_mb = storage.image_bytes / 1e6, storage.weights_bytes / 1e6
    volume = _Volume(hardware=hardware)
    unpacking = volume.takes_s(image_mb)
    arriving = weights_mb / min(_HUB_MB_S, network_mb_s)
    if storage.weights_on_nvme:
        stored = weights_mb / _NVME_MB_S
        read = stored
    else:
        stored = volume.takes_s(weights_mb, already_mb=image_mb)
        read = volume.takes_s(weights_mb, already_mb=image_mb + weights_mb)
    if weights_mb * 1e6 < hardware.ram_bytes / 2:  # just downloaded weights are read from the page cache
        read = weights_mb / _NVME_MB_S
    return {
        "launching": _LAUNCH_S,
        "booting": _BOOT_S,
        "pulling": packed_mb(storage.image_bytes) / min(_REGISTRY_MB_S, network_mb_s) + unpacking,
        "downloading": max(arriving, stored),
        "loading": _SHARD_START_S + read,
        "warming_up": _PREFILL_S + _GRAPH_S * len(candidate.engine.settings.cuda_graphs),
        "ready": _TOKENIZER_S,
    }


def _largest_steps_s(candidate: Candidate, expected: Mapping[str, float]) -> Mapping[str, float]:
    """The longest time that nothing need be heard of a phase: one layer, one file, one rank's weights."""
    files = max(1.0, candidate.storage.weights_bytes / 1e6 / _FILE_MB)
    return {
        "pulling": _LARGEST_LAYER * expected["pulling"],
        "downloading": expected["downloading"] / files,
        "loading": expected["loading"],
        "warming_up": expected["warming_up"],
    }


@dataclass(frozen=True, kw_only=True, slots=True)
class _Volume:
    """The root volume as the instance lets it be used; unknown limits are gp3's own."""

    hardware: InstanceType

    def takes_s(self, megabytes: float, *, already_mb: float = 0.0) -> float:
        """Seconds for so many more, `already_mb` of the burst having been used up."""
        baseline = self.hardware.ebs_baseline_mb_s
        burst = self.hardware.ebs_burst_mb_s or baseline
        fast, slow = min(burst or _GP3_MB_S, _GP3_MB_S), min(baseline or burst or _GP3_MB_S, _GP3_MB_S)
        bursting = min(megabytes, max(0.0, _BURST_S * fast - already_mb))
        return bursting / fast + (megabytes - bursting) / slow
